"""Pages, links and facts as Arrow tables, one column list at a time.

What is empty is NULL. Fields that only some crawlers bring (`MORE`) are NULL in the tables of all others, and
`archive/parquet` leaves them out of the file: a crawl that does not ask for them does not pay for them.

Rows say how they came: in which batch, by whose crawler and in which visit, and whether their URL may have
been stored before. Rows of earlier versions do not; to whoever reads them they are of batch 0.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sterna.archive.manifest import Batch, FactRow
from sterna.archive.texts import clean
from sterna.archive.times import last_modified, moment
from sterna.model import Page

_TIME = pa.timestamp("us", tz="UTC")
_TEXTS = pa.list_(pa.string())

# In the order of `_more_columns`.
_MORE_FIELDS = [
    ("description", pa.string()),
    ("keywords", _TEXTS),
    ("headings", _TEXTS),
    ("html", pa.string()),
    ("headers", pa.map_(pa.string(), pa.string())),
    ("extracts", pa.map_(pa.string(), _TEXTS)),
]
MORE = tuple(name for name, _ in _MORE_FIELDS)
BATCH = "batch"
_BATCH_FIELD = (BATCH, pa.int64())
# In the order of `_how_pages_came`. `again` is False where the URL was never stored before: without it the
# newest version of each page could only be found by grouping all of them.
_CAME_FIELDS = [("visit", pa.string()), ("crawler", pa.string()), _BATCH_FIELD, ("again", pa.bool_())]
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
        *_MORE_FIELDS,
        *_CAME_FIELDS,
    ]
)
# `fetched` is that of the page: it tells of which version a link is.
LINK_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("from_url", "to_url", "text", "rel")),
        ("fetched", _TIME),
        ("crawler", pa.string()),
        _BATCH_FIELD,
    ]
)
FACT_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("crawler", "site", "visit", "template", "data")),
        ("received", _TIME),
        _BATCH_FIELD,
    ]
)
SCHEMAS = {"page": PAGE_SCHEMA, "link": LINK_SCHEMA, "fact": FACT_SCHEMA}
# What a file may lack: all its rows have nothing there, or it is of a version that did not know the column.
OPTIONAL = {
    "page": (*MORE, *(name for name, _ in _CAME_FIELDS)),
    "link": ("crawler", BATCH),
    "fact": (BATCH,),
}


def page_table(site_pages: Sequence[tuple[str, Page]], batch: Batch | None = None) -> pa.Table:
    """A row for each wanted page that is new or changed; of an unchanged one the earlier row stands."""
    positions = [position for position, (_, page) in enumerate(site_pages) if _is_stored(page)]
    pages = [site_pages[position][1] for position in positions]
    fetched = [moment(page.fetched) for page in pages]
    columns = [
        _strings(page.url for page in pages),
        _strings(site_pages[position][0] for position in positions),
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
        *_more_columns(pages),
        *_how_pages_came(positions, batch),
    ]
    return pa.table(columns, schema=PAGE_SCHEMA)


def link_table(site_pages: Sequence[tuple[str, Page]], batch: Batch | None = None) -> pa.Table:
    """A row for each link of the pages that `page_table` keeps."""
    pages = [page for _, page in site_pages if page.links.urls and _is_stored(page)]
    urls = _lines([page.links.urls for page in pages])
    parents = pc.list_parent_indices(urls)
    columns = [
        _strings(page.url for page in pages).take(parents),
        urls.flatten(),
        _lines([_column(page.links.texts, len(page.links)) for page in pages]).flatten(),
        _lines([_column(page.links.rels, len(page.links)) for page in pages]).flatten(),
        pa.array([moment(page.fetched) for page in pages], _TIME).take(parents),
        _crawlers(batch, len(parents)),
        _numbers(batch, len(parents)),
    ]
    return pa.table([columns[0], *map(_or_null, columns[1:4]), *columns[4:]], schema=LINK_SCHEMA)


def fact_table(facts: Sequence[FactRow], batch: Batch | None = None) -> pa.Table:
    """A row for each fact."""
    columns = [
        _strings(fact.crawler for fact in facts),
        _strings(fact.site for fact in facts),
        _strings(fact.visit for fact in facts),
        _strings(fact.template for fact in facts),
        _strings(fact.data for fact in facts),
        pa.array([None if fact.received is None else moment(fact.received) for fact in facts], _TIME),
        _numbers(batch, len(facts)),
    ]
    return pa.table(columns, schema=FACT_SCHEMA)


def _is_stored(page: Page) -> bool:
    return page.is_kept and not page.is_unchanged


def _how_pages_came(positions: Sequence[int], batch: Batch | None) -> list[pa.Array]:
    if batch is None:
        return [pa.nulls(len(positions), kind) for _, kind in _CAME_FIELDS]
    return [
        _strings(batch.visits[position] for position in positions),
        _crawlers(batch, len(positions)),
        _numbers(batch, len(positions)),
        pa.array([batch.again[position] for position in positions], pa.bool_()),
    ]


def _crawlers(batch: Batch | None, count: int) -> pa.Array:
    return pa.repeat(_strings([batch.crawler if batch else ""])[0], count)


def _numbers(batch: Batch | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(batch.number if batch else None, pa.int64()), count)


def _more_columns(pages: Sequence[Page]) -> list[pa.Array]:
    if not any(map(_has_more, pages)):
        return [pa.nulls(len(pages), kind) for _, kind in _MORE_FIELDS]
    values: list[list[Any]] = [
        [page.description for page in pages],
        [page.keywords for page in pages],
        [page.headings for page in pages],
        [page.html for page in pages],
        [_joined(page.headers) for page in pages],
        [_gathered(page.extracts) for page in pages],
    ]
    return [_nested(column, kind) for column, (_, kind) in zip(values, _MORE_FIELDS, strict=True)]


def _has_more(page: Page) -> bool:
    return bool(
        page.description or page.keywords or page.headings or page.html or page.headers or page.extracts
    )


def _joined(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each name once, as a map needs it; values of a name that came again are one list (RFC 9110, 5.3)."""
    joined: dict[str, str] = {}
    for name, value in headers:
        key = _key(name.lower())
        joined[key] = f"{joined[key]}, {value}" if key in joined else value
    return list(joined.items())


def _gathered(extracts: Iterable[tuple[str, Sequence[str]]]) -> list[tuple[str, list[str]]]:
    gathered: dict[str, list[str]] = {}
    for name, texts in extracts:
        gathered.setdefault(_key(name), []).extend(texts)
    return list(gathered.items())


def _key(name: str) -> str:
    # Two names may differ only in what cannot be kept of them, and DuckDB reads no map that has a key twice.
    return name if name.isascii() else clean(name)


def _nested(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column of texts, or of what holds texts."""
    column = [value or None for value in values]
    try:
        return pa.array(column, kind)
    except UnicodeEncodeError:
        return pa.array([_all_clean(value) for value in column], kind)


def _all_clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    return value and tuple(_all_clean(each) for each in value)


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


def _strings(values: Iterable[str]) -> pa.Array:
    column = [value or None for value in values]
    try:
        return pa.array(column, pa.string())
    except UnicodeEncodeError:
        return pa.array([value and clean(value) for value in column], pa.string())


def _within(number: int, top: int) -> int:
    """The number forced into 0..top: a runtime may send any, and one must not spoil the parcel."""
    return min(max(number, 0), top)
