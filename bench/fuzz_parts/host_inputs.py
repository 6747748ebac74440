"""What is thrown at a host: messages that are nearly right, and HTTP that is not."""

from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
import zstandard
from bench.fuzz_parts import crawlers
from bench.fuzz_parts.spoiling import SITE, bombs, garbage, hostile, spoil_bytes, spoil_fields, tree_of

from sterna.model import Budget, Crawler, Target
from sterna.wire.handshake import Greeting, Hello, Session, SessionKeys, seal
from sterna.wire.keys import Identity
from sterna.wire.orders import Agent, Kill, Look, Order, Resume, Send, seal_acknowledgement, seal_order

_BOMBS = bombs()
_encode = msgspec.msgpack.encode


@dataclass(frozen=True, slots=True)
class Knock:
    """One input: a call with this body, as it goes over HTTP."""

    op: str
    body: bytes
    visit: str = ""  # that it begins, if it can be read


# -- greetings ---------------------------------------------------------------------------------------------


def greeting_in_bytes(chance: Random, home: Identity, now: float) -> Knock:
    """A good request 1 of which some bytes are others."""
    body = Greeting.begin(
        home, home="ada", audience=SITE, wants=Budget(), now=now, random=chance.randbytes
    ).body
    return Knock("hello", spoil_bytes(body, chance))


def greeting_in_fields(chance: Random, home: Identity, now: float) -> Knock:
    """A request 1 with other fields than it should have, signed by a home that is allowed."""
    hello = Hello(
        home="ada",
        key=home.public.data,
        audience=SITE,
        ephemeral=chance.randbytes(32),
        nonce=chance.randbytes(16),
        time=now,
    )
    return _signed(home, _encode(spoil_fields(tree_of(hello), chance)))


def greeting_of_garbage(chance: Random, home: Identity, now: float) -> Knock:
    """Anything at all, signed by a home that is allowed; or not even that."""
    match chance.randrange(3):
        case 0:
            return Knock("hello", garbage(chance))
        case 1:
            return Knock("hello", _encode(spoil_fields([b"payload", bytes(64)], chance)))
        case _:
            return _signed(home, garbage(chance))


def _signed(home: Identity, payload: bytes) -> Knock:
    return Knock("hello", _encode([payload, home.sign("hello", payload)]))


# -- orders ------------------------------------------------------------------------------------------------


def an_order(chance: Random, visits: list[str]) -> Order:
    """An honest order, small, of some kind."""
    visit = chance.choice(visits) if visits and chance.random() < 0.7 else f"f{chance.randrange(10**9)}"
    match chance.randrange(5):
        case 0:
            return Look(visit)
        case 1:
            return Kill(visit)
        case 2:
            return Resume(visit, chance.choice((1, 2, 100)))
        case _:
            return Send(
                visit=visit,
                agent=Agent("Tern/1", "Tern"),
                crawler=Crawler(),
                starts=(Target(f"{SITE}/"),),
                budget=Budget(pages=3, seconds=5.0),
            )


def order_in_bytes(chance: Random, session: Session, visits: list[str]) -> Knock:
    """An order that was changed on its way."""
    body = seal_order(session.keys, session.ticket, an_order(chance, visits), random=chance.randbytes)
    if chance.random() < 0.1:  # under the key of another purpose
        body = seal_order(_swapped(session.keys), session.ticket, an_order(chance, visits))
    return Knock("order", spoil_bytes(body, chance))


def order_in_fields(chance: Random, session: Session, visits: list[str]) -> Knock:
    """An order with other fields than it should have, sealed as it should be."""
    ticket: Any = session.ticket if chance.random() < 0.95 else hostile(chance)
    order = an_order(chance, visits)
    packed = _packed(
        _encode([ticket, spoil_fields(tree_of(order), chance, times=chance.choice((1, 1, 1, 3)))])
    )
    return _sealed(session.keys, packed, visit=order.visit)


def order_of_garbage(chance: Random, session: Session, visits: list[str]) -> Knock:
    """Bombs, garbage and what is nearly zstd, sealed as it should be."""
    match chance.randrange(4):
        case 0:
            return _sealed(session.keys, chance.choice(_BOMBS))
        case 1:
            return _sealed(session.keys, _packed(garbage(chance)))
        case 2:
            plain = _encode([session.ticket, tree_of(an_order(chance, visits))])
            return _sealed(session.keys, spoil_bytes(_packed(plain), chance))
        case _:
            plain = _encode([session.ticket, tree_of(an_order(chance, visits))])
            return _sealed(session.keys, _packed(spoil_bytes(plain, chance)))


def order_of_a_crawler(chance: Random, session: Session, visits: list[str]) -> Knock:
    """A crawler that is hostile, in an order that can be read."""
    return _sealed(session.keys, _packed(b"\x92" + _encode(session.ticket) + crawlers.send(chance)))


