"""Scans of segments: SQL that reads the rows of a table, or a part of them, from Parquet files."""

from collections.abc import Collection, Sequence

import duckdb

from sterna.archive.rows import SCHEMAS
from sterna.model import Record

FILE, ROW = "filename", "file_row_number"  # DuckDB's names for the position of a row

_MOST_GROUPS = 16


class Scan:
    """The rows of files, or of the table `given`, to put after FROM; a column that a file lacks is NULL."""

    def __init__(self, table: str, files: Sequence[str], *, given: str = "") -> None:
        self._schema = SCHEMAS[table]
        self.files = files
        self._given = given
        # The files by their columns, read when needed first.
        self._groups: dict[frozenset[str], Sequence[str]] = {}

    def leave_out(self, files: Collection[str]) -> None:
        self.files = [file for file in self.files if file not in files]
        self._groups = {}

    def rows(self, connection: duckdb.DuckDBPyConnection, *, with_place: bool = False) -> str:
        """The rows, with FILE and ROW if their position is wanted, which costs a little."""
        if self._given:
            return f"(SELECT *, '' AS {FILE}, rowid AS {ROW} FROM {self._given})"  # noqa: S608 - our own names
        if not self.files:
            columns = [*self._columns(connection, frozenset()), f"'' AS {FILE}", f"0 AS {ROW}"]
            return f"(SELECT {', '.join(columns)} WHERE false)"
        if not self._groups:
            self._groups = self._look(connection)
        is_mixed = len(self._groups) > _MOST_GROUPS
        groups = {frozenset().union(*self._groups): self.files} if is_mixed else self._groups
        # A folder called `a=b` must not become a column.
        options = ["hive_partitioning = false"]
        options += ["union_by_name = true"] if is_mixed else []
        options += ["filename = true", "file_row_number = true"] if with_place else []
        selects = []
        for present, files in groups.items():
            columns = [*self._columns(connection, present), *((FILE, ROW) if with_place else ())]
            source = f"read_parquet({', '.join([literal_list(files), *options])})"
            selects.append(f"SELECT {', '.join(columns)} FROM {source}")  # noqa: S608 - names of ours, quoted files
        return f"({' UNION ALL '.join(selects)})"

    def _columns(self, connection: duckdb.DuckDBPyConnection, present: frozenset[str]) -> list[str]:
        types = connection.from_arrow(self._schema.empty_table()).types
        return [
            identifier(name) if name in present else f"NULL::{kind} AS {identifier(name)}"
            for name, kind in zip(self._schema.names, types, strict=True)
        ]

    def _look(self, connection: duckdb.DuckDBPyConnection) -> dict[frozenset[str], Sequence[str]]:
        """The files by their columns: DuckDB's own way takes three times as long for the simplest query."""
        sql = f"SELECT file_name, list(name) FROM parquet_schema({literal_list(self.files)}) GROUP BY ALL"  # noqa: S608
        known = set(self._schema.names)
        groups: dict[frozenset[str], list[str]] = {}
        for file, names in connection.execute(sql).fetchall():
            groups.setdefault(frozenset(known.intersection(names)), []).append(file)
        return {columns: sorted(files) for columns, files in groups.items()}


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def literal_list(texts: Sequence[str]) -> str:
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

    def condition(self, *, has_visit: bool = True) -> str:
        """The condition on rows, in SQL; those of links have no visit."""
        conditions = [self.earlier_condition()]
        if self.after is not None:
            conditions.append(f"coalesce(batch, 0) > {self.after:d}")
        if self.crawler is not None:
            conditions.append(f"coalesce(crawler, '') GLOB {literal(self.crawler)}")
        if self.visit is not None and has_visit:
            conditions.append(f"visit = {literal(self.visit)}")
        return " AND ".join(conditions)

    def earlier_condition(self) -> str:
        """The condition on earlier versions: later batches never change the meaning of an earlier one."""
        return "true" if self.upto is None else f"coalesce(batch, 0) <= {self.upto:d}"
