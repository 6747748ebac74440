"""What is exported: the tables of a collection, and its WARC files."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sterna.errors import EmptyCollection, QueryError, UsageError
from sterna.export.warc import WarcFile
from sterna.query.engine import Engine

_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class Selection:
    """A collection as it is at one moment; `where` is the user's condition, "" for everything."""

    folder: Path
    engine: Engine
    warcs: tuple[WarcFile, ...] = ()
    where: str = ""
    _begun: list[Iterator[Any]] = field(default_factory=list)  # added to by `kept`, until it is closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends what was not read to its end: DuckDB complains of results that outlive it."""
        for rows in self._begun:
            if isinstance(rows, Generator):
                rows.close()

    @property
    def name(self) -> str:
        """The collection's name: that of its folder."""
        return self.folder.resolve().name

    def check(self, table: str = "page") -> int:
        """How many rows there are to export; an error says what is wrong with the table or the condition."""
        try:
            all_rows = self._count(f"SELECT count(*) FROM {quoted(table)}")  # noqa: S608
        except QueryError as error:
            raise UsageError(f"--table {table}: {_first_line(error)}") from error
        if not all_rows and table == "page":
            raise EmptyCollection(f"{self.folder} holds no pages yet: crawl something into it first")
        if not self.where:
            return all_rows
        try:
            return self._count(self.select("count(*)", table=table))
        except QueryError as error:
            raise UsageError(f"--where: {_first_line(error)}") from error

    def count(self, and_where: str) -> int:
        """How many of the pages that are to be exported meet a further condition."""
        return self._count(self.select("count(*)", and_where=and_where))

    def select(self, columns: str, *, table: str = "page", and_where: str = "") -> str:
        """The SQL that gives these columns of the rows that are to be exported."""
        conditions = [f"(\n{self.where}\n)"] if self.where else []  # a comment in it ends with its line
        conditions += [and_where] if and_where else []
        condition = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {columns} FROM {quoted(table)}{condition}"  # noqa: S608 - the user's own query

    def rows(self, columns: str, *, and_where: str = "") -> Iterator[tuple[Any, ...]]:
        """These columns of the pages that are to be exported, as they come."""
        return self.kept(self.engine.run(self.select(columns, and_where=and_where)).rows)

    def kept(self, rows: Iterator[_Row]) -> Iterator[_Row]:
        """The same rows of a result, which are ended with the export at the latest."""
        self._begun.append(rows)
        return rows

    def _count(self, sql: str) -> int:
        ((count,),) = self.engine.run(sql).rows
        return int(count)


def quoted(name: str) -> str:
    """The name of a table in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _first_line(error: QueryError) -> str:
    return str(error).partition("\n")[0]
