"""Rows of an answer that stay in Arrow's columns until somebody asks for one of them."""

from collections.abc import Iterator, Sequence
from datetime import date, datetime
from functools import cached_property
from typing import overload

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from sterna.storage.rows import Row

# DuckDB's types whose values Arrow has as they are, and can write: a UUID would be a text there, and a FLOAT
# would be written with fewer digits than the number that Python makes of it.
SIMPLE = frozenset({
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
# Of what Python has no datetime or date, DuckDB makes a text, or the last one for infinity.
_RANGES = {
    _TIME: [pa.scalar(moment, pa.timestamp("us")).value for moment in (datetime.min, datetime.max)],
    pa.date32(): [pa.scalar(day, pa.date32()).value for day in (date.min, date.max)],
}
_NUMBERS = {_TIME: pa.int64(), pa.date32(): pa.int32()}
# A text is in quotes, even an empty one, and NULL is nothing at all.
_AS_CSV = csv.WriteOptions(include_header=False, quoting_style="all_valid", batch_size=16_384)


class ColumnRows(Sequence[Row]):
    """The rows of a table; they are the same that DuckDB would have given in place of the table."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self._rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    @cached_property
    def _rows(self) -> list[Row]:
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'").fetchall()
            return connection.from_arrow(self._table).fetchall()

    def kinds(self, places: Sequence[int]) -> list[type] | None:
        """Of what type the values of these columns are, NULL aside; None if that is not the same for all."""
        columns = [self._table.column(place) for place in places]
        return [_KINDS[column.type] for column in columns] if all(map(_is_regular, columns)) else None

    def as_csv(self, places: Sequence[int]) -> memoryview:
        """These columns as CSV; NULL is empty, and everything else in quotes."""
        out = pa.BufferOutputStream()
        csv.write_csv(self._table.select(list(places)), out, _AS_CSV)
        return memoryview(out.getvalue())


def _is_regular(column: pa.ChunkedArray) -> bool:
    if column.type not in _RANGES:
        return column.type in _KINDS
    found = pc.min_max(column.cast(_NUMBERS[column.type]))
    least, most = _RANGES[column.type]
    return found["min"].as_py() is None or least <= found["min"].as_py() <= found["max"].as_py() <= most
