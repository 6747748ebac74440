"""A page as the index takes it, bounded in everything that a hostile page could swell."""

import threading
from collections.abc import Iterator, Sequence
from urllib.parse import unquote

from tantivy import Document
from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

from sterna.model import Record
from sterna.search import schema
from sterna.search.analysis import choose, tidy
from sterna.search.marks import digest_mark, mark_of, title_mark
from sterna.web.urls import hostname_of, path_of, site_of

MAX_TEXT_CHARS = 1_000_000
MAX_BODY_CHARS = 200_000  # kept for snippets
MAX_TITLE_CHARS = 1_000
MAX_HEADS = 200
MAX_HEAD_CHARS = 300
MAX_LANGUAGE_CHARS = 35  # RFC 5646, 4.4.1
_MAX_BODY_BYTES = 4 * MAX_BODY_CHARS


class _Own(threading.local):
    """What each thread has for itself: making one costs more than a page does."""

    def __init__(self) -> None:
        self.compressor = ZstdCompressor(level=3)
        self.decompressor = ZstdDecompressor()


_own = _Own()


class PageRow(Record, frozen=True, kw_only=True):
    """What the index takes of a page's row."""

    url: str
    title: str
    text: str
    language: str
    digest: str
    fetched: float
    heads: Sequence[str] = ()  # headings and keywords


def make_document(row: PageRow) -> Document:
    """The document of a page."""
    title = tidy(row.title[:MAX_TITLE_CHARS])
    text = tidy(row.text[:MAX_TEXT_CHARS])
    language = row.language[:MAX_LANGUAGE_CHARS]
    analysis = choose(language, f"{title} {text}" if title else text)
    path = tidy(unquote(path_of(row.url), errors="replace"))
    heads = " \n".join(tidy(head[:MAX_HEAD_CHARS]) for head in row.heads[:MAX_HEADS])
    document = Document()
    document.add_text(schema.URL, row.url)
    document.add_text(schema.ANALYSIS, analysis)
    document.add_float(schema.FETCHED, row.fetched)
    document.add_text(schema.ADDRESS, f"{hostname_of(row.url)} {path}")
    if language:
        document.add_text(schema.LANGUAGE, language)
    if title:
        document.add_text(schema.named(schema.TITLE, analysis), title)
    if heads:
        document.add_text(schema.named(schema.HEADS, analysis), heads)
    everything = schema.named(schema.ALL, analysis)
    # Not the host's name: it would make every page of a site one about its name.
    for part in (title, heads, path, text):
        if part:
            document.add_text(everything, part)
    for host in hosts_of(site_of(row.url)):
        document.add_text(schema.HOSTS, host)
    document.add_bytes(schema.BODY, pack(text))
    document.add_unsigned(schema.NUMBER, mark_of(row.url))
    document.add_unsigned(schema.DIGEST, digest_mark(row.digest))
    document.add_unsigned(schema.TITLE_MARK, title_mark(title))
    return document


def make_position(batch: int, rows: int) -> Document:
    """The document that says up to where the archive is in the index."""
    document = Document()
    document.add_text(schema.KIND, schema.POSITION)
    document.add_integer(schema.BATCH, batch)
    document.add_integer(schema.ROWS, rows)
    return document


def hosts_of(site: str) -> Iterator[str]:
    """What `site:` may name to find the pages of this site."""
    yield site
    authority = site.partition("://")[2]
    host = hostname_of(site)
    if authority != host:
        yield authority
    yield host
    if not host.replace(".", "").isdigit() and ":" not in host:
        while "." in host:
            host = host.partition(".")[2]
            yield host


def pack(text: str) -> bytes:
    """The beginning of a text, compressed."""
    return _own.compressor.compress(text[:MAX_BODY_CHARS].encode())


def unpack(body: bytes) -> str:
    """The text of `pack`; ValueError if it is damaged."""
    try:
        return _own.decompressor.decompress(body, max_output_size=_MAX_BODY_BYTES).decode()
    except ZstdError as error:
        raise ValueError(f"a text in it is damaged: {error}") from error
