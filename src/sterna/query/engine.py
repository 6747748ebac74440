"""SQL over a collection: DuckDB in memory, reading the segments it is given and nothing else.

A query is one statement that reads. It can neither reach other files or the network nor change a setting, and
it is held to a limit of memory and of time: the texts that it works on come from strangers.

A damaged segment is left out, with a warning, if the caller can warn; otherwise it is an error. DuckDB checks
no checksums: what it reads without an error may still be damaged, which only `sterna repair` finds.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import duckdb
import pyarrow as pa

from sterna.archive.examination import damage_of, is_cut
from sterna.archive.rows import SCHEMAS
from sterna.errors import DamagedSegment, QueryError
from sterna.query.complaints import Names, check_parameters, complaint, missing_table, only_statement
from sterna.query.scan import Within, literal, literal_list
from sterna.query.tables import Tables
from sterna.query.union import Part, Union

T = TypeVar("T")
MEMORY_BYTES = 1_000_000_000
TIME_LIMIT_SECONDS = 60.0
_SPILL_FACTOR = 8  # disk space that a query may take, as a multiple of its memory
_FETCH_ROWS = 1_000
_BATCH_ROWS = 2_048 * 8
_MOST_TABLES = 100  # that one query may name

# What DuckDB says of a file that it cannot read; a user's mistakes do not sound so.
_DAMAGE = re.compile(
    r"parquet|magic bytes|TProtocol|thrift|zstd|decompress|No files found|Could not read enough bytes",
    re.IGNORECASE,
)

# A query of the catalog must also see tables that no query has named yet.
_CATALOG = re.compile(
    r"\b(show|information_schema|duckdb_\w+|pg_catalog|sqlite_master|pragma_\w+)\b", re.IGNORECASE
)
# `python_enable_replacements` keeps a query from reading the variables of this program.
_START: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


class Result(NamedTuple):
    """The result of a query; `rows` can be read once, while DuckDB computes them."""

    columns: list[str]
    rows: Iterator[tuple[Any, ...]]


class Batches(NamedTuple):
    """The result of a query as Arrow batches; can be read once."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


