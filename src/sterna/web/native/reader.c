/* Reads a page in one pass: what each tag and each text means where it stands. */
#include "reader.h"

/* --- markup that says nothing --- */

/* Where the next markup begins: "<" and a letter, "/", "!" or "?". */
static const byte *next_markup(const byte *at, const byte *end) {
    for (; (at = memchr(at, '<', (size_t)(end - at))); at++) {
        if (end - at < 2) break;
        byte next = at[1];
        if ((byte)((next | 32) - 'a') < 26 || next == '!' || next == '?') return at;
        if (next == '/' && end - at >= 3) return at;
    }
    return end;
}

/* Passes over a comment, a doctype, an instruction, or a tag without a name; false if it is none of these. */
static bool skip_remark(Reader *reader) {
    const byte *at = reader->at, *end = reader->end;
    byte next = at[1];
    if (next == '!' && end - at >= 4 && at[2] == '-' && at[3] == '-') {
        reader->at = end_of_comment(at + 4, end);
        return true;
    }
    bool is_nameless = next == '/' && (byte)((at[2] | 32) - 'a') >= 26;
    if (next != '!' && next != '?' && !is_nameless) return false;
    if (current(reader) == E_svg) DOUBT(reader); /* it may be character data */
    const byte *close = memchr(at + 2, '>', (size_t)(end - at - 2));
    reader->at = close ? close + 1 : end;
    /* A silent tag in it may have been taken out before the tree was built. */
    if (memchr(at + 1, '<', (size_t)(reader->at - at - 1))) DOUBT(reader);
    return true;
}

/* Passes over what has no markup within, and over its end tag; returns it. */
static Slice skip_raw(Reader *reader, uint32_t element) {
    const byte *at = reader->at, *end = end_of_raw(reader, element);
    reader->at = end;
    Tag tag;
    if (end < reader->end && !read_tag(reader, &tag)) reader->at = reader->end;
    return (Slice){at, (size_t)(end - at)};
}

/* --- tags --- */

/* What has no markup within; its text counts for some. */
static void read_raw(Reader *reader, uint32_t element) {
    Slice raw = skip_raw(reader, element);
    bool is_title = element == E_title, is_shown = element == E_textarea || element == E_xmp;
    /* Silent tags may have been taken out of it before the tree was built. */
    bool is_open = reader->at == reader->end;
    if ((is_shown || (is_title && is_open)) && memchr(raw.data, '<', raw.size)) DOUBT(reader);
    if (is_title && !reader->muted && !reader->title.kept.size)
        add_text(reader, &reader->title, decoded(reader, &reader->rooms[0], raw, false));
    if (is_shown && !reader->muted) {
        reader->text.pieces++;
        reader->text.bytes += raw.size;
        add_text(reader, &reader->text,
                 element == E_xmp ? raw : decoded(reader, &reader->rooms[0], raw, false));
    }
    part(&reader->text);
}

/* What a template holds is not shown: passes over it, also over templates in it. */
static void skip_template(Reader *reader) {
    part(&reader->text);
    for (int depth = 1; depth;) {
        reader->at = next_markup(reader->at, reader->end);
        if (reader->at == reader->end) return;
        if (skip_remark(reader)) continue;
        Tag tag;
        if (!read_tag(reader, &tag)) {
            reader->at = reader->end;
            return;
        }
        uint32_t flags = flags_of(tag.element);
        if (tag.element == E_template) depth += tag.is_end ? -1 : 1;
        /* Where markup is read in another way, or another kind of tree is built. */
        else if ((flags & DOUBTFUL) || tag.element == E_svg || tag.element == E_select)
            DOUBT(reader);
        else if ((flags & RAW) && !tag.is_end)
            skip_raw(reader, tag.element);
    }
}

static bool is_choice(uint32_t element) {
    return element == E_select || element == E_option || element == E_optgroup;
}

static void pop_if(Reader *reader, uint32_t element) {
    if (current(reader) == element) pop(reader);
}

static void start_in_select(Reader *reader, uint32_t element) {
    if (element != E_option && element != E_optgroup) DOUBT(reader);
    pop_if(reader, E_option);
    if (element == E_optgroup) pop_if(reader, E_optgroup);
    push(reader, element);
}

static void end_in_select(Reader *reader, uint32_t element) {
    if (element == E_select)
        pop_through(reader, E_select);
    else if (element == E_option)
        pop_if(reader, E_option);
    else if (element == E_optgroup) {
        pop_if(reader, E_option);
        pop_if(reader, E_optgroup);
    } else
        DOUBT(reader);
}

