"""Orders (request 2), acknowledgements and reports, sealed under the keys of a session.

A host reads an order only after its seal is verified, and claims the ticket only after that: a changed bit on
the way cannot spend the ticket.
"""

import math
import os
import sys
from typing import Annotated, Literal

import msgspec
import zstandard
from msgspec import Meta

from sterna.errors import WireError
from sterna.model import Budget, Crawler, Ended, Record, State, Target
from sterna.wire.handshake import (
    MAX_NUMBER,
    SESSION_BYTES,
    Priority,
    Random,
    SessionKeys,
    Ticket,
    check_budget,
    seal,
    unseal,
)
from sterna.wire.keys import SIGNATURE_BYTES
from sterna.wire.problems import array_length, malformed, size_of

MAX_UNPACKED_BYTES = 64 * 1024 * 1024
MAX_SMALL_BYTES = 4 * 1024  # an acknowledgement, a report
MAX_URL_LENGTH = 2048
MAX_CRAWLER_BYTES = 4 * 1024 * 1024
MAX_STARTS = 500_000
MAX_FACTS = 1_000_000  # of a state
MAX_PARTS = 256
DEFAULT_LEVEL = 3
_ORDER_LEVEL = 9  # of compressing the order itself

# Files at the host are named after it: no dot, no slash.
VisitId = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"\A[A-Za-z0-9_-]*\Z")]
Count = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
Level = Annotated[int, Meta(ge=1, le=22)]
# Of a site: folders, as `web.urls.parts_of` names them.
Parts = Annotated[tuple[Annotated[str, Meta(max_length=MAX_URL_LENGTH)], ...], Meta(max_length=MAX_PARTS)]
HeaderText = Annotated[str, Meta(max_length=400, pattern=r"\A[ -~]*\Z")]  # it goes into requests as it is


class Agent(Record, frozen=True):
    """How the crawler identifies itself to the site."""

    user_agent: HeaderText
    robots_name: HeaderText
    sender: HeaderText = ""
    strict_robots: bool = False  # as in `Etiquette`; hosts before 0.4 ignore it


class Send(Record, frozen=True, kw_only=True, tag="send"):
    """A crawler for a visit: the part of a Visit that home decides."""

    visit: VisitId
    part: Annotated[str, Meta(max_length=MAX_URL_LENGTH)] = ""
    epoch: Count = 0
    crawler: Crawler = Crawler()
    agent: Agent
    starts: tuple[Target, ...] = ()
    known: bytes = b""  # the paper's F, as `wire.known` packs it
    state: State = State()
    budget: Budget = Budget()
    level: Level = DEFAULT_LEVEL  # of compressing the reply
    priority: Priority = 0  # that home promises the site, up to what was agreed
    within: Parts = ()  # if any, only URLs there are fetched; the others are reported


class Resume(Record, frozen=True, tag="resume"):
    """The parcels of a visit from number `first` on, as far as they are kept, and then as they come."""

    visit: VisitId
    first: Annotated[int, Meta(ge=1, le=MAX_NUMBER)] = 1  # parcels are numbered from 1
    level: Level = DEFAULT_LEVEL


class Look(Record, frozen=True, tag="look"):
    """Asks for the state of a visit. The reply is a Report."""

    visit: VisitId


class Kill(Record, frozen=True, tag="kill"):
    """Ends a visit at once. The reply is a Report."""

    visit: VisitId


class Query(Record, frozen=True, tag="query"):
    """Asks for what a visit's crawler holds. The reply is a Holdings."""

    visit: VisitId


Order = Send | Resume | Look | Kill | Query


class Acknowledgement(Record, frozen=True):
    """Home has committed the visit's parcels up to and with this number: the host may forget them."""

    visit: VisitId
    number: Count
    receipt: Annotated[bytes, Meta(max_length=SIGNATURE_BYTES)] = b""  # home's under it, with the last one


VisitState = Literal["queued", "waiting", "running", "finished", "killed", "expired"]


class Report(Record, frozen=True, kw_only=True):
    """State of a visit at its host."""

    visit: VisitId
    state: VisitState
    parcels: Count = 0  # made so far
    acknowledged: Count = 0  # of these, as counted from the first
    kept_bytes: Count = 0
    ended: Ended | None = None


class _Request(Record, frozen=True):
    ticket: Ticket
    order: Order


class _Parts(Record, frozen=True, tag="send"):
    """A Send of which nothing is decoded yet."""

    visit: msgspec.Raw
    part: msgspec.Raw
    epoch: msgspec.Raw
    crawler: msgspec.Raw
    agent: msgspec.Raw
    starts: msgspec.Raw
    known: msgspec.Raw
    state: msgspec.Raw


class _StateParts(Record, frozen=True):
    facts: msgspec.Raw = msgspec.Raw(b"\x90")


class _Weighed(Record, frozen=True):
    ticket: msgspec.Raw
    order: _Parts | Resume | Look | Kill | Query


_WEIGHED = msgspec.msgpack.Decoder(_Weighed)
_STATE_PARTS = msgspec.msgpack.Decoder(_StateParts)
_REQUEST = msgspec.msgpack.Decoder(_Request)
_ACKNOWLEDGEMENT = msgspec.msgpack.Decoder(Acknowledgement)
_REPORT = msgspec.msgpack.Decoder(Report)
_encode = msgspec.msgpack.Encoder().encode


