"""Files in a host's folder of state: SQLite databases, lock files, and files that only their owner can read.

A CGI host is one process per request, so many processes may open the same file at the same time.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from sterna.errors import StorageError, UsageError
from sterna.model import Record
from sterna.web.sqlite import connect, keep_log, translated, version_of

CACHE_KIB = 4 * 1024  # a host is small


class Format(Record, frozen=True):
    """What a database file holds, and what error messages say about it."""

    name: str  # as in "the {name} {path}"
    version: int
    tables: str  # the script that creates them
    missing: str  # said to a reader if there is no such file in the folder {}
    repair: str  # advice for a damaged file
    upgrades: tuple[str, ...] = ()  # the scripts from each older version to the next, the oldest first


class Database:
    """One SQLite file; threads share its connection, and each transaction or snapshot holds it alone."""

    def __init__(self, path: Path, format: Format, *, is_reader: bool = False) -> None:
        """A writer creates it if needed, a reader gets UsageError; StorageError if it fails or is damaged."""
        self.path = path
        self._format = format
        self._lock = threading.RLock()
        if not is_reader:  # SQLite gives its other files the same owner and mode
            os.close(_open(path))
        elif not path.exists():
            raise UsageError(format.missing.format(path.parent))
        with self._translated():
            self._connection = connect(path, is_reader=is_reader)
        try:
            with self._translated():
                self._connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
                if not is_reader:
                    self._prepare()
                version = version_of(self._connection)
            if version == 0:
                raise UsageError(format.missing.format(path.parent))
            is_older = format.version - len(format.upgrades) <= version < format.version
            if version != format.version and not (is_reader and is_older):
                raise StorageError(
                    f"the {format.name} {path} has format {version}, this version of Sterna reads"
                    f" {format.version}: {format.repair}"
                )
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self, *, is_durable: bool = False) -> Iterator[sqlite3.Connection]:
        """Commits everything or nothing; a loss of power may undo the last ones that are not durable."""
        with self._lock, self._translated():
            if is_durable:
                self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.rollback()
                raise
            finally:
                if is_durable:
                    self._connection.execute("PRAGMA synchronous = NORMAL")

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A consistent view for several reads; nested snapshots see the same one."""
        with self._lock, self._translated():
            is_outermost = not self._connection.in_transaction
            if is_outermost:
                self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                if is_outermost:
                    self._connection.rollback()

    def _prepare(self) -> None:
        keep_log(self._connection)
        self._connection.execute("PRAGMA synchronous = NORMAL")
        if version_of(self._connection) < self._format.version:
            with self.transaction() as db:
                version = version_of(db)  # another process may have been faster
                oldest = self._format.version - len(self._format.upgrades)
                if version == 0:
                    _execute(db, self._format.tables)
                elif version >= oldest:
                    for script in self._format.upgrades[version - oldest :]:
                        _execute(db, script)
                else:
                    return
                db.execute(f"PRAGMA user_version = {self._format.version}")

    def _translated(self) -> AbstractContextManager[None]:
        advice: Mapping[str, str] = {
            "fts5": "this Python's SQLite has no full-text search, use another Python",
            "malformed": self._format.repair,
            "not a database": self._format.repair,
        }
        return translated(self._format.name, self.path, advice=advice)


def _execute(db: sqlite3.Connection, script: str) -> None:
    statement = ""  # each by itself: executescript() would commit before it ran them all
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""


# -- other files -------------------------------------------------------------------------------------------


def make_folder(path: Path) -> None:
    """Creates a folder that only its owner can read; StorageError if that fails."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot create folder {path}: {error.strerror}") from error


def open_private(path: Path, flags: int) -> int:
    """A descriptor of a file with mode 0600 that is not a symbolic link; OSError if it cannot be opened."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    # If root creates the file, it belongs to the folder's owner, so that the host can go on with it.
    if flags & os.O_CREAT and os.geteuid() == 0:
        status, folder = os.fstat(descriptor), path.parent.stat()
        if status.st_size == 0 and status.st_nlink == 1 and status.st_uid != folder.st_uid:
            os.fchown(descriptor, folder.st_uid, folder.st_gid)
    return descriptor


def write_private(path: Path, data: bytes) -> None:
    """Writes a file with mode 0600, whole or not at all, and syncs it; StorageError if that fails."""
    beside = path.with_name(f"{path.name}.new")
    try:
        with os.fdopen(open_private(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)  # it may be there in part
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


def append_private(path: Path, data: bytes, *, may_create: bool = False) -> int:
    """Appends to a file, all or nothing, and syncs it; returns its new size. OSError if that fails.

    A new file has mode 0600. One thread at a time may append.
    """
    descriptor = open_private(path, os.O_WRONLY | os.O_APPEND | (os.O_CREAT if may_create else 0))
    try:
        size = os.fstat(descriptor).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fdatasync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)  # what is appended later must not follow a part of this
            raise
        return size + len(data)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Makes new and renamed files of a folder survive a loss of power; OSError if that fails."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """A descriptor of the file, which is created with its folder if needed; StorageError if that fails."""
    make_folder(path.parent)
    try:
        return open_private(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error.strerror}") from error


def lock(path: Path) -> int | None:
    """The descriptor of a lock that this process holds until it ends; None if another process holds it."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