static void start_in_drawing(Reader *reader, const Tag *tag) {
    if (tag->element == E_title && !tag->is_closed) {
        const byte *end = end_of_raw(reader, E_title);
        if (memchr(reader->at, '<', (size_t)(end - reader->at))) DOUBT(reader);
        read_raw(reader, E_title);
    } else if (flags_of(tag->element) & SHAPE)
        part(&reader->text);
    else
        DOUBT(reader);
}

static void end_in_drawing(Reader *reader, uint32_t element) {
    if (element == E_svg)
        pop(reader);
    else if (!(flags_of(element) & SHAPE) && element != E_title)
        DOUBT(reader);
}

/* Whether a tag was taken out before the tree was built, or is one that changes neither words nor links. */
static bool is_silent(const Tag *tag, uint32_t flags) {
    return (flags & SILENT) && (!tag->is_odd || (flags & (FORMATTING | VOID)));
}

static void start_silent(Reader *reader, const Tag *tag, uint32_t flags) {
    bool is_in_head = current(reader) == E_noscript && !reader->in_body;
    if (current(reader) == E_svg || is_in_head) DOUBT(reader);
    if (reader->link == LIVE_LINK && !(flags & VOID)) {
        if (tag->is_odd) DOUBT(reader);
        reader->anchor.silent++;
    }
    reader->in_body = true;
}

static void end_silent(Reader *reader, const Tag *tag) {
    /* One that began before the link would end it. */
    if (reader->link == LIVE_LINK && (--reader->anchor.silent < 0 || tag->is_odd)) DOUBT(reader);
}

/* A start tag among the parts of a table. */
static void start_in_frame(Reader *reader, uint32_t element) {
    if (element == E_script || element == E_style)
        read_raw(reader, element);
    else if (element == E_form)
        reader->has_form = true; /* it ends at once */
    else if (element != E_input)
        DOUBT(reader);
}

static void start_in_body(Reader *reader, const Tag *tag, uint32_t flags) {
    uint32_t element = tag->element;
    switch (element) {
        case E_form:
            if (reader->has_form) return;
            reader->has_form = true;
            break;
        case E_button:
            if (is_in_scope(reader, E_button, PLAIN_SCOPE)) DOUBT(reader);
            break;
        case E_li: end_item(reader, true); break;
        case E_dd:
        case E_dt: end_item(reader, false); break;
        case E_table: /* it ends a paragraph, but not on pages without a doctype */
            if (!reader->paragraphs || !is_in_scope(reader, E_p, BUTTON_SCOPE)) break;
            imply_ends(reader, E_p);
            if (current(reader) != E_p) DOUBT(reader);
            pop(reader);
            break;
        case E_option:
        case E_optgroup: DOUBT(reader);
        default: break;
    }
    if (flags & ENDS_P) end_paragraph(reader);
    if (is_heading(element) && is_heading(current(reader)))
        DOUBT(reader); /* silent tags decide whether it ends */
    if (!(flags & (VOID | RAW)) && !(element == E_svg && tag->is_closed)) {
        push(reader, element);
        return;
    }
    if (!(flags & INLINE)) part(&reader->text);
    if (flags & RAW) read_raw(reader, element);
}

static void start_tag(Reader *reader, const Tag *tag) {
    uint32_t element = tag->element, flags = flags_of(element), inside = current(reader);
    if (is_silent(tag, flags)) {
        start_silent(reader, tag, flags);
        return;
    }
    if (flags & DOUBTFUL) DOUBT(reader);
    if (is_choice(inside)) {
        start_in_select(reader, element);
        return;
    }
    if (inside == E_svg) {
        start_in_drawing(reader, tag);
        return;
    }
    if (flags & READ && element != E_a) read_element(reader, element);
    if (element == E_html) return;
    if (!reader->in_body) { /* in the head, a noscript ends at whatever does not belong there */
        if (inside == E_noscript && element != E_link && element != E_meta && element != E_style)
            DOUBT(reader);
        if (element == E_noscript) {
            push(reader, element);
            return;
        }
    }
    if (element == E_template) {
        skip_template(reader);
        return;
    }
    if (flags & TABLE && element != E_table) {
        start_in_table(reader, element);
        return;
    }
    if (is_frame_of_table(inside)) {
        start_in_frame(reader, element);
        return;
    }
    if (element == E_head) return; /* no text can come before it, or it is ignored */
    if (!(flags & HEAD)) reader->in_body = true;
    if (element == E_body) return;
    if (element == E_a) {
        end_link(reader);
        begin_link(reader);
        return;
    }
    start_in_body(reader, tag, flags);
}

