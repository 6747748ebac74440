"""The page on the protocol, the test vectors and the code say the same.

The reader here is written from the page alone, with hashlib and libsodium: it shows that the page is enough.
"""

import json
import re
from functools import reduce
from hashlib import blake2b
from pathlib import Path

import msgspec
import pytest
import zstandard
from nacl import bindings as sodium
from tests import making
from tests.wire import vectors
from tests.wire.parties import HOME, HOST, NOW, PLATFORM, SESSION, SITE, TICKET

from sterna import model
from sterna.model import Budget
from sterna.wire import discovery, handshake, holdings, known, orders, parcels, receipts, records, stream
from sterna.wire.frames import Kind
from sterna.wire.handshake import SUITE, read_hello
from sterna.wire.holdings import open_holdings
from sterna.wire.keys import Succession
from sterna.wire.known import marks_of, unpack_known
from sterna.wire.orders import open_acknowledgement, open_order, open_report
from sterna.wire.parcels import Unpacker, as_sent
from sterna.wire.problems import PROBLEMS
from sterna.wire.stream import AliveCame, LineCame, ParcelCame, StreamReader

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
VECTORS: dict[str, str] = json.loads(vectors.PATH.read_text())
MODULES = (model, handshake, orders, holdings, receipts, stream, records)


def vector(name: str) -> bytes:
    return bytes.fromhex(VECTORS[name])


def rows(pattern: str) -> dict[str, str]:
    """What the two groups of a pattern match in each line of the page."""
    return dict(re.findall(pattern, PAGE, re.MULTILINE))


# -- the code


@pytest.mark.parametrize("name", vectors.made_again())
def test_the_code_makes_the_vectors(name: str) -> None:
    assert vectors.made_again()[name] == VECTORS[name]


def test_there_is_no_vector_that_nothing_makes() -> None:
    assert set(VECTORS) == {*vectors.made_again(), *vectors.made_once()}


def test_home_opens_the_reply() -> None:
    session = vectors.greeting().finish(vector("welcome_body"), HOST.public)
    assert (session.keys.session, session.ticket, session.platform) == (SESSION, TICKET, PLATFORM)
    assert session.keys.order == vector("order_key")


def test_the_host_opens_order_and_acknowledgement_and_home_the_report() -> None:
    _, keys = vectors.reply()
    assert open_order(keys, vector("order_body")) == (TICKET, vectors.ORDER)
    assert open_acknowledgement(keys, vector("acknowledgement_body")).number == 2
    assert open_report(keys, vector("report_body")) == vectors.REPORT
    assert open_holdings(keys, vector("holdings_body")) == vectors.HOLDINGS


def test_home_reads_the_stream() -> None:
    reader = StreamReader(vector("stream_key"), max_bytes=1_000_000)
    line, alive, parcel, ending = reader.feed(vector("stream"))
    reader.finish()
    assert isinstance(line, LineCame) and line.text == "a line of log"
    assert isinstance(alive, AliveCame)
    assert isinstance(parcel, ParcelCame) and parcel.packed == vector("parcel_packed")
    assert ending == vectors.ending()


def test_home_unpacks_the_parcel() -> None:
    marks = marks_of(vectors.KNOWN)
    starts = (model.Target(f"{SITE}/"), model.Target(vectors.KNOWN_URL, 1))
    visit = making.visit(*starts, id=vectors.VISIT, site=SITE, part="", known=vectors.KNOWN)
    parcel = Unpacker(visit, marks).unpack(vector("parcel_packed"), now=NOW + 10)
    sent = as_sent(vectors.PARCEL, marks)
    assert parcel.pages[0] == sent.pages[0] == vectors.CHANGED
    assert parcel.pages[1].fingerprint == sent.pages[1].fingerprint
    assert (parcel.checkpoint, parcel.usage, parcel.ended) == (sent.checkpoint, sent.usage, sent.ended)


def test_the_host_unpacks_what_is_known() -> None:
    read = unpack_known(vector("known_packed"))
    assert [(each.fingerprint, each.digest) for each in read.validators] == [
        (each.fingerprint, each.digest[:5]) for each in vectors.KNOWN.validators
    ]


# -- a reader written from the page


def hashed(data: bytes, *, person: bytes = b"", key: bytes = b"", size: int = 32) -> bytes:
    return blake2b(data, digest_size=size, person=person, key=key).digest()


def verified(key: bytes, context: bytes, data: bytes, signature: bytes) -> bool:
    message = b"sterna 1 " + context + b"\0" + data
    return bool(sodium.crypto_sign_open(signature + message, key) == message)


def opened(key: bytes, bound: bytes, sealed: bytes) -> bytes:
    return sodium.crypto_aead_xchacha20poly1305_ietf_decrypt(sealed[24:], bound, sealed[:24], key)


def derived(label: bytes) -> bytes:
    return hashed(b"sterna 1 " + label + b"\0" + vector("transcript"), key=vector("shared"))


