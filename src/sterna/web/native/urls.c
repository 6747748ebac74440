/* Joins plain hrefs to absolute URLs, and makes columns and marks of the links. Whatever takes a parser of
   URLs, Python does: see native/reader.py. */
#include "reader.h"

enum { MOST_LINKS = 10000, MOST_URL_BYTES = 2048, MARK_BYTES = 8 };
enum { HARD = UINT32_MAX };

/* --- which are plain --- */

static bool is_plain_byte(byte c) {
    return (byte)((c | 32) - 'a') < 26 || (byte)(c - '0') < 10 || c == '_' || c == '~' || c == '-' ||
           c == '.';
}

/* Segments of plain characters, none of which begins with a dot; the last one may be empty. */
static bool is_plain_path(Slice path) {
    bool is_first = true;
    for (size_t at = 0; at < path.size; at++) {
        byte c = path.data[at];
        if (c == '/' ? is_first : !is_plain_byte(c) || (is_first && c == '.')) return false;
        is_first = c == '/';
    }
    return true;
}

static bool begins(Slice text, const char *with) {
    size_t size = strlen(with);
    return text.size >= size && !memcmp(text.data, with, size);
}

static Slice from(Slice text, size_t at) { return (Slice){text.data + at, text.size - at}; }

/* A scheme and a hostname in lower case that no parser changes, up to the slash; 0 if it is another one. */
static size_t plain_site(Slice url) {
    size_t at = begins(url, "https://") ? 8 : begins(url, "http://") ? 7 : 0, label = at, dots = 0;
    if (!at) return 0;
    for (; at < url.size && url.data[at] != '/'; at++) {
        byte c = url.data[at];
        if (c == '.') {
            if (at == label) return 0;
            label = at + 1;
            dots++;
        } else if ((byte)(c - 'a') >= 26 && (byte)(c - '0') >= 10 && (c != '-' || at == label))
            return 0;
        /* "xn--" is decoded and checked. */
        if (at - label == 3 && c == '-') return 0;
    }
    /* A last label of digits makes it an address. */
    bool is_name = at > label + 1 && (byte)(url.data[label] - 'a') < 26;
    return dots && is_name && at < url.size ? at : 0;
}

/* --- joining --- */

static void put(Reader *reader, Link *link, Slice begin, const char *glue, Slice end) {
    size_t size = begin.size + strlen(glue) + end.size;
    link->url_size = 0;
    if (size > MOST_URL_BYTES) return;
    Buffer *words = &reader->links.words;
    reserve(reader, words, size); /* before `end` is looked up, which lies in it */
    link->url = (uint32_t)words->size;
    append(reader, words, begin);
    append(reader, words, slice_of(glue));
    append(reader, words, end);
    link->url_size = (uint32_t)size;
}

/* Joins a plain href; false if it is not plain. `folder` is that of the base, without its last slash. */
static bool join_plain(Reader *reader, Link *link, Slice site, Slice folder) {
    Slice href = {reader->links.words.data + link->href, link->href_size};
    size_t own_site = plain_site(href);
    if (own_site) {
        if (!is_plain_path(from(href, own_site + 1))) return false;
        link->url = link->href;
        link->url_size = href.size > MOST_URL_BYTES ? 0 : link->href_size;
        return true;
    }
    if (begins(href, "/")) {
        if (!is_plain_path(from(href, 1))) return false;
        reserve(reader, &reader->links.words, site.size + href.size);
        put(reader, link, site, "", (Slice){reader->links.words.data + link->href, link->href_size});
        return true;
    }
    size_t up = 0;
    while (begins(from(href, up), "../")) {
        up += 3;
        if (folder.size > site.size)
            while (folder.data[--folder.size] != '/') {
            }
    }
    if (up == href.size || !is_plain_path(from(href, up))) return false;
    reserve(reader, &reader->links.words, folder.size + 1 + href.size);
    put(reader, link, folder, "/", from((Slice){reader->links.words.data + link->href, link->href_size}, up));
    return true;
}

/* Joins the plain hrefs; the others are listed for Python, with a NUL behind each. */
int reader_split(Reader *reader, const char *site, const char *folder, Found *found) {
    int doubt_at = setjmp(reader->doubts);
    if (doubt_at) return doubt_at;
    Links *links = &reader->links;
    Buffer *hard = &reader->buffers[B_hard];
    hard->size = 0;
    for (uint32_t at = 0; at < links->count; at++) {
        Link *link = &links->links[at];
        if (*folder && join_plain(reader, link, slice_of(site), slice_of(folder))) continue;
        link->url_size = HARD;
        append_part(reader, hard, (Slice){links->words.data + link->href, link->href_size});
    }
    found->hard = (Slice){hard->data, hard->size};
    return 0;
}

/* --- marks: BLAKE2b of 8 bytes --- */

