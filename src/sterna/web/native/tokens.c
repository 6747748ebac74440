/* Tags with their attributes, references, comments, and content that is no markup: the tokenizer of the
 * standard. */
#include "reader.h"
#include "references.h"

static bool is_letter(byte c) { return (byte)((c | 32) - 'a') < 26; }
static bool is_digit(byte c) { return (byte)(c - '0') < 10; }

/* --- references --- */

static size_t write_utf8(uint32_t point, byte *out) {
    if (point < 0x80) {
        out[0] = (byte)point;
        return 1;
    }
    size_t size = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const byte FIRST[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t at = size - 1; at > 0; at--, point >>= 6) out[at] = (byte)(0x80 | (point & 63));
    out[0] = (byte)(FIRST[size] | point);
    return size;
}

/* What the numbers 128 to 159 mean: they are taken for windows-1252. */
static const uint16_t WINDOWS_1252[32] = {
    0x20AC, 0x81,   0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160,
    0x2039, 0x0152, 0x8D,   0x017D, 0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x9D,   0x017E, 0x0178,
};

static size_t decode_number(const byte *at, const byte *end, byte *out, size_t *size) {
    const byte *digit = at + 2; /* behind "&#" */
    bool is_hex = digit < end && (*digit | 32) == 'x';
    if (is_hex) digit++;
    const byte *first = digit;
    uint32_t point = 0, base = is_hex ? 16 : 10;
    for (; digit < end; digit++) {
        uint32_t value;
        if (is_digit(*digit))
            value = *digit - (uint32_t)'0';
        else if (is_hex && (byte)((*digit | 32) - 'a') < 6)
            value = (*digit | 32) - (uint32_t)'a' + 10;
        else
            break;
        if (point <= 0x10FFFF) point = point * base + value;
    }
    if (digit == first) return 0;
    if (digit < end && *digit == ';') digit++;
    if (!point || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000))
        point = 0xFFFD;
    else if (point >= 0x80 && point < 0xA0)
        point = WINDOWS_1252[point - 0x80];
    *size = write_utf8(point, out);
    return (size_t)(digit - at);
}

/* The reference of just this name, or -1. */
static int find_reference(const byte *name, size_t length) {
    int low = REFERENCES_FROM[*name], high = REFERENCES_FROM[*name + 1] - 1;
    while (low <= high) {
        int middle = (low + high) / 2;
        size_t other = REFERENCES[middle].length;
        int order = memcmp(REFERENCES[middle].name, name, other < length ? other : length);
        if (!order) order = other < length ? -1 : other > length;
        if (!order) return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle - 1;
    }
    return -1;
}

size_t decode_reference(const byte *at, const byte *end, bool in_attribute, byte *out, size_t *size) {
    const byte *name = at + 1;
    if (name >= end) return 0;
    if (*name == '#') return decode_number(at, end, out, size);
    if (!is_letter(*name)) return 0;
    size_t most = (size_t)(end - name), length = 0;
    if (most > REFERENCE_LONGEST) most = REFERENCE_LONGEST;
    while (length < most && (is_letter(name[length]) || is_digit(name[length]))) length++;
    if (length < most && name[length] == ';') length++;
    for (; length >= 2; length--) { /* the longest name that is one */
        bool is_ended = name[length - 1] == ';';
        if (!is_ended && length > REFERENCE_LONGEST_OPEN) length = REFERENCE_LONGEST_OPEN;
        int found = find_reference(name, length);
        if (found < 0) continue;
        const byte *next = name + length;
        if (in_attribute && !is_ended && next < end && (*next == '=' || is_letter(*next) || is_digit(*next)))
            return 0;
        memcpy(out, REFERENCES[found].value, REFERENCES[found].size);
        *size = REFERENCES[found].size;
        return length + 1;
    }
    return 0;
}

Slice decoded(Reader *reader, Buffer *room, Slice written, bool in_attribute) {
    if (!written.size ||
        (!memchr(written.data, '&', written.size) && !memchr(written.data, '\r', written.size)))
        return written;
    room->size = 0;
    reserve(reader, room, 2 * written.size + 8); /* "&nGt;" is 5 bytes and means 6 */
    const byte *at = written.data, *end = at + written.size;
    byte *out = room->data;
    while (at < end) {
        size_t size = 0, taken = *at == '&' ? decode_reference(at, end, in_attribute, out, &size) : 0;
        if (taken) {
            at += taken;
            out += size;
        } else if (*at == '\r') {
            *out++ = '\n';
            at += end - at > 1 && at[1] == '\n' ? 2 : 1;
        } else {
            *out++ = *at++;
        }
    }
    return (Slice){room->data, (size_t)(out - room->data)};
}

/* --- tags --- */

static const struct {
    const char *name;
    size_t size;
} ATTRIBUTES[A_count] = {
    [A_href] = {"href", 4},         [A_xlink_href] = {"xlink:href", 10},
    [A_rel] = {"rel", 3},           [A_alt] = {"alt", 3},
    [A_src] = {"src", 3},           [A_lang] = {"lang", 4},
    [A_xml_lang] = {"xml:lang", 8}, [A_srcset] = {"srcset", 6},
    [A_sizes] = {"sizes", 5},       [A_type] = {"type", 4},
    [A_content] = {"content", 7},   [A_pragma] = {"http-equiv", 10},
    [A_name] = {"name", 4},         [A_property] = {"property", 8},
    [A_poster] = {"poster", 6},     [A_as] = {"as", 2},
};

static int attribute_of(const byte *name, size_t size) {
    if (size < 2 || size > 10) return -1;
    for (int number = 0; number < A_count; number++) {
        if (ATTRIBUTES[number].size != size || lower(*name) != (byte)*ATTRIBUTES[number].name) continue;
        size_t at = 1;
        while (at < size && lower(name[at]) == (byte)ATTRIBUTES[number].name[at]) at++;
        if (at == size) return number;
    }
    return -1;
}