def test_request_1_is_as_the_page_says() -> None:
    payload, signature = msgspec.msgpack.decode(vector("hello_body"))
    assert verified(HOME.public.data, b"hello", payload, signature)
    fields = msgspec.msgpack.decode(payload)
    version, suites, home, key, audience, ephemeral, nonce, time, wants, understands, priority = fields
    assert (version, suites, home, key) == (1, [SUITE], "lab", HOME.public.data)
    assert (audience, nonce, time, understands) == (SITE, vector("hello_nonce"), 1700000000.0, ["zstd"])
    assert ephemeral == sodium.crypto_scalarmult_base(vector("hello_ephemeral_secret"))
    assert (len(wants), priority) == (len(Budget.__struct_fields__), 5)


def test_reply_1_is_as_the_page_says() -> None:
    session, ephemeral, sealed = msgspec.msgpack.decode(vector("welcome_body"))
    hello_hash = hashed(vector("hello_body"), person=b"sterna 1 hello")
    transcript = hashed(hello_hash + session + ephemeral, person=b"sterna 1 reply")
    shared = sodium.crypto_scalarmult(vector("hello_ephemeral_secret"), ephemeral)
    assert (hello_hash, transcript, shared) == (vector("hello_hash"), vector("transcript"), vector("shared"))
    payload, signature = msgspec.msgpack.decode(opened(derived(b"welcome"), transcript, sealed))
    assert verified(HOST.public.data, b"welcome", transcript + payload, signature)
    suite, ticket, seconds, grants, platform, priority, closed = msgspec.msgpack.decode(payload)
    assert (suite, ticket, seconds, grants[0], platform) == (SUITE, TICKET, 60, 500, PLATFORM)
    assert (priority, closed) == (5, [])


def test_the_keys_are_as_the_page_says() -> None:
    for label in ("welcome", "order", "stream", "acknowledge", "report"):
        assert derived(label.encode()) == vector(f"{label}_key")


def test_sealed_messages_are_as_the_page_says() -> None:
    order, said, report = map(vector, ("order_body", "acknowledgement_body", "report_body"))
    assert order[:16] == said[:16] == report[:16] == SESSION
    plain = zstandard.decompress(opened(derived(b"order"), SESSION, order[16:]))
    assert plain == vector("order_plain")
    assert msgspec.msgpack.decode(plain)[1][:2] == ["send", vectors.VISIT]
    assert msgspec.msgpack.decode(plain)[1][-2:] == [5, []]
    assert msgspec.msgpack.decode(opened(derived(b"acknowledge"), SESSION, said[16:])) == [
        vectors.VISIT,
        2,
        b"",
    ]
    assert msgspec.msgpack.decode(opened(derived(b"report"), SESSION, report[16:]))[1] == "finished"


def frames() -> list[tuple[int, bytes, int]]:
    """Kind, payload and tag of each frame of the stream."""
    data, found = vector("stream"), []
    state = sodium.crypto_secretstream_xchacha20poly1305_state()
    sodium.crypto_secretstream_xchacha20poly1305_init_pull(state, data[:24], vector("stream_key"))
    at = 24
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        plain, tag = sodium.crypto_secretstream_xchacha20poly1305_pull(state, data[at + 4 : end], None)
        found.append((plain[0], plain[1:], tag))
        at = end
    return found


def test_the_stream_is_as_the_page_says() -> None:
    log, alive, packed, end = frames()
    assert log[:2] == (2, b"a line of log") and alive[:2] == (3, b"") and packed[0] == 1 and end[0] == 5
    tags = [tag for _, _, tag in frames()]
    assert tags == [0, 0, 0, sodium.crypto_secretstream_xchacha20poly1305_TAG_FINAL]
    unpacked = zstandard.ZstdDecompressor(max_window_size=2**27).decompressobj().decompress(packed[1])
    assert unpacked == len(vector("parcel_packed")).to_bytes(4, "big") + vector("parcel_packed")


def test_the_end_is_as_the_page_says() -> None:
    *fields, signature = msgspec.msgpack.decode(frames()[-1][1])
    assert verified(HOST.public.data, b"ending", msgspec.msgpack.encode([*fields, b""]), signature)
    visit, count, pages, _, ended, root = fields
    assert (visit, count, pages, ended) == (vectors.VISIT, 1, 2, "finished")
    assert root == hashed(b"\1" + vector("leaf_changed") + vector("leaf_unchanged"))


def test_holdings_are_as_the_page_says() -> None:
    sealed = vector("holdings_body")
    plain = zstandard.ZstdDecompressor().decompress(opened(vector("report_key"), SESSION, sealed[16:]))
    assert (sealed[:16], plain) == (SESSION, vector("holdings_plain"))
    report, at, usage, waiting, done, total, facts, parcels = msgspec.msgpack.decode(plain)
    assert (report[0], at, usage[0], waiting, done, total) == (vectors.VISIT, NOW + 1, 2, [[1, 1]], 2, 1)
    assert (len(facts), parcels) == (1, [vector("parcel_packed")])


