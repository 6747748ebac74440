"""Pages in columns: new and changed ones, redirects and errors; without what home computes itself."""

import re
from collections.abc import Sequence
from itertools import accumulate
from operator import add, sub
from typing import Any

from msgspec.structs import replace

from sterna.errors import WireError
from sterna.model import Links, Page, Raw, Record
from sterna.web.markup import MAX_LINKS
from sterna.web.signature import DIGEST_BYTES, LIKENESS_BYTES, digest_of
from sterna.web.urls import MAX_URL_LENGTH, fingerprint, site_of
from sterna.wire.columns import (
    ITEM,
    Lists,
    Numbers,
    Texts,
    counted,
    pack_flags,
    pack_lists,
    pack_numbers,
    pack_some,
    pack_texts,
    unpack_flags,
    unpack_lists,
    unpack_numbers,
    unpack_some,
    unpack_texts,
)
from sterna.wire.target_columns import (
    MAX_DEPTH,
    lengthen_lines,
    milliseconds,
    shorten,
    shorten_lines,
    unpack_referrers,
    unpack_urls,
)

MAX_PAGES = 100_000  # in a parcel; those that did not change not counted
MAX_FIELD_CHARS = 256 * 1024  # of what is not a page's contents: curl takes no longer lines of a head
MAX_STATUS = 999
_MAX_SIZE = 2**53
_NO_DIGEST, _OWN_DIGEST, _HTML_DIGEST = range(3)  # what is in `digest_kinds`
_BREAKS = re.compile(r"[\0\r\n]")  # what no header holds, and what home sends back must not hold either
_ERROR = re.compile(r"(?:[a-z][a-z0-9_]{0,63})?")
_LINK_LINES = re.compile(rf"(?:https?://[^\s\0]{{1,{MAX_URL_LENGTH}}}+(?:\n|\Z))*+")


class PageColumns(Record, frozen=True, kw_only=True):
    """Pages as they travel."""

    count: int = 0
    urls: Texts = ""
    depths: Numbers = ()
    fetched: Numbers = ()  # in milliseconds, each from the one before
    statuses: Numbers = ()
    errors: Texts = ""
    types: Texts = ""
    titles: Texts = ""
    texts: Texts = ""
    languages: Texts = ""
    digest_kinds: bytes = b""
    digests: bytes = b""
    sizes: Numbers = ()  # by how much they differ from those of the html
    modified: Texts = ""
    etags: Texts = ""
    referrers: Texts = ""
    link_urls: Texts = ""
    link_texts: Texts = ""
    link_rels: Texts = ""
    raws: tuple[Raw | None, ...] = ()
    is_kept: bytes = b""
    descriptions: Texts = ""
    keywords: Lists = ""
    headings: Lists = ""
    htmls: Texts = ""
    headers: Lists = ""
    extracts: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...] = ()
    has_likeness: bytes = b""
    likenesses: bytes = b""


def as_travelling(page: Page) -> Page:
    """The page in whole milliseconds; without validators that would break the head they are sent back in."""
    return replace(
        page,
        fetched=milliseconds(page.fetched) / 1000,
        is_unchanged=False,
        modified="" if _BREAKS.search(page.modified) else page.modified,
        etag="" if _BREAKS.search(page.etag) else page.etag,
    )


