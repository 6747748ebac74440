"""The audit log of a host: JSON lines, each with the hash of the one before, and a head file with the last.

Several processes may write it (a CGI host is one process per request): a lock on the head lets in one at a
time. If a process dies while it writes, the next one closes the torn line and notes it.
"""

import fcntl
import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from sterna.errors import Refused, StorageError
from sterna.host.files import append_private, open_private
from sterna.model import Record
from sterna.web.clock import Clock

AUDIT = "audit.jsonl"  # the file's name in the folder of state
TORN = "line-torn"  # the event that closes an incomplete line
HEAD_LOST = "head-lost"  # the event after a lost head: lines before it may have been cut off
ROTATE_BYTES = 64 * 1024 * 1024
MAX_FILES = 16  # full ones; one more replaces the oldest
MAX_LINE_BYTES = 64 * 1024
MAX_TEXT = 500  # characters of one field: names come from strangers
HEAD_BYTES = 256
LOCK_SECONDS = 5.0
REFUSALS_A_MINUTE = 60  # with a line each; the others of the minute share one
WINDOW_SECONDS = 60.0
RETRY_SECONDS = 60.0
_RESERVED = frozenset({"n", "time", "event", "before"})

Value = str | int | float | bool

_log = logging.getLogger(__name__)

Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Head(Record, frozen=True, array_like=False, kw_only=True):
    """What the head file says: the last line, and the extent of the log."""

    n: Number = 0
    hash: str = ""
    size: Number = 0  # of the current file, with that line
    first: Number = 1  # the number of the first line that is kept


class Audit:
    """Appends to the log; a line is on the disk when note() returns."""

    def __init__(self, path: Path, *, clock: Clock, rotate_bytes: int = ROTATE_BYTES) -> None:
        self.path = path
        self._clock = clock
        self._rotate_bytes = rotate_bytes

    def note(self, event: str, **fields: Value) -> None:
        """Adds a line; StorageError if that fails."""
        assert not _RESERVED & fields.keys()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open_head(self.path) as head_file:
                self._append(head_file, event, fields)
        except OSError as error:
            raise StorageError(f"cannot write audit log {self.path}: {error.strerror}") from error

    def _append(self, head_file: int, event: str, fields: dict[str, Value]) -> None:
        head = read_head(head_file)
        is_lost = head is None and _size(self.path) > 0
        if head is None:
            head = Head()
            if not is_lost:  # a process killed with the first line must not look like tampering
                write_head(head_file, head)
        is_new = head.n == 0
        if head.size != _size(self.path):
            head = self._catch_up(head_file, head)
        if is_lost or (is_new and head.n > 1):
            head = self._write(head_file, head, HEAD_LOST, {})
        if head.size >= self._rotate_bytes:
            head = self._rotate(head_file, head)
        self._write(head_file, head, event, fields)

    def _write(self, head_file: int, head: Head, event: str, fields: dict[str, Value]) -> Head:
        line = line_of(event, fields, n=head.n + 1, time=self._clock.now(), before=head.hash)
        # On the disk before the head: a head ahead of the log looks like tampering.
        size = append_private(self.path, line + b"\n", may_create=True)
        head = Head(n=head.n + 1, hash=hash_of(line), size=size, first=head.first)
        write_head(head_file, head)
        if head.n == 1:
            os.fsync(head_file)  # from now on a log without a head was tampered with
        return head

    def _catch_up(self, head_file: int, head: Head) -> Head:
        """The head after all lines that other processes wrote without it; closes a torn line."""
        size = _size(self.path)
        full = full_files(self.path)
        was_rotated = bool(full) and not size and _size(full[-1]) == head.size
        if size < head.size and not was_rotated:
            _log.warning("audit log %s is shorter than its head says: lines are missing", self.path)
        known = head.size if head.size <= size else 0  # this much need not be read
        *whole, torn = _read_from(self.path, max(known, size - 16 * MAX_LINE_BYTES)).split(b"\n")
        for line in whole:
            entry = entry_of(line)
            if entry and entry.n > head.n:
                head = replace(head, n=entry.n, hash=hash_of(line))
        if not torn:
            return replace(head, size=size)
        _log.warning("audit log %s ended within a line, which is now closed", self.path)
        head = replace(head, size=append_private(self.path, b"\n"))
        return self._write(head_file, head, TORN, {"bytes": len(torn), "torn": hash_of(torn)})

    def _rotate(self, head_file: int, head: Head) -> Head:
        """Renames the full file; the next one begins with the hash of its last line."""
        full = full_files(self.path)
        number = int(full[-1].suffix[1:]) + 1 if full else 1
        full.append(self.path.rename(self.path.with_name(f"{self.path.name}.{number}")))
        while len(full) > MAX_FILES:
            full.pop(0).unlink()
            with full[0].open("rb") as file:
                entry = entry_of(file.readline(MAX_LINE_BYTES).rstrip(b"\n"))
            head = replace(head, first=entry.n if entry and entry.n else head.first)
        head = replace(head, size=0)
        write_head(head_file, head)
        return head