def session_of(body: bytes) -> bytes:
    """The session id of an order or acknowledgement: its first 16 bytes, not verified."""
    if len(body) < SESSION_BYTES:
        raise WireError("malformed", "the message has no session id")
    return body[:SESSION_BYTES]


# --- orders


def seal_order(keys: SessionKeys, ticket: bytes, order: Order, *, random: Random = os.urandom) -> bytes:
    """The request 2; WireError if it is larger than any host reads."""
    plain = _encode(_Request(ticket, order))
    if len(plain) > MAX_UNPACKED_BYTES:
        raise WireError("too-large", f"an order has at most {MAX_UNPACKED_BYTES} bytes")
    # Without a checksum: the seal is a better one.
    packed = zstandard.ZstdCompressor(level=_ORDER_LEVEL, write_checksum=False).compress(plain)
    return keys.session + seal(keys.order, packed, bound=keys.session, random=random)


def open_order(keys: SessionKeys, body: bytes, *, max_bytes: int = MAX_UNPACKED_BYTES) -> tuple[bytes, Order]:
    """The ticket and the order; `max_bytes` bounds what they may unpack to."""
    plain = _unpacked(unsealed(keys, keys.order, body), max_bytes)
    with malformed("the order"):
        unread = _WEIGHED.decode(plain).order
        if isinstance(unread, _Parts):
            _weigh(unread)
        request = _REQUEST.decode(plain)
    if isinstance(request.order, Send):
        _check(request.order)
    return request.ticket, request.order


def _unpacked(packed: bytes, max_bytes: int) -> bytes:
    try:
        size = zstandard.frame_content_size(packed)  # -1 if it does not say; then decompress() raises
        if size > max_bytes:
            raise WireError("too-large", f"the order unpacks to {size} bytes; {max_bytes} are allowed")
        return zstandard.ZstdDecompressor().decompress(packed, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise WireError("malformed", "the order is not valid zstd") from error


def _weigh(order: _Parts) -> None:
    # Before it is decoded: the smallest objects take forty times their bytes.
    if size_of(order.crawler) > MAX_CRAWLER_BYTES:
        raise WireError("too-large", f"a crawler has at most {MAX_CRAWLER_BYTES} bytes")
    if array_length(order.starts) > MAX_STARTS:
        raise WireError("too-large", f"an order has at most {MAX_STARTS} start URLs")
    if array_length(_STATE_PARTS.decode(order.state).facts) > MAX_FACTS:
        raise WireError("too-large", f"a state has at most {MAX_FACTS} facts")


def _check(order: Send) -> None:
    check_budget(order.budget)
    for target in order.starts:
        if len(target.url) > MAX_URL_LENGTH or len(target.referrer) > MAX_URL_LENGTH:
            raise WireError("malformed", f"a start URL is longer than {MAX_URL_LENGTH}")
    # Only the range of numbers: whether the crawler makes sense is checked by its own package.
    waiting: list[object] = [order.crawler, *order.starts, *(number for number, _ in order.state.facts)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, msgspec.Struct):
            waiting.extend(getattr(value, name) for name in value.__struct_fields__)
        elif isinstance(value, tuple):
            waiting.extend(value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise WireError("malformed", f"the order holds {value} where a number belongs")
        elif isinstance(value, int) and not -MAX_NUMBER - 1 <= value <= MAX_NUMBER:
            raise WireError("malformed", "the order holds a number of more than 64 bits")


# --- acknowledgements and reports


def seal_acknowledgement(
    keys: SessionKeys, visit: str, number: int, *, receipt: bytes = b"", random: Random = os.urandom
) -> bytes:
    """Acknowledges the parcels up to and including this number; idempotent."""
    plain = _encode(Acknowledgement(visit, number, receipt))
    return keys.session + seal(keys.acknowledge, plain, bound=keys.session, random=random)


def open_acknowledgement(keys: SessionKeys, body: bytes) -> Acknowledgement:
    plain = unsealed(keys, keys.acknowledge, body, max_bytes=MAX_SMALL_BYTES)
    with malformed("the acknowledgement"):
        return _ACKNOWLEDGEMENT.decode(plain)


def seal_report(keys: SessionKeys, report: Report, *, random: Random = os.urandom) -> bytes:
    """The reply to Look and Kill."""
    return keys.session + seal(keys.report, _encode(report), bound=keys.session, random=random)


def open_report(keys: SessionKeys, body: bytes) -> Report:
    plain = unsealed(keys, keys.report, body, max_bytes=MAX_SMALL_BYTES)
    with malformed("the report"):
        return _REPORT.decode(plain)


def unsealed(keys: SessionKeys, key: bytes, body: bytes, *, max_bytes: int = sys.maxsize) -> bytes:
    """What a message of this session says; WireError if it is too large, or not what its sender sealed."""
    if len(body) > max_bytes:
        raise WireError("too-large", f"this message has at most {max_bytes} bytes")
    if session_of(body) != keys.session:
        raise WireError("bad-signature", "the message is of another session")
    return unseal(key, body[SESSION_BYTES:], bound=keys.session)