def pack_pages(pages: Sequence[Page], site: str) -> PageColumns:
    """The columns of these pages."""
    times = [milliseconds(page.fetched) for page in pages]
    bodies = [page.html.encode() for page in pages]
    kinds = bytes(map(_digest_kind, pages, bodies))
    has_likeness, likenesses = pack_some([page.likeness for page in pages], LIKENESS_BYTES)
    return PageColumns(
        count=len(pages),
        urls=pack_texts([shorten(page.url, site) for page in pages]),
        depths=pack_numbers([page.depth for page in pages]),
        fetched=pack_numbers(list(map(sub, times, [0, *times]))),
        statuses=pack_numbers([page.status for page in pages]),
        errors=pack_texts([page.error for page in pages]),
        types=pack_texts([page.content_type for page in pages]),
        titles=pack_texts([page.title for page in pages]),
        texts=pack_texts([page.text for page in pages]),
        languages=pack_texts([page.language for page in pages]),
        digest_kinds=kinds,
        digests=b"".join(page.digest for page, kind in zip(pages, kinds, strict=True) if kind == _OWN_DIGEST),
        sizes=pack_numbers([page.size - len(body) for page, body in zip(pages, bodies, strict=True)]),
        modified=pack_texts([page.modified for page in pages]),
        etags=pack_texts([page.etag for page in pages]),
        referrers=pack_texts([shorten(page.referrer, site) for page in pages]),
        link_urls=pack_texts([shorten_lines(page.links.urls, site) for page in pages]),
        link_texts=pack_texts([page.links.texts for page in pages]),
        link_rels=pack_texts([page.links.rels for page in pages]),
        raws=tuple(page.raw for page in pages) if any(page.raw for page in pages) else (),
        is_kept=pack_flags((page.is_kept for page in pages), usual=True),
        descriptions=pack_texts([page.description for page in pages]),
        keywords=pack_lists([page.keywords for page in pages]),
        headings=pack_lists([page.headings for page in pages]),
        htmls=pack_texts([page.html for page in pages]),
        headers=pack_lists([[text for header in page.headers for text in header] for page in pages]),
        extracts=tuple(page.extracts for page in pages) if any(page.extracts for page in pages) else (),
        has_likeness=has_likeness,
        likenesses=likenesses,
    )


def unpack_pages(columns: PageColumns, site: str, *, earliest: float, latest: float) -> tuple[Page, ...]:
    """The pages, each with its fingerprint; WireError if one of them cannot be."""
    count = columns.count
    if not 0 <= count <= MAX_PAGES:
        raise WireError("malformed", f"{count} pages in a parcel")
    urls, htmls = _urls_of_site(columns.urls, count, site), unpack_texts(columns.htmls, count)
    bodies = [html.encode() for html in htmls]
    fields: dict[str, Sequence[Any]] = {
        "url": urls,
        "fingerprint": list(map(fingerprint, urls)),
        "depth": unpack_numbers(columns.depths, count, least=0, most=MAX_DEPTH, name="depth"),
        "fetched": _times(columns.fetched, count, earliest=earliest, latest=latest),
        "status": unpack_numbers(columns.statuses, count, least=0, most=MAX_STATUS, name="status"),
        "error": _errors(columns.errors, count),
        "content_type": _short(columns.types, count),
        "title": _short(columns.titles, count),
        "text": unpack_texts(columns.texts, count),
        "language": _short(columns.languages, count),
        "digest": _digests(columns, bodies),
        "size": _sizes(columns.sizes, bodies),
        "modified": _validators(columns.modified, count),
        "etag": _validators(columns.etags, count),
        "referrer": unpack_referrers(columns.referrers, count, site),
        "links": _links(columns, site),
        "raw": counted(columns.raws or (None,) * count, count),
        "is_kept": unpack_flags(columns.is_kept, count, usual=True),
        "description": _short(columns.descriptions, count),
        "keywords": _short_lists(columns.keywords, count),
        "headings": _short_lists(columns.headings, count),
        "html": htmls,
        "headers": _headers(columns.headers, count),
        "extracts": counted(columns.extracts or ((),) * count, count),
        "likeness": unpack_some(columns.has_likeness, columns.likenesses, LIKENESS_BYTES, count=count),
    }
    return tuple(Page(**dict(zip(fields, row, strict=True))) for row in zip(*fields.values(), strict=True))


# --- digests and sizes, which follow from the html where a page is written in UTF-8


def _digest_kind(page: Page, body: bytes) -> int:
    if not page.digest:
        return _NO_DIGEST
    return _HTML_DIGEST if body and page.digest == digest_of(body) else _OWN_DIGEST