class Engine:
    """The tables of a collection, to be queried: page, page_history, link, event, fact, those of `extra`.

    Given `pages`, it knows these alone. Given a part, tables hold what came `within` it, `page` everything.
    Given `members`, several collections, it knows their rows as one.
    """

    def __init__(  # noqa: PLR0913 - each is a part of what is queried, or a limit
        self,
        tables: Mapping[str, Sequence[Path]],
        *,
        extra: Mapping[str, pa.Table] | None = None,
        pages: pa.Table | None = None,
        within: Within | None = None,
        members: Sequence[Part] = (),
        memory_bytes: int = MEMORY_BYTES,
        time_limit_seconds: float = TIME_LIMIT_SECONDS,
        spill_folder: Path | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self._warn = warn
        self._memory_bytes = memory_bytes
        self._time_limit_seconds = time_limit_seconds
        self._connection = duckdb.connect(":memory:", config=_START)
        self._works: set[_Work] = set()  # changed by _begun() and _end()
        try:
            self._tables: Tables | Union
            if members:
                parts = [each._replace(files=self._whole(each.files)) for each in members]
                self._tables = Union(self._connection, parts)
            else:
                part, files = within or Within(), self._whole(tables)
                self._tables = Tables(self._connection, files, extra=extra or {}, pages=pages, within=part)
            self._lock(self._tables.files, spill_folder)
        except duckdb.Error as error:
            self._connection.close()
            raise complaint(error) from error

    def _whole(self, tables: Mapping[str, Sequence[Path | str]]) -> dict[str, list[str]]:
        """The files of each table; those that are cut are left out if the caller can be warned."""
        files = {name: [str(Path(path).absolute()) for path in tables.get(name, ())] for name in SCHEMAS}
        return {name: self._without_cut(paths) if self._warn else paths for name, paths in files.items()}

    def _lock(self, files: Sequence[str], spill_folder: Path | None) -> None:
        """Disables everything that a query must not reach, and last the settings themselves."""
        spill_bytes = self._memory_bytes * _SPILL_FACTOR if spill_folder else 0
        settings = {
            "TimeZone": "'UTC'",
            "parquet_metadata_cache": "true",  # a query reads it several times, and segments never change
            "errors_as_json": "true",  # with the position in the query
            "memory_limit": f"'{self._memory_bytes} bytes'",
            "temp_directory": literal(str(spill_folder.absolute()) if spill_folder else ""),
            "max_temp_directory_size": f"'{spill_bytes} bytes'",
            "allowed_paths": literal_list(files),
            "enable_external_access": "false",
            "lock_configuration": "true",
        }
        for name, value in settings.items():
            self._connection.execute(f"SET GLOBAL {name} = {value}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the queries whose rows were not read to the end, too."""
        for work in list(self._works):
            self._end(work)
        self._connection.close()

    def _end(self, work: "_Work") -> None:
        self._works.discard(work)
        work.close()

    def run(self, sql: str, parameters: Mapping[str, object] | None = None) -> Result:
        """The columns of the result, and its rows on demand; `$name` is a parameter."""

        def start(work: _Work) -> Callable[[], list[tuple[Any, ...]]]:
            work.call(partial(self._execute, work.cursor, sql, parameters or {}, work.cursor.execute))
            return partial(work.cursor.fetchmany, _FETCH_ROWS)

        work, first, read = self._started(sql, start)
        columns = [column[0] for column in work.cursor.description or ()]
        return Result(columns, self._stream(work, first, read))

    def run_arrow(
        self, sql: str, parameters: Mapping[str, object] | None = None, *, batch_rows: int = _BATCH_ROWS
    ) -> Batches:
        """The same in Arrow's columns."""

        def start(work: _Work) -> Callable[[], list[pa.RecordBatch]]:
            bind = partial(_bound, work.cursor)
            bound = work.call(partial(self._execute, work.cursor, sql, parameters or {}, bind))
            reader = work.reader = work.call(partial(bound.to_arrow_reader, batch_rows))
            return lambda: list(islice(reader, 1))

        work, first, read = self._started(sql, start)
        return Batches(work.reader.schema, self._stream(work, first, read))

    def _started(
        self, sql: str, start: Callable[["_Work"], Callable[[], list[T]]]
    ) -> tuple["_Work", list[T], Callable[[], list[T]]]:
        """The query with its first rows and what reads the next; begun again without damaged segments."""
        while True:
            try:
                with self._begun(sql) as work:
                    read = start(work)
                    return work, work.call(read), read
            except QueryError as error:
                damaged = self._damaged(error)
                if not damaged:
                    raise
                if self._warn is None:
                    raise damaged[0] from error
                for each in damaged:
                    self._warn(f"left out: {each}")
                self._tables.leave_out(self._connection, {str(each.path) for each in damaged})

    def _damaged(self, error: QueryError) -> list[DamagedSegment]:
        """The damaged segments that explain an error; reads all of them if it sounds like damage."""
        if not _DAMAGE.search(str(error.__cause__)):
            return []
        paths = [Path(path) for path in self._tables.files]
        if self._warn and not all(path.exists() for path in paths):  # all were there at the beginning
            raise QueryError("the crawl has merged segments that this query reads: run it again") from error
        found = ((path, damage_of(path)) for path in paths)
        return [DamagedSegment(path, reason) for path, reason in found if reason]

    def _without_cut(self, paths: Sequence[str]) -> list[str]:
        """The files that are there to their end, with a warning for each of the others."""
        assert self._warn
        cut = [path for path in paths if is_cut(Path(path))]
        for path in cut:
            self._warn(f"left out: {DamagedSegment(Path(path), damage_of(Path(path)))}")
        return [path for path in paths if path not in cut]

    @contextmanager
    def _begun(self, sql: str) -> Iterator["_Work"]:
        """A connection for one query; after an error it is closed."""
        work = _Work(sql, self._connection.cursor(), self._time_limit_seconds)
        self._works.add(work)
        try:
            with self._errors(work):
                yield work
        except BaseException:
            self._end(work)
            raise

    def _execute(
        self,
        cursor: duckdb.DuckDBPyConnection,
        sql: str,
        parameters: Mapping[str, object],
        start: Callable[[str, object], Any],
    ) -> Any:
        """The result of `start`; tables are defined when DuckDB reports them missing."""
        self._tables.prepare(cursor, sql)
        if _CATALOG.search(sql):
            for name in self._tables.names:
                self._tables.define(cursor, name)
        for _ in range(_MOST_TABLES):
            check_parameters(only_statement(cursor, sql), parameters)
            # In DuckDB 2 a SELECT may change data (WITH x AS (DELETE ...)): its type alone is no promise.
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            try:
                return start(sql, dict(parameters) or None)
            except duckdb.CatalogException as error:
                cursor.execute("ROLLBACK")
                if not self._define(cursor, missing_table(error)):
                    raise
        raise QueryError(f"the query names more than {_MOST_TABLES} tables: name fewer")

    def _define(self, cursor: duckdb.DuckDBPyConnection, name: str | None) -> bool:
        try:
            return name is not None and self._tables.define(cursor, name)
        except (duckdb.OutOfMemoryException, duckdb.InterruptException):
            raise
        except duckdb.Error as error:
            raise complaint(error) from error  # its position is in our SQL, not in the query

    def _stream(self, work: "_Work", some: list[T], read: Callable[[], list[T]]) -> Iterator[T]:
        try:
            while some:
                yield from some
                try:
                    with self._errors(work):
                        some = work.call(read)
                except QueryError as error:
                    if damaged := self._damaged(error):
                        raise damaged[0] from error  # rows were handed out: too late to leave it out
                    raise
        finally:
            self._end(work)

    @contextmanager
    def _errors(self, work: "_Work") -> Iterator[None]:
        try:
            yield
        except (duckdb.OutOfMemoryException, MemoryError) as error:
            raise QueryError(
                f"the query needs more than the {self._memory_bytes / 1e9:g} GB of memory that it may use: "
                "narrow it with WHERE or LIMIT, ask for fewer columns, or allow it more memory"
            ) from error
        except duckdb.TransactionException as error:
            raise QueryError("the query would change data: only queries that read are allowed") from error
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            if work.is_over:
                raise QueryError(
                    f"stopped after {self._time_limit_seconds:g} seconds: narrow the query with WHERE or"
                    " LIMIT, or allow it more time"
                ) from error
            raise complaint(error, work.sql, Names(self._tables, work.cursor)) from error


@dataclass(eq=False, repr=False)
class _Work:
    """One query on its way, in a thread of its own, for DuckDB is mostly deaf to Ctrl-C."""

    sql: str
    cursor: duckdb.DuckDBPyConnection
    left_seconds: float
    reader: Any = None  # of the result in Arrow's columns
    is_over: bool = False  # set by the timer's thread only
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "query"))

    def call(self, work: Callable[[], T]) -> T:
        """The result of the work, interrupted by Ctrl-C, and when all calls have used up the time."""
        began = time.monotonic()
        timer = threading.Timer(max(self.left_seconds, 0), self._end)
        timer.daemon = True
        timer.start()
        future = self._thread.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            self.cursor.interrupt()
            wait([future])
            raise
        finally:
            timer.cancel()
            self.left_seconds -= time.monotonic() - began

    def _end(self) -> None:
        self.is_over = True
        self.cursor.interrupt()

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
        self._thread.shutdown()
        self.cursor.close()


def _bound(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: object) -> duckdb.DuckDBPyRelation:
    """The query as a relation, which can be read in columns without copying rows."""
    try:
        return cursor.sql(sql, params=parameters)
    except duckdb.Error:
        cursor.execute(sql, parameters)  # fails again, with the position in the query
        raise
