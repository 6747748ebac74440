"""Problems: refusals of a host as RFC 9457 JSON, and as errors at home; checks of untrusted messages."""

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from sterna.errors import Refused, WireError
from sterna.model import Record

PROBLEM_TYPE = "application/problem+json"
MAX_PROBLEM_BYTES = 16 * 1024
MAX_DETAIL = 1_000
MAX_RETRY_AFTER = 7 * 24 * 3600
MAX_TIME = 1e11  # seconds since 1970: some thousands of years

T = TypeVar("T")

_PREFIX = "urn:sterna:problem:"
_NAME = re.compile(r"[a-z][a-z-]{0,63}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

# Name -> HTTP status and title.
PROBLEMS: dict[str, tuple[int, str]] = {
    "malformed": (400, "The message cannot be read"),
    "version": (400, "No version or suite in common"),
    "bad-signature": (401, "The signature or the seal is wrong"),
    "stale": (401, "The clocks differ too much"),
    "unknown-home": (403, "This home is not allowed here"),
    "refused": (403, "The owner's policy refuses it"),
    "replayed": (409, "This message came before"),
    "ticket-spent": (409, "The ticket was used"),
    "ticket-expired": (410, "The ticket is too old"),
    "gone": (410, "There is no such visit"),
    "too-large": (413, "The message is too large"),
    "wrong-audience": (421, "This host is for another site"),
    "internal": (500, "The host made a mistake"),
    "busy": (503, "Too many crawlers are here"),
    "closed-now": (503, "The owner lets no crawler in now"),
    "stopped": (503, "The owner stopped this crawler"),
    "no-jail": (503, "This machine cannot jail a foreign crawler"),
}


class Problem(Record, frozen=True, array_like=False, kw_only=True, omit_defaults=True):
    """Why a request was refused, and when to retry."""

    type: str
    title: str = ""
    status: int = 500
    detail: str = ""
    retry_after: int | None = None  # seconds
    time: float | None = None  # the host's, where the clocks differ
    until: float | None = None  # of "stopped": when the owner lets the crawler in again, if that is known

    @property
    def name(self) -> str:
        return self.type.removeprefix(_PREFIX)

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        found = [("Content-Type", PROBLEM_TYPE), ("Cache-Control", "no-store")]
        if self.status == 401:
            found.append(("WWW-Authenticate", "Sterna"))  # RFC 9110 15.5.2 demands one
        if self.retry_after is not None:
            found.append(("Retry-After", str(self.retry_after)))
        return tuple(found)


def problem(
    name: str,
    detail: str = "",
    *,
    retry_after: float | None = None,
    time: float | None = None,
    until: float | None = None,
) -> Problem:
    """The problem of that name; KeyError if there is none."""
    status, title = PROBLEMS[name]
    seconds = None if retry_after is None else min(max(math.ceil(retry_after), 0), MAX_RETRY_AFTER)
    return Problem(
        type=_PREFIX + name,
        title=title,
        status=status,
        detail=_plain(detail),
        retry_after=seconds,
        time=time,
        until=until,
    )


def problem_of(error: WireError | Refused) -> Problem:
    name = error.problem if error.problem in PROBLEMS else "malformed"
    detail = error.detail if name == error.problem else str(error)
    if isinstance(error, Refused):
        return problem(name, detail, retry_after=error.retry_after, time=error.time, until=error.until)
    return problem(name, detail)


def refusal_of(problem: Problem) -> Refused:
    detail = problem.detail or problem.title
    return Refused(
        problem.name, detail, retry_after=problem.retry_after, time=problem.time, until=problem.until
    )


def encode_problem(problem: Problem) -> bytes:
    return msgspec.json.encode(problem)


def decode_problem(data: bytes) -> Problem:
    """The problem in these bytes; WireError if it is not a valid problem of Sterna."""
    if len(data) > MAX_PROBLEM_BYTES:
        raise WireError("malformed", f"a problem has at most {MAX_PROBLEM_BYTES} bytes")
    with malformed("a problem"):
        read = decode_json(data, Problem)
    if not read.type.startswith(_PREFIX) or not _NAME.fullmatch(read.name):
        raise WireError("malformed", "the type of a problem is not one of Sterna's")
    if not 400 <= read.status <= 599:
        raise WireError("malformed", f"a problem with the status {read.status}")
    if read.retry_after is not None and not 0 <= read.retry_after <= MAX_RETRY_AFTER:
        raise WireError("malformed", f"a problem that asks to wait {read.retry_after} seconds")
    if not all(0 <= time <= MAX_TIME for time in (read.time, read.until) if time is not None):
        raise WireError("malformed", "a problem with an invalid time")
    # A later version may have other names and titles; they are shown as plain text.
    return msgspec.structs.replace(read, title=_plain(read.title), detail=_plain(read.detail))


# --- decoding of untrusted messages


@contextmanager
def malformed(what: str) -> Iterator[None]:
    """Turns any error of a decoder into a WireError."""
    try:
        yield
    # ValueError: not UTF-8, too many digits. RecursionError: nested too deeply. OverflowError: no such float.
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, MemoryError) as error:
        raise WireError("malformed", f"{what} is malformed: {_plain(str(error))}") from error


def decode_json(data: bytes, kind: type[T]) -> T:
    """The record in this JSON; ValueError if it is invalid, repeats a key, or a number exceeds 64 bits."""
    json.loads(data.decode(), object_pairs_hook=_once, parse_int=_integer)
    return msgspec.json.decode(data, type=kind)  # refuses NaN, too, and half a surrogate


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is repeated")
    return found


def _integer(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise ValueError("a number is too large")
    return int(digits)


def _plain(text: str) -> str:
    # Untrusted text that is shown in terminals and logs.
    return _CONTROL.sub(" ", text)[:MAX_DETAIL]


# --- the size of a message, before it is decoded
#
# The smallest objects take forty times their bytes, and repeated bytes compress to nothing: unchecked,
# a message of a few kilobytes could fill the memory.


def size_of(raw: msgspec.Raw) -> int:
    return len(memoryview(raw))


def is_array(raw: msgspec.Raw) -> bool:
    first = memoryview(raw)[0]
    return first in (0xDC, 0xDD) or first & 0xF0 == 0x90


def array_length(raw: msgspec.Raw) -> int:
    """The number of elements; 0 for anything else, which the typed decoder refuses later."""
    if not is_array(raw):
        return 0
    head = bytes(memoryview(raw)[:5])
    if head[0] == 0xDC:
        return int.from_bytes(head[1:3], "big")
    return int.from_bytes(head[1:5], "big") if head[0] == 0xDD else head[0] & 0x0F
