/* Which elements are open, as the standard's tree construction has it, and what ends with them. */
#include "reader.h"

enum { IN_BODY, IN_TABLE, IN_TABLE_BODY, IN_ROW, IN_CELL, IN_CAPTION, IN_COLUMNS };

uint32_t current(const Reader *reader) {
    return reader->depth ? reader->open[reader->depth - 1].element : E_none;
}
static byte context(const Reader *reader) {
    return reader->depth ? reader->open[reader->depth - 1].context : IN_BODY;
}
bool is_heading(uint32_t element) { return element >= E_h1 && element <= E_h6; }

static byte context_in(uint32_t element, byte outer) {
    switch (element) {
        case E_table: return IN_TABLE;
        case E_tbody:
        case E_thead:
        case E_tfoot: return IN_TABLE_BODY;
        case E_tr: return IN_ROW;
        case E_td:
        case E_th: return IN_CELL;
        case E_caption: return IN_CAPTION;
        case E_colgroup: return IN_COLUMNS;
        default: return outer;
    }
}

static void begin_heading(Reader *reader, Open *open) {
    if (!(reader->wants & WANTS_HEADINGS)) return;
    if (reader->heading_count == MOST_HEADINGS) DOUBT(reader);
    const Text *text = &reader->text;
    reader->headings[reader->heading_count] =
        (Heading){text->kept.size, text->kept.size, text->pieces, text->bytes};
    open->heading = ++reader->heading_count;
}

static void end_heading(Reader *reader, uint32_t number) {
    Heading *heading = &reader->headings[number - 1];
    const Text *text = &reader->text;
    if (text->pieces - heading->pieces > SPAN_PIECES || text->bytes - heading->bytes > SPAN_BYTES)
        DOUBT(reader);
    heading->end = text->kept.size;
}

void push(Reader *reader, uint32_t element) {
    if (reader->depth == MOST_OPEN) DOUBT(reader);
    uint32_t flags = flags_of(element);
    Open *open = &reader->open[reader->depth];
    *open = (Open){
        .element = element, .context = context_in(element, context(reader)), .outer_link = reader->link};
    reader->depth++;
    if (flags & MARKER) {
        if (reader->link == LIVE_LINK) DOUBT(reader);
        reader->link = NO_LINK;
    }
    if (element == E_p)
        reader->paragraphs++;
    else if (element == E_noscript || element == E_svg)
        reader->muted++;
    if (!(flags & INLINE)) part(&reader->text);
    if (is_heading(element)) begin_heading(reader, open);
}

void pop(Reader *reader) {
    Open *open = &reader->open[--reader->depth];
    uint32_t element = open->element, flags = flags_of(element);
    if (open->heading) end_heading(reader, open->heading);
    if (!(flags & INLINE)) part(&reader->text);
    if (element == E_a && reader->link == LIVE_LINK) DOUBT(reader); /* it would begin once more behind this */
    if (element == E_p)
        reader->paragraphs--;
    else if (element == E_noscript || element == E_svg)
        reader->muted--;
    if (flags & MARKER) reader->link = open->outer_link;
    if (reader->dead_depth > reader->depth) reader->dead_depth = reader->depth;
}

void pop_through(Reader *reader, uint32_t element) {
    while (reader->depth) {
        uint32_t last = current(reader);
        pop(reader);
        if (last == element) return;
    }
}

void imply_ends(Reader *reader, uint32_t but) {
    while (reader->depth && current(reader) != but && (flags_of(current(reader)) & IMPLIED)) pop(reader);
}

bool is_in_scope(const Reader *reader, uint32_t element, int kind) {
    for (int at = reader->depth - 1; at >= 0; at--) {
        uint32_t other = reader->open[at].element;
        if (other == element) return true;
        if (flags_of(other) & SCOPE) return false;
        if (kind == BUTTON_SCOPE && other == E_button) return false;
        if (kind == LIST_SCOPE && (other == E_ul || other == E_ol)) return false;
    }
    return false;
}

void end_paragraph(Reader *reader) {
    if (!reader->paragraphs || !is_in_scope(reader, E_p, BUTTON_SCOPE)) return;
    imply_ends(reader, E_p);
    pop_through(reader, E_p);
}

/* Ends an item of a list of which another one begins, unless something special is open in it. */
void end_item(Reader *reader, bool is_li) {
    for (int at = reader->depth - 1; at >= 0; at--) {
        uint32_t other = reader->open[at].element;
        if (is_li ? other == E_li : other == E_dd || other == E_dt) {
            imply_ends(reader, other);
            pop_through(reader, other);
            break;
        }
        if ((flags_of(other) & SPECIAL) && other != E_address && other != E_div && other != E_p) break;
    }
    end_paragraph(reader);
}

/* --- links --- */

