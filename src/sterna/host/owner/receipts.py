"""The receipts of a host's visits: a file that only grows, a line for each time that one was signed.

A line says in plain words what was signed, for people and their tools; what counts is `receipt`, the bytes
that were signed, with the signatures. Several processes may write at once: a CGI host has one for each call.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from sterna.errors import Refused, StorageError, WireError
from sterna.model import Record
from sterna.wire.keys import Identity, PublicKey
from sterna.wire.receipts import Receipt, SignedReceipt

FILE = "receipts.jsonl"
TAIL_BYTES = 8 << 20  # in which a receipt is looked for that its home has just signed
MAX_LINE_BYTES = 32 * 1024
MAX_NAME = 100
MAX_AGENT = 400


class KeptReceipt(Record, frozen=True):
    """A receipt whose signatures are right, and what the host knew of its home."""

    receipt: Receipt
    signed: SignedReceipt
    name: str = ""  # what the owner calls the home
    agent: str = ""  # under which its crawlers ask for pages

    @property
    def is_countersigned(self) -> bool:
        """True if the home signed it too."""
        return bool(self.signed.by_home)


class Book(Record, frozen=True):
    """The receipts in a file, the newest of each visit, and how many lines are none."""

    rows: tuple[KeptReceipt, ...] = ()
    bad_lines: int = 0


class _Line(Record, frozen=True, array_like=False):
    """What counts of a line; bytes are base64 in JSON."""

    receipt: bytes
    by_host: bytes
    by_home: bytes = b""
    name: str = ""
    agent: str = ""


_LINE = msgspec.json.Decoder(_Line)


class Receipts:
    """Signs, keeps and finds the receipts of one host."""

    def __init__(self, state: Path, identity: Identity, *, wall: Callable[[], float] = time.time) -> None:
        self.wall = wall  # receipts bear the time that everybody's clock shows
        self._path = state / FILE
        self._identity = identity

    @property
    def key(self) -> bytes:
        """The host's, as it stands in its receipts."""
        return self._identity.public.data

    def sign(self, receipt: Receipt) -> SignedReceipt:
        """The receipt with the host's signature."""
        return SignedReceipt.make(receipt, self._identity)

    def note(self, signed: SignedReceipt, *, name: str = "", agent: str = "") -> None:
        """Keeps a receipt for good; StorageError if the disk refuses."""
        line = _written(signed, name=name[:MAX_NAME], agent=agent[:MAX_AGENT])
        with _open_to_append(self._path) as file:
            _append(file, line, self._path)

    def countersign(self, visit: str, home: PublicKey, signature: bytes) -> None:
        """Keeps the home's signature under the newest receipt of its visit; to say it twice does no harm.

        Refused if there is no such receipt, WireError if the signature is not that home's under this one.
        """
        kept = self._newest(visit, home)
        if kept is None:
            raise Refused("gone", f"there is no receipt of a visit {visit} of yours")
        if kept.signed.by_home == signature:
            return
        signed = kept.signed.with_home(signature)
        signed.open()
        self.note(signed, name=kept.name, agent=kept.agent)

    def rows(self) -> tuple[KeptReceipt, ...]:
        """The newest receipt of each visit, in the order of the visits' beginnings."""
        return self.read().rows

    def read(self) -> Book:
        """All receipts; StorageError if the file cannot be read."""
        return read_book(self._path.parent)

    def _newest(self, visit: str, home: PublicKey) -> KeptReceipt | None:
        # A visit's name holds nothing that JSON would write otherwise.
        needle = f'"visit":"{visit}"'.encode()
        found = (_read(line) for line in reversed(_tail(self._path)) if needle in line)
        return next((kept for kept in found if kept and _is_of(kept.receipt, visit, home)), None)


def _is_of(receipt: Receipt, visit: str, home: PublicKey) -> bool:
    return (receipt.visit, receipt.home) == (visit, home.data)


class BookReader:
    """Reads a host's receipts, and later only what came since: signatures take their time to verify."""

    def __init__(self, state: Path) -> None:
        self._path = state / FILE
        # Changed by read() alone.
        self._found: dict[tuple[bytes, str, float], KeptReceipt] = {}
        self._bad_lines = 0
        self._at = 0  # the first byte that is not read yet

    def read(self) -> Book:
        """The receipts as they are now; StorageError if the file cannot be read."""
        if self._at > _size(self._path):  # another file than it was
            self._found, self._bad_lines, self._at = {}, 0, 0
        for line in _lines(self._path, self._at):
            if len(line) < MAX_LINE_BYTES and not line.endswith(b"\n"):
                break  # somebody is writing it
            self._at += len(line)
            if line.strip():
                self._take(_read(line))
        rows = sorted(self._found.values(), key=lambda kept: (kept.receipt.began, kept.receipt.visit))
        return Book(tuple(rows), self._bad_lines)

    def _take(self, kept: KeptReceipt | None) -> None:
        if kept is None:
            self._bad_lines += 1
            return
        key = (kept.receipt.home, kept.receipt.visit, kept.receipt.began)
        before = self._found.get(key)
        # Somebody may have put an old line at the end: what was signed by both stays so.
        if before is None or kept.is_countersigned or not before.is_countersigned:
            self._found[key] = kept


def read_book(state: Path) -> Book:
    """The receipts in a host's folder of state; signatures are verified, and lines that are none counted."""
    return BookReader(state).read()


# -- lines -------------------------------------------------------------------------------------------------


def _written(signed: SignedReceipt, *, name: str, agent: str) -> bytes:
    receipt = signed.open()
    line = {
        "time": _time(receipt.over),
        "name": name,
        "home": PublicKey(receipt.home).text,
        "visit": receipt.visit,
        "site": receipt.site,
        "began": _time(receipt.began),
        "ended": receipt.ended,
        "pages": receipt.pages,
        "requests": receipt.requests,
        "read_bytes": receipt.read_bytes,
        "sent_bytes": receipt.sent_bytes,
        "cpu_seconds": receipt.cpu_seconds,
        "spared_requests": receipt.spared_requests,
        "spared_bytes": receipt.spared_bytes,
        "agent": agent,
        "receipt": signed.payload,
        "by_host": signed.by_host,
        "by_home": signed.by_home,
    }
    return msgspec.json.encode(line) + b"\n"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _read(line: bytes) -> KeptReceipt | None:
    try:
        read = _LINE.decode(line)
        signed = SignedReceipt(read.receipt, read.by_host, read.by_home)
        return KeptReceipt(signed.open(), signed, read.name[:MAX_NAME], read.agent[:MAX_AGENT])
    except (msgspec.MsgspecError, WireError, ValueError, RecursionError):
        return None


# -- the file ----------------------------------------------------------------------------------------------


@contextmanager
def _open_to_append(path: Path) -> Iterator[int]:
    """The file, ours alone until the context ends."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # ends with the descriptor
        yield descriptor
    finally:
        os.close(descriptor)


def _append(descriptor: int, line: bytes, path: Path) -> None:
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        line = b"\n" + line  # whoever wrote before was killed in the middle of a line
    try:
        written = os.write(descriptor, line)
        if written < len(line):
            raise OSError(0, "there is no room left")
        os.fsync(descriptor)
    except OSError as error:
        os.ftruncate(descriptor, size)
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error


def _lines(path: Path, start: int = 0) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(start)
            while line := file.readline(MAX_LINE_BYTES):
                yield line
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _tail(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - TAIL_BYTES, 0))
            return file.read().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error