def _digests(columns: PageColumns, bodies: Sequence[bytes]) -> list[bytes]:
    kinds = counted(columns.digest_kinds, len(bodies))
    own = bytes(kind == _OWN_DIGEST for kind in kinds)
    digests = unpack_some(own, columns.digests, DIGEST_BYTES, count=len(bodies))
    for place, kind in enumerate(kinds):
        if kind == _HTML_DIGEST:
            digests[place] = digest_of(bodies[place])
        elif kind not in (_NO_DIGEST, _OWN_DIGEST):
            raise WireError("malformed", f"a digest of kind {kind}")
    return digests


def _sizes(column: Numbers, bodies: Sequence[bytes]) -> list[int]:
    count = len(bodies)
    beyond = unpack_numbers(column, count, least=-_MAX_SIZE, most=_MAX_SIZE, name="size")
    sizes = list(map(add, beyond, map(len, bodies)))
    if count and min(sizes) < 0:
        raise WireError("malformed", "a page that is smaller than nothing")
    return sizes


# --- the other columns


def _urls_of_site(column: Texts, count: int, site: str) -> list[str]:
    urls = unpack_urls(column, count, site)
    for url in urls:
        if site_of(url) != site:
            raise WireError("malformed", f"{url[:200]!r} is a page of another site")
    if len(set(urls)) != count:
        raise WireError("malformed", "the same page twice in a parcel")
    return urls


def _times(column: Numbers, count: int, *, earliest: float, latest: float) -> list[float]:
    times = list(accumulate(counted(column, count)))
    if count and not milliseconds(earliest) <= min(times) <= max(times) <= milliseconds(latest):
        raise WireError("malformed", "a page that was fetched before the visit began, or is still to be")
    return [time / 1000 for time in times]


def _errors(column: Texts, count: int) -> Sequence[str]:
    errors = unpack_texts(column, count)
    for error in set(errors):
        check_error(error)
    return errors


def check_error(kind: str) -> None:
    """WireError if a text cannot be the name of what went wrong."""
    if not _ERROR.fullmatch(kind):
        raise WireError("malformed", f"{kind[:100]!r} is no kind of error")


def _short(column: Texts, count: int) -> Sequence[str]:
    texts = unpack_texts(column, count)
    if max(map(len, texts), default=0) > MAX_FIELD_CHARS:
        raise WireError("malformed", f"a field of more than {MAX_FIELD_CHARS:,} characters")
    return texts


def _validators(column: Texts, count: int) -> Sequence[str]:
    texts = _short(column, count)
    if any(map(_BREAKS.search, texts)):
        raise WireError("malformed", "a validator with a line break in it")
    return texts


def _short_lists(column: Lists, count: int) -> Sequence[tuple[str, ...]]:
    lists = unpack_lists(column, count)
    if max((len(text) for texts in lists for text in texts), default=0) > MAX_FIELD_CHARS:
        raise WireError("malformed", f"a field of more than {MAX_FIELD_CHARS:,} characters")
    return lists


def _headers(column: Lists, count: int) -> list[tuple[tuple[str, str], ...]]:
    lists = _short_lists(column, count)
    if any(len(texts) % 2 for texts in lists):
        raise WireError("malformed", "a header without a value")
    return [tuple(zip(texts[::2], texts[1::2], strict=True)) for texts in lists]


def _links(columns: PageColumns, site: str) -> list[Links]:
    count = columns.count
    urls = [lengthen_lines(text, site) for text in unpack_texts(columns.link_urls, count)]
    links = list(
        map(Links, urls, unpack_texts(columns.link_texts, count), unpack_texts(columns.link_rels, count))
    )
    for each in links:
        if not each.urls and not each.texts and not each.rels:
            continue
        if len(each) > MAX_LINKS or max(each.texts.count(ITEM), each.rels.count(ITEM)) >= len(each):
            raise WireError("malformed", "more links, or texts of links, than a page can have")
        if not _LINK_LINES.fullmatch(each.urls):
            raise WireError("malformed", "a link that is no URL")
    return links
