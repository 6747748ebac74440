"""The result of a query for Python programs: rows one by one, or all as Arrow, pandas or polars."""

from collections.abc import Generator, Iterator
from types import ModuleType
from typing import Any, Self

import pyarrow as pa

from sterna.errors import QueryError


class Answer:
    """Rows can be streamed once, in little memory; `arrow` reads and keeps all of them."""

    def __init__(self, schema: pa.Schema, tables: Generator[pa.Table]) -> None:
        """`tables` has the rows; to close it ends the query."""
        self._schema = schema
        self._tables = tables
        self._table: pa.Table | None = None  # set by `arrow`
        self._is_begun = False  # the stream was read or closed

    @property
    def columns(self) -> list[str]:
        """The names of the columns; repeated ones have a number."""
        return list(self._schema.names)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.rows()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row as a dict of Python values."""
        batches = self._read() if self._table is None else self._table.to_batches()
        return (row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict"))

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        if self._table is None:
            self._table = pa.Table.from_batches(list(self._read()), self._schema)
        return self._table

    def pandas(self) -> Any:
        """All rows as a DataFrame of pandas, which must be installed."""
        _needed("pandas")
        return self.arrow().to_pandas(maps_as_pydicts="strict")

    def polars(self) -> Any:
        """All rows as a DataFrame of polars, which must be installed."""
        return _needed("polars").from_arrow(self.arrow())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the query and frees its memory; rows that were read by `arrow` stay."""
        self._is_begun = True
        self._tables.close()

    def _read(self) -> Iterator[pa.RecordBatch]:
        if self._is_begun:
            raise QueryError("the rows were read already: run the query again, or read all rows with arrow()")
        self._is_begun = True
        return (batch for table in self._tables for batch in table.to_batches())


def _needed(name: str) -> ModuleType:
    try:
        return __import__(name)
    except ModuleNotFoundError as error:
        raise QueryError(f"{name} is not installed: pip install {name}") from error
