"""The SQLite file itself: opening it durably, transactions, and its errors in our words."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from sterna.errors import CollectionError, EmptyCollection
from sterna.home.ledger.sqlite import schema
from sterna.home.ledger.sqlite.checkpoints import MOST_BYTES, Checkpoints
from sterna.home.ledger.sqlite.lookup import Lookup
from sterna.web.sqlite import connect, translated, version_of

CACHE_KIB = 64 * 1024


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
