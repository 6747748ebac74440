"""Pages, links and facts as Arrow tables, one column at a time; their fields are those marked as `Stored`.

Empty values are NULL. Optional fields, which only some crawlers bring, are NULL in the tables of all others,
and `archive/parquet` leaves them out of the file: a crawl that does not ask for them does not pay for them.

Rows say in which batch, crawler and visit they came, and whether an earlier version of their URL may be
stored. Rows of earlier releases lack these columns; readers take them for batch 0.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sterna.archive.disk import clean, moment
from sterna.archive.manifest import Batch, FactRow
from sterna.model import ColumnType, Page, Record, Stored, marked

BATCH = "batch"
_TEXT, _TIME = pa.string(), pa.timestamp("us", tz="UTC")
_TEXTS = pa.list_(_TEXT)
_FIRST_PAGE = datetime(1990, 12, 20, tzinfo=UTC)  # nothing on the web is older than the web
_CLOCK_ERROR = timedelta(days=1)


def page_table(site_pages: Sequence[tuple[str, Page]], batch: Batch | None = None) -> pa.Table:
    """A row for each page to keep that is new or changed; of an unchanged one the earlier row counts."""
    positions = [position for position, (_, page) in enumerate(site_pages) if is_stored(page)]
    pages = [site_pages[position][1] for position in positions]
    columns = _columns(_PAGE_FIELDS, pages)
    columns["site"] = _texts([site_pages[position][0] for position in positions])
    columns["visit"] = _texts([batch.visits[position] if batch else "" for position in positions])
    columns["crawler"] = _crawlers(batch, len(positions))
    columns[BATCH] = _numbers(batch, len(positions))
    again = [batch.again[position] if batch else None for position in positions]
    columns["again"] = pa.array(again, pa.bool_())
    return pa.table([columns[name] for name in PAGE_SCHEMA.names], schema=PAGE_SCHEMA)


def link_table(site_pages: Sequence[tuple[str, Page]], batch: Batch | None = None) -> pa.Table:
    """A row for each link of the pages that `page_table` keeps."""
    pages = [page for _, page in site_pages if page.links.urls and is_stored(page)]
    urls = _lines([page.links.urls for page in pages])
    parents = pc.list_parent_indices(urls)
    columns = [
        _texts([page.url for page in pages]).take(parents),
        _or_null(urls.flatten()),
        _or_null(_lines([_exactly(page.links.texts, len(page.links)) for page in pages]).flatten()),
        _or_null(_lines([_exactly(page.links.rels, len(page.links)) for page in pages]).flatten()),
        _times([page.fetched for page in pages]).take(parents),
        _crawlers(batch, len(parents)),
        _numbers(batch, len(parents)),
    ]
    return pa.table(columns, schema=LINK_SCHEMA)


def fact_table(facts: Sequence[FactRow], batch: Batch | None = None) -> pa.Table:
    columns = _columns(_FACT_FIELDS, facts)
    return pa.table([*columns.values(), _numbers(batch, len(facts))], schema=FACT_SCHEMA)


def last_modified(header: str, *, fetched: datetime) -> datetime | None:
    """The time in a Last-Modified header; None if there is none, or it lies outside the web's lifetime."""
    if not header:
        return None
    try:
        stated = parsedate_to_datetime(header)
        stated = stated.replace(tzinfo=UTC) if stated.tzinfo is None else stated.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return stated if _FIRST_PAGE <= stated <= fetched + _CLOCK_ERROR else None


# --- columns of any record


def _columns(fields: Mapping[str, Stored], rows: Sequence[Record]) -> dict[str, pa.Array]:
    columns = {}
    for name, stored in fields.items():
        (arrow, make), values = _KINDS[stored.type], list(map(attrgetter(name), rows))
        is_absent = stored.is_optional and not any(values)
        columns[name] = pa.nulls(len(rows), arrow) if is_absent else make(values, rows)
    return columns


def _fields(record: type[Record]) -> dict[str, Stored]:
    """The stored fields in the order of the columns."""
    fields = marked(record, Stored)
    names = list(fields)
    for name, stored in fields.items():
        if stored.after:
            names.remove(name)
            names.insert(names.index(stored.after) + 1, name)
    return {name: fields[name] for name in names}


def _texts(values: Iterable[Any], kind: pa.DataType = _TEXT) -> pa.Array:
    """A column of texts, or of what holds texts."""
    return _encoded([value or None for value in values], kind)


