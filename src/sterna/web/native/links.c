/* The links of a page: to other pages, each target once, and to what the page shows or runs. */
#include "reader.h"

static const char *const MEDIA_RELS[] = {"css",   "font",   "icon",   "img",
                                         "media", "script", "srcset", "stylesheet"};
static const char *const ICON_RELS[] = {"icon", "apple-touch-icon", "apple-touch-icon-precomposed",
                                        "mask-icon"};
static const char *const PAGE_RELS[] = {
    "alternate", "amphtml",   "appendix",   "author",
    "bookmark",  "canonical", "chapter",    "contents",
    "copyright", "first",     "glossary",   "help",
    "home",      "index",     "last",       "license",
    "next",      "prev",      "previous",   "privacy-policy",
    "section",   "start",     "subsection", "terms-of-service",
    "toc",       "top",       "up",
};
static const struct {
    const char *as, *rel;
} PRELOADED[] = {
    {"font", "font"},
    {"image", "img"},
    {"script", "script"},
    {"style", "stylesheet"},
};
#define COUNT(list) (sizeof(list) / sizeof *(list))

static bool is_among(Slice word, const char *const *words, size_t count) {
    for (size_t at = 0; at < count; at++)
        if (equals(word, words[at])) return true;
    return false;
}

/* --- links to pages --- */

/* SipHash-1-3, as Python's own dictionaries have it: who writes the page does not know the seed. */
static uint64_t rotate(uint64_t value, int bits) { return value << bits | value >> (64 - bits); }

