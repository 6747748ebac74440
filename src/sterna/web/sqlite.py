"""SQLite files: connections, the format version, and translated errors."""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from sterna.errors import StorageError

BUSY_MS = 10_000
_GOING_SECONDS = 1.0
_PRIMARY = 0xFF  # of an error code of SQLite


class _AtRest(sqlite3.Connection):
    """Reads a file without the log by which a writer would notice; close() raises if the file was changed."""

    stamp: tuple[int, ...] = ()
    path: Path

    def close(self) -> None:
        stamp, self.stamp = self.stamp, ()
        super().close()
        if stamp and stamp != _stamp(self.path):
            raise sqlite3.OperationalError("another process wrote it meanwhile: run the same command again")


def connect(path: Path, *, is_reader: bool) -> sqlite3.Connection:
    """A connection for one thread at a time; a writer creates the file if needed.

    A reader needs the log beside the file, or to create one. Where it can do neither, as in a folder that it
    may only read or in a confined process, the file is complete, and is read as it is.
    """
    if not is_reader:
        return _opened(path, "rwc")
    deadline = time.monotonic() + _GOING_SECONDS
    while True:
        connection = _opened(path, "ro")
        try:
            # SQLite opens its files now, and the log stays until this connection is closed.
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        except sqlite3.DatabaseError as error:
            has_no_log = error.sqlite_errorcode & _PRIMARY in (
                sqlite3.SQLITE_CANTOPEN,
                sqlite3.SQLITE_READONLY,
            )
            if has_no_log and not _has_log(path):
                connection.close()
                return _at_rest(path)
            if has_no_log and time.monotonic() < deadline:  # a writer that ends removes the log's index first
                connection.close()
                time.sleep(0.01)
                continue
            # Whoever uses the connection is told what is wrong.
        return connection


def _at_rest(path: Path) -> sqlite3.Connection:
    stamp = _stamp(path)
    connection = _opened(path, "ro&immutable=1", kind=_AtRest)
    assert isinstance(connection, _AtRest)
    connection.path, connection.stamp = path, stamp
    return connection


def _opened(
    path: Path, mode: str, *, kind: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        factory=kind,
    )
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    return connection


def _has_log(path: Path) -> bool:
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def _stamp(path: Path) -> tuple[int, ...]:
    """Differs after a change of the file itself; what is in a log alone is no change."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return (-1,)
    return found.st_mtime_ns, found.st_size, found.st_ino


def make_log_readable(path: Path) -> None:
    """For readers that can create nothing: a log needs its index, even an empty one, to be read."""
    index = path.with_name(f"{path.name}-shm")
    if _has_log(path) and not os.path.lexists(index):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(OSError):  # the folder may only be read
            os.close(os.open(index, flags, path.stat().st_mode & 0o666))


def keep_log(connection: sqlite3.Connection) -> None:
    """Turns the write-ahead log on. SQLite does not wait here for another process that writes; this does."""
    deadline = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def version_of(connection: sqlite3.Connection) -> int:
    """The format version of the file; 0 if it is new."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def translated(name: str, path: Path, *, advice: Mapping[str, str]) -> Iterator[None]:
    """SQLite's errors as ours; `advice` says what to do where a word of it stands in the error."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        if "full" in text:
            raise StorageError(
                f"the disk of {path.parent} is full: free some space and run the same command again"
            ) from error
        tips = "".join(f"; {tip}" for word, tip in advice.items() if word in text)
        raise StorageError(f"the {name} {path} failed: {text}{tips}") from error