/* Ends what is open of this element, and what is open in it. */
static void end_block(Reader *reader, uint32_t element, int scope) {
    if (!is_in_scope(reader, element, scope)) return;
    imply_ends(reader, scope == LIST_SCOPE || element == E_dd || element == E_dt ? element : E_none);
    pop_through(reader, element);
}

static void end_form(Reader *reader) {
    if (!reader->has_form) return;
    reader->has_form = false;
    if (!is_in_scope(reader, E_form, PLAIN_SCOPE)) return; /* it ended where it began, in a table */
    imply_ends(reader, E_none);
    if (current(reader) != E_form) DOUBT(reader);
    pop(reader);
}

static void end_any_heading(Reader *reader) {
    for (int at = reader->depth - 1; at >= 0; at--) {
        uint32_t other = reader->open[at].element;
        if (is_heading(other)) {
            imply_ends(reader, E_none);
            while (!is_heading(current(reader))) pop(reader);
            pop(reader);
            return;
        }
        if (flags_of(other) & SCOPE) return;
    }
}

/* The end of an element without rules of its own. */
static void end_plain(Reader *reader, uint32_t element) {
    for (int at = reader->depth - 1; at >= 0; at--) {
        uint32_t other = reader->open[at].element;
        if (other == element) {
            imply_ends(reader, element);
            while (reader->depth > at) pop(reader);
            return;
        }
        if (flags_of(other) & SPECIAL) return;
    }
}

static void end_in_body(Reader *reader, uint32_t element) {
    switch (element) {
        case E_a: end_link(reader); return;
        case E_p:
            if (reader->paragraphs && is_in_scope(reader, E_p, BUTTON_SCOPE))
                end_paragraph(reader);
            else
                part(&reader->text); /* an empty one */
            return;
        case E_br: part(&reader->text); return;
        case E_li: end_block(reader, element, LIST_SCOPE); return;
        case E_dd:
        case E_dt: end_block(reader, element, PLAIN_SCOPE); return;
        case E_form: end_form(reader); return;
        default: break;
    }
    uint32_t flags = flags_of(element);
    if (is_heading(element))
        end_any_heading(reader);
    else if (flags & (BLOCK | MARKER))
        end_block(reader, element, PLAIN_SCOPE);
    else
        end_plain(reader, element);
}

static void end_tag(Reader *reader, const Tag *tag) {
    uint32_t element = tag->element, flags = flags_of(element), inside = current(reader);
    if (is_silent(tag, flags)) {
        end_silent(reader, tag);
        return;
    }
    if (flags & DOUBTFUL) DOUBT(reader);
    if (inside == E_noscript && !reader->in_body && element != E_noscript) DOUBT(reader);
    if (inside == E_svg)
        end_in_drawing(reader, element);
    else if (is_choice(inside))
        end_in_select(reader, element);
    else if (element == E_body || element == E_html || element == E_head || element == E_template)
        return;
    else if (flags & TABLE)
        end_in_table(reader, element);
    else if (is_frame_of_table(inside)) {
        if (element != E_form) DOUBT(reader);
        end_form(reader);
    } else
        end_in_body(reader, element);
}

/* --- the page --- */

static bool is_blank(Slice text) {
    for (size_t at = 0; at < text.size; at++)
        if (!is_white(text.data[at])) return false;
    return true;
}

static void read_text(Reader *reader, Slice written) {
    Text *text = &reader->text;
    text->pieces++;
    text->bytes += written.size;
    bool is_in_head = !reader->in_body && current(reader) == E_noscript;
    if (is_frame_of_table(current(reader)) || is_in_head) {
        if (!is_blank(written)) DOUBT(reader);
        return;
    }
    if (reader->muted) return;
    if (!reader->in_body) reader->in_body = !is_blank(written);
    if (!(reader->wants & WANTS_TEXT)) return;
    const byte *at = written.data, *end = at + written.size, *mark;
    while (at < end && (mark = memchr(at, '&', (size_t)(end - at)))) {
        byte out[8];
        size_t size = 0, taken = decode_reference(mark, end, false, out, &size);
        add_text(reader, text, (Slice){at, (size_t)(mark - at) + !taken});
        if (taken) add_text(reader, text, (Slice){out, size});
        at = mark + (taken ? taken : 1);
    }
    if (at < end) add_text(reader, text, (Slice){at, (size_t)(end - at)});
}

static void read_page(Reader *reader) {
    while (reader->at < reader->end) {
        const byte *from = reader->at;
        reader->at = next_markup(from, reader->end);
        if (reader->at > from) read_text(reader, (Slice){from, (size_t)(reader->at - from)});
        if (reader->at == reader->end || skip_remark(reader)) continue;
        Tag tag;
        if (!read_tag(reader, &tag)) break;
        if (tag.is_end)
            end_tag(reader, &tag);
        else
            start_tag(reader, &tag);
    }
    while (reader->depth) {
        if (current(reader) == E_a && reader->link == LIVE_LINK) note_link(reader);
        pop(reader);
    }
}

