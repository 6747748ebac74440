"""What an index holds: the fields of a page, and the position up to which the archive is in it."""

from tantivy import Schema, SchemaBuilder

from sterna.search.analysis import ANALYSES, PLAIN

VERSION = 1  # of everything that an index depends on: fields, analyses, marks

# Fields that there are once for each analysis, as `title_en`.
ALL = "all"  # everything that is said on a page; its words must be here
TITLE = "title"
HEADS = "heads"  # headings and keywords

URL = "url"
ADDRESS = "address"  # the URL's words
HOSTS = "hosts"  # of `site:`: the host, each domain above it, and the site as it is
LANGUAGE = "language"
ANALYSIS = "analysis"
FETCHED = "fetched"
BODY = "body"  # the text for snippets, compressed

# 64 bits each, read for every candidate.
NUMBER = "number"  # of the URL
DIGEST = "digest"
TITLE_MARK = "title_mark"
MARKS = (NUMBER, DIGEST, TITLE_MARK)

KIND = "kind"
POSITION = "position"  # the kind of the one document that is no page
BATCH = "batch"
ROWS = "rows"


def named(field: str, analysis: str) -> str:
    """The name of a field that there is for each analysis."""
    return f"{field}_{analysis}"


def make_schema() -> Schema:
    """The schema of every index of this version."""
    builder = SchemaBuilder()
    for analysis in ANALYSES:
        builder.add_text_field(named(ALL, analysis), tokenizer_name=analysis)
        builder.add_text_field(named(TITLE, analysis), stored=True, tokenizer_name=analysis)
        builder.add_text_field(named(HEADS, analysis), tokenizer_name=analysis)
    builder.add_text_field(ADDRESS, tokenizer_name=PLAIN)
    for name, is_stored in ((URL, True), (HOSTS, False), (LANGUAGE, True), (ANALYSIS, True), (KIND, False)):
        builder.add_text_field(name, stored=is_stored, tokenizer_name="raw", index_option="basic")
    builder.add_float_field(FETCHED, stored=True)
    builder.add_bytes_field(BODY, stored=True)
    for name in MARKS:
        builder.add_unsigned_field(name, fast=True)
    for name in (BATCH, ROWS):
        builder.add_integer_field(name, stored=True)
    return builder.build()
