"""The audit log of a host: JSON lines, each with the hash of the one before, and a head that knows the last.

Several processes may write it (a CGI host is one process a request): a lock on the head lets one in at a
time. What a process leaves that dies while it writes, the next one closes and says so.
"""

import fcntl
import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from sterna.errors import StorageError
from sterna.model import Record
from sterna.web.clock import Clock

AUDIT = "audit.jsonl"  # the file's name in the folder of state
TORN = "line-torn"  # the event that closes a line that was not written whole
HEAD_LOST = "head-lost"  # the event after which nobody knows whether lines before it were cut off
ROTATE_BYTES = 64 * 1024 * 1024
MAX_FILES = 16  # that are full; the oldest goes when there is one more
MAX_LINE_BYTES = 64 * 1024
MAX_TEXT = 500  # characters of one field: names come from strangers
HEAD_BYTES = 256
LOCK_SECONDS = 5.0
_RESERVED = frozenset({"n", "time", "event", "before"})

Value = str | int | float | bool

_log = logging.getLogger(__name__)


Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Head(Record, frozen=True, array_like=False, kw_only=True):
    """The last line, and how much of the log there is."""

    n: Number = 0
    hash: str = ""
    size: Number = 0  # of the file in use, with that line
    first: Number = 1  # the number of the first line that is kept


class Audit:
    """Appends to the log; a line is on the disk when note() returns."""

    def __init__(self, path: Path, *, clock: Clock, rotate_bytes: int = ROTATE_BYTES) -> None:
        self.path = path
        self._clock = clock
        self._rotate_bytes = rotate_bytes

    def note(self, event: str, **fields: Value) -> None:
        """Adds a line; StorageError if it cannot be written."""
        assert not _RESERVED & fields.keys()
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open_head(self.path) as descriptor:
                _Writer(self.path, descriptor, self._rotate_bytes).append(event, fields, self._clock.now())
        except OSError as error:
            raise StorageError(f"the audit log {self.path} cannot be written: {error.strerror}") from error