def _packed(plain: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(plain)


def _sealed(keys: SessionKeys, packed: bytes, visit: str = "") -> Knock:
    return Knock("order", keys.session + seal(keys.order, packed, bound=keys.session), visit)


def _swapped(keys: SessionKeys) -> SessionKeys:
    return SessionKeys(keys.session, keys.acknowledge, keys.stream, keys.order, keys.report)


# -- acknowledgements --------------------------------------------------------------------------------------


def acknowledgement(chance: Random, session: Session, visits: list[str]) -> Knock:
    """That something is committed which is not, or cannot be."""
    keys, visit = session.keys, chance.choice([*visits, "v1", "x" * 64])
    match chance.randrange(4):
        case 0:
            number = chance.choice((0, 1, 2, 10**9, 2**63 - 1))
            return Knock("acknowledge", seal_acknowledgement(keys, visit, number))
        case 1:
            return Knock("acknowledge", spoil_bytes(seal_acknowledgement(keys, visit, 1), chance))
        case 2:
            plain = _encode(spoil_fields([visit, 1], chance))
        case _:
            plain = garbage(chance)
    return Knock("acknowledge", keys.session + seal(keys.acknowledge, plain, bound=keys.session))


# -- HTTP --------------------------------------------------------------------------------------------------

_METHODS = (
    b"GET",
    b"POST",
    b"PUT",
    b"DELETE",
    b"HEAD",
    b"OPTIONS",
    b"TRACE",
    b"CONNECT",
    b"get",
    b"\xff",
    b"A" * 5_000,
    b"",
)
_TARGETS = (
    *(
        b"/hello",
        b"/order",
        b"/acknowledge",
        b"/sterna/hello",
        b"/.well-known/sterna",
        b"/",
        b"*",
        b"",
        b"//hello",
    ),
    *(
        b"/../hello",
        b"/hello/..",
        b"/%68ello",
        b"/hello?x=1",
        b"/hello#x",
        b"/hello%00",
        b"http://site.test/hello",
    ),
    *(
        b"/" + b"a" * 20_000,
        b"/\xff\xfe",
        b"/\r\nX: y",
        b"/he llo",
        b"/sterna/../../etc/passwd",
        b"/%",
        b"/%zz",
    ),
)
_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/9.9", b"HTTP/", b"")
_LENGTHS = (
    b"0",
    b"5",
    b"4",
    b"-1",
    b"99999999999999999999",
    b"1e3",
    b"0x5",
    b"+5",
    b"5, 5",
    b"5, 6",
    b"",
    b" 5",
    b"\xff",
)
_HEADERS = (
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: identity"),
    *(
        b"Transfer-Encoding: chunked, chunked",
        b"Transfer-Encoding : chunked",
        b"Expect: 100-continue",
        b"Expect: x",
    ),
    *(b"Upgrade: websocket\r\nConnection: Upgrade", b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings"),
    *(b"Connection: keep-alive", b"Connection: close", b"Host: other.test", b"Host: a\r\nHost: b", b"Host:"),
    *(
        b"X-Long: " + b"x" * 70_000,
        b": nothing",
        b"no colon",
        b" folded: yes",
        b"X: \0",
        b"X: \xff",
        b"X-Forwarded-For: ::1",
    ),
    *(b"Content-Encoding: gzip", b"Content-Type: text/html", b"Range: bytes=0-1", b"Trailer: X"),
    b"\r\n".join(b"X-%d: y" % number for number in range(300)),
)
_CHUNKS = (
    *(
        b"5\r\nhello\r\n0\r\n\r\n",
        b"5;ext=1\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello",
        b"zz\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
    ),
    *(
        b"ffffffffffffffff\r\nx",
        b"5\nhello\n0\n\n",
        b"0\r\nX: y\r\n\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"00000000000000005\r\nhello",
    ),
    *(
        b"1\r\na\r\n" * 500 + b"0\r\n\r\n",
        b"0\r\n" + b"X: y\r\n" * 2_000 + b"\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
    ),
)


def http(chance: Random) -> bytes:
    """A connection's worth of bytes, in which HTTP is nearly spoken; whoever sends it then waits no more."""
    requests = b"".join(_request(chance) for _ in range(chance.choice((1, 1, 1, 2, 5))))
    match chance.randrange(6):
        case 0:
            return spoil_bytes(requests, chance)
        case 1:
            return requests[: chance.randrange(len(requests) + 1)]
        case 2 if chance.random() < 0.3:
            return chance.randbytes(chance.choice((1, 100, 70_000)))
        case _:
            return requests


def _request(chance: Random) -> bytes:
    is_usual = chance.random() < 0.5
    method = b"POST" if is_usual else chance.choice(_METHODS)
    target = chance.choice(_TARGETS[:5]) if is_usual else chance.choice(_TARGETS)
    version = b"HTTP/1.1" if chance.random() < 0.8 else chance.choice(_VERSIONS)
    fields = [b"Host: site.test"] if chance.random() < 0.9 else []
    fields += [chance.choice(_HEADERS) for _ in range(chance.choice((0, 0, 1, 1, 2, 4)))]
    body = b"hello"
    if b"Transfer-Encoding: chunked" in fields:
        body = chance.choice(_CHUNKS)
    if chance.random() < 0.6:
        fields.append(b"Content-Length: " + (b"5" if chance.random() < 0.4 else chance.choice(_LENGTHS)))
    end = b"\r\n" if chance.random() < 0.9 else chance.choice((b"\n", b"\r", b"\r\n\r\n", b""))
    return end.join([b" ".join((method, target, version)), *fields, b"", b""]) + body
