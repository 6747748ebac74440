"""A page as a document of the index, bounded in everything that a hostile page could enlarge.

Marks are numbers of 64 bits that stand for something longer: a URL, a digest, a title, the words of a text.
"""

import threading
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import chain, islice
from urllib.parse import unquote

from tantivy import Document
from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

from sterna.archive.manifest import UNWANTED
from sterna.model import Record
from sterna.search import schema
from sterna.web.signature import likeness_of
from sterna.web.urls import hostname_of, path_of, site_of

MAX_TEXT_CHARS = 1_000_000
MAX_BODY_CHARS = 200_000  # kept for snippets
MAX_TITLE_CHARS = 1_000
MAX_HEADS = 200
MAX_HEAD_CHARS = 300
MAX_LANGUAGE_CHARS = 35  # RFC 5646, 4.4.1
_GONE = (404, 410)
_MAX_BODY_BYTES = 4 * MAX_BODY_CHARS

_SAMPLE_CHARS = 2_000
_LEAST_WORDS = 32  # different ones within the sample
_LIKENESS_CHARS = 20_000  # pages with one title and the same beginning are near-duplicates


class _Codecs(threading.local):
    """One pair per thread: making one costs more than compressing a page."""

    def __init__(self) -> None:
        self.compressor = ZstdCompressor(level=3)
        self.decompressor = ZstdDecompressor()


_codecs = _Codecs()


class PageRow(Record, frozen=True):
    """The columns of a page's row that the index uses, by their names."""

    url: str
    status: int | None
    error: str | None
    title: str | None
    text: str | None
    language: str | None
    digest: str | None
    fetched: int | None  # in microseconds
    headings: Sequence[str] | None
    keywords: Sequence[str] | None
    again: bool | None
    batch: int

    @property
    def is_wanted(self) -> bool | None:
        """True: index the page; False: delete it; None: the row says nothing about the page."""
        status = self.status or 0
        if status in _GONE or self.error == UNWANTED:
            return False
        if not 200 <= status < 300 or self.error:
            return None
        return self.digest is not None  # a page with noindex has no digest


def make_document(row: PageRow) -> Document:
    title = schema.normalized((row.title or "")[:MAX_TITLE_CHARS])
    text = schema.normalized((row.text or "")[:MAX_TEXT_CHARS])
    language = (row.language or "")[:MAX_LANGUAGE_CHARS]
    analysis = schema.choose_analysis(language, f"{title} {text}" if title else text)
    path = schema.normalized(unquote(path_of(row.url), errors="replace"))
    heads = " \n".join(
        schema.normalized(head[:MAX_HEAD_CHARS])
        for head in islice(chain(row.headings or (), row.keywords or ()), MAX_HEADS)
    )
    document = Document()
    document.add_text(schema.URL, row.url)
    document.add_text(schema.ANALYSIS, analysis)
    document.add_float(schema.FETCHED, (row.fetched or 0) / 1e6)
    document.add_text(schema.ADDRESS, f"{hostname_of(row.url)} {path}")
    if language:
        document.add_text(schema.LANGUAGE, language)
    if title:
        document.add_text(schema.named(schema.TITLE, analysis), title)
    if heads:
        document.add_text(schema.named(schema.HEADS, analysis), heads)
    everything = schema.named(schema.ALL, analysis)
    # Without the host's name, for which every page of the site would match.
    for part in (title, heads, path, text):
        if part:
            document.add_text(everything, part)
    for host in hosts_of(site_of(row.url)):
        document.add_text(schema.HOSTS, host)
    document.add_bytes(schema.BODY, pack(text))
    document.add_unsigned(schema.NUMBER, mark_of(row.url))
    document.add_unsigned(schema.DIGEST, int(str(row.digest)[:16], 16))  # half of it
    # The same for titles that differ only in case and white space.
    document.add_unsigned(schema.TITLE_MARK, mark_of(" ".join(title.casefold().split())))
    return document


def make_position(batch: int) -> Document:
    """The document that says up to which batch the archive is indexed."""
    document = Document()
    document.add_text(schema.KIND, schema.POSITION)
    document.add_integer(schema.BATCH, batch)
    document.add_integer(schema.ROWS, 0)  # no longer used
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
    return _codecs.compressor.compress(text[:MAX_BODY_CHARS].encode())


def unpack(body: bytes) -> str:
    """The text of `pack`; ValueError if it is damaged."""
    try:
        return _codecs.decompressor.decompress(body, max_output_size=_MAX_BODY_BYTES).decode()
    except ZstdError as error:
        raise ValueError(f"a stored text is damaged: {error}") from error


# -- marks -------------------------------------------------------------------------------------------------


def mark_of(text: str) -> int:
    """A number that two texts share with a probability of 2^-64."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def likeness_mark(text: str) -> int | None:
    """The signature of a text's words; None for short texts, which would resemble each other by chance."""
    if len(set(text[:_SAMPLE_CHARS].split())) < _LEAST_WORDS:
        return None
    return int.from_bytes(likeness_of(text[:_LIKENESS_CHARS]), "big")