static void mix(uint64_t v[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

static uint64_t hash_of(const uint64_t seed[2], Slice data) {
    uint64_t v[4] = {seed[0] ^ 0x736F6D6570736575, seed[1] ^ 0x646F72616E646F6D, seed[0] ^ 0x6C7967656E657261,
                     seed[1] ^ 0x7465646279746573};
    uint64_t word;
    size_t at = 0;
    for (; at + 8 <= data.size; at += 8) {
        memcpy(&word, data.data + at, 8);
        v[3] ^= word;
        mix(v);
        v[0] ^= word;
    }
    word = (uint64_t)data.size << 56;
    for (int shift = 0; at < data.size; at++, shift += 8) word |= (uint64_t)data.data[at] << shift;
    v[3] ^= word;
    mix(v);
    v[0] ^= word;
    v[2] ^= 0xFF;
    for (int round = 0; round < 3; round++) mix(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static Slice word_at(const Links *links, uint32_t at, uint32_t size) {
    return (Slice){links->words.data + at, size};
}

uint32_t *slot_of(const Links *links, Slice href) {
    uint32_t mask = links->slot_count - 1, slot = (uint32_t)hash_of(links->seed, href) & mask;
    for (; links->slots[slot]; slot = (slot + 1) & mask) {
        const Link *link = &links->links[links->slots[slot] - 1];
        if (link->href_size == href.size && !memcmp(links->words.data + link->href, href.data, href.size))
            break;
    }
    return &links->slots[slot];
}

/* Makes room for one more; the table of slots is at most half full. */
static void make_room(Reader *reader, Links *links) {
    if (links->count < links->room) return;
    uint32_t room = links->room ? 2 * links->room : 256;
    Link *grown = realloc(links->links, room * sizeof *grown);
    if (!grown) DOUBT(reader);
    links->links = grown;
    uint32_t *slots = calloc(2 * room, sizeof *slots);
    if (!slots) DOUBT(reader);
    free(links->slots);
    links->slots = slots;
    links->slot_count = 2 * room;
    links->room = room;
    for (uint32_t at = 0; at < links->count; at++)
        *slot_of(links, word_at(links, grown[at].href, grown[at].href_size)) = at + 1;
}

static uint32_t kept(Reader *reader, Slice word) {
    Buffer *words = &reader->links.words;
    if (words->size + word.size > UINT32_MAX) DOUBT(reader);
    uint32_t at = (uint32_t)words->size;
    append(reader, words, word);
    return at;
}

void add_link(Reader *reader, Slice href, Slice text, Slice rel) {
    Links *links = &reader->links;
    const byte *mark = memchr(href.data, '#', href.size);
    if (mark) href.size = (size_t)(mark - href.data);
    href = stripped(href);
    if (!href.size) return;
    if (!(reader->wants & WANTS_TEXT)) text.size = 0;
    bool is_weak = contains(rel, "nofollow");
    make_room(reader, links);
    uint32_t *slot = slot_of(links, href);
    if (!*slot) {
        if (links->count == MOST_HREFS) return;
        *slot = ++links->count;
        links->links[*slot - 1] = (Link){
            .href = kept(reader, href),
            .href_size = (uint32_t)href.size,
            .text = kept(reader, text),
            .text_size = (uint32_t)text.size,
            .rel = kept(reader, rel),
            .rel_size = (uint32_t)rel.size,
            .is_weak = is_weak,
        };
        return;
    }
    Link *known = &links->links[*slot - 1];
    if (!known->text_size && text.size) {
        known->text = kept(reader, text);
        known->text_size = (uint32_t)text.size;
    }
    if (known->is_weak) {
        known->rel = kept(reader, rel);
        known->rel_size = (uint32_t)rel.size;
        known->is_weak = is_weak;
    }
}

void free_links(Links *links) {
    free(links->words.data);
    free(links->links);
    free(links->slots);
}

/* --- rels --- */

/* In lower case, with one space between words; it lies in reader->rel. */
static Slice plain_rel(Reader *reader, Slice written) {
    Buffer *rel = &reader->buffers[B_rel];
    rel->size = 0;
    reserve(reader, rel, written.size + 1);
    bool has_gap = false;
    for (size_t at = 0; at < written.size; at++) {
        byte c = written.data[at];
        if (c >= 0x80) DOUBT(reader); /* only Python knows its lower case */
        if (gap_at(&c, &c + 1)) {
            has_gap = true;
            continue;
        }
        if (has_gap && rel->size) rel->data[rel->size++] = ' ';
        has_gap = false;
        rel->data[rel->size++] = lower(c);
    }
    return (Slice){rel->data, rel->size};
}

Slice rel_of(Reader *reader, Slice written) {
    Slice rel = plain_rel(reader, written);
    return is_among(rel, MEDIA_RELS, COUNT(MEDIA_RELS)) ? (Slice){rel.data, 0} : rel;
}

typedef struct {
    bool is_stylesheet, is_icon, is_module, is_preload, is_page;
} Rels;

static Rels rels_of(Slice rel) {
    Rels found = {0};
    const byte *at = rel.data, *end = rel.data + rel.size;
    while (at < end) {
        const byte *gap = memchr(at, ' ', (size_t)(end - at));
        Slice word = {at, (size_t)((gap ? gap : end) - at)};
        found.is_stylesheet |= equals(word, "stylesheet");
        found.is_icon |= is_among(word, ICON_RELS, COUNT(ICON_RELS));
        found.is_module |= equals(word, "modulepreload");
        found.is_preload |= equals(word, "preload");
        found.is_page |= is_among(word, PAGE_RELS, COUNT(PAGE_RELS));
        at += word.size + 1;
    }
    return found;
}

static bool equals_in_any_case(Slice one, const char *other) {
    for (size_t at = 0; at < one.size; at++)
        if (!other[at] || lower(one.data[at]) != (byte)other[at]) return false;
    return !other[one.size];
}

static const char *media_rel(Rels rels, Slice as) {
    if (rels.is_stylesheet) return "stylesheet";
    if (rels.is_icon) return "icon";
    if (rels.is_module) return "script";
    for (size_t at = 0; rels.is_preload && at < COUNT(PRELOADED); at++)
        if (equals_in_any_case(as, PRELOADED[at].as)) return PRELOADED[at].rel;
    return NULL;
}

void read_link_element(Reader *reader) {
    Slice rel = plain_rel(reader, attribute(reader, A_rel)), type = attribute(reader, A_type);
    Rels rels = rels_of(rel);
    const char *media = media_rel(rels, attribute(reader, A_as));
    if (media)
        add_media(reader, media, attribute(reader, A_href));
    else if (rels.is_page && !contains(type, "json") && !contains(type, "oembed"))
        add_link(reader, attribute(reader, A_href), (Slice){(const byte *)"", 0}, rel);
}

/* --- links to media --- */

static void put_media(Reader *reader, const char *kind, Slice href) {
    if (++reader->media_count > MOST_MEDIA) DOUBT(reader);
    append_part(reader, &reader->buffers[B_media], slice_of(kind));
    append_part(reader, &reader->buffers[B_media], href);
}

void add_media(Reader *reader, const char *kind, Slice href) {
    Slice start = stripped(href);
    start.size = start.size < 5 ? start.size : 5;
    if (start.size && !equals_in_any_case(start, "data:")) put_media(reader, kind, href);
}

void add_srcset(Reader *reader) {
    Slice candidates = attribute(reader, A_srcset);
    if (!candidates.size) return;
    put_media(reader, "sizes", attribute(reader, A_sizes));
    put_media(reader, "srcset", candidates);
}
