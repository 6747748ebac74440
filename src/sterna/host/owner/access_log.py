"""Access logs of nginx and Apache: common and combined format, plain or gzipped.

The sender of a request controls parts of its line, which may hold any bytes. Malformed lines are counted and
skipped.
"""

import gzip
import ipaddress
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from sterna.errors import UsageError
from sterna.model import Record

MAX_LINE_BYTES = 64 * 1024  # web servers limit requests to far less
MAX_AGENT = 400
OLDEST = 631_152_000.0  # 1990: there were no web servers before
AHEAD_SECONDS = 24 * 3600.0  # that a line may be in the future: clocks and zones differ
_GZIP = b"\x1f\x8b"
_MONTHS = {name: 1 + at for at, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split())}

# Both servers escape inner quotes. No text matches in two ways, so there is no backtracking.
_QUOTED = rb'"((?:[^"\\]|\\.)*+)"'
_REST = re.compile(
    rb"(\d\d)/([A-Z][a-z][a-z])/(\d{4})"
    rb":([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60) ([+-])(0\d|1[0-4])([0-5]\d)\] "  # 60 is a leap second
    rb"%b (\d{3}) (\d{1,18}|-)(?: %b %b)?(?:\s|$)" % (_QUOTED, _QUOTED, _QUOTED)
)


class Hit(NamedTuple):
    client: str  # usually an address
    time: float
    status: int
    size_bytes: int  # of the answer
    agent: str | None  # None: not in the log


class LogCount(Record, frozen=True):
    """How much of the logs could be read."""

    lines: int = 0
    bad_lines: int = 0
    broken: tuple[str, ...] = ()  # messages about damaged files


def read_logs(paths: list[Path], take: Callable[[Hit], None], *, now: float) -> LogCount:
    """Passes each request to `take`; UsageError if a file cannot be opened."""
    lines = bad_lines = 0
    broken: list[str] = []
    for path in paths:
        try:
            with _opened(path) as file:
                for line in _lines(file):
                    lines += 1
                    hit = parse(line)
                    if hit and OLDEST <= hit.time <= now + AHEAD_SECONDS:
                        take(hit)
                    else:
                        bad_lines += 1
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            broken.append(f"{path} is damaged and counts up to the damage: {error}")
        except OSError as error:
            raise UsageError(f"cannot read log {path}: {error.strerror or error}") from error
    return LogCount(lines, bad_lines, tuple(broken))


def parse(line: bytes) -> Hit | None:
    """The request in a line of the common or the combined format; None if it is malformed."""
    if len(line) > MAX_LINE_BYTES:
        return None
    head, bracket, rest = line.partition(b" [")
    match = _REST.match(rest) if bracket else None
    client = _client(head.split())
    time = _time(*match.group(1, 2, 3, 4, 5, 6, 7, 8, 9)) if match else None
    if match is None or time is None or not client:
        return None
    agent = match[14]
    return Hit(
        client=client,
        time=time,
        status=int(match[11]),
        size_bytes=0 if match[12] == b"-" else int(match[12]),
        agent=None if agent is None else agent[:MAX_AGENT].decode("latin-1"),
    )


def _client(fields: list[bytes]) -> str:
    """The address or name in front; Debian's Apache writes the virtual host before it."""
    if len(fields) < 3:
        return ""
    first = fields[0].decode("latin-1")
    if len(fields) > 3 and not _is_address(first) and _is_address(second := fields[1].decode("latin-1")):
        return second
    return first


@lru_cache(maxsize=4096)
def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=256)
def _midnight(day: bytes, month: bytes, year: bytes) -> float | None:
    """The start of the day in UTC; None if there is no such day."""
    try:
        midnight = datetime(int(year), _MONTHS[month], int(day), tzinfo=UTC).timestamp()
        return midnight if 1970 <= int(year) <= 9998 else None
    except (KeyError, ValueError):
        return None


def _time(*parts: bytes) -> float | None:
    day, month, year, hours, minutes, seconds, sign, zone_hours, zone_minutes = parts
    midnight = _midnight(day, month, year)
    if midnight is None:
        return None
    ahead = (int(zone_hours) * 60 + int(zone_minutes)) * 60
    local = midnight + int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return local + ahead if sign == b"-" else local - ahead


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    with path.open("rb") as file:
        if file.peek(len(_GZIP))[: len(_GZIP)] != _GZIP:
            yield file
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield cast("BinaryIO", unpacked)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines; of one that is too long the beginning, which is malformed."""
    while line := file.readline(MAX_LINE_BYTES + 2):
        yield line
        while not line.endswith(b"\n") and len(line) > MAX_LINE_BYTES:
            line = file.readline(MAX_LINE_BYTES + 2)
