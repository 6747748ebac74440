"""Takes over the files in which a host kept its state before that was one SQLite file.

Taking over twice does no harm: the first time may have been interrupted, or a process of the earlier version
may still have written.
"""

import logging
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sterna.errors import WireError
from sterna.model import Record
from sterna.wire.receipts import SignedReceipt

SESSIONS, NONCES, RATION, RECEIPTS = "sessions", "nonces", "ration", "receipts.jsonl"
TIMES = ("swept", "refused")  # empty files
MAX_LINE_BYTES = 32 * 1024
_SPENT = ".spent"

_log = logging.getLogger(__name__)


class _Used(Record, frozen=True, array_like=False, kw_only=True):
    day: str
    visits: int = 0
    pages: int = 0
    cpu_seconds: float = 0.0
    read_bytes: int = 0
    sent_bytes: int = 0


class _Line(Record, frozen=True, array_like=False):
    """What counts in a line of the receipts; bytes are base64 in JSON."""

    receipt: bytes
    by_host: bytes
    by_home: bytes = b""
    name: str = ""
    agent: str = ""


def copy(folder: Path, db: sqlite3.Connection, *, keep_receipt: str) -> None:
    """Adds what the old files in a folder hold, receipts by this statement; rows that are there stay."""
    db.executemany("INSERT OR IGNORE INTO session VALUES (?, ?, ?, ?)", _sessions(folder))
    db.executemany("INSERT OR IGNORE INTO nonce VALUES (?, ?, ?)", _nonces(folder))
    db.executemany("INSERT OR IGNORE INTO ration VALUES (?, ?, ?, ?, ?, ?, ?)", _rations(folder))
    db.executemany(keep_receipt, _receipts(folder))


def retire(folder: Path) -> None:
    """Deletes what was copied; receipts, which are evidence, are kept under another name."""
    for name in (SESSIONS, NONCES, RATION):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in TIMES:
        (folder / name).unlink(missing_ok=True)
    receipts = folder / RECEIPTS
    if receipts.exists():
        receipts.rename(folder / f"receipts-until-{int(time.time())}.jsonl")


def _sessions(folder: Path) -> Iterator[tuple[bytes, bytes, float, bool]]:
    for path in _files(folder / SESSIONS):
        if path.suffix != _SPENT:
            is_spent = path.with_suffix(_SPENT).exists()
            yield bytes.fromhex(path.name), path.read_bytes(), path.stat().st_mtime, is_spent


def _nonces(folder: Path) -> Iterator[tuple[str, bytes, float]]:
    for path in _files(folder / NONCES):
        home, _, nonce = path.name.rpartition("-")
        yield home, bytes.fromhex(nonce), path.stat().st_mtime


def _rations(folder: Path) -> Iterator[tuple[object, ...]]:
    for path in _files(folder / RATION):
        if path.name.startswith("."):  # the lock, and what a killed process left
            continue
        try:
            used = msgspec.json.decode(path.read_bytes(), type=_Used)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            _log.warning("%s is damaged; its home starts the day anew: %s", path, error)
            continue
        yield path.name, *msgspec.structs.astuple(used)


def _receipts(folder: Path) -> Iterator[tuple[object, ...]]:
    for number, line in enumerate(_lines(folder / RECEIPTS), start=1):
        try:
            read = msgspec.json.decode(line, type=_Line)
            signed = SignedReceipt(read.receipt, read.by_host, read.by_home)
            receipt = signed.open()
        except (msgspec.MsgspecError, WireError, ValueError, RecursionError) as error:
            _log.warning("%s:%d: not taken over: %s", folder / RECEIPTS, number, error)
            continue
        yield receipt.visit, receipt.home, *msgspec.structs.astuple(signed), read.name, read.agent


def _lines(path: Path) -> Iterator[bytes]:
    if path.exists():
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES):
                if line.strip():
                    yield line


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
