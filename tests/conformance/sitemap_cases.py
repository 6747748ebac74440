"""Sitemaps: how many URLs crawler-commons finds in its own (SiteMapParserTest.java), and how many we find."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.sources import Source
from tests.conformance.suites import Case, first_of

from sterna.errors import ReadError
from sterna.web.sitemap import Sitemap, read_sitemap
from sterna.web.urls import Canonical

_COUNT = re.compile(r"getSiteMapUrls|getSitemaps")


def crawler_commons(folder: Path) -> Iterator[Case]:
    """Every number of URLs or sitemaps that is asserted of a text or a file."""
    root = first_of(folder / "crawler-commons")
    tests = root / "src/test/java/crawlercommons/sitemaps/SiteMapParserTest.java"

    def read(arguments: list[object]) -> object:
        return (root / str(arguments[0])).read_bytes()

    source = Source(tests.read_text(), calls={"getResourceAsBytes": read, "URI": str}, constants={})
    test, number, url = "", 0, ""
    body: bytes | None = None
    for token in source:
        if token == "void":
            test, number, body = source.tokens[source.at], 0, None
        elif token == "StringBuilder":
            body = b""
        elif token == "append" and source.next_is("("):
            (text,) = source.arguments()
            body = body + text.encode() if isinstance(text, str) and body is not None else None
        elif token in {"content", "scontent"} and source.next_is("="):
            value = source.value()
            if value is None and token == "scontent":  # a new, empty one
                body = b""
            elif isinstance(value, str | bytes):
                body = value if isinstance(value, bytes) else value.encode()
        elif token == "url" and source.next_is("=", "new", "URI", "("):
            url = str(source.arguments()[0])
        elif token == "assertEquals" and source.next_is("("):
            wanted = source.value()
            source.next_is(",")
            begin = source.at
            source.value()
            said = _COUNT.search("".join(source.tokens[begin : source.at]))
            if said and isinstance(wanted, int) and body:
                number += 1
                yield Case(f"{test} {number}", _count(body, url, said[0]), wanted)


def _count(body: bytes, url: str, what: str) -> int:
    try:
        found = read_sitemap(body, url, Canonical(), max_bytes=2**24)
    except ReadError:
        found = Sitemap((), ())
    return len(found.urls if what == "getSiteMapUrls" else found.sitemaps)
