"""Sitemap files as sitemaps.org defines them: one file, or an index and its parts; and texts for XML."""

import gzip
import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from html import escape
from itertools import chain
from pathlib import Path

from sterna.errors import StorageError
from sterna.model import Record

MAX_URLS = 50_000  # of one file
MAX_BYTES = 50 * 1024 * 1024  # of one file, before compression
MAX_LENGTH = 2_047  # of one URL
_XMLNS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
_DECLARED = '<?xml version="1.0" encoding="UTF-8"?>\n'
_HEAD, _TAIL = f"{_DECLARED}<urlset {_XMLNS}>\n".encode(), b"</urlset>\n"
_INDEX_HEAD, _INDEX_TAIL = f"{_DECLARED}<sitemapindex {_XMLNS}>\n".encode(), b"</sitemapindex>\n"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0 2.2
# What browsers leave as it is in a path or a query, and RFC 3986 does not allow there.
_NOT_URI = re.compile(r"[\[\]{}|\\^`\"<> ]|[^!-~]|%(?![0-9A-Fa-f]{2})")


def xml_text(written: str) -> str:
    """A text that can stand in an element or between quotes."""
    return escape(_NOT_XML.sub("\ufffd", written))


def xml_address(url: str) -> str:
    """A URL as RFC 3986 has it, that can stand in an element or between quotes."""
    origin_end = url.find("/", len("https://"))
    return escape(url[:origin_end] + _NOT_URI.sub(_quoted, url[origin_end:]))


def xml_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _quoted(sign: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in sign[0].encode("utf-8", "replace"))


class Listed(Record, frozen=True):
    """A page of a sitemap, and when it was changed, if that is known."""

    url: str
    lastmod: float | None


def write_sitemap(pages: Iterable[Listed], path: Path, *, base: str) -> list[Path]:
    """Writes the sitemap there; if one file does not hold it, an index, and its parts beside it.

    `base` is the URL of the folder in which they are served. A name that ends in .gz is compressed.
    """
    try:
        parts = list(_write_parts(pages, path))
        if len(parts) == 1:
            parts[0][0].replace(path)
            return [path]
        with _opened(path) as file:
            file.write(_INDEX_HEAD)
            file.writelines(
                _entry("sitemap", f"{base.rstrip('/')}/{part.name}", lastmod) for part, lastmod in parts
            )
            file.write(_INDEX_TAIL)
    except OSError as error:
        raise StorageError(f"failed to write {error.filename or path}: {error.strerror}") from error
    return [path, *(part for part, _ in parts)]


def _write_parts(pages: Iterable[Listed], path: Path) -> Iterator[tuple[Path, float | None]]:
    """Yields the files, each with its latest change; at least one, for a sitemap may be empty."""
    left: list[Listed] = []  # the page that had no room in the last file
    rest = (page for page in pages if len(xml_address(page.url)) <= MAX_LENGTH)
    stem, dot, suffix = path.name.partition(".")
    number = 0
    while number == 0 or left:
        number += 1
        part = path.with_name(f"{stem}-{number}{dot}{suffix}")
        lastmod: float | None = None
        with _opened(part) as file:
            size = file.write(_HEAD)
            for count, page in enumerate(chain(left, rest)):
                entry = _entry("url", page.url, page.lastmod)
                if count >= MAX_URLS or size + len(entry) + len(_TAIL) > MAX_BYTES:
                    left = [page]
                    break
                size += file.write(entry)
                lastmod = max(lastmod or 0.0, page.lastmod or 0.0) or None
            else:
                left = []
            file.write(_TAIL)
        yield part, lastmod


def _entry(element: str, url: str, lastmod: float | None) -> bytes:
    date = "" if lastmod is None else f"<lastmod>{xml_time(lastmod)}</lastmod>"
    return f"<{element}><loc>{xml_address(url)}</loc>{date}</{element}>\n".encode("ascii")


@contextmanager
def _opened(path: Path) -> Iterator[io.BufferedIOBase]:
    """A file that exists as a whole when the context ends, or not at all."""
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.unlink(missing_ok=True)  # left by a kill; never written through, for it may be a link
        with beside.open("xb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
                    yield packed
            else:
                yield raw
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
