"""What is exported: the tables of a collection and its WARC files, under the user's condition."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sterna.errors import EmptyCollection, QueryError, UsageError
from sterna.export.progress import ExportProgress
from sterna.export.warc import WarcFile
from sterna.query.engine import Engine
from sterna.query.scan import identifier


@dataclass(frozen=True, slots=True)
class Selection:
    """A collection as it is at one moment; `where` is the user's condition, "" for everything."""

    folder: Path
    engine: Engine
    warcs: tuple[WarcFile, ...] = ()
    where: str = ""
    scratch: Path = Path()  # the folder for what exceeds memory
    progress: ExportProgress = field(default_factory=ExportProgress)

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    def check(self, table: str = "page") -> int:
        """The number of rows to export; UsageError if the table or the condition is invalid."""
        try:
            all_rows = self._count(f"SELECT count(*) FROM {identifier(table)}")  # noqa: S608
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
        """The number of selected pages that meet a further condition."""
        return self._count(self.select("count(*)", and_where=and_where))

    def select(self, columns: str, *, table: str = "page", and_where: str = "") -> str:
        """The SQL for these columns of the selected rows."""
        conditions = [f"(\n{self.where}\n)"] if self.where else []  # a comment in it ends with its line
        conditions += [and_where] if and_where else []
        condition = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT {columns} FROM {identifier(table)}{condition}"  # noqa: S608 - the user's own query

    def rows(self, columns: str, *, and_where: str = "") -> Iterator[tuple[Any, ...]]:
        """These columns of the selected pages, streamed."""
        return self.engine.run(self.select(columns, and_where=and_where)).rows

    def _count(self, sql: str) -> int:
        ((count,),) = self.engine.run(sql).rows
        return int(count)


def _first_line(error: QueryError) -> str:
    return str(error).partition("\n")[0]
