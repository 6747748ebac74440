"""What a host tells home that holds good keys and lies: documents, replies, frames, parcels, ends."""

import json
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
import zstandard
from bench.fuzz_parts.spoiling import bombs, garbage, spoil_bytes, spoil_fields, tree_of
from nacl.bindings import crypto_scalarmult_base, crypto_secretstream_xchacha20poly1305_push

from sterna.model import (
    Budget,
    Checkpoint,
    Crawler,
    Ended,
    Etiquette,
    Known,
    Links,
    Page,
    Parcel,
    Raw,
    Robots,
    StateChange,
    Target,
    Usage,
    Validator,
    Visit,
)
from sterna.web.urls import fingerprint
from sterna.wire import handshake
from sterna.wire.discovery import Offer, encode_offer
from sterna.wire.frames import MAX_PAYLOAD_BYTES, FrameWriter, Kind
from sterna.wire.handshake import Greeting, SessionKeys, Welcome, seal
from sterna.wire.keys import Identity, Succession
from sterna.wire.known import marks_of
from sterna.wire.merkle import Tree, leaf_of
from sterna.wire.orders import Report
from sterna.wire.parcels import as_sent, pack_parcel
from sterna.wire.problems import encode_problem, problem
from sterna.wire.stream import Ending

SITE = "https://www.example.org"
NOW = 1_700_000_000.0
HOST, HOME, OLD = (Identity(bytes([number]) * 32) for number in (2, 1, 4))
KEYS = SessionKeys(bytes(16), *(bytes([number]) * 32 for number in range(1, 5)))
_KNOWN_PATHS = tuple(f"/known/{number}" for number in range(20))
_STARTS = (Target(f"{SITE}/"), *(Target(SITE + path, 1) for path in _KNOWN_PATHS))
_KNOWN = Known(b"", tuple(Validator(fingerprint(SITE + path), digest=b"d" * 16) for path in _KNOWN_PATHS))
MARKS = marks_of(_KNOWN)
VISIT = Visit(
    id="v1",
    site=SITE,
    part="",
    epoch=3,
    crawler=Crawler(),
    etiquette=Etiquette(),
    starts=_STARTS,
    known=_KNOWN,
    budget=Budget(pages=1_000, seconds=60.0),
    robots=Robots(),
)
_BOMBS = bombs()
_encode = msgspec.msgpack.encode


# -- what is said before the stream ------------------------------------------------------------------------


def offer(chance: Random) -> bytes:
    """A discovery document with something wrong in it."""
    good = encode_offer(
        Offer(
            site=SITE,
            key=HOST.public.text,
            endpoint=f"{SITE}/sterna",
            platform={"sterna": "0.5"},
            policy={"pages": 100, "closed": ("/a",)},
            succession=(Succession.sign(OLD, HOST.public).text,),
        )
    )
    return _spoiled_json(good, chance)


def refusal(chance: Random) -> bytes:
    """A problem document with something wrong in it."""
    said = problem(chance.choice(("busy", "stale", "gone")), "not now", retry_after=30, time=NOW)
    return _spoiled_json(encode_problem(said), chance)


def robots(chance: Random) -> bytes:
    """A robots.txt that announces a host, or nearly."""
    return spoil_bytes(b"User-agent: *\nDisallow: /a\nSterna: https://www.example.org/s # here\n" * 3, chance)


def _spoiled_json(good: bytes, chance: Random) -> bytes:
    match chance.randrange(4):
        case 0:
            return spoil_bytes(good, chance)
        case 1:
            return chance.choice(_ODD_JSON)
        case 2:
            text = json.dumps(_printable(spoil_fields(json.loads(good), chance)))
            return text.replace('"version"', chance.choice(('"version"', '"version":1,"version"'))).encode()
        case _:
            return json.dumps(_printable(spoil_fields(json.loads(good), chance))).encode()


_ODD_JSON = (
    *(
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xef\xbb\xbf{}",
        b'{"version":1}',
        b'{"version":1e400}',
        b'{"version":"1"}',
    ),
    *(b"[" * 30_000, b'{"a":' * 10_000, b'{"version":' + b"9" * 40_000 + b"}", b"<html>" + b" " * 60_000),
    *(
        b'{"version":1,"site":"\\ud800"}',
        b"\xff\xfe{\0}\0",
        b'{"version":NaN}',
        b'{"version":2,"new":true}',
        b" " * 70_000,
    ),
)


def _printable(value: Any) -> Any:
    """The value without what JSON cannot have, which is bytes."""
    if isinstance(value, dict):
        return {str(name): _printable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_printable(each) for each in value]
    return repr(value) if isinstance(value, bytes | msgspec.Raw) else value


@dataclass(frozen=True, slots=True)
class Greeted:
    """A greeting, and what came back."""

    greeting: Greeting
    reply: bytes