Slice attribute(const Reader *reader, int name) {
    Slice value = reader->values[name];
    return value.data ? value : (Slice){(const byte *)"", 0};
}

/* Where something in a value looks like a tag, the tree's reader may have taken it out. */
static bool looks_like_tag(Slice value) {
    const byte *at = value.data, *end = at + value.size;
    for (; at < end && (at = memchr(at, '<', (size_t)(end - at))); at++)
        if (end - at >= 2 && (is_letter(at[1]) || at[1] == '/')) return true;
    return false;
}

static void note_attribute(Reader *reader, const byte *name, size_t size, Slice written) {
    int number = attribute_of(name, size);
    if (number < 0 || reader->values[number].data) return; /* of two with one name the first counts */
    if (looks_like_tag(written)) DOUBT(reader);
    Slice value = decoded(reader, &reader->rooms[number], written, true);
    reader->values[number] = value.size ? value : (Slice){(const byte *)"", 0};
}

static bool is_quote(byte c) { return c == '"' || c == '\''; }

/* Reads attributes up to ">"; false if the page ends before. */
static bool read_attributes(Reader *reader, Tag *tag) {
    const byte *at = reader->at, *end = reader->end;
    uint32_t flags = flags_of(tag->element);
    bool is_read = !tag->is_end && (flags & READ), is_silent = flags & SILENT;
    if (is_read) memset(reader->values, 0, sizeof reader->values);
    for (int count = 0;; count++) {
        while (at < end && (is_white(*at) || *at == '/')) {
            tag->is_closed = *at == '/' && at + 1 < end && at[1] == '>';
            at++;
        }
        if (at >= end) return false;
        if (*at == '>') {
            reader->at = at + 1;
            return true;
        }
        if (count == MOST_ATTRIBUTES) DOUBT(reader);
        const byte *name = at;
        do {                               /* a name may begin with "=" */
            if (*at == '<') DOUBT(reader); /* what follows may have been taken out as a silent tag */
            if (is_quote(*at)) tag->is_odd = true;
            at++;
        } while (at < end && !is_white(*at) && *at != '/' && *at != '>' && *at != '=');
        size_t size = (size_t)(at - name);
        while (at < end && is_white(*at)) at++;
        Slice value = {at, 0};
        if (at < end && *at == '=') {
            at++;
            while (at < end && is_white(*at)) at++;
            if (at >= end) return false;
            byte quote = *at;
            if (is_quote(quote)) {
                value.data = ++at;
                at = memchr(at, quote, (size_t)(end - at));
                if (!at) return false;
                value.size = (size_t)(at++ - value.data);
                if (quote == '\'')
                    tag->is_odd = true;
                else if (is_silent &&
                         (memchr(value.data, '<', value.size) || memchr(value.data, '>', value.size)))
                    tag->is_odd = true;
            } else {
                value.data = at;
                for (; at < end && !is_white(*at) && *at != '>'; at++) {
                    if (*at == '<' || (is_silent && is_quote(*at))) DOUBT(reader);
                    if (is_quote(*at)) tag->is_odd = true;
                }
                value.size = (size_t)(at - value.data);
            }
        }
        if (is_read) note_attribute(reader, name, size, value);
    }
}

bool read_tag(Reader *reader, Tag *tag) {
    *tag = (Tag){.is_end = reader->at[1] == '/'};
    const byte *at = reader->at + 1 + tag->is_end;
    byte name[NAME_BYTES];
    size_t size = 0;
    uint32_t hash = reader->hash_start;
    for (; at < reader->end && !is_white(*at) && *at != '/' && *at != '>'; at++, size++) {
        byte c = lower(*at);
        if (c == '<') DOUBT(reader);
        if (c != *at) tag->is_odd = true;
        if (size < NAME_BYTES) name[size] = c;
        hash = (hash ^ c) * HASH_FACTOR;
    }
    tag->element = element_of(reader, name, size, hash);
    reader->at = at;
    return read_attributes(reader, tag);
}

/* --- what is no markup --- */

const byte *end_of_comment(const byte *at, const byte *end) { /* at: behind "<!--" */
    if (at < end && *at == '>') return at + 1;
    if (end - at >= 2 && at[0] == '-' && at[1] == '>') return at + 2;
    for (; at < end && (at = memchr(at, '-', (size_t)(end - at))); at++) {
        if (end - at >= 3 && at[1] == '-' && at[2] == '>') return at + 3;
        if (end - at >= 4 && at[1] == '-' && at[2] == '!' && at[3] == '>') return at + 4;
    }
    return end;
}

static bool is_tag_of(const byte *name, const byte *end, Slice element) {
    if ((size_t)(end - name) <= element.size) return false;
    for (size_t at = 0; at < element.size; at++)
        if (lower(name[at]) != element.data[at]) return false;
    byte next = name[element.size];
    return is_white(next) || next == '/' || next == '>';
}

const byte *end_of_raw(Reader *reader, uint32_t element) {
    Slice name = name_of(element);
    const byte *at = reader->at, *end = reader->end;
    bool is_script = element == E_script, has_comment = false;
    for (; at < end && (at = memchr(at, '<', (size_t)(end - at))); at++) {
        size_t left = (size_t)(end - at);
        if (is_script && left >= 4 && !memcmp(at, "<!--", 4)) has_comment = true;
        if (left < 2) continue;
        if (at[1] == '/' && is_tag_of(at + 2, end, name)) return at;
        if (has_comment && is_tag_of(at + 1, end, name))
            DOUBT(reader); /* a script in a comment in a script */
    }
    return end;
}