/* --- what comes out --- */

static Slice slice(const Buffer *buffer) { return (Slice){buffer->data, buffer->size}; }

static Slice headings_column(Reader *reader) {
    Buffer *column = &reader->buffers[B_headings];
    const byte *text = reader->text.kept.data;
    for (uint32_t at = 0; at < reader->heading_count; at++) {
        const Heading *heading = &reader->headings[at];
        Slice shown = {text + heading->start, heading->end - heading->start};
        if (shown.size) shown = cut(stripped(shown), HEADING_CHARACTERS);
        if (shown.size) append_part(reader, column, shown);
    }
    return slice(column);
}

static void fill(Reader *reader, Found *found) {
    Links *links = &reader->links;
    const byte *words = links->words.data;
    for (uint32_t at = 0; at < links->count; at++) {
        const Link *link = &links->links[at];
        append_part(reader, &reader->buffers[B_hrefs], (Slice){words + link->href, link->href_size});
        append_part(reader, &reader->buffers[B_texts], (Slice){words + link->text, link->text_size});
        append_part(reader, &reader->buffers[B_rels], (Slice){words + link->rel, link->rel_size});
    }
    *found = (Found){
        .title = cut(slice(&reader->title.kept), TITLE_CHARACTERS),
        .text = slice(&reader->text.kept),
        .language = slice(&reader->buffers[B_language]),
        .content_languages = slice(&reader->buffers[B_content_languages]),
        .base = slice(&reader->buffers[B_base]),
        .robots = slice(&reader->buffers[B_robots]),
        .description = slice(&reader->buffers[B_description]),
        .shared_description = slice(&reader->buffers[B_shared_description]),
        .headings = headings_column(reader),
        .hrefs = slice(&reader->buffers[B_hrefs]),
        .texts = slice(&reader->buffers[B_texts]),
        .rels = slice(&reader->buffers[B_rels]),
        .media = slice(&reader->buffers[B_media]),
    };
}

static void forget_page(Reader *reader) {
    reader->depth = reader->paragraphs = reader->muted = reader->dead_depth = 0;
    reader->link = NO_LINK;
    reader->has_form = reader->has_html = reader->in_body = false;
    reader->robots_count = reader->media_count = reader->heading_count = 0;
    Text *texts[] = {&reader->text, &reader->title};
    for (size_t at = 0; at < 2; at++)
        *texts[at] = (Text){.kept = {texts[at]->kept.data, 0, texts[at]->kept.room}};
    for (int buffer = 0; buffer < B_count; buffer++) reader->buffers[buffer].size = 0;
    reader->links.words.size = 0;
    reader->links.count = 0;
    if (reader->links.slots)
        memset(reader->links.slots, 0, reader->links.slot_count * sizeof *reader->links.slots);
}

Reader *reader_new(uint64_t seed, uint64_t other_seed) {
    Reader *reader = calloc(1, sizeof *reader);
    if (!reader) return NULL;
    reader->links.seed[0] = seed;
    reader->links.seed[1] = other_seed;
    reader->hash_start = (uint32_t)(seed >> 32);
    prepare_elements(reader);
    return reader;
}

void reader_free(Reader *reader) {
    if (!reader) return;
    for (int buffer = 0; buffer < B_count; buffer++) free(reader->buffers[buffer].data);
    Buffer *others[] = {&reader->text.kept, &reader->title.kept, &reader->scratch.kept, &reader->anchor.href,
                        &reader->anchor.rel};
    for (size_t at = 0; at < sizeof others / sizeof *others; at++) free(others[at]->data);
    for (int name = 0; name < A_count; name++) free(reader->rooms[name].data);
    free_links(&reader->links);
    free(reader);
}

/* Reads a page in UTF-8. Returns 0, or the line at which it was in doubt. What was found lies in the reader
   until its next page. */
int reader_read(Reader *reader, const byte *page, size_t size, unsigned wants, const char *agent,
                Found *found) {
    forget_page(reader);
    reader->at = page;
    reader->end = page + size;
    reader->wants = wants;
    reader->agent = slice_of(agent);
    int doubt_at = setjmp(reader->doubts);
    if (doubt_at) return doubt_at;
    if (size > UINT32_MAX / 2 || memchr(page, 0, size)) DOUBT(reader);
    read_page(reader);
    fill(reader, found);
    return 0;
}
