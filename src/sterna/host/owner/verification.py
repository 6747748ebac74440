"""Verifies an audit log from its first line to its last, and reports where it was changed."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, pairwise
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

from sterna.errors import StorageError
from sterna.host.files import open_private
from sterna.host.owner.audit import (
    HEAD_LOST,
    MAX_LINE_BYTES,
    TORN,
    AuditEntry,
    Head,
    entry_of,
    full_files,
    open_head,
    read_head,
)
from sterna.model import Record

MAX_FAULTS = 100  # that are reported one by one
MAX_HOMES = 1_000  # that are summed one by one: strangers choose their names and number
OTHERS, STRANGERS = "(others)", "(strangers)"  # not valid names of a home
REFUSED = "home-refused"
USED = ("pages", "requests", "read_bytes", "sent_bytes", "cpu_seconds")  # by a visit
ENDS = frozenset({"visit-ended", "visit-killed"})


class Fault(Record, frozen=True, array_like=False):
    """A place where the log was changed."""

    file: str
    line: int  # of the file, from 1; 0 if it is not about one line
    what: str


class Sums(Record, frozen=True, array_like=False, kw_only=True):
    visits: int = 0
    refused: int = 0
    pages: int = 0
    requests: int = 0
    read_bytes: int = 0
    sent_bytes: int = 0
    cpu_seconds: float = 0.0


class AuditReport(Record, frozen=True, array_like=False, kw_only=True):
    """The content of a log in sum, and whether it is intact."""

    files: tuple[str, ...]
    lines: int
    first: int  # the number of the first line that is kept
    last: int
    hash: str  # of the last line: noted elsewhere, it proves the log up to here
    began: str
    over: str
    faults: tuple[Fault, ...] = ()
    more_faults: int = 0
    remarks: tuple[Fault, ...] = ()  # odd but harmless
    events: dict[str, int]
    homes: dict[str, Sums]

    @property
    def is_whole(self) -> bool:
        """True if nothing was changed, removed or cut off, as far as the log and its head can tell."""
        return not self.faults


def verify(path: Path, *, expected: tuple[int, str] | None = None) -> AuditReport:
    """The report on the log at `path`; StorageError if there is none, or if it cannot be read.

    `expected` is the number and hash of a line, noted earlier: that line must still be there.
    """
    with ExitStack() as stack:
        try:
            head, files = _snapshot(path, stack)
            reader = _Reader(head, expected)
            rows = chain.from_iterable(_rows(file, size, name) for name, file, size in files)
            reader.read(rows)
        except OSError as error:
            raise StorageError(f"cannot read {error.filename or path}: {error.strerror}") from error
    return reader.report([name for name, _, _ in files])


def tail(path: Path, count: int) -> list[bytes]:
    """The last complete lines, unverified; none if there is no log."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - count * 2048, 0))
            whole = file.read().split(b"\n")[:-1]
    except OSError:
        return []
    return [line for line in whole if entry_of(line)][-count:]


def _snapshot(path: Path, stack: ExitStack) -> tuple[Head | None, list[tuple[str, BinaryIO, int]]]:
    """The head and the files at one moment: a host may go on writing."""
    head, files = None, list[tuple[str, BinaryIO, int]]()
    with ExitStack() as locked:
        if path.with_suffix(".head").exists():
            head = read_head(locked.enter_context(open_head(path, is_reader=True)))
        elif not path.exists() and not full_files(path):
            raise StorageError(f"there is no audit log in {path.parent}: name the host's folder with --state")
        for each in full_files(path) + ([path] if path.exists() else []):
            file = stack.enter_context(os.fdopen(open_private(each, os.O_RDONLY), "rb"))
            files.append((each.name, file, os.fstat(file.fileno()).st_size))
    return head, files


class _Row(Record, frozen=True):
    file: str
    number: int
    entry: AuditEntry | None  # None if it is malformed
    hash: str
    is_whole: bool  # it has its line break


def _rows(file: BinaryIO, size: int, name: str) -> Iterator[_Row]:
    number = 0
    while size > 0:
        data = file.readline(min(size, MAX_LINE_BYTES))
        if not data:
            return
        size -= len(data)
        number += 1
        entry = entry_of(data.removesuffix(b"\n"))
        digest = hashlib.sha256(data.removesuffix(b"\n"))
        while not data.endswith(b"\n") and size > 0 and data:
            data, entry = file.readline(min(size, MAX_LINE_BYTES)), None  # it is too long
            size -= len(data)
            digest.update(data.removesuffix(b"\n"))
        yield _Row(name, number, entry, digest.hexdigest(), data.endswith(b"\n"))


