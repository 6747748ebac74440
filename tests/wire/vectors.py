"""Makes the test vectors of docs/protocol.md from fixed keys and nonces: `python -m tests.wire.vectors`.

What hangs on the release of zstd or on libsodium's own randomness is stored as it once was, and only read.
"""

import json
from pathlib import Path

import msgspec
from nacl.bindings import crypto_scalarmult, crypto_scalarmult_base
from tests.wire.parties import HOME, HOST, NOW, PLATFORM, SESSION, SITE, TICKET

from sterna.model import (
    Budget,
    Checkpoint,
    Ended,
    Known,
    Link,
    Links,
    Page,
    Parcel,
    Target,
    Usage,
    Validator,
)
from sterna.web.urls import fingerprint
from sterna.wire import handshake
from sterna.wire.handshake import Greeting, Random, SessionKeys, read_hello, welcome
from sterna.wire.holdings import Holdings, Waiting, seal_holdings
from sterna.wire.keys import Succession
from sterna.wire.known import marks_of, pack_known
from sterna.wire.merkle import Tree, leaf_hash, leaf_of
from sterna.wire.orders import Agent, Report, Send, seal_acknowledgement, seal_order, seal_report
from sterna.wire.parcels import as_sent, pack_parcel
from sterna.wire.stream import Ending, StreamWriter

PATH = Path(__file__).with_name("vectors.json")

HOME_SECRET, HOST_SECRET = b"\x11" * 32, b"\x22" * 32  # of the ephemeral keys
HELLO_NONCE = b"\x33" * 16
WELCOME_NONCE, ORDER_NONCE, ACKNOWLEDGEMENT_NONCE, REPORT_NONCE, HOLDINGS_NONCE = (
    bytes([byte]) * 24 for byte in (0x44, 0x55, 0x66, 0x77, 0x88)
)
VISIT = "0123456789abcdef"
PRIORITY = 5
ORDER = Send(
    visit=VISIT,
    epoch=1,
    agent=Agent("Sterna/0.5 (+https://lab.example.org/crawler)", "Sterna", "crawler@lab.example.org"),
    starts=(Target(f"{SITE}/"),),
    priority=PRIORITY,
)
REPORT = Report(
    visit=VISIT, state="finished", parcels=3, acknowledged=2, kept_bytes=4096, ended=Ended.FINISHED
)
KNOWN_URL = f"{SITE}/known"
KNOWN = Known(
    validators=(Validator(fingerprint(KNOWN_URL), digest=bytes(range(16))),),
)
CHANGED = Page(
    url=f"{SITE}/",
    fingerprint=fingerprint(f"{SITE}/"),
    depth=0,
    fetched=NOW + 0.25,
    status=200,
    content_type="text/html",
    title="Example",
    text="An example.",
    language="en",
    digest=bytes(16),
    size=120,
    links=Links.of(Link(KNOWN_URL, "Known")),
)
UNCHANGED = Page(
    url=KNOWN_URL,
    fingerprint=fingerprint(KNOWN_URL),
    depth=1,
    fetched=NOW + 0.5,
    status=304,
    is_unchanged=True,
)
PARCEL = Parcel(
    visit=VISIT,
    site=SITE,
    part="",
    epoch=1,
    number=1,
    pages=(CHANGED, UNCHANGED),
    checkpoint=Checkpoint(found=(Target(f"{SITE}/new", 1, f"{SITE}/"),)),
    usage=Usage(requests=2, pages=2, unchanged=1, kept=2),
    ended=Ended.FINISHED,
)
HOLDINGS = Holdings(
    report=REPORT,
    at=NOW + 1.0,
    usage=PARCEL.usage,
    waiting=(Waiting(1, 1),),
    done=2,
    facts_total=1,
    facts=(b"\x93\x01\xa4tern\x90",),
    parcels=(pack_parcel(PARCEL, marks_of(KNOWN)),),
)


def giving(*values: bytes) -> Random:
    """Not random at all: these, one after the other."""
    left = list(values)

    def random(size: int) -> bytes:
        value = left.pop(0)
        assert len(value) == size
        return value

    return random


def greeting() -> Greeting:
    return Greeting.begin(
        HOME,
        home="lab",
        audience=SITE,
        wants=Budget(),
        now=NOW,
        understands=("zstd",),
        priority=PRIORITY,
        random=giving(HOME_SECRET, HELLO_NONCE),
    )


