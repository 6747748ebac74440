/* Reads pages that come on standard input, each behind its size, with the sanitizers looking on, and answers each with
   where the reader was in doubt of it, or 0. Each page has a block of its own, so that a byte beyond it is noticed. */
#include <stdio.h>

#include "reader.h"

int main(void) {
    Reader *reader = reader_new(1, 2);
    Found found;
    uint32_t size;
    while (fread(&size, sizeof size, 1, stdin) == 1) {
        byte *page = malloc(size + !size);
        if (!page || fread(page, 1, size, stdin) != size) return 2;
        int32_t doubt_at = reader_read(reader, page, size, WANTS_TEXT | WANTS_HEADINGS | WANTS_DESCRIPTION, "sterna", &found);
        if (!doubt_at && !reader_split(reader, "http://h.test", "http://h.test/a/b", &found)) {
            /* What Python would resolve: the hrefs themselves, to have bytes of any kind. */
            byte *hard = malloc(found.hard.size + !found.hard.size);
            if (found.hard.size) memcpy(hard, found.hard.data, found.hard.size);
            if (reader_join(reader, hard, found.hard.size, &found)) return 3;
            free(hard);
        }
        free(page);
        fwrite(&doubt_at, sizeof doubt_at, 1, stdout);
        fflush(stdout);
    }
    reader_free(reader);
    return 0;
}