def reply_1(chance: Random) -> Greeted:
    """A reply 1 whose keys are right and whose contents are not; or whose bytes are others."""
    greeting = Greeting.begin(
        HOME, home="lab", audience=SITE, wants=Budget(), now=NOW, random=chance.randbytes
    )
    secret, session = chance.randbytes(32), chance.randbytes(16)
    ephemeral = crypto_scalarmult_base(secret)
    transcript = handshake._with_reply(handshake._of_hello(greeting.body), session, ephemeral)
    shared = handshake._shared(
        secret, handshake._HELLO.decode(msgspec.msgpack.decode(greeting.body)[0]).ephemeral
    )
    said = tree_of(Welcome(suite=handshake.SUITE, ticket=chance.randbytes(32), platform={"sterna": "0.5"}))
    payload = _encode(spoil_fields(said, chance)) if chance.random() < 0.8 else garbage(chance)
    signed = [payload, HOST.sign("welcome", transcript + payload)]
    plain = _encode(signed if chance.random() < 0.8 else spoil_fields(signed, chance))
    sealed = seal(handshake._derive(shared, "welcome", transcript), plain, bound=transcript)
    outer = [session, ephemeral, sealed]
    match chance.randrange(10):
        case 0:
            return Greeted(greeting, spoil_bytes(_encode(outer), chance))
        case 1:
            return Greeted(greeting, _encode(spoil_fields(outer, chance)))
        case _:
            return Greeted(greeting, _encode(outer))


def report(chance: Random) -> bytes:
    """The answer to a look, sealed as it should be."""
    said = tree_of(Report(visit="v1", state="running", parcels=3))
    plain = _encode(spoil_fields(said, chance)) if chance.random() < 0.8 else garbage(chance)
    whole = KEYS.session + seal(KEYS.report, plain, bound=KEYS.session)
    return spoil_bytes(whole, chance) if chance.random() < 0.2 else whole


# -- the stream --------------------------------------------------------------------------------------------


def _page(path: str, chance: Random) -> Page:
    url = SITE + path
    return Page(
        url=url,
        fingerprint=fingerprint(url),
        depth=1,
        fetched=NOW,
        status=200,
        content_type="text/html",
        title=f"Page {path}",
        text="tern " * chance.choice((0, 3, 50)),
        language="en",
        digest=b"d" * 16,
        size=100,
        modified="Mon, 16 Nov 2026 07:28:00 GMT",
        etag='"abc"',
        referrer=f"{SITE}/",
        links=Links(f"{SITE}/a\nhttps://other.test/", "A\nOther", ""),
        raw=Raw(b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"<p>", "192.0.2.1")
        if chance.random() < 0.3
        else None,
        description="About",
        keywords=("a", "b"),
        headings=("One", "Two"),
        html="<p>Tern" if chance.random() < 0.5 else "",
        headers=(("content-type", "text/html"), ("server", "x")),
        extracts=(("price", ("1", "2")),),
        likeness=b"12345678",
    )


def honest_parcel(number: int, chance: Random, *, ended: Ended | None = None) -> Parcel:
    """A parcel with something in each of its fields."""
    pages = tuple(_page(f"/{number}-{each}", chance) for each in range(chance.choice((0, 1, 3))))
    unchanged = tuple(
        Page(
            url=f"{SITE}/known/{at}",
            fingerprint=fingerprint(f"{SITE}/known/{at}"),
            depth=1,
            fetched=NOW,
            is_unchanged=True,
        )
        for at in chance.sample(range(20), 3)
    )
    return Parcel(
        visit="v1",
        site=SITE,
        part="",
        epoch=3,
        number=number,
        pages=(*pages, *unchanged),
        outlinks=(Target("https://other.test/", 2, f"{SITE}/"),),
        checkpoint=Checkpoint(
            found=(
                Target(f"{SITE}/found/{number}", 2, f"{SITE}/"),
                Target(f"{SITE}/map{number}.xml", 1, kind="sitemap"),
            ),
            done=(fingerprint(f"{SITE}/map{number}.xml"),),
            again=() if ended else (Target(f"{SITE}/again/{number}", 1, attempts=1, not_before=NOW + 5),),
        ),
        state=StateChange(((1, b"\x92\xa1a\x90"), (2, b"")), (3,), b"memory"),
        rows=(_encode(["row", [1, "two"]]),),
        row_counts=(1,) + (0,) * (len(pages) + 2) if pages else (),
        usage=Usage(requests=3, pages=len(pages), errors={"http_404": 1}, cpu_seconds=0.1),
        ended=ended,
    )


def stream(chance: Random) -> list[bytes]:
    """A stream in which something is wrong, in the chunks in which it comes."""
    count = chance.choice((1, 2, 3))
    parcels = [
        honest_parcel(number, chance, ended=Ended.FINISHED if number == count else None)
        for number in range(1, count + 1)
    ]
    packed = [pack_parcel(each, MARKS) for each in parcels]
    match chance.randrange(8):
        case 0 | 1 | 2:  # a parcel that lies in one of its fields
            at = chance.randrange(count)
            packed[at] = _encode(spoil_fields(msgspec.msgpack.decode(packed[at]), chance))
            made = sealed(packed, ending(parcels), chance)
        case 3:  # a parcel that is none
            packed[chance.randrange(count)] = garbage(chance)
            made = sealed(packed, ending(parcels), chance)
        case 4:  # an end that is none
            made = sealed(packed, _false_ending(parcels, chance), chance)
        case 5:  # frames that are none
            made = _odd_frames(packed, ending(parcels), chance)
        case 6:  # what somebody did to them on their way
            made = _rearranged(sealed(packed, ending(parcels), chance), chance)
        case _:
            made = [spoil_bytes(b"".join(sealed(packed, ending(parcels), chance)), chance)]
    return _in_chunks(made, chance)


