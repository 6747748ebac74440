/* What the parts of the reader share. Plain C11, no Python.h.

   A page goes through tokens.c (tags, attributes, references), reader.c (what they mean where they stand) and
   nesting.c (what is open), into text.c, links.c and sayings.c (what the page says), and comes out as the
   slices of a Found. Where a parser's tree could say otherwise than this does, it ends at once by doubt(),
   and the caller builds the tree. */
#ifndef STERNA_READER_H
#define STERNA_READER_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "numbers of pages are written as this machine has them"
#endif

typedef unsigned char byte;

typedef struct {
    const byte *data;
    size_t size;
} Slice;
typedef struct {
    byte *data;
    size_t size, room;
} Buffer;

/* The bounds. Beyond those of text and links the tree says what counts. */
enum {
    MOST_OPEN = 512,        /* elements in each other */
    MOST_ATTRIBUTES = 3999, /* of a tag; of more the tree leaves the tag out */
    MOST_HREFS = 20000,     /* that differ, as in web/markup.py */
    MOST_MEDIA = 20000,     /* that are written; which of them count is decided there */
    MOST_HEADINGS = 2000,
    MOST_ROBOTS = 1000, /* metas for robots */
    TITLE_CHARACTERS = 500,
    DESCRIPTION_CHARACTERS = 1000,
    LINK_TEXT_CHARACTERS = 200,
    HEADING_CHARACTERS = 200,
    SPAN_PIECES = 64, /* of the text of a link or heading; of longer ones the tree reads only a part */
    SPAN_BYTES = 1000,
    NAME_BYTES = 15 /* of the longest element that is known */
};

enum { WANTS_TEXT = 1, WANTS_HEADINGS = 2, WANTS_DESCRIPTION = 4 };

/* --- elements.c --- */

/* What is known of an element. */
enum {
    INLINE = 1,  /* its begin and end part no words */
    VOID = 2,    /* it has no end */
    SPECIAL = 4, /* as in the standard: an end tag of others does not reach through it */
    ENDS_P = 8,
    SILENT = 16,    /* it says nothing, and plainly written it is taken out before the tree is built */
    IMPLIED = 32,   /* its end may be left out */
    SCOPE = 64,     /* an end tag does not reach beyond it */
    DOUBTFUL = 128, /* only a tree can tell */
    RAW = 256,      /* its content is no markup */
    BLOCK = 512,    /* its end tag ends what is open in it */
    TABLE = 1024,   /* a part of a table */
    FORMATTING = 2048,
    READ = 4096,   /* its attributes are looked at */
    SHAPE = 8192,  /* of a drawing */
    HEAD = 16384,  /* it may stand in the head */
    MARKER = 32768 /* it hides a link that is open around it, and ends one that is open in it */
};

#define ELEMENT(name, flags) E_##name,
enum {
    E_none,
#include "elements.h"
    E_count,
    E_unknown = 1000 /* those that are not known have numbers from here on, by their names */
};
#undef ELEMENT

typedef struct Reader Reader;

enum { HASH_FACTOR = 0x01000193, NAME_CELLS = 1024 };

void prepare_elements(Reader *reader);
/* The number of an element, whose name is in lower case and has this hash. */
uint32_t element_of(const Reader *reader, const byte *name, size_t size, uint32_t hash);
uint32_t flags_of(uint32_t element);
Slice name_of(uint32_t element);

/* --- text.c --- */

/* Text with one space where there was white space or a block begins or ends, as Python's split() parts it. */
typedef struct {
    Buffer kept;
    bool has_gap;         /* a space is due before what follows */
    size_t pieces, bytes; /* so far, as the tree counts them */
} Text;

bool is_white(byte c); /* as HTML has it */
/* The bytes of white space at `at` as Python has it; 0 if there is none. */
size_t gap_at(const byte *at, const byte *end);
Slice stripped(Slice text);
Slice cut(Slice collapsed, size_t characters);
void add_text(Reader *reader, Text *text, Slice more);
void part(Text *text);
/* What was added since the text had so many bytes, without white space around it. */
Slice text_since(const Text *text, size_t start);

/* --- links.c --- */

typedef struct {
    uint32_t href, href_size, text, text_size, rel, rel_size, url, url_size; /* places in `words` */
    bool is_weak; /* a better link to the same target may come: one to follow */
} Link;

typedef struct {
    Buffer words;
    Link *links;
    uint32_t count, room;
    uint32_t *slots, slot_count; /* a hash table of the hrefs: numbers of links, from 1 on */
    uint64_t seed[2];
} Links;

void add_link(Reader *reader, Slice href, Slice text, Slice rel);
/* rel as Python's lower() and split() have it, without our own words for media; kept until the page ends. */
Slice rel_of(Reader *reader, Slice written);
/* What a `link`, an `img` and the like say, by the attributes of the last tag. */
void read_link_element(Reader *reader);
void add_media(Reader *reader, const char *kind, Slice href);
void add_srcset(Reader *reader);
/* The slot of a link with this href, which is 0 if there is none. */
uint32_t *slot_of(const Links *links, Slice href);
void free_links(Links *links);

/* --- tokens.c --- */

/* The attributes that are looked at. */
enum {
    A_href,
    A_xlink_href,
    A_rel,
    A_alt,
    A_src,
    A_lang,
    A_xml_lang,
    A_srcset,
    A_sizes,
    A_type,
    A_content,
    A_pragma,
    A_name,
    A_property,
    A_poster,
    A_as,
    A_count
};

