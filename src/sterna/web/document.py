"""A server's response to a document: the function that a reader process calls for every body."""

import re
from functools import lru_cache
from typing import Literal

import msgspec
from msgspec.structs import asdict, replace

from sterna.model import DEFAULT_FIELDS, Field, Links, Record, Selector
from sterna.web import robots
from sterna.web.charset import charset_of, decode_text
from sterna.web.content_coding import decode, decode_start
from sterna.web.css import urls_of_css
from sterna.web.extraction import Extracts, extract
from sterna.web.html import Html, ReadPage, Texts, read_html, read_may
from sterna.web.keywords import keywords_of
from sterna.web.language import guess_language
from sterna.web.markup import collapse, language_of
from sterna.web.signature import change_between, digest_of, is_digest, likeness_of
from sterna.web.sitemap import read_sitemap
from sterna.web.sniffing import type_of
from sterna.web.urls import DEFAULT_DROP_PARAMS, Canonical
from sterna.web.walk import read_tree
from sterna.web.weight import weight_of, weight_of_texts

_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml"})
_TEXT_TYPES = frozenset({"text/plain", "text/markdown"})
_SCRIPT = re.compile(r"<script[\s>]", re.IGNORECASE)
_SAYS_SO = re.compile(r"<noscript.{0,1000}?\bjavascript\b", re.IGNORECASE | re.DOTALL)
_ROOT = re.compile(
    r"""<(?:div|main)[^<>]{1,300}?\bid=["']?(?:root|app|__next|__nuxt|svelte|q-app)\b""", re.IGNORECASE
)
_SHOWN_CHARACTERS = 64 * 1024  # of markup in which these are looked for
_FEW_CHARACTERS = 200  # of text on a page that scripts fill


MAX_DOCUMENT_BYTES = 20 * 1024 * 1024  # of memory that it takes, and as it travels


class Manner(Record, frozen=True, kw_only=True):
    """How responses are to be read: the same for all of a visit."""

    drop_params: tuple[str, ...] = DEFAULT_DROP_PARAMS
    max_bytes: int = 64 * 1024 * 1024  # after decompression
    agent: str = "sterna"  # the name by which robots metas and X-Robots-Tag may call us
    # Besides links and language; links have no texts where nothing is wanted that needs a tree.
    wants: tuple[Field, ...] = DEFAULT_FIELDS
    selectors: tuple[Selector, ...] = ()  # each as `extraction.parse_selector` lets it pass
    least_change: float = 0.0  # 0 to 1: a text of which less changed is alike; it must be wanted
    reads_css: bool = False  # within pages: what it names are links
    follows_css: bool = False  # in style sheets: what they name is to be fetched

    def encoded(self) -> bytes:
        return msgspec.msgpack.encode(self)


class Fetched(Record, frozen=True, kw_only=True):
    """A server's response as it came, and in what manner it is to be read."""

    url: str
    status: int
    is_cut: bool = False  # only the beginning of the body came
    content_type: str = ""
    content_encoding: str = ""
    x_robots: str = ""
    content_language: str = ""
    body: bytes
    kind: Literal["page", "sitemap", "robots"] = "page"
    known_digest: bytes = b""  # or its first bytes
    known_likeness: bytes = b""
    manner: bytes = Manner().encoded()  # encoded once a visit, decoded once a reader
    # For the sieve of `runtime`: how the crawler found the URL, and how its document is sifted.
    depth: int = 0
    referrer: str = ""
    sift: bytes = b""
    most_bytes: int = MAX_DOCUMENT_BYTES  # of memory for the document


class Document(Html, frozen=True, kw_only=True):
    """What was read of a response; text and links only if its status is 2xx."""

    digest: bytes
    size: int
    content_type: str
    urls: Texts = ()
    sitemaps: Texts = ()
    is_unchanged: bool = False
    is_alike: bool = False  # it changed, but by less than matters
    html: str = ""
    extracts: Extracts = ()
    likeness: bytes = b""  # where changes are measured
    note: str = ""  # as of `Page`
    lost: int = 0  # entries of a sitemap that could not be read
    is_selected: bool = True  # by the crawler, which reads the document after this
    unmet: Texts = ()  # if it is not, the conditions that it fails, in words
    cpu_seconds: float = 0.0  # spent on reading; set by the reader


