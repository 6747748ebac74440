"""SQLite files: connections, the format version, and translated errors."""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sterna.errors import StorageError

BUSY_MS = 10_000


def connect(path: Path, *, is_reader: bool) -> sqlite3.Connection:
    """A connection for one thread at a time; a writer creates the file if needed."""
    mode = "rwc" if not is_reader else "ro&immutable=1" if _is_at_rest(path) else "ro"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
    )
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    return connection


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


def _is_at_rest(path: Path) -> bool:
    """True if SQLite cannot create the log that it reads by, and the file is complete without one."""
    log = path.with_name(f"{path.name}-wal")
    shared = path.with_name(f"{path.name}-shm")
    try:
        has_log = log.stat().st_size > 0 or shared.exists()
    except FileNotFoundError:
        has_log = False
    return not has_log and not os.access(path.parent, os.W_OK, effective_ids=True)


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
