/* Buffers that grow, and comparing what they hold. */
#include "reader.h"

_Noreturn void doubt(Reader *reader, int line) { longjmp(reader->doubts, line); }

/* --- buffers and slices --- */

void reserve(Reader *reader, Buffer *buffer, size_t more) {
    if (buffer->room - buffer->size >= more) return;
    size_t room = 2 * buffer->room + more + 256;
    byte *data = realloc(buffer->data, room);
    if (!data) DOUBT(reader);
    buffer->data = data;
    buffer->room = room;
}

void append(Reader *reader, Buffer *buffer, Slice data) {
    if (!data.size) return;
    reserve(reader, buffer, data.size);
    memcpy(buffer->data + buffer->size, data.data, data.size);
    buffer->size += data.size;
}

void append_part(Reader *reader, Buffer *buffer, Slice data) {
    append(reader, buffer, data);
    append(reader, buffer, (Slice){(const byte *)"", 1});
}

bool equals(Slice one, const char *other) {
    return one.size == strlen(other) && !memcmp(one.data, other, one.size);
}

bool contains(Slice text, const char *word) {
    size_t size = strlen(word);
    for (size_t at = 0; at + size <= text.size; at++)
        if (text.data[at] == (byte)*word && !memcmp(text.data + at, word, size)) return true;
    return false;
}

/* Whether the word, in any case and with white space around it, is this one, which is in lower case. */
bool is_word(Slice written, Slice word) {
    written = stripped(written);
    if (written.size != word.size) return false;
    for (size_t at = 0; at < word.size; at++)
        if (lower(written.data[at]) != word.data[at]) return false;
    return true;
}
