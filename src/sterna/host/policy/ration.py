"""What each home has used of a day: files, so that all processes of a host and every restart see it."""

import fcntl
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path

import msgspec

from sterna.errors import StorageError
from sterna.host.config import DayCaps
from sterna.model import Record, Usage

FOLDER = "ration"  # its name in the folder of state
_LOCK = ".lock"


class Used(Record, frozen=True, array_like=False, kw_only=True):
    """What one home used in one day."""

    day: str = ""
    visits: int = 0
    pages: int = 0
    cpu_seconds: float = 0.0
    read_bytes: int = 0
    sent_bytes: int = 0


class Left(Record, frozen=True, kw_only=True):
    """What a home may still use today; infinite where there is no limit."""

    visits: float = math.inf
    pages: float = math.inf
    cpu_seconds: float = math.inf
    read_bytes: float = math.inf
    sent_bytes: float = math.inf

    @property
    def missing(self) -> str:
        """What is used up, visits apart, which only those count that begin; "": nothing."""
        names = ("pages", "cpu_seconds", "read_bytes", "sent_bytes")
        return next((name for name in names if getattr(self, name) <= 0), "")


class Ration:
    """A file for each home that has a limit; the day is that of the policy's zone."""

    def __init__(self, state: Path) -> None:
        self._folder = state / FOLDER

    def left(self, home: str, caps: DayCaps, day: str) -> Left:
        """What the home may still use; StorageError if nobody can tell."""
        used = self._read(home, day)
        fields = {
            name: max(cap - getattr(used, name), 0)
            for name in DayCaps.__struct_fields__
            if (cap := getattr(caps, name))
        }
        return Left(**fields)

    def spend(self, home: str, day: str, usage: Usage, *, visits: int = 0) -> None:
        """Adds what was used; StorageError if that cannot be written down."""
        try:
            with self._locked(day):
                used = self._read(home, day)
                self._write(
                    home,
                    Used(
                        day=used.day,
                        visits=used.visits + visits,
                        pages=used.pages + usage.pages,
                        cpu_seconds=used.cpu_seconds + usage.cpu_seconds,
                        read_bytes=used.read_bytes + usage.bytes_received,
                        sent_bytes=used.sent_bytes + usage.sent_bytes,
                    ),
                )
        except OSError as error:
            raise StorageError(f"{self._folder} cannot be written: {error.strerror}") from error

    def _read(self, home: str, day: str) -> Used:
        path = self._folder / home
        try:
            used = msgspec.json.decode(path.read_bytes(), type=Used)
        except FileNotFoundError:
            return Used(day=day)
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            raise StorageError(f"{path} cannot be read, so nobody knows what is left: {error}") from error
        return used if _counts(used, day) else Used(day=day)

    def _write(self, home: str, used: Used) -> None:
        beside = self._folder / f".{home}.{os.getpid()}"
        try:
            beside.write_bytes(msgspec.json.encode(used))
            beside.replace(self._folder / home)
        except OSError:
            beside.unlink(missing_ok=True)
            raise

    @contextmanager
    def _locked(self, day: str) -> Iterator[None]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # whoever has it needs a millisecond
            if os.pread(descriptor, 32, 0).decode(errors="replace") != day:
                self._sweep(day)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, day.encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def _sweep(self, day: str) -> None:
        """A new day: what was used before it is forgotten."""
        for path in self._folder.iterdir():
            if path.name != _LOCK and not self._is_of(path, day):
                path.unlink(missing_ok=True)

    def _is_of(self, path: Path, day: str) -> bool:
        try:
            return _counts(msgspec.json.decode(path.read_bytes(), type=Used), day)
        except (OSError, msgspec.MsgspecError, ValueError):
            return False


def _counts(used: Used, day: str) -> bool:
    """Whether it is of this day, or of the next: a clock that was set back must not give a day twice."""
    return used.day in (day, (date.fromisoformat(day) + timedelta(days=1)).isoformat())