def ending(parcels: list[Parcel]) -> bytes:
    """The end of an honest visit."""
    return _encode(_ending(parcels).signed(HOST))


def _ending(parcels: list[Parcel]) -> Ending:
    tree = Tree()
    for parcel in parcels:
        for page in as_sent(parcel, MARKS).pages:
            tree.add(leaf_of(page))
    return Ending(
        visit="v1",
        parcels=len(parcels),
        pages=tree.count,
        usage=Usage(),
        ended=Ended.FINISHED,
        root=tree.root(),
    )


def _false_ending(parcels: list[Parcel], chance: Random) -> bytes:
    said = tree_of(_ending(parcels))
    spoiled = spoil_fields(said, chance)
    if isinstance(spoiled, list) and len(spoiled) == 7 and chance.random() < 0.8:  # signed all the same
        unsigned = _encode([*spoiled[:6], b""])
        return _encode([*spoiled[:6], HOST.sign("ending", unsigned)])
    return _encode(spoiled) if chance.random() < 0.7 else garbage(chance)


def sealed(packed: list[bytes], end: bytes, chance: Random) -> list[bytes]:
    """The stream as hosts make it, but compressed with less memory, so that thousands are made soon."""
    writer = FrameWriter(KEYS.stream)
    squeezer = zstandard.ZstdCompressor(level=1).compressobj()
    made = [writer.header]
    for each in packed:
        piece = squeezer.compress(len(each).to_bytes(4, "big") + each)
        piece += squeezer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        made.append(writer.frames(Kind.PARCELS, piece))
        if chance.random() < 0.2:
            made.append(writer.frame(Kind.LOG, chance.choice((b"a line", b"\xff" * 3_000, b"\x1b[2J", b""))))
    return [*made, writer.frame(Kind.END, end[:MAX_PAYLOAD_BYTES])]


def _odd_frames(packed: list[bytes], end: bytes, chance: Random) -> list[bytes]:
    writer, made = FrameWriter(KEYS.stream), list[bytes]()
    squeezer = zstandard.ZstdCompressor(level=1).compressobj()
    good = squeezer.compress(len(packed[0]).to_bytes(4, "big") + packed[0])
    good += squeezer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    for _ in range(chance.choice((1, 2, 6))):
        match chance.randrange(8):
            case 0:
                made.append(writer.frames(Kind.PARCELS, chance.choice(_BOMBS)[:600_000]))
            case 1:
                made.append(writer.frame(Kind.PARCELS, garbage(chance)[:MAX_PAYLOAD_BYTES]))
            case 2:
                made.append(writer.frame(Kind.PROBLEM, refusal(chance)[:MAX_PAYLOAD_BYTES]))
            case 3:
                made.append(writer.frame(Kind.ALIVE, chance.choice((b"", b"x"))))
            case 4:  # a kind that nobody knows, or a tag that is not that of its kind
                made.append(_frame(writer, chance.choice((0, 1, 5, 6, 255)), chance.choice((0, 1, 2, 3))))
            case 5:
                size = chance.choice((0, 1, 2**26, 2**26 + 1, 2**31, 2**32 - 1))
                lone = zstandard.ZstdCompressor(level=1).compress(size.to_bytes(4, "big") + b"\0" * 100)
                made.append(writer.frames(Kind.PARCELS, lone))
            case 6:
                made.append(chance.randbytes(chance.choice((4, 21, 100))))
            case _:
                made.append(writer.frames(Kind.PARCELS, good))
    return [writer.header, *made, writer.frame(Kind.END, end)]


def _frame(writer: FrameWriter, kind: int, tag: int) -> bytes:
    whole: bytes = crypto_secretstream_xchacha20poly1305_push(writer._state, bytes([kind]) + b"x", None, tag)
    return len(whole).to_bytes(4, "big") + whole


def _rearranged(made: list[bytes], chance: Random) -> list[bytes]:
    header, *rest = made
    match chance.randrange(5):
        case 0:
            chance.shuffle(rest)
        case 1:
            del rest[chance.randrange(len(rest))]
        case 2:
            rest.insert(chance.randrange(len(rest) + 1), chance.choice(rest))
        case 3:
            rest = rest[: chance.randrange(len(rest))]
        case _:
            header = spoil_bytes(header, chance)
    return [header, *rest]


def _in_chunks(made: list[bytes], chance: Random) -> list[bytes]:
    if chance.random() < 0.5:
        return made
    whole, size = b"".join(made), chance.choice((1_000, 16_384, 10**7))
    return [whole[at : at + size] for at in range(0, len(whole), size)]
