"""Queries of the SQL page: each in a process of its own, bounded in time and memory."""

import asyncio
import csv
import io
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sterna.model import Record
from sterna.web.http_app import Headers, HttpError

_LATER: Headers = (("retry-after", "5"),)
_INVALID = 2  # the exit code of `sterna query` for a mistake in the query
_CHUNK = 64 * 1024
_END_SECONDS = 5.0  # beyond the time of a query, for its process to begin and to end
csv.field_size_limit(2**31 - 1)

_log = logging.getLogger(__name__)


class SqlBounds(Record, frozen=True, kw_only=True):
    """Limits of one query, and of all queries together."""

    letters: int = 5_000
    seconds: float = 15.0
    memory: str = "500MB"
    rows: int = 1_000  # on the page
    page_bytes: int = 8_000_000
    link_bytes: int = 32_000_000  # of CSV and JSON
    queries: int = 2  # at once
    waiting: int = 8


class Output(Record, frozen=True):
    """What a query wrote, up to the limit."""

    text: str
    is_cut: bool


class Table(Record, frozen=True):
    """Rows of a query as texts."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    is_cut: bool  # there are more


@dataclass(eq=False, repr=False)
class Queries:
    """Runs queries over collections, as one, by `command`, which is `sterna query` without its arguments."""

    command: Sequence[str]
    folders: Sequence[str]
    environ: Mapping[str, str]
    bounds: SqlBounds = field(default_factory=SqlBounds)
    _waiting: int = 0  # changed by _run()
    _free: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self.bounds.queries)

    async def table(self, sql: str) -> Table:
        output = await self._run(sql, "csv", self.bounds.page_bytes)
        # Line ends within a cell must stay as they are.
        records = list(csv.reader(io.StringIO(output.text, newline="")))
        if output.is_cut:
            del records[-1:]
        columns, *rows = records or [[]]
        return Table(columns, rows[: self.bounds.rows], output.is_cut or len(rows) > self.bounds.rows)

    async def csv(self, sql: str) -> bytes:
        """All rows, safe for spreadsheets; HttpError if they are too many for a link."""
        output = await self._run(sql, "csv", self.bounds.link_bytes, "--safe-cells")
        self._check_whole(output)
        return output.text.encode()

    async def json(self, sql: str) -> bytes:
        """All rows as `{"rows": [...]}`; HttpError if they are too many for a link."""
        output = await self._run(sql, "jsonl", self.bounds.link_bytes)
        self._check_whole(output)
        return b'{"rows": [' + ",".join(output.text.splitlines()).encode() + b"]}\n"

    def _check_whole(self, output: Output) -> None:
        if output.is_cut:
            size = f"{self.bounds.link_bytes // 1_000_000} MB"
            raise HttpError(
                413, f"The result is larger than {size}: use LIMIT, or 'sterna query' with --out."
            )

    async def _run(self, sql: str, form: str, most_bytes: int, *more: str) -> Output:
        bounds = self.bounds
        if len(sql) > bounds.letters:
            raise HttpError(400, f"The query has {len(sql):,} letters; the limit is {bounds.letters:,}.")
        if "\0" in sql:
            raise HttpError(400, "The query contains a NUL.")
        if self._free.locked() and self._waiting >= bounds.waiting:
            raise HttpError(503, "Too many queries are waiting: try again in a few seconds.", _LATER)
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        limits = ("--seconds", f"{bounds.seconds:g}", "--memory", bounds.memory)
        try:
            words = (*self.command, "--format", form, *more, *limits, "--", *self.folders, sql)
            async with asyncio.timeout(bounds.seconds + _END_SECONDS):
                return await self._output(words, most_bytes)
        except TimeoutError:
            raise HttpError(503, f"stopped after {bounds.seconds:g} seconds: narrow the query") from None
        finally:
            self._free.release()

    async def _output(self, words: Sequence[str], most_bytes: int) -> Output:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environ,
        )
        assert process.stdout and process.stderr
        told = asyncio.create_task(_beginning(process.stderr))
        try:
            found = bytearray()
            while (chunk := await process.stdout.read(_CHUNK)) and len(found) <= most_bytes:
                found += chunk
            if is_cut := len(found) > most_bytes:
                return Output(found[:most_bytes].decode(errors="ignore"), is_cut)
            words_of_error = (await told).decode(errors="replace")
            code = await process.wait()
        finally:
            told.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()
        if code == _INVALID:
            raise HttpError(400, words_of_error.removeprefix("sterna: ").rstrip())
        if code:
            _log.warning("query: %s", words_of_error.removeprefix("sterna: ").rstrip())
            raise HttpError(503, "The collection cannot be queried now.", _LATER)
        return Output(found.decode(errors="replace"), is_cut)


async def _beginning(stream: asyncio.StreamReader) -> bytes:
    data = bytearray()
    while len(data) < _CHUNK and (some := await stream.read(_CHUNK)):
        data += some
    return bytes(data)


@dataclass(eq=False, repr=False)
class Schema:
    """The tables of a collection with their columns and numbers of rows, kept for a while."""

    queries: Queries
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _read_at: float = 0.0
    _tables: Sequence[tuple[str, int, Sequence[tuple[str, str]]]] = ()

    async def tables(self) -> Sequence[tuple[str, int, Sequence[tuple[str, str]]]]:
        """Each table: its name, its rows, and its columns with their types."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if not self._tables or loop.time() - self._read_at > _SCHEMA_SECONDS:
                self._tables = await self._read()
                self._read_at = loop.time()
            return self._tables

    async def _read(self) -> Sequence[tuple[str, int, Sequence[tuple[str, str]]]]:
        found = await self.queries.table(
            "SELECT table_name, column_name, data_type FROM information_schema.columns"
            # Of several collections, each has a database of its own behind the joined tables.
            " WHERE table_catalog = current_database() AND table_schema = 'main'"
            " ORDER BY table_name, ordinal_position"
        )
        columns: dict[str, list[tuple[str, str]]] = {}
        for table, column, kind in found.rows:
            columns.setdefault(table, []).append((column, kind))
        shown = list(columns)[:_MOST_TABLES]
        each = "SELECT {}, count(*) FROM {}"
        sql = " UNION ALL ".join(each.format(_literal(name), _identifier(name)) for name in shown)
        counts = await self.queries.table(sql)
        return [(name, int(count), columns[name]) for name, count in counts.rows if name in columns]


_SCHEMA_SECONDS = 30.0
_MOST_TABLES = 40


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