static const uint64_t BLAKE_START[8] = {
    0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
    0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
};
static const byte BLAKE_ORDER[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static uint64_t turn(uint64_t value, int bits) { return value >> bits | value << (64 - bits); }

static void stir(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y) {
    v[a] += v[b] + x;
    v[d] = turn(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = turn(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = turn(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = turn(v[b] ^ v[c], 63);
}

static void take_block(uint64_t state[8], const byte block[128], uint64_t total, bool is_last) {
    uint64_t v[16], words[16];
    memcpy(words, block, 128);
    memcpy(v, state, 64);
    memcpy(v + 8, BLAKE_START, 64);
    v[12] ^= total;
    if (is_last) v[14] = ~v[14];
    for (int round = 0; round < 12; round++) {
        const byte *order = BLAKE_ORDER[round % 10];
        for (int lane = 0; lane < 4; lane++)
            stir(v, lane, lane + 4, lane + 8, lane + 12, words[order[2 * lane]], words[order[2 * lane + 1]]);
        for (int lane = 0; lane < 4; lane++)
            stir(v, lane, (lane + 1) % 4 + 4, (lane + 2) % 4 + 8, (lane + 3) % 4 + 12,
                 words[order[2 * lane + 8]], words[order[2 * lane + 9]]);
    }
    for (int at = 0; at < 8; at++) state[at] ^= v[at] ^ v[at + 8];
}

/* As web/urls.fingerprint has it. */
static uint64_t mark_of(Slice url) {
    uint64_t state[8];
    byte block[128];
    memcpy(state, BLAKE_START, sizeof state);
    state[0] ^= 0x01010000 ^ MARK_BYTES;
    size_t at = 0;
    for (; url.size - at > 128; at += 128) take_block(state, url.data + at, at + 128, false);
    memset(block, 0, sizeof block);
    memcpy(block, url.data + at, url.size - at);
    take_block(state, block, url.size, true);
    return __builtin_bswap64(
        state[0]); /* Python reads the digest as a number that begins with the highest byte */
}

/* --- columns --- */

static void put_line(Reader *reader, Buffer *column, Slice line, bool is_first) {
    if (!is_first) append(reader, column, (Slice){(const byte *)"\n", 1});
    append(reader, column, line);
}

/* Links whose hrefs mean one URL become one, as web/markup.merge has it. */
static void merge(Link *known, const Link *other) {
    if (!known->text_size) {
        known->text = other->text;
        known->text_size = other->text_size;
    }
    if (known->is_weak) {
        known->rel = other->rel;
        known->rel_size = other->rel_size;
        known->is_weak = other->is_weak;
    }
}

/* Takes what Python made of the others, each with a NUL behind it, and makes columns of all links. */
int reader_join(Reader *reader, const byte *resolved, size_t size, Found *found) {
    int doubt_at = setjmp(reader->doubts);
    if (doubt_at) return doubt_at;
    Links *links = &reader->links;
    const byte *end = resolved + size;
    uint32_t count = 0;
    memset(links->slots, 0, links->slot_count * sizeof *links->slots);
    for (uint32_t at = 0; at < links->count; at++) {
        Link link = links->links[at];
        if (link.url_size == HARD) {
            const byte *stop = memchr(resolved, 0, (size_t)(end - resolved));
            if (!stop) return __LINE__;
            put(reader, &link, (Slice){resolved, (size_t)(stop - resolved)}, "", (Slice){stop, 0});
            resolved = stop + 1;
        }
        if (!link.url_size) continue;
        link.href = link.url;
        link.href_size = link.url_size;
        uint32_t *slot = slot_of(links, (Slice){links->words.data + link.url, link.url_size});
        if (*slot)
            merge(&links->links[*slot - 1], &link);
        else if (count < MOST_LINKS) {
            links->links[count] = link;
            *slot = ++count;
        }
    }
    links->count = count;
    Buffer *urls = &reader->buffers[B_hrefs], *texts = &reader->buffers[B_texts],
           *rels = &reader->buffers[B_rels];
    Buffer *marks = &reader->buffers[B_marks];
    urls->size = texts->size = rels->size = marks->size = 0;
    for (uint32_t at = 0; at < count; at++) {
        const Link *link = &links->links[at];
        Slice url = {links->words.data + link->url, link->url_size};
        uint64_t mark = link->is_weak ? 0 : mark_of(url);
        put_line(reader, urls, url, !at);
        put_line(reader, texts, (Slice){links->words.data + link->text, link->text_size}, !at);
        put_line(reader, rels, (Slice){links->words.data + link->rel, link->rel_size}, !at);
        append(reader, marks, (Slice){(const byte *)&mark, sizeof mark});
    }
    found->hrefs = (Slice){urls->data, urls->size};
    found->texts = (Slice){texts->data, texts->size};
    found->rels = (Slice){rels->data, rels->size};
    found->marks = (Slice){marks->data, marks->size};
    return 0;
}
