"""The SQLite file: durable transactions, checkpoints of its write-ahead log, counters."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from sterna.errors import CollectionError, EmptyCollection, LedgerLost, command
from sterna.home.ledger.sqlite import schema
from sterna.home.ledger.sqlite.lookup import Lookup
from sterna.model import Record
from sterna.web.sqlite import connect, keep_log, translated, version_of

LOG_BYTES = 4 * 1024 * 1024  # below this size of the log, a checkpoint is not worth its syncs
MOST_FRAMES = 16_384  # 64 MB: the writer waits for a longer log, so that SQLite can restart it
MOST_BYTES = MOST_FRAMES * 4096  # SQLite truncates a restarted log to this size
CACHE_KIB = 64 * 1024

T = TypeVar("T", bound=Record)


class Database:
    """One connection; called from one thread at a time."""

    def __init__(self, path: Path, *, is_reader: bool = False) -> None:
        self._path = path
        if is_reader and not path.exists():
            raise EmptyCollection(f"{path.parent} contains no crawl yet: run 'sterna crawl' first")
        self.lookup = Lookup(lambda: self._connect(is_reader=True))
        self._checkpoints = Checkpoints(self._path.with_name(f"{path.name}-wal"), self._connect)
        with self._translated():
            self.connection = self._connect(is_reader)
            if is_reader:
                self._check_version(oldest=min(schema.VIEWS))
                self.connection.executescript(schema.VIEWS.get(version_of(self.connection), ""))
            else:
                self._prepare()
            self._check_names()

    def close(self) -> None:
        self.lookup.close()
        self._checkpoints.close()
        with self._translated():  # a reader is told if what it read was changed
            self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commits all or nothing; durable when the context ends."""
        with self._translated():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
            except BaseException:
                self.connection.rollback()
                raise
            self.connection.execute("COMMIT")
            self._checkpoints.begin()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self._translated():
            yield self.connection

    def _connect(self, is_reader: bool) -> sqlite3.Connection:
        connection = connect(self._path, is_reader=is_reader)
        _disable_read_ahead(self._path)
        return connection

    def _prepare(self) -> None:
        keep_log(self.connection)
        execute = self.connection.execute
        execute("PRAGMA synchronous = FULL")  # a commit must be on the disk, not only in a cache
        execute("PRAGMA wal_autocheckpoint = 0")  # `Checkpoints` makes them in its own thread
        execute(f"PRAGMA journal_size_limit = {MOST_BYTES}")
        execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        execute("PRAGMA temp_store = MEMORY")
        if version_of(self.connection) == 0:
            self._apply(schema.TABLES, schema.VERSION)
        while (version := version_of(self.connection)) in schema.UPGRADES:
            self._apply(schema.UPGRADES[version], version + 1)
        self._check_version(oldest=schema.VERSION)
        self.connection.executescript(schema.ORIGINALS)

    def _apply(self, statements: str, version: int) -> None:
        """Brings the file to this format version in one transaction."""
        try:
            self.connection.executescript(
                f"BEGIN IMMEDIATE; {statements} PRAGMA user_version = {version}; COMMIT;"
            )
        except BaseException:
            self.connection.rollback()
            raise

    def _check_version(self, *, oldest: int) -> None:
        version = version_of(self.connection)
        if version == 0:
            raise EmptyCollection(f"{self._path.parent} contains no crawl yet: run 'sterna crawl' first")
        if not oldest <= version <= schema.VERSION:
            raise CollectionError(
                f"{self._path} has ledger format {version}, but this version of Sterna reads format"
                f" {schema.VERSION}: use the version that wrote it"
            )

    def _check_names(self) -> None:
        """Raises LedgerLost if the ledger names files that are not in its collection."""
        if wrong := self.connection.execute(f"{schema.WRONG_NAMES} LIMIT 1").fetchone():
            self.connection.close()
            raise LedgerLost(
                f"{self._path} names a file outside of its collection, {str(wrong[0])[:80]!r}: somebody else"
                f" wrote it; nothing was changed: run '{command('repair', self._path.parent)}'"
            )

    def _translated(self) -> AbstractContextManager[None]:
        mend = f"run '{command('repair', self._path.parent)}'"
        write = f"make {self._path.parent} writable, or copy it to a folder that is"
        advice = {"malformed": mend, "not a database": mend, "readonly": write, "unable to open": write}
        return translated("ledger", self._path, advice=advice)


class Part:
    """Base of the ledger's concerns: all of them share one database."""

    _database: Database


class Checkpoints:
    """Copies the log into the tables in a thread beside the writer, which calls begin() after each commit."""

    def __init__(self, log: Path, connect: Callable[[bool], sqlite3.Connection]) -> None:
        self._log = log
        self._connect = connect
        self._thread = ThreadPoolExecutor(1)
        self._connection: sqlite3.Connection | None = None  # made and used by the thread
        self._under_way: Future[None] | None = None
        self._frames = 0  # length of the log at the last checkpoint; written by the thread

    def begin(self) -> None:
        """Starts a checkpoint if the log is long and none is running."""
        # On a slow disk the log may grow too long before the first checkpoint has reported its length.
        if self._frames >= MOST_FRAMES or self._log_bytes() > MOST_BYTES:
            # SQLite restarts the log only if all of it was copied before a transaction begins.
            self._finish()
            self._thread.submit(self._copy).result()
            self._frames = 0
        elif self._under_way is None or self._under_way.done():
            self._finish()
            if self._log_bytes() > LOG_BYTES:
                self._under_way = self._thread.submit(self._copy)

    def close(self) -> None:
        self._finish()
        self._thread.shutdown()
        if self._connection:
            self._connection.close()

    def _finish(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way:
            under_way.result()  # the writer must see disk errors too

    def _copy(self) -> None:
        if self._connection is None:
            self._connection = self._connect(False)
        _, self._frames, _ = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def _log_bytes(self) -> int:
        try:
            return self._log.stat().st_size  # a restarted log keeps its size
        except FileNotFoundError:
            return 0


def add_to_tally(db: sqlite3.Connection, amounts: Mapping[str, int]) -> None:
    """Adds to the counters of the whole collection. They are kept because counting rows would read all."""
    db.executemany(
        "INSERT INTO tally VALUES (?, ?) ON CONFLICT DO UPDATE SET amount = amount + excluded.amount",
        [(name, amount) for name, amount in amounts.items() if amount],
    )


def read_tally(db: sqlite3.Connection) -> dict[str, int]:
    return dict(db.execute("SELECT name, amount FROM tally").fetchall())


def count(db: sqlite3.Connection, sql: str, *values: float | str) -> int:
    return int(db.execute(sql, values).fetchone()[0])


def select(db: sqlite3.Connection, kind: type[T], source: str, *values: str | float) -> list[T]:
    """Records of rows; `source` is a table with a column for each field, and conditions, written here."""
    names = kind.__struct_fields__
    rows = db.execute(f"SELECT {', '.join(names)} FROM {source}", values)  # noqa: S608
    return [kind(**dict(zip(names, row, strict=True))) for row in rows]


def _disable_read_ahead(path: Path) -> None:
    """Turns read-ahead off: links are spread over the file, and it would only evict useful pages."""
    file = path.resolve()
    for fd in Path("/proc/self/fd").glob("*"):  # Linux only; elsewhere the folder is missing
        with suppress(OSError):  # another thread may have closed its file
            if fd.readlink() == file:
                os.posix_fadvise(int(fd.name), 0, 0, os.POSIX_FADV_RANDOM)
