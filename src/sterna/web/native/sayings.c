/* What elements say by their attributes alone: metas, areas, frames, media, the language of the page. */
#include "reader.h"

static const Slice NOTHING = {(const byte *)"", 0};

static void set_once(Reader *reader, Buffer *buffer, Slice value) {
    if (!buffer->size) append(reader, buffer, value);
}

/* The text of an attribute as the tree's reader cuts it; in the reader's scratch. */
static Slice shown(Reader *reader, Slice written, size_t characters) {
    Text *text = &reader->scratch;
    text->kept.size = 0;
    text->has_gap = false;
    add_text(reader, text, written);
    return cut((Slice){text->kept.data, text->kept.size}, characters);
}

/* Where a refresh leads: after a number, what parts it from the rest, and perhaps "url=". */
static Slice refresh_of(Reader *reader, Slice content) {
    const byte *at = content.data, *end = at + content.size;
    for (const byte *c = at; c < end && *c != '='; c++)
        if (*c >= 0x80) DOUBT(reader); /* of other alphabets Python knows the digits and spaces */
    while (at < end && gap_at(at, end)) at++;
    const byte *number = at;
    while (at < end && ((*at >= '0' && *at <= '9') || *at == '.')) at++;
    const byte *gap = at;
    while (at < end && (gap_at(at, end) == 1 || *at == ';' || *at == ',')) at++;
    if (number == gap || gap == at) return NOTHING;
    const byte *url = at;
    if (end - at >= 3 && lower(at[0]) == 'u' && lower(at[1]) == 'r' && lower(at[2]) == 'l') {
        url += 3;
        while (url < end && gap_at(url, end)) url++;
        if (url < end && *url == '=') {
            for (url++; url < end && gap_at(url, end);) url++;
            if (url == end) DOUBT(reader); /* a URL that is called "url=", or none */
            at = url;
        }
    }
    if (at == end) return NOTHING;
    if (*at != '"' && *at != '\'') return (Slice){at, (size_t)(end - at)};
    const byte *close = memchr(at + 1, *at, (size_t)(end - at - 1));
    return (Slice){at + 1, (size_t)((close ? close : end) - at - 1)};
}

static void read_meta(Reader *reader) {
    Slice name = attribute(reader, A_name), pragma = attribute(reader, A_pragma),
          content = attribute(reader, A_content);
    if (is_word(name, slice_of("robots")) || is_word(name, reader->agent)) {
        if (++reader->robots_count > MOST_ROBOTS) DOUBT(reader);
        append_part(reader, &reader->buffers[B_robots], content);
    } else if (is_word(pragma, slice_of("content-language"))) {
        append_part(reader, &reader->buffers[B_content_languages], content);
    } else if (is_word(pragma, slice_of("refresh"))) {
        add_link(reader, refresh_of(reader, content), NOTHING, slice_of("refresh"));
    }
    if (!(reader->wants & WANTS_DESCRIPTION)) return;
    if (!name.size) name = attribute(reader, A_property);
    if (is_word(name, slice_of("description")))
        set_once(reader, &reader->buffers[B_description], shown(reader, content, DESCRIPTION_CHARACTERS));
    else if (is_word(name, slice_of("og:description")))
        set_once(reader, &reader->buffers[B_shared_description],
                 shown(reader, content, DESCRIPTION_CHARACTERS));
}

static void read_area(Reader *reader) {
    Slice rel = rel_of(reader, attribute(reader, A_rel));
    Slice alt = shown(reader, attribute(reader, A_alt), LINK_TEXT_CHARACTERS);
    add_link(reader, attribute(reader, A_href), alt, rel.size ? rel : slice_of("area"));
}

static void read_root(Reader *reader) {
    if (reader->has_html) DOUBT(reader); /* a second one adds its attributes to the first */
    reader->has_html = true;
    Slice language = attribute(reader, A_lang);
    append(reader, &reader->buffers[B_language], language.size ? language : attribute(reader, A_xml_lang));
}

void read_element(Reader *reader, uint32_t element) {
    switch (element) {
        case E_area: read_area(reader); break;
        case E_audio:
        case E_video:
        case E_track:
            add_media(reader, "media", attribute(reader, A_src));
            add_media(reader, "img", attribute(reader, A_poster));
            break;
        case E_base: set_once(reader, &reader->buffers[B_base], attribute(reader, A_href)); break;
        case E_html: read_root(reader); break;
        case E_iframe: add_link(reader, attribute(reader, A_src), NOTHING, slice_of("iframe")); break;
        case E_img:
        case E_source:
            add_media(reader, element == E_img ? "img" : "media", attribute(reader, A_src));
            add_srcset(reader);
            break;
        case E_link: read_link_element(reader); break;
        case E_meta: read_meta(reader); break;
        case E_script: add_media(reader, "script", attribute(reader, A_src)); break;
        default: break;
    }
}
