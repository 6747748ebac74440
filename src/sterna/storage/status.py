"""How each rule stands: kept in the memory of who runs them, and in a small file for `sterna storage status`.

The truth is in the user's databases; the file has what they cannot tell: why nothing moves, and until when.
"""

import os
import threading
import time
from pathlib import Path

import msgspec

from sterna.archive.disk import storage_errors
from sterna.model import Record

NAME = "storage.status.json"
WRITE_SECONDS = 1.0  # at most so often


class Standing(Record, frozen=True, array_like=False, kw_only=True):
    """One rule at one database."""

    rule: str
    connection: str
    state: str = "ok"  # or down (the database), broken (the rule)
    batch: int = -1  # up to which everything is stored; -1: nothing yet
    of: int = 0  # the last batch of the archive
    stored: int = 0
    waiting: int = 0  # rows that were refused
    error: str = ""
    since: float = 0.0  # of the error
    next_try: float = 0.0


class Status(Record, frozen=True, array_like=False, kw_only=True):
    """All rules."""

    written: float
    fault: str = ""  # of storage.toml
    rules: tuple[Standing, ...] = ()


class Board:
    """Where workers note how their rules stand; safe among threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        # All of these are changed under the lock.
        self._standings: dict[tuple[str, str], Standing] = {}
        self._fault = ""
        self._is_changed = False
        self._written_at = 0.0

    def note(self, standing: Standing) -> bool:
        """True if that rule is in trouble of a kind that was not noted before."""
        key = (standing.rule, standing.connection)
        with self._lock:
            was = self._standings.get(key)
            is_news = bool(standing.error) and (was is None or was.error != standing.error)
            if was and was.error and was.state == standing.state:
                standing = msgspec.structs.replace(standing, since=was.since)
            self._is_changed |= standing != was
            self._standings[key] = standing
        return is_news

    def note_fault(self, fault: str) -> None:
        """What is wrong with the file of the rules, or nothing."""
        with self._lock:
            self._is_changed |= fault != self._fault
            self._fault = fault

    def keep_only(self, keys: set[tuple[str, str]]) -> None:
        """Forgets rules that are no more."""
        with self._lock:
            for key in set(self._standings) - keys:
                del self._standings[key]
                self._is_changed = True

    def standings(self) -> list[Standing]:
        """All rules, as they stand now."""
        with self._lock:
            return [self._standings[key] for key in sorted(self._standings)]

    def write(self, *, is_last: bool = False) -> None:
        """Puts the file in place of the old one if there is something new."""
        with self._lock:
            is_early = time.monotonic() - self._written_at < WRITE_SECONDS
            if not self._is_changed or (is_early and not is_last):
                return
            self._is_changed, self._written_at = False, time.monotonic()
            rules = tuple(self._standings[key] for key in sorted(self._standings))
            status = Status(written=time.time(), fault=self._fault, rules=rules)
        begun = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        with storage_errors(self._path):
            begun.write_bytes(msgspec.json.encode(status) + b"\n")
            begun.replace(self._path)


def read_status(path: Path) -> Status | None:
    """What was written last; None if nothing was, or by another version."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except (OSError, msgspec.MsgspecError):
        return None
