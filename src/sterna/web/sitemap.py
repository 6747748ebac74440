"""Sitemaps: the URLs that a site itself names, in XML, in plain lines or in a feed."""

from xml.parsers import expat

from sterna.errors import ReadError
from sterna.model import Record
from sterna.web.charset import decode_text
from sterna.web.content_coding import decode_body
from sterna.web.urls import MAX_URL_LENGTH, Canonical

_GZIP_MAGIC = b"\x1f\x8b"
_MAX_PIECES = 4 * MAX_URL_LENGTH  # of one location; a piece has at least one character

_ROOTS = frozenset({"urlset", "sitemapindex", "rss", "rdf", "feed"})


class Sitemap(Record, frozen=True):
    """What a sitemap names: pages, and further sitemaps."""

    urls: tuple[str, ...]
    sitemaps: tuple[str, ...]


def read_sitemap(
    body: bytes, url: str, canonical: Canonical, *, max_bytes: int, max_urls: int = 50_000
) -> Sitemap:
    """Reads the sitemap that came from `url`; of a broken one, what stands before the break."""
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
    except (expat.ExpatError, _Enough) as error:
        if not listing.urls and not listing.sitemaps:
            reason = str(error) or "it declares entities"
            raise ReadError("sitemap", f"nothing in it could be read: {reason}") from error
    return Sitemap(tuple(listing.urls), tuple(listing.sitemaps))


class _Enough(Exception):
    """Stops the reading: there are as many URLs as may be, or what follows is not to be read."""


class _Listing:
    """The locations read so far; the parser calls its methods in document order."""

    def __init__(self, url: str, canonical: Canonical, *, max_urls: int) -> None:
        self.urls: dict[str, None] = {}
        self.sitemaps: dict[str, None] = {}
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
            self.add(self._join(location), target)

    def _join(self, href: str) -> str | None:
        # Only an absolute URL is allowed, but some sites write a path; an empty one would be the sitemap.
        return self._canonical(href, self._url) if href.strip() else None

    def refuse_entity(self, *_: object) -> None:
        """Stops at the declaration: entities of entities grow without bound, others read local files."""
        raise _Enough


def _read_xml(text: str, listing: _Listing) -> None:
    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler = listing.start
    parser.EndElementHandler = listing.end
    parser.CharacterDataHandler = listing.data
    parser.EntityDeclHandler = listing.refuse_entity
    # All at once: expat 2.5 reads a long token anew with each part that it is given.
    parser.Parse(text.encode(), True)