typedef struct {
    uint32_t element;
    bool is_end, is_closed; /* `</...`; `.../>` */
    bool is_odd;            /* not as the tree's reader takes silent tags out */
} Tag;

/* Reads the tag at reader->at, and its attributes if they are wanted; false if the page ends in it. */
bool read_tag(Reader *reader, Tag *tag);
Slice attribute(const Reader *reader, int name);
/* Decodes the reference at `at`, a "&": how many bytes it takes, 0 if it is none; writes 8 bytes at most. */
size_t decode_reference(const byte *at, const byte *end, bool in_attribute, byte *out, size_t *size);
/* The text with references decoded, and one kind of line ends; in `room` unless there is nothing to decode.
 */
Slice decoded(Reader *reader, Buffer *room, Slice written, bool in_attribute);
const byte *end_of_comment(const byte *at, const byte *end);
const byte *end_of_raw(Reader *reader, uint32_t element);

/* --- nesting.c --- */

enum { NO_LINK, DEAD_LINK, LIVE_LINK }; /* dead: one that leads nowhere */

typedef struct {
    uint32_t element, heading; /* the number of its heading, from 1 on; 0 for none */
    byte context, outer_link;
} Open;

typedef struct {
    size_t start, end, pieces, bytes;
} Heading;

typedef struct { /* the link that is open */
    Buffer href, rel;
    size_t start, pieces, bytes; /* of its text */
    int silent;                  /* silent elements that are open in it */
} Anchor;

/* What was found. Lists have a NUL behind each part; a link without text or rel has an empty part. */
typedef struct {
    Slice title, text, language, base, description, shared_description;
    Slice robots, content_languages, headings, hrefs, texts, rels, media, hard, marks;
} Found;

/* The buffers of a reader: what is part of a Found, then a rel that is being read. */
enum {
    B_language,
    B_content_languages,
    B_base,
    B_description,
    B_shared_description,
    B_robots,
    B_media,
    B_headings,
    B_hrefs,
    B_texts,
    B_rels,
    B_rel,
    B_hard,
    B_marks,
    B_count
};

struct Reader {
    /* Set once. */
    uint32_t hash_start;
    uint16_t names[NAME_CELLS]; /* a hash table of the elements' numbers */
    /* The page, and where it is read. */
    const byte *at, *end;
    unsigned wants;
    Slice agent;
    jmp_buf doubts;
    /* What is open. */
    Open open[MOST_OPEN];
    int depth, paragraphs, muted;
    int dead_depth; /* the least depth since a link began that leads nowhere */
    byte link;
    bool has_form, has_html, in_body;
    Anchor anchor;
    /* The attributes of the last tag. */
    Slice values[A_count];
    Buffer rooms[A_count];
    /* What was found. */
    Text text;
    Links links;
    Text title, scratch;
    Buffer buffers[B_count];
    uint32_t robots_count, media_count, heading_count;
    Heading headings[MOST_HEADINGS];
};

enum { PLAIN_SCOPE, BUTTON_SCOPE, LIST_SCOPE };

uint32_t current(const Reader *reader); /* the innermost open element, or E_none */
bool is_heading(uint32_t element);
/* Whether a table holds nothing but its own parts here; what else stands here is moved before it. */
bool is_frame_of_table(uint32_t element);
bool is_in_scope(const Reader *reader, uint32_t element, int kind);
void push(Reader *reader, uint32_t element);
void pop(Reader *reader);
void pop_through(Reader *reader, uint32_t element);
void imply_ends(Reader *reader, uint32_t but);
void end_paragraph(Reader *reader);
void end_item(Reader *reader, bool is_li);
void begin_link(Reader *reader);
void end_link(Reader *reader);
void note_link(Reader *reader); /* the open one, whose text ends here */
void start_in_table(Reader *reader, uint32_t element);
void end_in_table(Reader *reader, uint32_t element);

/* --- sayings.c --- */

void read_element(Reader *reader, uint32_t element);

/* --- buffers.c --- */

_Noreturn void doubt(Reader *reader, int line);
#define DOUBT(reader) doubt(reader, __LINE__)

/* Makes room for more; a page for which there is no memory is doubted. */
void reserve(Reader *reader, Buffer *buffer, size_t more);
void append(Reader *reader, Buffer *buffer, Slice data);
void append_part(Reader *reader, Buffer *buffer, Slice data); /* and a NUL */
static inline Slice slice_of(const char *text) { return (Slice){(const byte *)text, strlen(text)}; }
static inline byte lower(byte c) { return c >= 'A' && c <= 'Z' ? (byte)(c | 32) : c; }
bool equals(Slice one, const char *other);
bool contains(Slice text, const char *word);
/* Whether a word, in any case and with white space around it, is this one, which is in lower case. */
bool is_word(Slice written, Slice word);

/* --- reader.c: what Python calls, see native/reader.py --- */

Reader *reader_new(uint64_t seed, uint64_t other_seed);
void reader_free(Reader *reader);
int reader_read(Reader *reader, const byte *page, size_t size, unsigned wants, const char *agent,
                Found *found);
int reader_split(Reader *reader, const char *site, const char *folder, Found *found);
int reader_join(Reader *reader, const byte *resolved, size_t size, Found *found);

#endif