void begin_link(Reader *reader) {
    Slice href = attribute(reader, A_href);
    if (!href.size) href = attribute(reader, A_xlink_href);
    reader->link = DEAD_LINK;
    reader->dead_depth = reader->depth;
    const byte *mark = href.size ? memchr(href.data, '#', href.size) : NULL;
    if (mark) href.size = (size_t)(mark - href.data);
    if (!stripped(href).size) return;
    Anchor *anchor = &reader->anchor;
    anchor->href.size = anchor->rel.size = 0;
    append(reader, &anchor->href, href);
    append(reader, &anchor->rel, rel_of(reader, attribute(reader, A_rel)));
    anchor->start = reader->text.kept.size;
    anchor->pieces = reader->text.pieces;
    anchor->bytes = reader->text.bytes;
    anchor->silent = 0;
    push(reader, E_a);
    reader->link = LIVE_LINK;
}

void note_link(Reader *reader) {
    const Anchor *anchor = &reader->anchor;
    const Text *text = &reader->text;
    if (text->pieces - anchor->pieces > SPAN_PIECES || text->bytes - anchor->bytes > SPAN_BYTES)
        DOUBT(reader);
    Slice shown = cut(text_since(text, anchor->start), LINK_TEXT_CHARACTERS);
    add_link(reader, (Slice){anchor->href.data, anchor->href.size}, shown,
             (Slice){anchor->rel.data, anchor->rel.size});
    reader->link = NO_LINK;
}

/* Ends the open link as the adoption agency does if no block is open in it; else only a tree can tell. */
void end_link(Reader *reader) {
    if (reader->link == LIVE_LINK) {
        while (current(reader) != E_a) {
            if (!reader->depth || (flags_of(current(reader)) & SPECIAL)) DOUBT(reader);
            pop(reader);
        }
        note_link(reader);
        pop(reader);
    } else if (reader->link == DEAD_LINK) {
        /* It is not among the open elements; its end would part words if it ended such an element. */
        for (int at = reader->dead_depth; at < reader->depth; at++)
            if (!(flags_of(reader->open[at].element) & (SPECIAL | INLINE))) DOUBT(reader);
    }
    reader->link = NO_LINK;
}

/* --- tables --- */

static void close_cell(Reader *reader) {
    imply_ends(reader, E_none);
    while (reader->depth) {
        uint32_t last = current(reader);
        if (last == E_a && reader->link == LIVE_LINK) note_link(reader); /* the end of a cell forgets it */
        pop(reader);
        if (last == E_td || last == E_th) return;
    }
}

static void close_caption(Reader *reader) {
    imply_ends(reader, E_none);
    pop_through(reader, E_caption);
}

/* The start tag of a part of a table. */
void start_in_table(Reader *reader, uint32_t element) {
    while (reader->depth) {
        byte where = context(reader);
        if (where == IN_BODY) return; /* ignored */
        if (where == IN_CELL)
            close_cell(reader);
        else if (where == IN_CAPTION)
            close_caption(reader);
        else if (where == IN_COLUMNS) {
            if (element == E_col) return;
            pop(reader);
        } else if (element == E_td || element == E_th) {
            if (where == IN_TABLE) push(reader, E_tbody);
            if (where != IN_ROW) push(reader, E_tr);
            push(reader, element);
            return;
        } else if (where == IN_ROW)
            pop(reader);
        else if (element == E_tr) {
            if (where == IN_TABLE) push(reader, E_tbody);
            push(reader, element);
            return;
        } else if (where == IN_TABLE_BODY)
            pop(reader);
        else { /* caption, col, colgroup, tbody, tfoot, thead */
            push(reader, element == E_col ? E_colgroup : element);
            return;
        }
    }
}

/* Whether such a part is open in the innermost table. */
static bool is_open_in_table(const Reader *reader, uint32_t element) {
    for (int at = reader->depth - 1; at >= 0 && reader->open[at].element != E_table; at--)
        if (reader->open[at].element == element) return true;
    return false;
}

static bool is_cell(uint32_t element) { return element == E_td || element == E_th; }

void end_in_table(Reader *reader, uint32_t element) {
    while (reader->depth) {
        byte where = context(reader);
        if (where == IN_BODY) return;
        if (where == IN_CELL) {
            if (is_cell(element)) {
                int at = reader->depth - 1;
                while (!is_cell(reader->open[at].element)) at--;
                if (reader->open[at].element == element) close_cell(reader);
                return;
            }
            if (element == E_caption || element == E_col || element == E_colgroup) return;
            if (element != E_table && !is_open_in_table(reader, element)) return;
            close_cell(reader);
        } else if (where == IN_CAPTION) {
            if (element != E_caption && element != E_table) return;
            close_caption(reader);
            if (element == E_caption) return;
        } else if (where == IN_COLUMNS) {
            if (element == E_col) return;
            pop(reader);
            if (element == E_colgroup) return;
        } else if (element == E_table) {
            pop_through(reader, E_table);
            return;
        } else if (element == E_tr) {
            if (where == IN_ROW) pop(reader);
            return;
        } else {
            bool is_body = element == E_tbody || element == E_thead || element == E_tfoot;
            if (is_body && is_open_in_table(reader, element)) pop_through(reader, element);
            return;
        }
    }
}

/* Where a table holds nothing but its own parts; what else stands there is moved before it. */
bool is_frame_of_table(uint32_t element) {
    return element == E_table || element == E_tbody || element == E_thead || element == E_tfoot ||
           element == E_tr || element == E_colgroup;
}