class Notes:
    """What a host writes to its audit log: nothing new runs while it cannot. One thread at a time."""

    def __init__(
        self,
        audit: Audit,
        *,
        may_note_refusal: Callable[[], bool] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._audit = audit
        self._may_note_refusal = may_note_refusal  # asked by processes that see one request each
        self._now = now
        # Changed by note().
        self.fault = ""  # why the last note could not be written
        self._lost = 0  # notes since then
        # Changed by refusal() and flush().
        self._window_began = -WINDOW_SECONDS
        self._refusals = 0  # in this window
        self._unsaid = 0  # of these, without a line of their own

    def note(self, event: str, **fields: Value) -> bool:
        """Adds a line; false if that fails, after which no new crawler is taken."""
        try:
            if self.fault:
                self._audit.note("notes-lost", count=self._lost)
                self.fault, self._lost = "", 0
            self._audit.note(event, **fields)
        except StorageError as error:
            if not self.fault:
                _log.error("%s; crawlers are refused until this works again", error)
            self.fault = str(error)
            self._lost += 1
            return False
        return True

    def must(self, event: str, **fields: Value) -> None:
        """Adds a line; Refused if that fails."""
        if not self.note(event, **fields):
            raise Refused("internal", "the host cannot write its audit log", retry_after=RETRY_SECONDS)

    def check(self) -> None:
        """Refused if the log could not be written the last time, and still cannot."""
        if self.fault:
            self.must("notes-resumed")

    def refusal(self, error: Refused, **fields: Value) -> None:
        """Notes that a home was refused; bounded, because strangers can cause any number of these."""
        if self._may_note_refusal:
            is_due = self._may_note_refusal()
        else:
            now = self._now()
            if abs(now - self._window_began) >= WINDOW_SECONDS:
                self.flush()
                self._window_began, self._refusals = now, 0
            self._refusals += 1
            is_due = self._refusals <= REFUSALS_A_MINUTE
            self._unsaid += not is_due
        if is_due:
            self.note("home-refused", problem=error.problem, why=error.detail, **fields)

    def flush(self) -> None:
        """Writes how many refusals had no line of their own."""
        if self._unsaid:
            self.note("home-refused", count=self._unsaid, why="too many in a minute for a line each")
            self._unsaid = 0


# -- lines -------------------------------------------------------------------------------------------------


class AuditEntry(msgspec.Struct, frozen=True):
    """The fields that every line has, and those that are summed."""

    n: Number
    time: str
    event: str
    before: str
    torn: str = ""
    home: str = ""
    pages: int = 0
    requests: int = 0
    read_bytes: int = 0
    sent_bytes: int = 0
    cpu_seconds: float = 0.0
    count: int = 1  # of events that the line stands for


_ENTRIES = msgspec.json.Decoder(AuditEntry)


def line_of(event: str, fields: dict[str, Value], *, n: int, time: float, before: str) -> bytes:
    """The line as it is written: ASCII, so that it cannot hold terminal escapes."""
    moment = datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    entry = {"n": n, "time": moment, "event": event}
    entry |= {name: _tamed(value) for name, value in fields.items()} | {"before": before}
    return json.dumps(entry, separators=(",", ":")).encode()


def entry_of(line: bytes) -> AuditEntry | None:
    """The entry in a line; None if it is malformed."""
    try:
        return _ENTRIES.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def hash_of(line: bytes) -> str:
    """The hash of a line without its line break, which the next line holds."""
    return hashlib.sha256(line).hexdigest()


def _tamed(value: Value) -> Value:
    if isinstance(value, str):
        whole = value[:MAX_TEXT].encode(errors="replace").decode()  # without half a surrogate pair
        return whole if len(value) <= MAX_TEXT else f"{whole}..."
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# -- files -------------------------------------------------------------------------------------------------


@contextmanager
def open_head(path: Path, *, is_reader: bool = False) -> Iterator[int]:
    """The head file beside the log, locked; readers share the lock."""
    flags = os.O_RDONLY if is_reader else os.O_RDWR | os.O_CREAT
    descriptor = open_private(path.with_suffix(".head"), flags)
    try:
        _wait_for_lock(descriptor, fcntl.LOCK_SH if is_reader else fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, kind: int) -> None:
    """A holder needs milliseconds; one that was suspended must not block us for ever."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise OSError(error.errno, "another process holds its lock") from error
            time.sleep(0.002)


def read_head(descriptor: int) -> Head | None:
    """The content of the head file; None if it is malformed."""
    try:
        return msgspec.json.decode(os.pread(descriptor, HEAD_BYTES, 0), type=Head)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def write_head(descriptor: int, head: Head) -> None:
    """Writes it in one piece: a killed process leaves the old one or the new one."""
    data = msgspec.json.encode(head)
    os.pwrite(descriptor, data.ljust(HEAD_BYTES - 1) + b"\n", 0)


def full_files(path: Path) -> list[Path]:
    """The full files, the oldest first."""
    found = [each for each in path.parent.glob(f"{path.name}.*") if each.suffix[1:].isdigit()]
    return sorted(found, key=lambda each: int(each.suffix[1:]))


def _read_from(path: Path, offset: int) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