def test_leaves_are_as_the_page_says() -> None:
    page = msgspec.structs.replace(vectors.CHANGED, fingerprint=0)
    *fields, _note = msgspec.structs.astuple(page)
    assert vector("leaf_changed") == hashed(b"\0" + msgspec.msgpack.encode(fields))
    mark = hashed(vectors.KNOWN_URL.encode(), size=8)
    assert vector("leaf_unchanged") == hashed(b"\0=" + mark)
    leaves = [hashed(b"\0" + letter) for letter in (b"a", b"b", b"c")]
    assert vector("root_of_abc") == reduce(lambda left, right: hashed(b"\1" + left + right), leaves)


def test_what_is_known_is_as_the_page_says() -> None:
    _, (tops, lows), has_digest, digests, has_likeness, likenesses = msgspec.msgpack.decode(
        vector("known_packed")
    )
    mark = hashed(vectors.KNOWN_URL.encode(), size=8)
    high, low = zstandard.ZstdDecompressor().decompressobj().decompress(tops)
    assert bytes([high ^ 0x80, low]) + lows == mark
    assert zstandard.ZstdDecompressor().decompressobj().decompress(has_digest) == b"\1"
    assert (digests, has_likeness, likenesses) == (bytes(range(5)), b"", b"")


def test_a_succession_is_as_the_page_says() -> None:
    old, new, signature = VECTORS["succession_home_to_host"].split(" ")
    assert (old, new) == (VECTORS["home_key"], VECTORS["host_key"])
    data = HOME.public.data + HOST.public.data
    raw = sodium.crypto_sign(b"sterna 1 succession\0" + data, HOME.seed + HOME.public.data)[:64]
    assert len(signature) == 86 and Succession.parse(VECTORS["succession_home_to_host"]).signature == raw


# -- the page


def test_the_page_shows_the_vectors() -> None:
    shown = rows(r"^(\w+) +(\S+)$")
    listed = {name: value for name, value in shown.items() if name in VECTORS}
    assert listed == {name: VECTORS[name] for name in listed}
    short = {name for name in vectors.made_again() if len(VECTORS[name]) <= 128} - {"succession_home_to_host"}
    assert short <= set(listed)


def test_the_page_lists_the_fields_of_every_record() -> None:
    """In their order, which is that on the wire."""
    listed = rows(r"^\| `([\w.]+)`(?: \(a map\))? \| (?:`\w+` \| )?((?:`\w+` ?)+)\|$")
    for name, fields in listed.items():
        travelling = [field for field in record(name).__struct_fields__ if (name, field) != ("Page", "note")]
        assert re.findall(r"\w+", fields) == travelling, name
    assert len(listed) == 35


def record(name: str) -> type[msgspec.Struct]:
    place, _, bare = name.rpartition(".")
    modules = {"known": (known,), "parcels": (parcels,)}.get(place, MODULES)
    found: type[msgspec.Struct] = next(getattr(each, bare) for each in modules if hasattr(each, bare))
    return found


def test_the_page_names_the_kinds_of_orders() -> None:
    assert rows(r"^\| `(\w+)` \| `(\w+)` \| (?=`)") == {
        record.__name__: msgspec.inspect.type_info(record).tag  # type: ignore[attr-defined]
        for record in (orders.Send, orders.Resume, orders.Look, orders.Kill, orders.Query)
    }


def test_the_page_lists_every_problem_with_its_status() -> None:
    listed = {name: int(status) for name, status in rows(r"^\| `([a-z-]+)` \| (\d{3}) \|").items()}
    assert listed == {name: status for name, (status, _) in PROBLEMS.items()}


def test_the_page_lists_the_fields_of_the_offer() -> None:
    table = PAGE.partition("| field | | default |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(discovery.Offer.__struct_fields__)


def test_the_page_lists_the_kinds_of_frames() -> None:
    listed = {name: int(number) for number, name in rows(r"^\| (\d) \| ([A-Z]+) \|").items()}
    assert listed == {kind.name: kind.value for kind in Kind}


def test_the_sizes_on_the_page_are_those_of_the_vectors() -> None:
    listed = {name: int(size) for name, size in rows(r"^\| ([a-z][a-z0-9 ,]+) \| (\d+) \|$").items()}
    assert listed == {
        "request 1": len(vector("hello_body")),
        "reply 1": len(vector("welcome_body")),
        "request 2": len(vector("order_body")),
        "acknowledgement": len(vector("acknowledgement_body")),
        "report": len(vector("report_body")),
        "stream of two pages, one of them unchanged": len(vector("stream")),
    }


def test_the_vector_of_request_1_is_read() -> None:
    assert read_hello(vector("hello_body")).transcript == vector("hello_hash")
