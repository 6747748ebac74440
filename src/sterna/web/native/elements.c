/* The elements by their names. */
#include "reader.h"

#define ELEMENT(name, flags) {#name, sizeof #name - 1, flags},
static const struct {
    const char *name;
    size_t size;
    uint32_t flags;
} ELEMENTS[] = {
    {"", 0, 0},
#include "elements.h"
};
#undef ELEMENT

static uint32_t hash_of(const Reader *reader, const char *name) {
    uint32_t hash = reader->hash_start;
    for (; *name; name++) hash = (hash ^ (byte)*name) * HASH_FACTOR;
    return hash;
}

static uint32_t cell_of(uint32_t hash) { return (hash ^ hash >> 15) % NAME_CELLS; }

void prepare_elements(Reader *reader) {
    for (uint16_t element = 1; element < E_count; element++) {
        uint32_t cell = cell_of(hash_of(reader, ELEMENTS[element].name));
        while (reader->names[cell]) cell = (cell + 1) % NAME_CELLS;
        reader->names[cell] = element;
    }
}

uint32_t element_of(const Reader *reader, const byte *name, size_t size, uint32_t hash) {
    if (size <= NAME_BYTES)
        for (uint32_t cell = cell_of(hash); reader->names[cell]; cell = (cell + 1) % NAME_CELLS) {
            uint32_t element = reader->names[cell];
            if (ELEMENTS[element].size == size && !memcmp(ELEMENTS[element].name, name, size)) return element;
        }
    return E_unknown + (hash & 0x7FFFFFFF);
}

uint32_t flags_of(uint32_t element) { return element < E_count ? ELEMENTS[element].flags : 0; }

Slice name_of(uint32_t element) {
    return (Slice){(const byte *)ELEMENTS[element].name, ELEMENTS[element].size};
}
