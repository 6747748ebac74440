"""Sitemaps: the URLs that a site itself names, in XML, in plain lines or in a feed."""

import re
from contextlib import suppress
from html import unescape
from xml.parsers import expat

from sterna.errors import ReadError
from sterna.model import Record
from sterna.web.charset import decode_text
from sterna.web.content_coding import decode_body
from sterna.web.urls import MAX_URL_LENGTH, Canonical

_GZIP_MAGIC = b"\x1f\x8b"
_MAX_PIECES = 4 * MAX_URL_LENGTH  # of one location; a piece has at least one character

# What the recovering reader sees: text that is not markup, a declaration with its subset, a tag. Names and
# attributes give nothing back once they are matched: what has no end is then left in linear time.
_MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z) | <!\[CDATA\[(?P<cdata>.*?)(?:\]\]>|\Z)"
    r" | <!DOCTYPE[^\[<>]*(?:\[.*?(?:\]\s*>|\Z)|>) | <[?!][^<>]*>"
    r" | <(?P<end>/?)(?P<name>[A-Za-z_][\w:.-]*+)(?P<attributes>(?:[^<>\"']|\"[^<\"]*\"|'[^<']*')*+)>",
    re.DOTALL | re.VERBOSE | re.IGNORECASE,
)
_ATTRIBUTE = re.compile(r"""(?<![\w:.-])([\w:.-]++)\s*+=\s*(?:"([^"]*)"|'([^']*)')""")
_CONTROL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # not in XML (1.0, 2.2)
_ENTITY = re.compile(r"&(?:#[0-9]+|#[Xx][0-9A-Fa-f]+|[A-Za-z_][\w.-]*);")

_MAX_DEPTH = 100  # of elements that malformed XML leaves open

_ROOTS = frozenset({"urlset", "sitemapindex", "rss", "rdf", "feed"})


class Sitemap(Record, frozen=True):
    """What a sitemap names: pages, and further sitemaps."""

    urls: tuple[str, ...]
    sitemaps: tuple[str, ...]
    lost: int = 0  # locations that are no URL, or hold what nobody defined


def read_sitemap(
    body: bytes, url: str, canonical: Canonical, *, max_bytes: int, max_urls: int = 50_000
) -> Sitemap:
    """Reads the sitemap that came from `url`; of one that is not well-formed, all that can be recovered."""
    if body.startswith(_GZIP_MAGIC):
        body = decode_body(body, "gzip", max_bytes=max_bytes)
    # Decoded here and not by expat, which refuses many encodings and stops at the first bad byte.
    text = decode_text(body[:max_bytes], None)[0].lstrip()
    listing = _Listing(url, canonical, max_urls=max_urls)
    try:
        if text.startswith("<"):
            _read_xml(text, listing)
        else:
            for line in text.splitlines():
                listing.add(canonical(line), listing.urls)
            if not listing.urls:
                raise ReadError("sitemap", "neither XML nor lines of URLs")
    except (expat.ExpatError, _Entities) as error:
        listing = _Listing(url, canonical, max_urls=max_urls, is_strict=False)
        with suppress(_Enough):
            _recover(text, listing)
        if not listing.urls and not listing.sitemaps:
            raise ReadError("sitemap", f"nothing in it could be read: {error}") from error
    except _Enough:
        pass
    return Sitemap(tuple(listing.urls), tuple(listing.sitemaps), listing.lost)


class _Enough(Exception):
    """Stops the reading: there are as many URLs as may be."""


class _Entities(Exception):
    """Stops the strict reading: entities of entities grow without bound, others read local files."""


class _Listing:
    """The locations read so far; the parser calls its methods in document order."""

    def __init__(self, url: str, canonical: Canonical, *, max_urls: int, is_strict: bool = True) -> None:
        self._is_strict = is_strict
        self.urls: dict[str, None] = {}
        self.sitemaps: dict[str, None] = {}
        self.lost = 0
        self._url, self._canonical, self._max_urls = url, canonical, max_urls
        self._open: list[str] = []
        self._pieces: list[str] | None = None  # of the location that is open
        self._targets = {
            ("url", "loc"): self.urls,
            ("sitemap", "loc"): self.sitemaps,
            ("item", "link"): self.urls,
        }

    def add(self, url: str | None, target: dict[str, None]) -> None:
        if url is not None:
            target[url] = None
            if len(self.urls) + len(self.sitemaps) >= self._max_urls:
                raise _Enough

    @property
    def open_names(self) -> list[str]:
        return self._open

    def start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(":")[2].lower()
        if not self._open and local not in _ROOTS:
            raise ReadError("sitemap", f"<{name[:40]}> is no sitemap")
        parent = self._open[-1] if self._open else ""
        self._open.append(local)
        if (parent, local) in self._targets:
            self._pieces = []
        elif (parent, local) == ("entry", "link") and attributes.get("rel", "alternate") == "alternate":
            self.add(self._join(attributes.get("href", "")), self.urls)

    def data(self, text: str) -> None:
        if self._pieces is not None and len(self._pieces) < _MAX_PIECES:
            self._pieces.append(text)

    def end(self, _: str) -> None:
        local = self._open.pop()
        target = self._targets.get((self._open[-1], local)) if self._open else None
        if target is not None and self._pieces is not None:
            location = "".join(self._pieces)
            self._pieces = None
            url = None if not self._is_strict and _ENTITY.search(location) else self._join(location)
            self.lost += url is None and bool(location.strip())
            self.add(url, target)

    def _join(self, href: str) -> str | None:
        # Only an absolute URL is allowed, but some sites write a path; an empty one would be the sitemap.
        return self._canonical(href, self._url) if href.strip() else None

    def refuse_entity(self, *_: object) -> None:
        raise _Entities("it declares entities")


def _read_xml(text: str, listing: _Listing) -> None:
    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler = listing.start
    parser.EndElementHandler = listing.end
    parser.CharacterDataHandler = listing.data
    parser.EntityDeclHandler = listing.refuse_entity
    # All at once: expat 2.5 reads a long token anew with each part that it is given.
    parser.Parse(text.encode(), True)


def _unescaped(written: str) -> str:
    # With their semicolon only: "&copy=1" is a part of a URL.
    return _ENTITY.sub(lambda entity: unescape(entity[0]), _CONTROL.sub("", written))


def _recover(text: str, listing: _Listing) -> None:
    """Reads XML that is not well-formed: of entities only those of HTML count, stray ends are ignored."""
    position = 0
    for found in _MARKUP.finditer(text):
        listing.data(_unescaped(text[position : found.start()]))
        position = found.end()
        name = found["name"]
        if found["cdata"] is not None:
            listing.data(_CONTROL.sub("", found["cdata"]))
        elif name is None:
            continue
        elif not found["end"]:
            if len(listing.open_names) >= _MAX_DEPTH:
                continue
            attributes = found["attributes"]
            pairs = {key: _unescaped(one or other) for key, one, other in _ATTRIBUTE.findall(attributes)}
            listing.start(name, pairs)
            if attributes.endswith("/"):
                listing.end(name)
        elif (local := name.rpartition(":")[2].lower()) in listing.open_names:
            while listing.open_names[-1] != local:
                listing.end("")
            listing.end("")
