"""The SQLite file itself: opening it durably, transactions, checkpoints of its log, counters."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from sterna.errors import CollectionError, EmptyCollection
from sterna.home.ledger.sqlite import schema
from sterna.home.ledger.sqlite.lookup import Lookup
from sterna.web.sqlite import connect, translated, version_of

LOG_BYTES = 4 * 1024 * 1024  # the log's size from which a checkpoint is worth its syncs
MOST_FRAMES = 16_384  # 64 MB: the writer waits once the log is longer, so that it can begin anew
MOST_BYTES = MOST_FRAMES * 4096  # to which SQLite shortens a log that begins anew
CACHE_KIB = 64 * 1024


class Checkpoints:
    """One at a time; the writer calls `begin` after each commit."""

    def __init__(self, log: Path, connect: Callable[[bool], sqlite3.Connection]) -> None:
        self._log = log
        self._connect = connect
        self._thread = ThreadPoolExecutor(1)
        self._connection: sqlite3.Connection | None = None  # made and used by the thread
        self._under_way: Future[None] | None = None
        self._frames = 0  # of the log, as the last checkpoint saw it; written by the thread

    def begin(self) -> None:
        """Has a long log carried over, unless that is under way."""
        # On a slow disk the log may grow too long before the first look at it is over.
        if self._frames >= MOST_FRAMES or self._log_bytes() > MOST_BYTES:
            # SQLite begins the log anew only where all of it was carried over before a transaction begins.
            self._finish()
            self._thread.submit(self._carry_over).result()
            self._frames = 0
        elif self._under_way is None or self._under_way.done():
            self._finish()
            if self._log_bytes() > LOG_BYTES:
                self._under_way = self._thread.submit(self._carry_over)

    def close(self) -> None:
        self._finish()
        self._thread.shutdown()
        if self._connection:
            self._connection.close()

    def _finish(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way:
            under_way.result()  # a disk that refuses is the writer's trouble too

    def _carry_over(self) -> None:
        if self._connection is None:
            self._connection = self._connect(False)
        _, self._frames, _ = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def _log_bytes(self) -> int:
        try:
            return self._log.stat().st_size  # it keeps its size when it begins anew
        except FileNotFoundError:
            return 0


class Database:
    """One connection; the ledger calls it from one thread at a time."""

    def __init__(self, path: Path, *, is_reader: bool = False) -> None:
        self._path = path
        if is_reader and not path.exists():
            raise EmptyCollection(f"{path.parent} holds no crawl yet: run 'sterna crawl' first")
        self.lookup = Lookup(lambda: self._connect(is_reader=True))
        self._checkpoints = Checkpoints(self._path.with_name(f"{path.name}-wal"), self._connect)
        with self._translated():
            self.connection = self._connect(is_reader)
            if is_reader:
                self._check_version(oldest=min(schema.VIEWS))
                self.connection.executescript(schema.VIEWS.get(version_of(self.connection), ""))
            else:
                self._prepare()

    def close(self) -> None:
        self.lookup.close()
        self._checkpoints.close()
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; durable when it returns."""
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
        _read_no_further(self._path)
        return connection

    def _prepare(self) -> None:
        execute = self.connection.execute
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")  # a commit is on the disk, not only in its cache
        execute("PRAGMA wal_autocheckpoint = 0")  # they are made beside the writer
        execute(f"PRAGMA journal_size_limit = {MOST_BYTES}")
        execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        execute("PRAGMA temp_store = MEMORY")
        if version_of(self.connection) == 0:
            self._apply(schema.TABLES, schema.VERSION)
        while (version := version_of(self.connection)) in schema.UPGRADES:
            self._apply(schema.UPGRADES[version], version + 1)
        self._check_version(oldest=schema.VERSION)

    def _apply(self, statements: str, version: int) -> None:
        """Makes the file one of this format, or leaves it as it was."""
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
            raise EmptyCollection(f"{self._path.parent} holds no crawl yet: run 'sterna crawl' first")
        if not oldest <= version <= schema.VERSION:
            raise CollectionError(
                f"{self._path} has format {version}, this Sterna reads {schema.VERSION}:"
                " use the Sterna it was made with"
            )

    def _translated(self) -> AbstractContextManager[None]:
        return translated("ledger", self._path, advice={})


def _read_no_further(path: Path) -> None:
    """Links lie all over the file: what the system reads ahead only pushes better pages out of memory."""
    file = path.resolve()
    for fd in Path("/proc/self/fd").glob("*"):  # Linux; elsewhere there are none
        with suppress(OSError):  # another thread may close its own meanwhile
            if fd.readlink() == file:
                os.posix_fadvise(int(fd.name), 0, 0, os.POSIX_FADV_RANDOM)


def add_to_tally(db: sqlite3.Connection, amounts: Mapping[str, int]) -> None:
    """Adds to the counters of the whole collection."""
    db.executemany(
        "INSERT INTO tally VALUES (?, ?) ON CONFLICT DO UPDATE SET amount = amount + excluded.amount",
        [(name, amount) for name, amount in amounts.items() if amount],
    )


def read_tally(db: sqlite3.Connection) -> dict[str, int]:
    return dict(db.execute("SELECT name, amount FROM tally").fetchall())


class Part:
    """A concern of the ledger; all of them work on one database."""

    _database: Database


def count(db: sqlite3.Connection, sql: str, *values: float) -> int:
    return int(db.execute(sql, values).fetchone()[0])