def reply() -> tuple[bytes, SessionKeys]:
    return welcome(
        read_hello(greeting().body),
        HOST,
        grants=Budget(pages=500),
        platform=PLATFORM,
        ticket=TICKET,
        session=SESSION,
        priority=PRIORITY,
        random=giving(HOST_SECRET, WELCOME_NONCE),
    )


def ending() -> Ending:
    tree = Tree()
    for page in as_sent(PARCEL, marks_of(KNOWN)).pages:
        tree.add(leaf_of(page))
    unsigned = Ending(
        visit=VISIT, parcels=1, pages=2, usage=PARCEL.usage, ended=Ended.FINISHED, root=tree.root()
    )
    return unsigned.signed(HOST)


def made_again() -> dict[str, str]:
    """What comes out the same whenever it is made."""
    hello = greeting().body
    hello_payload, hello_signature = msgspec.msgpack.decode(hello)
    body, keys = reply()
    _, host_ephemeral, _ = msgspec.msgpack.decode(body)
    hello_hash = read_hello(hello).transcript
    transcript = handshake._with_reply(hello_hash, SESSION, host_ephemeral)
    shared = crypto_scalarmult(HOST_SECRET, crypto_scalarmult_base(HOME_SECRET))
    tree = Tree()
    for letter in b"abc":
        tree.add(leaf_hash(bytes([letter])))
    values: dict[str, bytes | str] = {
        "home_seed": HOME.seed,
        "home_key": HOME.public.text,
        "home_key_id": HOME.public.id,
        "host_seed": HOST.seed,
        "host_key": HOST.public.text,
        "host_key_id": HOST.public.id,
        "succession_home_to_host": Succession.sign(HOME, HOST.public).text,
        "hello_ephemeral_secret": HOME_SECRET,
        "hello_ephemeral": crypto_scalarmult_base(HOME_SECRET),
        "hello_nonce": HELLO_NONCE,
        "hello_payload": hello_payload,
        "hello_signature": hello_signature,
        "hello_body": hello,
        "hello_hash": hello_hash,
        "session": SESSION,
        "ticket": TICKET,
        "welcome_ephemeral_secret": HOST_SECRET,
        "welcome_ephemeral": host_ephemeral,
        "welcome_nonce": WELCOME_NONCE,
        "welcome_body": body,
        "shared": shared,
        "transcript": transcript,
        "welcome_key": handshake._derive(shared, "welcome", transcript),
        "order_key": keys.order,
        "stream_key": keys.stream,
        "acknowledge_key": keys.acknowledge,
        "report_key": keys.report,
        "order_plain": msgspec.msgpack.encode([TICKET, ORDER]),
        "acknowledgement_body": seal_acknowledgement(keys, VISIT, 2, random=giving(ACKNOWLEDGEMENT_NONCE)),
        "report_body": seal_report(keys, REPORT, random=giving(REPORT_NONCE)),
        "holdings_plain": msgspec.msgpack.encode(HOLDINGS),
        "leaf_changed": leaf_of(CHANGED),
        "leaf_unchanged": leaf_of(UNCHANGED),
        "root_of_abc": tree.root(),
        "parcel_packed": pack_parcel(PARCEL, marks_of(KNOWN)),
        "ending": msgspec.msgpack.encode(ending()),
    }
    return {name: value if isinstance(value, str) else value.hex() for name, value in values.items()}


def made_once() -> dict[str, str]:
    """What another release of a library may make otherwise, and must still read."""
    _, keys = reply()
    stream = StreamWriter(keys.stream, level=3)
    pieces = (
        stream.begin(),
        stream.line("a line of log"),
        stream.alive(),
        stream.parcel(pack_parcel(PARCEL, marks_of(KNOWN))),
        stream.end(ending()),
    )
    return {
        "order_body": seal_order(keys, TICKET, ORDER, random=giving(ORDER_NONCE)).hex(),
        "holdings_body": seal_holdings(keys, HOLDINGS, random=giving(HOLDINGS_NONCE)).hex(),
        "known_packed": pack_known(KNOWN).hex(),
        "stream": b"".join(pieces).hex(),
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps({**made_again(), **made_once()}, indent=1) + "\n")