def read_document(fetched: Fetched, read_page: ReadPage = read_tree) -> Document:
    """Reads a body; ReadError if it fails to decompress, or if it should be a sitemap and is none."""
    manner = _manner(fetched.manner)
    if fetched.kind == "robots":
        return _read_robots(fetched)
    decoded = decode(fetched.body, fetched.content_encoding, max_bytes=manner.max_bytes)
    body, note = decoded.body, "cut" if fetched.is_cut else decoded.note
    digest = digest_of(body)
    may = read_may(fetched.x_robots, agent=manner.agent)
    document = Document(
        digest=digest,
        size=len(body),
        content_type=type_of(fetched.content_type, body),
        language=language_of(fetched.content_language),
        may_index=may.index,
        may_follow=may.follow,
        may_archive=may.archive,
        is_unchanged=is_digest(fetched.known_digest, digest),
        note=note,
    )
    if not 200 <= fetched.status < 300:
        return document
    if fetched.kind == "sitemap":
        canonical = _canonical(manner.drop_params)
        sitemap = read_sitemap(body, fetched.url, canonical, max_bytes=manner.max_bytes)
        return replace(document, urls=sitemap.urls, sitemaps=sitemap.sitemaps, lost=sitemap.lost)
    if document.content_type == "text/css" and manner.follows_css:
        document = _with_css(document, fetched, body=body)
    if document.content_type in _HTML_TYPES:
        return _compared(_with_html(document, fetched, body=body, read_page=read_page), fetched)
    if document.content_type in _TEXT_TYPES and document.may_index:
        return _compared(_with_text(document, fetched, body=body), fetched)
    return document


def _read_robots(fetched: Fetched) -> Document:
    """As much of a robots.txt as counts; it may have been cut while it was fetched."""
    body, is_cut = decode_start(
        fetched.body,
        fetched.content_encoding,
        max_bytes=robots.MAX_BYTES,
        is_cut=len(fetched.body) > robots.MAX_BYTES,
    )
    text = robots.text_of(body, is_cut=is_cut)
    return Document(digest=digest_of(body), size=len(body), content_type=fetched.content_type, text=text)


def weight_of_document(document: Document) -> int:
    """The memory that a document takes, about."""
    found = weight_of(document.urls) + weight_of(document.sitemaps)
    return weight_of_texts(document) + found + len(document.marks)


def _with_css(document: Document, fetched: Fetched, *, body: bytes) -> Document:
    canonical = _canonical(_manner(fetched.manner).drop_params)
    css = decode_text(body, charset_of(fetched.content_type), is_html=False)[0]
    named = (canonical(written, fetched.url) for written in urls_of_css(css))
    return replace(document, urls=tuple(dict.fromkeys(filter(None, named))))


def _with_text(document: Document, fetched: Fetched, *, body: bytes) -> Document:
    wants = _manner(fetched.manner).wants
    if "text" not in wants and "keywords" not in wants:
        return document
    decoded = decode_text(body, charset_of(fetched.content_type), is_html=False)[0]
    text = collapse(decoded.replace("\0", "\ufffd"))
    language = document.language or guess_language(text)
    return replace(
        document,
        text=text if "text" in wants else "",
        language=language,
        keywords=keywords_of("", (), "", text, language) if "keywords" in wants else (),
    )


def _with_html(document: Document, fetched: Fetched, *, body: bytes, read_page: ReadPage) -> Document:
    manner = _manner(fetched.manner)
    text = decode_text(body, charset_of(fetched.content_type))[0]
    html = read_html(
        text,
        fetched.url,
        _canonical(manner.drop_params),
        x_robots=fetched.x_robots,
        agent=manner.agent,
        wants=manner.wants,
        reads_css=manner.reads_css,
        read=read_page,
    )
    return replace(
        document,
        **asdict(html)
        | {
            "language": html.language or document.language or guess_language(html.text),
            "links": html.links if html.may_follow else _unfollowed(html.links),
            "marks": html.marks if html.may_follow else b"",
        },
        note=document.note or (_note_of(html, text) if "text" in manner.wants and html.may_index else ""),
        html=text.replace("\0", "\ufffd") if "html" in manner.wants and html.may_index else "",
        extracts=extract(text, manner.selectors) if manner.selectors and html.may_index else (),
    )


def _compared(document: Document, fetched: Fetched) -> Document:
    """The document with its likeness, and whether it changed by less than matters to the visit."""
    least_change = _manner(fetched.manner).least_change
    if not least_change or not document.may_index:
        return document
    likeness = likeness_of(document.text)
    is_alike = not document.is_unchanged and change_between(fetched.known_likeness, likeness) < least_change
    return replace(document, likeness=likeness, is_alike=is_alike)


def _unfollowed(links: Links) -> Links:
    """The links of a page with `nofollow`, each with this rel: so whoever reads them later knows."""
    return Links.of(*(replace(link, rel=f"{link.rel} nofollow".strip()) for link in links))


_manner = lru_cache(maxsize=64)(msgspec.msgpack.Decoder(Manner).decode)
_canonical = lru_cache(maxsize=64)(Canonical)


def _note_of(html: Html, text: str) -> str:
    """What is odd with a page that has no damage: "empty", or "scripts" if it shows nothing without them."""
    if len(html.text) > _FEW_CHARACTERS:
        return ""
    markup = text[:_SHOWN_CHARACTERS]
    if _SCRIPT.search(markup) and (_SAYS_SO.search(markup) or _ROOT.search(markup)):
        return "scripts"
    return "" if html.text or html.title or html.links else "empty"
