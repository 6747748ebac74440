"""Pages and links as Arrow tables, one column list at a time."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sterna.archive.times import last_modified, moment
from sterna.model import Page

_TIME = pa.timestamp("us", tz="UTC")

PAGE_SCHEMA = pa.schema(
    [
        ("url", pa.string()),
        ("site", pa.string()),
        ("status", pa.int16()),
        ("error", pa.string()),
        ("content_type", pa.string()),
        ("title", pa.string()),
        ("text", pa.string()),
        ("language", pa.string()),
        ("digest", pa.string()),
        ("size", pa.int64()),
        ("depth", pa.int32()),
        ("fetched", _TIME),
        ("modified", _TIME),
        ("etag", pa.string()),
        ("referrer", pa.string()),
    ]
)
# `fetched` is that of the page: it tells of which version a link is.
LINK_SCHEMA = pa.schema(
    [*((name, pa.string()) for name in ("from_url", "to_url", "text", "rel")), ("fetched", _TIME)]
)
SCHEMAS = {"page": PAGE_SCHEMA, "link": LINK_SCHEMA}


def page_table(site_pages: Sequence[tuple[str, Page]]) -> pa.Table:
    """A row for each page that is new or changed; of an unchanged one the earlier row stands."""
    changed = [(site, page) for site, page in site_pages if not page.is_unchanged]
    pages = [page for _, page in changed]
    fetched = [moment(page.fetched) for page in pages]
    columns = [
        _strings(page.url for page in pages),
        _strings(site for site, _ in changed),
        pa.array([_within(page.status, 999) or None for page in pages], pa.int16()),
        _strings(page.error for page in pages),
        _strings(page.content_type for page in pages),
        _strings(page.title for page in pages),
        _strings(page.text for page in pages),
        _strings(page.language for page in pages),
        _strings(page.digest.hex() for page in pages),
        pa.array([_within(page.size, 2**63 - 1) for page in pages], pa.int64()),
        pa.array([_within(page.depth, 2**31 - 1) for page in pages], pa.int32()),
        pa.array(fetched, _TIME),
        pa.array(
            [last_modified(page.modified, fetched=at) for page, at in zip(pages, fetched, strict=True)], _TIME
        ),
        _strings(page.etag for page in pages),
        _strings(page.referrer for page in pages),
    ]
    return pa.table(columns, schema=PAGE_SCHEMA)


def link_table(site_pages: Sequence[tuple[str, Page]]) -> pa.Table:
    """A row for each link of the pages that `page_table` keeps."""
    pages = [page for _, page in site_pages if page.links.urls and not page.is_unchanged]
    urls = _lines([page.links.urls for page in pages])
    parents = pc.list_parent_indices(urls)
    columns = [
        _strings(page.url for page in pages).take(parents),
        urls.flatten(),
        _lines([_column(page.links.texts, len(page.links)) for page in pages]).flatten(),
        _lines([_column(page.links.rels, len(page.links)) for page in pages]).flatten(),
        pa.array([moment(page.fetched) for page in pages], _TIME).take(parents),
    ]
    return pa.table([columns[0], *map(_or_null, columns[1:4]), columns[4]], schema=LINK_SCHEMA)


def _lines(texts: Sequence[str]) -> pa.ListArray:
    try:
        column = pa.array(texts, pa.string())
    except UnicodeEncodeError:
        column = pa.array([clean(text) for text in texts], pa.string())
    return pc.split_pattern(column, "\n")


def _column(lines: str, count: int) -> str:
    """The lines, made exactly so many: a runtime may send any."""
    missing = count - lines.count("\n") - 1
    return lines + "\n" * missing if missing >= 0 else "\n".join(lines.split("\n")[:count])


def _or_null(strings: pa.StringArray) -> pa.StringArray:
    return pc.if_else(pc.equal(strings, ""), None, strings)


def clean(text: str) -> str:
    """The text with lone surrogates replaced: a page can hold them, UTF-8 cannot."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _strings(values: Iterable[str]) -> pa.Array:
    column = [value or None for value in values]
    try:
        return pa.array(column, pa.string())
    except UnicodeEncodeError:
        return pa.array([value and clean(value) for value in column], pa.string())


def _within(number: int, top: int) -> int:
    """The number forced into 0..top: a runtime may send any, and one must not spoil the parcel."""
    return min(max(number, 0), top)
