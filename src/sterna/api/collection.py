"""`sterna.Collection`: the results of a crawl, which may be running: to query, search and export."""

import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, get_args
from weakref import finalize

from sterna.errors import UsageError
from sterna.home.folder import CollectionFolder, make_index_folders, names_of, path_of, rights_over

if TYPE_CHECKING:
    from sterna.api.status import Status
    from sterna.export.job import Exported
    from sterna.export.progress import ExportFormat
    from sterna.query.answer import Answer
    from sterna.runtime.cell.confined import Confined
    from sterna.search.results import Found

EventKind = Literal["created", "updated", "deleted"]
Number = TypeVar("Number", int, float)


class Collection:
    """The folder in which a crawl keeps its results; raises NotACollection if the folder is not one."""

    # DuckDB, Arrow and tantivy are slow to load: each method loads what it needs.

    def __init__(self, folder: Path | str) -> None:
        self.folder = CollectionFolder(path_of("folder", folder)).check().folder
        self._path = self.folder.absolute()

    @cached_property
    def _confined(self) -> "Confined":
        return _confined_to(self, [self._path])

    def __getstate__(self) -> dict[str, object]:
        return _without_processes(self)

    def query(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        visit: str | None = None,
        memory_bytes: int = 1_000_000_000,
        seconds: float = 60.0,
    ) -> "Answer":
        """The result of a query: rows as dicts, or a table of Arrow, pandas or polars.

        `$name` in the query is the parameter `name`. With `visit` tables hold only what that visit brought.
        """
        from sterna.api import confined  # noqa: PLC0415

        question = confined.Question(
            folders=(self._path,),
            is_one=True,
            sql=sql,
            visit=visit,
            memory_bytes=_number(int, "memory_bytes", memory_bytes),
            seconds=_number(float, "seconds", seconds),
        )
        return confined.query(self._confined, question, parameters)

    def events(self, kind: EventKind | None = None, *, site: str | None = None) -> "Answer":
        """Pages that were created, updated or deleted, as visits found it, in the order of time."""
        if kind is not None and kind not in (kinds := get_args(EventKind)):
            raise UsageError(f"kind {kind!r} is invalid: {', '.join(kinds[:-1])} or {kinds[-1]}")
        return self.query(
            "SELECT * FROM event WHERE ($kind IS NULL OR kind = $kind) AND ($site IS NULL OR site = $site)"
            " ORDER BY fetched, url",
            {"kind": kind, "site": site},
        )

    def search(self, words: str, *, limit: int = 10, offset: int = 0) -> "Found":
        """The pages that match best; the index is created first if there is none."""
        from sterna.api import confined  # noqa: PLC0415

        make_index_folders(self._path)  # what searches may only write into them
        return confined.search(self._confined, [self._path], words, limit=limit, offset=offset)

    def export(
        self,
        to: "ExportFormat",
        out: Path | str,
        *,
        table: str = "page",
        where: str = "",
        base: str = "",
        force: bool = False,
        safe_cells: bool = False,
        main_content: bool = False,
    ) -> "Exported":
        """Writes the collection for other tools, whole or not at all; `out` is a file or a new folder.

        `table` is for jsonl, parquet and csv, `where` a condition in SQL, `base` the URL at which a sitemap
        will be served. `force` overwrites a file, or a folder of Markdown. `safe_cells` makes csv safe for
        spreadsheets. `main_content` leaves menus and other frames out of markdown.
        """
        from sterna.api.confined import export  # noqa: PLC0415
        from sterna.export.job import ExportJob  # noqa: PLC0415

        job = ExportJob(
            kind=to,
            place=path_of("out", out),
            table=table,
            base=base,
            force=force,
            safe_cells=safe_cells,
            main_content=main_content,
        )
        stdout = None
        if str(out) == "-":
            # In a notebook it is an object that takes texts only.
            stdout = getattr(sys.stdout, "buffer", None)
            if stdout is None:
                raise UsageError("standard output takes no bytes here: name a file instead of '-'")
        return export(self._path, job, where=where, stdout=stdout)

    def status(self) -> "Status":
        """Where the crawl stands: counts, sites, and how far the search index is."""
        from sterna.api.confined import status  # noqa: PLC0415

        return status(self._confined, self._path)


class Collections:
    """Several collections, to be queried and searched as one; raises NotACollection if a folder is not one.

    Tables have a first column `collection`, the name of the folder. Of a page that several have, the newest
    version counts.
    """

    def __init__(self, *folders: Path | str) -> None:
        if not folders:
            raise UsageError("name at least one folder of a collection")
        checked = [CollectionFolder(path_of("folder", folder)).check() for folder in folders]
        self.names = names_of(checked)
        self._paths = tuple(each.folder.absolute() for each in checked)

    @cached_property
    def _confined(self) -> "Confined":
        return _confined_to(self, self._paths)

    def __getstate__(self) -> dict[str, object]:
        return _without_processes(self)

    def query(
        self,
        sql: str,
        parameters: Mapping[str, object] | None = None,
        *,
        memory_bytes: int = 1_000_000_000,
        seconds: float = 60.0,
    ) -> "Answer":
        """The result of a query: rows as dicts, or a table of Arrow, pandas or polars."""
        from sterna.api import confined  # noqa: PLC0415

        question = confined.Question(
            folders=self._paths,
            is_one=False,
            sql=sql,
            memory_bytes=_number(int, "memory_bytes", memory_bytes),
            seconds=_number(float, "seconds", seconds),
        )
        return confined.query(self._confined, question, parameters)

    def search(self, words: str, *, limit: int = 10, offset: int = 0) -> "Found":
        """The pages that match best; indexes that are not there are created first."""
        from sterna.api import confined  # noqa: PLC0415

        make_index_folders(*self._paths)
        return confined.search(self._confined, self._paths, words, limit=limit, offset=offset)


def _number(kind: type[Number], name: str, value: float) -> Number:
    """UsageError for what is no number."""
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{name} {value!r} is invalid: a number") from None


def _confined_to(owner: object, folders: Sequence[Path]) -> "Confined":
    """What reads the folders for as long as its owner exists."""
    from sterna.runtime.cell.confined import Confined  # noqa: PLC0415

    rights = rights_over(*folders)
    confined = Confined(*rights.readable, writable=rights.writable)
    finalize(owner, confined.close)
    return confined


def _without_processes(owner: object) -> dict[str, object]:
    """What a copy takes along, or a pickle: it starts processes of its own."""
    return {name: value for name, value in vars(owner).items() if name != "_confined"}
