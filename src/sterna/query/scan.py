"""Scans of segments: SQL that reads the rows of a table, or a part of them, from Parquet files."""

from collections.abc import Sequence
from typing import NamedTuple

import duckdb
import pyarrow as pa

from sterna.archive.rows import SCHEMAS
from sterna.model import Record

FILE, ROW = "filename", "file_row_number"  # DuckDB's names for the position of a row

_MOST_GROUPS = 16
_SIMPLE_TYPES = {
    pa.string(): "VARCHAR",
    pa.bool_(): "BOOLEAN",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP WITH TIME ZONE",
}


class Scan:
    """The rows of one table, to put after FROM; a column that a file lacks is NULL.

    They come from the files or, if `given`, from the table of that name.
    """

    def __init__(self, table: str, files: Sequence[str], *, given: str = "") -> None:
        self._schema = SCHEMAS[table]
        self._files = files
        self._given = given
        self._alike: list[_Alike] | None = None  # read when needed first

    def rows(self, connection: duckdb.DuckDBPyConnection, *, with_place: bool = False) -> str:
        """The rows, with FILE and ROW if their position is wanted, which costs a little."""
        if self._given:
            return f"(SELECT *, '' AS {FILE}, rowid AS {ROW} FROM {self._given})"  # noqa: S608 - our own names
        if not self._files:
            columns = [*self._columns(frozenset()), f"'' AS {FILE}", f"0 AS {ROW}"]
            return f"(SELECT {', '.join(columns)} WHERE false)"
        if self._alike is None:
            self._alike = self._look(connection)
        return f"({' UNION ALL '.join(self._select(each, with_place=with_place) for each in self._alike)})"

    def _select(self, alike: "_Alike", *, with_place: bool) -> str:
        # A folder called `a=b` must not become a column.
        options = ["hive_partitioning = false"]
        columns = self._columns(alike.columns)
        if alike.is_mixed:
            options.append("union_by_name = true")
        if with_place:
            options += ["filename = true", "file_row_number = true"]
            columns += [FILE, ROW]
        files = f"read_parquet({', '.join([literal_list(alike.files), *options])})"
        return f"SELECT {', '.join(columns)} FROM {files}"  # noqa: S608 - names of ours, quoted files

    def _columns(self, present: frozenset[str]) -> list[str]:
        return [
            identifier(field.name)
            if field.name in present
            else f"NULL::{sql_type(field.type)} AS {identifier(field.name)}"
            for field in self._schema
        ]

    def _look(self, connection: duckdb.DuckDBPyConnection) -> "list[_Alike]":
        """The files by the columns that they have.

        DuckDB can do so by itself, but then takes three times as long for the simplest query.
        """
        sql = f"SELECT file_name, list(name) FROM parquet_schema({literal_list(self._files)}) GROUP BY ALL"  # noqa: S608
        known = set(self._schema.names)
        groups: dict[frozenset[str], list[str]] = {}
        for file, names in connection.execute(sql).fetchall():
            groups.setdefault(frozenset(known.intersection(names)), []).append(file)
        if len(groups) > _MOST_GROUPS:
            return [_Alike(frozenset().union(*groups), self._files, is_mixed=True)]
        return [_Alike(columns, sorted(files)) for columns, files in groups.items()]


class _Alike(NamedTuple):
    """Files with the same columns or, if mixed, with some of them."""

    columns: frozenset[str]
    files: Sequence[str]
    is_mixed: bool = False


def sql_type(kind: pa.DataType) -> str:
    """The name of an Arrow type in SQL."""
    if pa.types.is_map(kind):
        return f"MAP({sql_type(kind.key_type)}, {sql_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"{sql_type(kind.value_type)}[]"
    return _SIMPLE_TYPES[kind]


def literal(text: str) -> str:
    """The text as a literal in SQL."""
    return "'" + text.replace("'", "''") + "'"


def literal_list(texts: Sequence[str]) -> str:
    """The texts as a list in SQL."""
    return f"[{', '.join(map(literal, texts))}]"


def identifier(name: str) -> str:
    """The name of a table or column, quoted: names of templates and slots are untrusted."""
    return '"' + name.replace('"', '""') + '"'


class Within(Record, frozen=True, kw_only=True):
    """The part of a collection that tables show: some batches, one visit, some crawlers; None: no limit."""

    after: int | None = None
    upto: int | None = None
    visit: str | None = None
    crawler: str | None = None  # a glob pattern

    @property
    def is_all(self) -> bool:
        """True if nothing is left out."""
        return self == Within()

    def condition(self) -> str:
        """The condition on rows of pages and facts, in SQL."""
        return _joined(self._of_any(), self.visit is not None and f"visit = {literal(self.visit or '')}")

    def link_condition(self) -> str:
        """The condition on rows of links, which have no visit."""
        return _joined(self._of_any())

    def earlier_condition(self) -> str:
        """The condition on earlier versions: later batches never change the meaning of an earlier one."""
        return _joined(self.upto is not None and f"coalesce(batch, 0) <= {self.upto:d}")

    def _of_any(self) -> str:
        return _joined(
            self.after is not None and f"coalesce(batch, 0) > {self.after:d}",
            self.upto is not None and f"coalesce(batch, 0) <= {self.upto:d}",
            self.crawler is not None and f"coalesce(crawler, '') GLOB {literal(self.crawler or '')}",
        )


def _joined(*conditions: str | bool) -> str:
    wanted = [condition for condition in conditions if isinstance(condition, str) and condition != "true"]
    return " AND ".join(wanted) or "true"
