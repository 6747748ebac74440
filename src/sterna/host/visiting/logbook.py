"""The log of one visit on the disk: how the visit goes on after its host was killed or lost power.

An entry is appended when the visit is taken on, with each parcel, and when it is killed or fails. Appended
means synced: a parcel is on the disk before its entry, and its entry before the parcel leaves the host. What
is not worth a sync is in the tally, which survives the process, but perhaps not a loss of power.
"""

import logging
import os
import struct
import threading
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec
import zstandard

from sterna.errors import StorageError, VisitDamaged
from sterna.host.files import append_private, open_private, write_private
from sterna.host.visiting.progress import Progress, Step, advanced, progress_of
from sterna.model import Record, Visit
from sterna.wire.orders import VisitState
from sterna.wire.problems import Problem

LOG, TALLY = "log", "tally"  # files in the folder of a visit
MAX_ENTRY_BYTES = 512 * 1024 * 1024
REWRITE_BYTES = 4 * 1024 * 1024  # a log that grew by this, and to twice its size, is rewritten
_LEVEL = 1
_HEAD = struct.Struct(">I16s")  # of an entry: its length and its digest
_TALLY = struct.Struct(">5Qd?")

_log = logging.getLogger(__name__)


class Admission(Record, frozen=True, kw_only=True, tag="admission"):
    """The visit as its host took it on, and whose it is."""

    visit: Visit
    home: str  # its key
    name: str
    at: float  # by the wall clock


class Verdict(Record, frozen=True, kw_only=True, tag="verdict"):
    """What somebody decided about the visit: to kill it, or that it failed."""

    is_killed: bool = False
    state: VisitState | None = None  # in which it ended without its last parcel
    problem: Problem | None = None  # why
    stopped: Problem | None = None  # what its home is told, if the owner stopped it


class Tally(Record, frozen=True, kw_only=True):
    """Counts that change with every message; the parcel numbers show whether the log lost its end."""

    streams: int = 0
    calls: int = 0
    sent_bytes: int = 0
    sent: int = 0  # the last parcel that was sent
    acknowledged: int = 0
    silent_seconds: float = 0.0  # since home last called, while the host was up
    is_deferred: bool = False  # the visit waits or waited for its hours


class Saved(Record, frozen=True, kw_only=True):
    """All that is known of a visit after a restart."""

    admission: Admission
    progress: Progress
    verdict: Verdict = Verdict()
    tally: Tally = Tally()


_Entry = Admission | Step | Progress | Verdict
_MALFORMED = (ValueError, msgspec.MsgspecError, zstandard.ZstdError, RecursionError)
_DECODER = msgspec.msgpack.Decoder(_Entry)
_encode = msgspec.msgpack.Encoder().encode


