"""One answer of a server to what it says: the function that a reader process calls for every body."""

import re
from functools import lru_cache
from hashlib import blake2b

from msgspec.structs import replace

from sterna.model import Link, Record, TargetKind
from sterna.web.charset import charset_of, decode_html, decode_text
from sterna.web.decode import decode_body
from sterna.web.html import collapse, language_of, read_html, read_may
from sterna.web.sitemap import read_sitemap
from sterna.web.urls import DEFAULT_DROP_PARAMS, Canonical

_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_UNTOLD_TYPES = frozenset({"", "application/octet-stream"})

# The tags by which browsers know a page that comes without a type (MIME sniffing standard 7.1).
_LOOKS_LIKE_HTML = re.compile(
    rb"(?:\xef\xbb\xbf)?[\t\n\f\r ]*<(?:!--|(?:!doctype html|html|head|script|iframe|h1|div|font|table|a"
    rb"|style|title|b|body|br|p)[ >])",
    re.IGNORECASE,
)


class Answer(Record, frozen=True, kw_only=True):
    """What a server answered, as it came, and how it is to be read."""

    url: str
    status: int
    content_type: str = ""
    content_encoding: str = ""
    x_robots: str = ""
    content_language: str = ""
    body: bytes
    kind: TargetKind = "page"
    drop_params: tuple[str, ...] = DEFAULT_DROP_PARAMS
    max_bytes: int  # after decompression
    known_digest: bytes = b""
    agent: str = "sterna"  # the name by which robots metas and X-Robots-Tag may call us


class Document(Record, frozen=True, kw_only=True):
    """What was read of it; title, text and links only of what a server gave out as good."""

    digest: bytes
    size: int
    content_type: str
    title: str = ""
    text: str = ""
    language: str = ""
    links: tuple[Link, ...] = ()
    urls: tuple[str, ...] = ()
    sitemaps: tuple[str, ...] = ()
    may_index: bool = True
    may_follow: bool = True
    may_archive: bool = True
    is_unchanged: bool = False


def read_document(answer: Answer) -> Document:
    """Reads the body of an answer; ReadError where it cannot be decompressed or is no sitemap."""
    body = decode_body(answer.body, answer.content_encoding, max_bytes=answer.max_bytes)
    digest = blake2b(body, digest_size=16).digest()
    may = read_may(answer.x_robots, agent=answer.agent)
    document = Document(
        digest=digest,
        size=len(body),
        content_type=_type_of(answer.content_type, body),
        language=language_of(answer.content_language),
        may_index=may.index,
        may_follow=may.follow,
        may_archive=may.archive,
        is_unchanged=digest == answer.known_digest,
    )
    if not 200 <= answer.status < 300:
        return document
    if answer.kind == "sitemap":
        return _with_sitemap(document, answer, body=body)
    if document.content_type in _HTML_TYPES:
        return _with_html(document, answer, body=body)
    if document.content_type == "text/plain" and document.may_index:
        text = decode_text(body, charset_of(answer.content_type))[0]
        return replace(document, text=collapse(text.replace("\0", "\ufffd")))
    return document


def _with_html(document: Document, answer: Answer, *, body: bytes) -> Document:
    text = decode_html(body, charset_of(answer.content_type))[0]
    html = read_html(
        text, answer.url, _canonical(answer.drop_params), x_robots=answer.x_robots, agent=answer.agent
    )
    return replace(
        document,
        title=html.title if html.may_index else "",
        text=html.text if html.may_index else "",
        language=html.language or document.language,
        links=html.links,
        may_index=html.may_index,
        may_follow=html.may_follow,
        may_archive=html.may_archive,
    )


def _with_sitemap(document: Document, answer: Answer, *, body: bytes) -> Document:
    canonical = _canonical(answer.drop_params)
    sitemap = read_sitemap(body, answer.url, canonical, max_bytes=answer.max_bytes)
    return replace(document, urls=sitemap.urls, sitemaps=sitemap.sitemaps)


@lru_cache(maxsize=64)
def _canonical(drop_params: tuple[str, ...]) -> Canonical:
    return Canonical(drop_params)  # one for all pages of a crawler: its patterns take long to compile


def _type_of(content_type: str, body: bytes) -> str:
    essence = re.split("[;,]", content_type, maxsplit=1)[0].strip().lower()
    is_html = essence in _UNTOLD_TYPES and _LOOKS_LIKE_HTML.match(body)
    return "text/html" if is_html else essence