def _encoded(column: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(column, kind)
    except UnicodeEncodeError:
        return pa.array([_all_clean(value) for value in column], kind)


def _all_clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    return value and tuple(_all_clean(each) for each in value)


def _integers(values: Sequence[int], kind: pa.DataType, *, most: int) -> pa.Array:
    """The numbers forced into 0..most: a runtime may send any, and one must not spoil the parcel."""
    return pa.array([min(max(number, 0), most) for number in values], kind)


def _times(values: Sequence[float | None]) -> pa.Array:
    return pa.array([None if value is None else moment(value) for value in values], _TIME)


def _dates(headers: Sequence[str], pages: Sequence[Page]) -> pa.Array:
    pairs = zip(headers, pages, strict=True)
    return pa.array([last_modified(header, fetched=moment(page.fetched)) for header, page in pairs], _TIME)


def _joined(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each name once, as a map needs it; the values of a repeated name are one list (RFC 9110, 5.3)."""
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(_key(name.lower()), []).append(value)
    return [(key, ", ".join(each)) for key, each in values.items()]


def _gathered(extracts: Iterable[tuple[str, Sequence[str]]]) -> list[tuple[str, list[str]]]:
    gathered: dict[str, list[str]] = {}
    for name, texts in extracts:
        gathered.setdefault(_key(name), []).extend(texts)
    return list(gathered.items())


def _key(name: str) -> str:
    # Two names may differ only in what is replaced, and DuckDB reads no map that has a key twice.
    return name if name.isascii() else clean(name)


_HEADERS, _EXTRACTS = pa.map_(_TEXT, _TEXT), pa.map_(_TEXT, _TEXTS)
# The Arrow type of a column, and how it is made of the values of a field (and of whole rows).
_KINDS: dict[ColumnType, tuple[pa.DataType, Callable[[Sequence[Any], Sequence[Any]], pa.Array]]] = {
    "text": (_TEXT, lambda values, _: _texts(values)),
    "texts": (_TEXTS, lambda values, _: _texts(values, _TEXTS)),
    "hex": (_TEXT, lambda values, _: _texts(map(bytes.hex, values))),
    "status": (pa.int16(), lambda values, _: _or_null(_integers(values, pa.int16(), most=999), 0)),
    "int32": (pa.int32(), lambda values, _: _integers(values, pa.int32(), most=2**31 - 1)),
    "int64": (pa.int64(), lambda values, _: _integers(values, pa.int64(), most=2**63 - 1)),
    "time": (_TIME, lambda values, _: _times(values)),
    "date": (_TIME, _dates),
    "headers": (_HEADERS, lambda values, _: _texts(map(_joined, values), _HEADERS)),
    "extracts": (_EXTRACTS, lambda values, _: _texts(map(_gathered, values), _EXTRACTS)),
}


# --- columns of links, and where rows came from


def is_stored(page: Page) -> bool:
    return page.is_kept and not page.is_unchanged


def _crawlers(batch: Batch | None, count: int) -> pa.Array:
    return pa.repeat(_texts([batch.crawler if batch else ""])[0], count)


def _numbers(batch: Batch | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(batch.number if batch else None, pa.int64()), count)


def _lines(texts: Sequence[str]) -> pa.ListArray:
    return pc.split_pattern(_encoded(texts, _TEXT), "\n")


def _exactly(lines: str, count: int) -> str:
    """The lines, cut or filled up to this count: a runtime may send any."""
    missing = count - lines.count("\n") - 1
    return lines + "\n" * missing if missing >= 0 else "\n".join(lines.split("\n")[:count])


def _or_null(values: pa.Array, empty: str | int = "") -> pa.Array:
    return pc.if_else(pc.equal(values, pa.scalar(empty, values.type)), None, values)


# --- schemas


def _arrow(fields: Mapping[str, Stored]) -> list[tuple[str, pa.DataType]]:
    return [(name, _KINDS[stored.type][0]) for name, stored in fields.items()]


_PAGE_FIELDS, _FACT_FIELDS = _fields(Page), _fields(FactRow)
# `again` is False where no earlier version of the URL is stored: without it the newest version of each page
# could only be found by grouping all of them.
_ORIGIN_FIELDS = [("visit", _TEXT), ("crawler", _TEXT), (BATCH, pa.int64()), ("again", pa.bool_())]
_URL_FIELD, *_OTHER_FIELDS = _arrow(_PAGE_FIELDS)
PAGE_SCHEMA = pa.schema([_URL_FIELD, ("site", _TEXT), *_OTHER_FIELDS, *_ORIGIN_FIELDS])
# `fetched` is that of the page: it tells to which version a link belongs.
_LINK_TEXTS = dict.fromkeys(("from_url", "to_url", "text", "rel"), _TEXT)
LINK_SCHEMA = pa.schema(_LINK_TEXTS | {"fetched": _TIME, "crawler": _TEXT, BATCH: pa.int64()})
FACT_SCHEMA = pa.schema([*_arrow(_FACT_FIELDS), (BATCH, pa.int64())])
SCHEMAS = {"page": PAGE_SCHEMA, "link": LINK_SCHEMA, "fact": FACT_SCHEMA}
MORE = tuple(name for name, stored in _PAGE_FIELDS.items() if stored.is_optional)
# What a file may lack: no row has a value there, or the release that wrote it did not know the column.
OPTIONAL = {
    "page": (*MORE, *(name for name, _ in _ORIGIN_FIELDS)),
    "link": ("crawler", BATCH),
    "fact": (BATCH,),
}
# Columns by which versions are told apart; queries do not show them.
HIDDEN = {"page": frozenset({BATCH, "again"}), "link": frozenset({"fetched", "crawler", BATCH})}