class Logbook:
    """Appends to the log of a visit; threads may call it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        # Changed by begin(), append() and read(), which hold the lock.
        self.size_bytes = 0
        self._rewrite_bytes = REWRITE_BYTES  # the size above which it is rewritten
        self._may_be_torn = False  # an incomplete entry may lie behind these bytes

    def begin(self, admission: Admission) -> None:
        """Creates the log; StorageError if that fails."""
        with self._lock:
            self._replace(admission)

    def append(self, entry: Step | Verdict) -> None:
        """Returns when the entry is on the disk; StorageError if it cannot be written."""
        with self._lock:
            path = self._folder / LOG
            try:
                if self._may_be_torn:
                    os.truncate(path, self.size_bytes)
                    self._may_be_torn = False
                self.size_bytes = append_private(path, _packed(entry))
            except OSError as error:
                raise StorageError(f"cannot write {path}: {error.strerror}") from error
            if self.size_bytes > self._rewrite_bytes:
                self._rewrite()

    def note(self, tally: Tally) -> None:
        """Overwrites the tally without a sync; StorageError if it cannot be written."""
        try:
            descriptor = open_private(self._folder / TALLY, os.O_WRONLY | os.O_CREAT)
            try:
                os.pwrite(descriptor, _TALLY.pack(*msgspec.structs.astuple(tally)), 0)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StorageError(f"cannot write {self._folder / TALLY}: {error.strerror}") from error

    def read(self) -> Saved:
        """What the log says, to go on with it; an incomplete entry at the end does not count.

        VisitDamaged if it is missing, damaged or of another version; StorageError if it cannot be read now.
        """
        with self._lock:
            return self._read()

    def look(self) -> Saved:
        """The same, changing nothing, while another thread or process may be writing; the tally may lag."""
        return self._opened()[0]

    def site(self) -> str:
        """The site of the visit; "" if its log does not say so."""
        try:
            with (self._folder / LOG).open("rb") as file:
                size, _ = _HEAD.unpack(head := file.read(_HEAD.size))
                entries, _ = _entries(head + file.read(min(size, MAX_ENTRY_BYTES)))
        except (OSError, struct.error, *_MALFORMED):
            return ""
        return entries[0].visit.site if entries and isinstance(entries[0], Admission) else ""

    def _read(self) -> Saved:
        saved, self.size_bytes = self._opened()
        self._may_be_torn = True  # by a crash; cut off only when something follows
        return saved

    def _opened(self) -> tuple[Saved, int]:
        """What the log says, and the size of its whole entries."""
        path = self._folder / LOG
        try:
            tally = self._tally()  # before the log, which is never behind it then
            entries, whole = _entries(path.read_bytes())
            return _summed(entries, tally=tally), whole
        except FileNotFoundError:
            raise VisitDamaged(f"{path} is missing") from None
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror}") from error
        except _MALFORMED as error:
            raise VisitDamaged(f"{path} is damaged, or of another version of Sterna: {error}") from error

    def _tally(self) -> Tally:
        with suppress(FileNotFoundError, struct.error):
            counts = _TALLY.unpack((self._folder / TALLY).read_bytes())
            return Tally(**dict(zip(Tally.__struct_fields__, counts, strict=True)))
        return Tally()

    def _rewrite(self) -> None:
        """Tried again much later if it fails, as on a nearly full disk: the log is whole as it is."""
        self._rewrite_bytes = self.size_bytes + REWRITE_BYTES
        try:
            saved = self._read()
            self._replace(saved.admission, saved.progress, saved.verdict)
        except StorageError as error:
            _log.warning("the log of a visit stays large for now: %s", error)

    def _replace(self, *entries: _Entry) -> None:
        packed = b"".join(map(_packed, entries))
        write_private(self._folder / LOG, packed)
        self.size_bytes, self._may_be_torn = len(packed), False
        self._rewrite_bytes = 2 * self.size_bytes + REWRITE_BYTES


def _entries(data: bytes) -> tuple[list[_Entry], int]:
    """The whole entries, and where they end; ValueError if one in the middle is damaged."""
    at, entries = 0, list[_Entry]()
    while at + _HEAD.size <= len(data):
        size, digest = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + size
        if size > MAX_ENTRY_BYTES or end > len(data):
            break
        payload = data[at + _HEAD.size : end]
        if _digest(payload) != digest:
            if end < len(data):
                raise ValueError(f"the entry at byte {at} does not match its digest")
            break
        plain = zstandard.ZstdDecompressor().decompress(payload, max_output_size=MAX_ENTRY_BYTES)
        entries.append(_DECODER.decode(plain))
        at = end
    return entries, at


def _summed(entries: list[_Entry], *, tally: Tally) -> Saved:
    """What the entries amount to; ValueError if they contradict each other."""
    admission = entries[0] if entries else None
    if not isinstance(admission, Admission):
        raise ValueError("it does not begin with a visit")
    progress, verdict, steps = progress_of(admission.visit), Verdict(), list[Step]()
    for entry in entries[1:]:
        if isinstance(entry, Step):
            steps.append(entry)
        elif isinstance(entry, Progress):
            progress, steps = entry, []
        elif isinstance(entry, Verdict):
            verdict = entry
    progress = advanced(progress, steps)
    if max(tally.sent, tally.acknowledged) > progress.number:
        raise ValueError(f"its last parcel is {progress.number}, but parcel {tally.sent} was sent")
    return Saved(admission=admission, progress=progress, verdict=verdict, tally=tally)


def _packed(entry: _Entry) -> bytes:
    payload = zstandard.ZstdCompressor(level=_LEVEL).compress(_encode(entry))
    return _HEAD.pack(len(payload), _digest(payload)) + payload


def _digest(payload: bytes) -> bytes:
    return blake2b(payload, digest_size=16).digest()