class _Writer:
    """One turn at the log, under its lock."""

    def __init__(self, path: Path, head_descriptor: int, rotate_bytes: int) -> None:
        self._path = path
        self._head_descriptor = head_descriptor
        self._rotate_bytes = rotate_bytes

    def append(self, event: str, fields: dict[str, Value], now: float) -> None:
        head = read_head(self._head_descriptor)
        is_lost = head is None and _size(self._path) > 0
        if head is None:
            head = Head()
            if not is_lost:  # who is killed with the first line must not be taken for a thief
                write_head(self._head_descriptor, head)
        is_new = head.n == 0
        if head.size != _size(self._path):
            head = self._catch_up(head, now)
        if is_lost or (is_new and head.n > 1):
            head = self._write(head, HEAD_LOST, {}, now)
        if head.size >= self._rotate_bytes:
            head = self._rotate(head)
        self._write(head, event, fields, now)

    def _write(self, head: Head, event: str, fields: dict[str, Value], now: float) -> Head:
        line = line_of(event, fields, n=head.n + 1, time=now, before=head.hash)
        descriptor = open_private(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            _append(descriptor, line + b"\n", size=head.size)
            os.fdatasync(descriptor)  # before the head: a head that knows more than the log accuses somebody
        finally:
            os.close(descriptor)
        head = Head(n=head.n + 1, hash=hash_of(line), size=head.size + len(line) + 1, first=head.first)
        write_head(self._head_descriptor, head)
        if head.n == 1:
            os.fsync(self._head_descriptor)  # from now on there is no log without a head
        return head

    # -- what others left ----------------------------------------------------------------------------------

    def _catch_up(self, head: Head, now: float) -> Head:
        """The head as it would be had nobody been ended in the middle; a torn line is closed."""
        size = _size(self._path)
        if size < head.size and (size or not _was_rotated(self._path, head.size)):
            _log.warning("the audit log %s is shorter than it was: lines are missing", self._path)
        known = head.size if head.size <= size else 0  # so much of it need not be looked at
        whole, torn = _lines_after(self._path, max(known, size - 16 * MAX_LINE_BYTES))
        for line in whole:
            entry = entry_of(line)
            if entry and entry.n > head.n:
                head = msgspec.structs.replace(head, n=entry.n, hash=hash_of(line))
        head = msgspec.structs.replace(head, size=size)
        return self._close(head, torn, now) if torn else head

    def _close(self, head: Head, torn: bytes, now: float) -> Head:
        _log.warning("the audit log %s ended within a line: it is closed, and the log goes on", self._path)
        descriptor = open_private(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            _append(descriptor, b"\n", size=head.size)
        finally:
            os.close(descriptor)
        head = msgspec.structs.replace(head, size=head.size + 1)
        return self._write(head, TORN, {"bytes": len(torn), "torn": hash_of(torn)}, now)

    def _rotate(self, head: Head) -> Head:
        """Puts the full file aside; what follows begins another one with the hash of its last line."""
        full = full_files(self._path)
        number = int(full[-1].suffix[1:]) + 1 if full else 1
        aside = self._path.with_name(f"{self._path.name}.{number}")
        self._path.rename(aside)
        full.append(aside)
        while len(full) > MAX_FILES:
            full.pop(0).unlink()
            head = msgspec.structs.replace(head, first=_first_number(full[0]) or head.first)
        head = msgspec.structs.replace(head, size=0)
        write_head(self._head_descriptor, head)
        return head


# -- lines -------------------------------------------------------------------------------------------------


class Entry(msgspec.Struct, frozen=True):
    """What every line has, and what the sums are made of; the rest stays in its line."""

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
    count: int = 1  # of what one line stands for


_ENTRIES = msgspec.json.Decoder(Entry)


def line_of(event: str, fields: dict[str, Value], *, n: int, time: float, before: str) -> bytes:
    """The line as it is written: ASCII, so that no terminal that shows the file obeys it."""
    moment = datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    entry = {"n": n, "time": moment, "event": event}
    entry |= {name: _tamed(value) for name, value in fields.items()} | {"before": before}
    return json.dumps(entry, separators=(",", ":")).encode()


def entry_of(line: bytes) -> Entry | None:
    """The entry in a line; None if there is none."""
    try:
        return _ENTRIES.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def hash_of(line: bytes) -> str:
    """By which the next line names this one; both without their line breaks."""
    return hashlib.sha256(line).hexdigest()


def _tamed(value: Value) -> Value:
    if isinstance(value, str):
        whole = value[:MAX_TEXT].encode(errors="replace").decode()  # half a pair cannot be read again
        return whole if len(value) <= MAX_TEXT else f"{whole}..."
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# -- files -------------------------------------------------------------------------------------------------


@contextmanager
def open_head(path: Path, *, is_reader: bool = False) -> Iterator[int]:
    """The head file beside the log, ours alone meanwhile; a reader shares it with readers."""
    flags = os.O_RDONLY if is_reader else os.O_RDWR | os.O_CREAT
    descriptor = open_private(path.with_suffix(".head"), flags)
    try:
        _wait_for_lock(descriptor, fcntl.LOCK_SH if is_reader else fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def open_private(path: Path, flags: int) -> int:
    """A descriptor of a file that only the owner of its folder reads, and that is no link to another.

    The administrator may be the first to write it: the host, who is somebody else, goes on with it.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if flags & os.O_CREAT and os.geteuid() == 0:
        status, folder = os.fstat(descriptor), path.parent.stat()
        if status.st_size == 0 and status.st_nlink == 1 and status.st_uid != folder.st_uid:
            os.fchown(descriptor, folder.st_uid, folder.st_gid)
    return descriptor


def _wait_for_lock(descriptor: int, kind: int) -> None:
    """Whoever has it needs milliseconds; who is stopped while he has it must not stop us too."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise OSError(error.errno, "another process holds its lock") from error
            time.sleep(0.002)
        else:
            return


def read_head(descriptor: int) -> Head | None:
    """What the head file says; None if it says nothing that can be read."""
    try:
        return msgspec.json.decode(os.pread(descriptor, HEAD_BYTES, 0), type=Head)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def write_head(descriptor: int, head: Head) -> None:
    """In place and in one piece: who is killed leaves the old one or the new one."""
    data = msgspec.json.encode(head)
    os.pwrite(descriptor, data.ljust(HEAD_BYTES - 1) + b"\n", 0)


def full_files(path: Path) -> list[Path]:
    """The files that were put aside, the oldest first."""
    found = [each for each in path.parent.glob(f"{path.name}.*") if each.suffix[1:].isdigit()]
    return sorted(found, key=lambda each: int(each.suffix[1:]))


def _append(descriptor: int, data: bytes, *, size: int) -> None:
    """All of it or nothing."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _lines_after(path: Path, offset: int) -> tuple[list[bytes], bytes]:
    """The whole lines after an offset, and what follows the last of them."""
    if not path.exists():
        return [], b""
    with path.open("rb") as file:
        file.seek(offset)
        *whole, torn = file.read().split(b"\n")
    return whole, torn


def _was_rotated(path: Path, size: int) -> bool:
    full = full_files(path)
    return bool(full) and _size(full[-1]) == size


def _first_number(path: Path) -> int:
    with path.open("rb") as file:
        entry = entry_of(file.readline(MAX_LINE_BYTES).rstrip(b"\n"))
    return entry.n if entry else 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
