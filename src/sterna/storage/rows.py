"""Rows of a query's answer: as a driver takes them, as text while they wait, and as columns of Arrow."""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from operator import itemgetter
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from sterna.query.terminal import as_plain

Row = tuple[Any, ...]

_SAME_EVERYWHERE: frozenset[type] = frozenset({type(None), bool, int, float, str, bytes})
_SAME_IN_POSTGRES = _SAME_EVERYWHERE | {list, datetime, date, time, timedelta, Decimal, UUID}


def bindable(rows: Sequence[Row], *, kind: str) -> Sequence[Row]:
    """The rows as the driver of this kind of database takes them.

    Maps and structs become JSON; lists stay lists in PostgreSQL, which has arrays. SQLite has neither times
    nor decimals: times become text as its functions read it, decimals become numbers.
    """
    same = _SAME_IN_POSTGRES if kind == "postgresql" else _SAME_EVERYWHERE
    columns = list(zip(*rows, strict=True))
    is_changed = False
    for number, column in enumerate(columns):
        if not set(map(type, column)) <= same:
            columns[number] = tuple(each if type(each) in same else _plain(each) for each in column)
            is_changed = True
    return list(zip(*columns, strict=True)) if is_changed else rows


def picker(places: Sequence[int]) -> Callable[[Row], Row]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda row: tuple(row[place] for place in places)


def _plain(value: Any) -> Any:
    match value:
        case list() | tuple() | dict():
            return json.dumps(as_plain(value), ensure_ascii=False)
        case Decimal():
            return as_plain(value)
        case bytearray() | memoryview():
            return bytes(value)
        case _:
            return str(value)


# -- as text, while a refused row waits --------------------------------------------------------------------

_READERS: dict[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "decimal": Decimal,
    "bytes": bytes.fromhex,
    "list": list,
    "parts": dict,
}


def as_json(row: dict[str, Any]) -> str:
    """A row as text for `from_json`; a value that JSON lacks is tagged with its type."""
    return json.dumps({name: _tagged(value) for name, value in row.items()})


def from_json(text: str) -> dict[str, Any]:
    row = json.loads(text)
    for name, value in row.items():
        if isinstance(value, dict):
            ((kind, content),) = value.items()
            row[name] = _READERS[kind](content)
    return dict(row)


def _tagged(value: Any) -> Any:  # noqa: PLR0911 - one line for each kind of value
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return {"list": as_plain(list(value))}
        case dict():
            return {"parts": as_plain(value)}
        case bytes() | bytearray():
            return {"bytes": value.hex()}
        case Decimal():
            return {"decimal": str(value)}
        case datetime() | date() | time():
            return {type(value).__name__: value.isoformat()}
        case _:
            return str(value)


# -- as columns of Arrow -----------------------------------------------------------------------------------

# Types of DuckDB whose values Arrow represents and writes exactly: it would make a text of a UUID, and write
# a FLOAT with fewer digits than Python does.
SIMPLE_TYPES = frozenset({
    "VARCHAR", "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER",
    "UBIGINT", "DOUBLE", "TIMESTAMP WITH TIME ZONE", "DATE",
})  # fmt: skip
_TIME = pa.timestamp("us", tz="UTC")
_KINDS: dict[pa.DataType, type] = {
    pa.string(): str,
    pa.bool_(): bool,
    **dict.fromkeys([pa.int8(), pa.int16(), pa.int32(), pa.int64()], int),
    **dict.fromkeys([pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()], int),
    pa.float64(): float,
    _TIME: datetime,
    pa.date32(): date,
}
ARROW_TYPES = frozenset(_KINDS)  # of SIMPLE_TYPES
_EPOCH = datetime(1970, 1, 1)
# Outside these ranges of Python DuckDB gives a text, or the last moment for infinity.
_RANGES = {
    _TIME: [(moment - _EPOCH) // timedelta(microseconds=1) for moment in (datetime.min, datetime.max)],
    pa.date32(): [(day - _EPOCH.date()).days for day in (date.min, date.max)],
}
_NUMBERS = {_TIME: pa.int64(), pa.date32(): pa.int32()}
# A text is quoted, even an empty one; NULL is an empty field without quotes.
_AS_CSV = csv.WriteOptions(include_header=False, quoting_style="all_valid", batch_size=16_384)


class ColumnRows(Sequence[Row]):
    """The rows of an Arrow table, the same as DuckDB itself would give; made on demand."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table  # read-only

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    @cached_property
    def _rows(self) -> list[Row]:
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'").fetchall()
            return connection.from_arrow(self.table).fetchall()

    def kinds(self, places: Sequence[int]) -> list[type] | None:
        """The Python types of these columns, apart from NULL; None if one of them has no single type."""
        columns = [self.table.column(place) for place in places]
        return [_KINDS[column.type] for column in columns] if all(map(_is_regular, columns)) else None

    def as_csv(self, places: Sequence[int]) -> memoryview:
        """These columns as CSV; NULL is an empty field, everything else is quoted."""
        out = pa.BufferOutputStream()
        csv.write_csv(self.table.select(list(places)), out, _AS_CSV)
        return memoryview(out.getvalue())


def _is_regular(column: pa.ChunkedArray) -> bool:
    if column.type not in _RANGES:
        return column.type in _KINDS
    found = pc.min_max(column.cast(_NUMBERS[column.type]))
    least, most = _RANGES[column.type]
    return found["min"].as_py() is None or least <= found["min"].as_py() <= found["max"].as_py() <= most