class _Reader:
    """Goes through the lines and checks each against the one before."""

    def __init__(self, head: Head | None, expected: tuple[int, str] | None) -> None:
        self._head = head
        self._expected = expected
        # All of these are changed by read() and what it calls.
        self._last: AuditEntry | None = None
        self._last_row: _Row | None = None
        self._lines = 0
        self._first: AuditEntry | None = None
        self._faults: list[Fault] = []
        self._fault_count = 0
        self._remarks: list[Fault] = []
        self._events: Counter[str] = Counter()
        self._homes: dict[str, Sums] = {}
        self._seen: dict[int, str] = {}  # hashes of the lines that the head and the caller name

    def read(self, rows: Iterable[_Row]) -> None:
        for row, following in pairwise(chain(rows, (None,))):
            assert row
            after = following.entry if following else None
            if after and after.event == TORN and after.torn == row.hash:
                self._remark(row, "is incomplete; the next line closes it")
            elif not row.is_whole:
                self._remark(row, "is incomplete: the host was killed while it wrote, and will close it")
            elif row.entry is None:
                self._fault(row, "is not a line of an audit log: it was changed or inserted")
            else:
                self._take(row, row.entry)
        self._check_end()

    def _take(self, row: _Row, entry: AuditEntry) -> None:
        last, last_row = self._last, self._last_row
        due = last.n + 1 if last else (self._head.first if self._head else 1)
        if entry.n > due:
            self._fault(row, f"{_numbers(due, entry.n - 1)} before this line")
        elif entry.n < due:
            self._fault(row, f"has the number {entry.n} instead of {due}: it does not belong here")
        elif last_row and entry.before != last_row.hash:
            self._fault(last_row, f"was changed: the hash in line {entry.n} does not match it")
        elif entry.n == 1 and entry.before:
            self._fault(row, "names a line before the first one")
        if entry.event == HEAD_LOST:
            self._fault(row, "says that the head file was lost: lines may have been cut off before it")
        self._last, self._last_row = entry, row
        self._lines += 1
        self._first = self._first or entry
        self._sum(entry)
        if entry.n in (self._head.n if self._head else 0, self._expected[0] if self._expected else 0):
            self._seen[entry.n] = row.hash

    def _check_end(self) -> None:
        last = self._last.n if self._last else 0
        head = self._head
        if head is None or (head.n == 0 and last > 1):
            self._fault(None, "the head file is missing or damaged: lines may have been cut off")
        elif head.n > last:
            missing = _numbers(last + 1, head.n)
            what = f"is the last, but {missing} after it: the end was cut off" if last else f"{missing}: all"
            self._fault(self._last_row, what)
        elif head.n and self._seen.get(head.n) not in (None, head.hash):
            why = "it was changed, or the log was replaced"
            self._fault(None, f"line {head.n} is not the one in the head file: {why}")
        elif head.n < last and self._last_row:
            count = last - head.n
            self._remark(self._last_row, f"is {count} after the one in the head file: the machine lost power")
        if self._expected and self._seen.get(self._expected[0]) != self._expected[1]:
            what = "does not have the hash that was noted: the log was replaced"
            self._fault(None, f"line {self._expected[0]} {what}")

    def _sum(self, entry: AuditEntry) -> None:
        self._events[entry.event] += entry.count
        name = entry.home or (STRANGERS if entry.event == REFUSED else "")
        if not name:
            return
        name = name if name in self._homes or len(self._homes) < MAX_HOMES else OTHERS
        sums = self._homes.get(name, Sums())
        if entry.event == REFUSED:
            sums = replace(sums, refused=sums.refused + entry.count)
        elif entry.event in ENDS:
            used = {name: round(getattr(sums, name) + getattr(entry, name), 3) for name in USED}
            sums = replace(sums, visits=sums.visits + 1, **used)
        self._homes[name] = sums

    def _fault(self, row: _Row | None, what: str) -> None:
        self._fault_count += 1
        if len(self._faults) < MAX_FAULTS:
            self._faults.append(Fault(row.file if row else "", row.number if row else 0, what))

    def _remark(self, row: _Row, what: str) -> None:
        if len(self._remarks) < MAX_FAULTS:
            self._remarks.append(Fault(row.file, row.number, what))

    def report(self, files: list[str]) -> AuditReport:
        return AuditReport(
            files=tuple(files),
            lines=self._lines,
            first=self._first.n if self._first else 0,
            last=self._last.n if self._last else 0,
            hash=self._last_row.hash if self._last_row else "",
            began=self._first.time if self._first else "",
            over=self._last.time if self._last else "",
            faults=tuple(self._faults),
            more_faults=self._fault_count - len(self._faults),
            remarks=tuple(self._remarks),
            events=dict(sorted(self._events.items())),
            homes=dict(sorted(self._homes.items())),
        )


def _numbers(first: int, last: int) -> str:
    return f"line {first} is missing" if first == last else f"lines {first} to {last} are missing"
