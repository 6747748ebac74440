/* Text as the tree's reader keeps it: one space where there was white space, or where a block begins or ends.
 */
#include "reader.h"

enum { OTHER, GAP, MAYBE_GAP }; /* of a byte: MAYBE_GAP begins a character that may be white space */
static const byte KIND[256] = {
    ['\t'] = GAP,       ['\n'] = GAP,       ['\v'] = GAP,       ['\f'] = GAP,       ['\r'] = GAP,
    [28] = GAP,         [29] = GAP,         [30] = GAP,         [31] = GAP,         [' '] = GAP,
    [0xC2] = MAYBE_GAP, [0xE1] = MAYBE_GAP, [0xE2] = MAYBE_GAP, [0xE3] = MAYBE_GAP,
};

bool is_white(byte c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f'; }

static size_t wide_gap_at(const byte *at, const byte *end) {
    size_t left = (size_t)(end - at);
    if (*at == 0xC2) return left >= 2 && (at[1] == 0x85 || at[1] == 0xA0) ? 2 : 0;
    if (left < 3) return 0;
    bool is_gap = false;
    if (*at == 0xE1)
        is_gap = at[1] == 0x9A && at[2] == 0x80;
    else if (*at == 0xE3)
        is_gap = at[1] == 0x80 && at[2] == 0x80;
    else if (*at == 0xE2 && at[1] == 0x80)
        is_gap = (at[2] >= 0x80 && at[2] <= 0x8A) || at[2] == 0xA8 || at[2] == 0xA9 || at[2] == 0xAF;
    else if (*at == 0xE2)
        is_gap = at[1] == 0x81 && at[2] == 0x9F;
    return is_gap ? 3 : 0;
}

size_t gap_at(const byte *at, const byte *end) {
    if (KIND[*at] == OTHER) return 0;
    return KIND[*at] == GAP ? 1 : wide_gap_at(at, end);
}

/* The bytes of white space that end at `end`; 0 if there is none. */
static size_t gap_before(const byte *start, const byte *end) {
    size_t left = (size_t)(end - start);
    if (!left) return 0;
    if (KIND[end[-1]] == GAP) return 1;
    if (left >= 2 && end[-2] == 0xC2 && wide_gap_at(end - 2, end)) return 2;
    if (left >= 3 && KIND[end[-3]] == MAYBE_GAP && end[-3] != 0xC2 && wide_gap_at(end - 3, end)) return 3;
    return 0;
}

Slice stripped(Slice text) {
    const byte *at = text.data, *end = text.data + text.size;
    size_t size;
    while (at < end && (size = gap_at(at, end))) at += size;
    while (at < end && (size = gap_before(at, end))) end -= size;
    return (Slice){at, (size_t)(end - at)};
}

/* At most so many characters, without a space at their end. */
Slice cut(Slice collapsed, size_t characters) {
    if (collapsed.size <= characters) return collapsed;
    size_t at = 0, count = 0;
    for (; at < collapsed.size; at++)
        if ((collapsed.data[at] & 0xC0) != 0x80 && count++ == characters) break;
    while (at && collapsed.data[at - 1] == ' ') at--;
    return (Slice){collapsed.data, at};
}

void add_text(Reader *reader, Text *text, Slice more) {
    reserve(reader, &text->kept, more.size + 1);
    const byte *at = more.data, *end = at + more.size;
    byte *out = text->kept.data + text->kept.size;
    bool has_gap = text->has_gap;
    while (at < end) {
        size_t gap = gap_at(at, end);
        if (gap) {
            has_gap = true;
            at += gap;
            continue;
        }
        if (has_gap && out != text->kept.data) *out++ = ' ';
        has_gap = false;
        do *out++ = *at++;
        while (at < end && KIND[*at] == OTHER);
    }
    text->kept.size = (size_t)(out - text->kept.data);
    text->has_gap = has_gap;
}

void part(Text *text) {
    text->has_gap = true;
    text->pieces++;
}

Slice text_since(const Text *text, size_t start) {
    size_t size = text->kept.size - start;
    if (!size) return (Slice){(const byte *)"", 0};
    const byte *data = text->kept.data + start;
    return *data == ' ' ? (Slice){data + 1, size - 1} : (Slice){data, size};
}
