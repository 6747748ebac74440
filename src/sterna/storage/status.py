"""The state of each rule: in the memory of the process that runs them, and in a small file for others.

The databases themselves know how far each rule is. The file adds what they cannot know: why a rule is
stopped, and until when. `sterna storage status` reads both.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from sterna.archive.disk import begin_file, storage_errors
from sterna.model import Record
from sterna.storage import position
from sterna.storage.config import Config
from sterna.storage.connections import Database, Fault
from sterna.storage.position import Key

NAME = "storage.status.json"
WRITE_SECONDS = 1.0  # between two writes of the file
_CONNECT_SECONDS = 3


class Standing(Record, frozen=True, array_like=False, kw_only=True):
    """One rule at one database."""

    rule: str
    connection: str
    state: str = "ok"  # or down (the database), broken (the rule)
    batch: int = -1  # the last batch that is stored completely; -1: none yet
    of: int = 0  # the last batch of the archive
    stored: int = 0
    waiting: int = 0  # refused rows
    error: str = ""
    since: float = 0.0  # of the error
    next_try: float = 0.0


class Status(Record, frozen=True, array_like=False, kw_only=True):
    """All rules."""

    written: float
    fault: str = ""  # of storage.toml
    rules: tuple[Standing, ...] = ()


class Board:
    """Where workers note the state of their rules; thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._standings: dict[tuple[str, str], Standing] = {}  # changed under the lock
        # Changed by the manager's thread.
        self.fault = ""  # of storage.toml
        self._written: tuple[str, list[Standing]] = ("", [])
        self._written_at = 0.0

    def note(self, standing: Standing) -> bool:
        """Notes the state of a rule; True if it has an error that it did not have before."""
        key = (standing.rule, standing.connection)
        with self._lock:
            was = self._standings.get(key)
            is_news = bool(standing.error) and (was is None or was.error != standing.error)
            if was and was.error and was.state == standing.state:
                standing = replace(standing, since=was.since)
            self._standings[key] = standing
        return is_news

    def keep_only(self, keys: set[tuple[str, str]]) -> None:
        with self._lock:
            self._standings = {key: self._standings[key] for key in self._standings.keys() & keys}

    def standings(self) -> list[Standing]:
        with self._lock:
            return [self._standings[key] for key in sorted(self._standings)]

    def write(self, *, is_last: bool = False) -> None:
        """Replaces the file if something changed."""
        content = (self.fault, self.standings())
        is_early = time.monotonic() - self._written_at < WRITE_SECONDS
        if content == self._written or (is_early and not is_last):
            return
        self._written, self._written_at = content, time.monotonic()
        status = Status(written=time.time(), fault=self.fault, rules=tuple(content[1]))
        begun = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        with storage_errors(self._path):
            with begin_file(begun) as file:
                file.write(msgspec.json.encode(status) + b"\n")
            begun.replace(self._path)


def read_status(path: Path) -> Status | None:
    """The file as last written; None if it is missing or of another version."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except (OSError, msgspec.MsgspecError):
        return None


def standings_now(
    config: Config,
    noted: Status | None,
    *,
    folder: Path,
    collection: str,
    batch: int,  # the last one of the archive
    environ: Mapping[str, str],
) -> Iterator[Standing]:
    """The state of each rule at each database, as the database knows it, or as noted last if it is down."""
    last = {(each.rule, each.connection): each for each in (noted.rules if noted else ())}
    for name, spec in config.connections.items():
        database = Database(name, spec, folder=folder, environ=environ, connect_seconds=_CONNECT_SECONDS)
        rules = [rule for rule in config.rules if name in config.connections_of(rule)]
        try:
            for rule in rules:
                standing = last.get((rule, name), Standing(rule=rule, connection=name))
                yield _now(database, Key(collection, rule), replace(standing, of=batch))
        finally:
            database.close()


def _now(database: Database, key: Key, noted: Standing) -> Standing:
    try:
        with database.connect(is_reader=True) as connection:
            if not position.has_tables(connection):
                return replace(noted, batch=position.BEFORE_ALL, stored=0, waiting=0)
            known = position.read(connection, key)
            refused = position.refused(connection, key)
    except Fault as fault:
        return replace(noted, state=str(fault.kind), error=str(fault), since=noted.since or time.time())
    found = replace(noted, batch=known.batch, stored=known.stored, waiting=refused.count)
    if noted.state == "down":  # it answers again
        found = replace(found, state="ok", error="", since=0.0, next_try=0.0)
    if refused.count and not found.error:
        found = replace(found, error=refused.error, next_try=refused.next_try)
    return found
