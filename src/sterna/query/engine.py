"""SQL over a collection: DuckDB in memory, reading the segments it is given and nothing else.

A query is one statement that reads. It can neither reach other files or the network nor change a setting, and
it is held to a limit of memory and of time: the texts that it works on come from strangers.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import duckdb
import pyarrow as pa

from sterna.archive.rows import SCHEMAS
from sterna.errors import QueryError
from sterna.query.limit import TimeLimit
from sterna.query.tables import define, quoted, quoted_list
from sterna.query.terminal import harmless

MEMORY_BYTES = 1_000_000_000
TIME_LIMIT_SECONDS = 60.0
_SPILL_FACTOR = 8  # where it has a folder, a query may take so many times its memory on the disk
_FETCH_ROWS = 1_000
_MESSAGE_WIDTH = 240

# The last keeps a query from reading the variables of this program.
_START: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


class Result(NamedTuple):
    """What a query gives; `rows` can be read once, and DuckDB works on as it is read."""

    columns: list[str]
    rows: Iterator[tuple[Any, ...]]


class Engine:
    """The tables of a collection, to be queried: page, page_history, link, fact, and those of `extra`.

    Given `pages`, it knows these alone.
    """

    def __init__(
        self,
        tables: Mapping[str, Sequence[Path]],
        *,
        extra: Mapping[str, pa.Table] | None = None,
        pages: pa.Table | None = None,
        memory_bytes: int = MEMORY_BYTES,
        time_limit_seconds: float = TIME_LIMIT_SECONDS,
        spill_folder: Path | None = None,
    ) -> None:
        self._memory_bytes = memory_bytes
        self._time_limit_seconds = time_limit_seconds
        self._connection = duckdb.connect(":memory:", config=_START)
        files = {name: [str(path.absolute()) for path in tables.get(name, ())] for name in SCHEMAS}
        try:
            define(self._connection, files, extra=extra or {}, pages=pages)
            _lock(
                self._connection,
                files=[path for paths in files.values() for path in paths],
                memory_bytes=memory_bytes,
                spill_folder=spill_folder,
            )
        except duckdb.Error as error:
            self._connection.close()
            raise QueryError(_message(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Frees the memory."""
        self._connection.close()

    def run(self, sql: str) -> Result:
        """The columns of the result, and its rows as they are asked for."""
        cursor = self._connection.cursor()
        limit = TimeLimit(self._time_limit_seconds, cursor.interrupt)
        try:
            with self._errors(limit), limit:
                statement = _only_statement(cursor, sql)
                # In DuckDB 2 a SELECT may change data (WITH x AS (DELETE ...)): its type alone is no promise.
                cursor.execute("BEGIN TRANSACTION READ ONLY")
                cursor.execute(statement)
        except BaseException:
            cursor.close()
            raise
        return Result([column[0] for column in cursor.description or ()], self._rows(cursor, limit))

    def _rows(self, cursor: duckdb.DuckDBPyConnection, limit: TimeLimit) -> Iterator[tuple[Any, ...]]:
        try:
            while True:
                with self._errors(limit), limit:
                    batch = cursor.fetchmany(_FETCH_ROWS)
                if not batch:
                    return
                yield from batch
        finally:
            cursor.close()

    @contextmanager
    def _errors(self, limit: TimeLimit) -> Iterator[None]:
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            raise QueryError(
                f"the query needs more than the {self._memory_bytes / 1e9:g} GB of memory that it may use: "
                "narrow it with WHERE or LIMIT, or ask for fewer columns"
            ) from error
        except duckdb.TransactionException as error:
            raise QueryError("the query would change data: only queries that read are allowed") from error
        except duckdb.Error as error:
            if limit.is_over:
                raise QueryError(
                    f"stopped after {limit.seconds:g} seconds: narrow the query with WHERE or LIMIT, "
                    "or allow it more time"
                ) from error
            raise QueryError(_message(error)) from error
        except RuntimeError as error:
            # DuckDB takes Ctrl-C for itself while it works, and says so in this way.
            raise KeyboardInterrupt from error


def _lock(
    connection: duckdb.DuckDBPyConnection,
    *,
    files: Sequence[str],
    memory_bytes: int,
    spill_folder: Path | None,
) -> None:
    """Shuts everything that a query must not reach; what comes last shuts the settings themselves."""
    spill_bytes = memory_bytes * _SPILL_FACTOR if spill_folder else 0
    settings = {
        "TimeZone": "'UTC'",
        "memory_limit": f"'{memory_bytes} bytes'",
        "temp_directory": quoted(str(spill_folder.absolute()) if spill_folder else ""),
        "max_temp_directory_size": f"'{spill_bytes} bytes'",
        "allowed_paths": quoted_list(files),
        "enable_external_access": "false",
        "lock_configuration": "true",
    }
    for name, value in settings.items():
        connection.execute(f"SET GLOBAL {name} = {value}")


def _only_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    statements = connection.extract_statements(sql)
    if not statements:
        raise QueryError("the query is empty: write one statement, such as SELECT url FROM page LIMIT 10")
    if len(statements) > 1:
        raise QueryError(f"the query has {len(statements)} statements: write one")
    if statements[0].type != duckdb.StatementType.SELECT:
        kind = statements[0].type.name
        raise QueryError(f"the query is a statement of type {kind}: only SELECT and its like are allowed")
    return statements[0]


def _message(error: duckdb.Error) -> str:
    # It quotes the query and, where a cast fails, the whole text of a page.
    return "\n".join(_shortened(harmless(line)) for line in str(error).strip().split("\n"))


def _shortened(line: str) -> str:
    return (
        line if len(line) <= _MESSAGE_WIDTH else f"{line[:_MESSAGE_WIDTH]} … {line[-_MESSAGE_WIDTH // 4 :]}"
    )
