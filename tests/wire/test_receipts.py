"""Receipts: what both sides sign of a visit, how it travels, and what is refused."""

import json
import re
from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nacl import bindings as sodium
from tests.wire.parties import HOME, HOST, NOW, SITE, STRANGER, is_read, refusal, session, spoiled

from sterna.errors import WireError
from sterna.model import Ended, Record, Usage
from sterna.wire.frames import HEADER_BYTES, FrameWriter, Kind
from sterna.wire.keys import Identity
from sterna.wire.orders import Acknowledgement, open_acknowledgement, seal_acknowledgement
from sterna.wire.receipts import (
    MAX_RECEIPT_BYTES,
    MAX_TIME,
    Receipt,
    SignedReceipt,
    decode_receipt,
    spared,
)
from sterna.wire.stream import Ending, LineCame, ReceiptCame, StreamReader, StreamWriter

FOLDER = Path(__file__).parent
PAGE = (FOLDER.parents[1] / "docs" / "protocol.md").read_text()
VECTOR: dict[str, str] = json.loads((FOLDER / "receipt_vector.json").read_text())
KEY = bytes(range(32))
RECEIPT = Receipt(
    visit="v1",
    site=SITE,
    home=HOME.public.data,
    host=HOST.public.data,
    began=NOW,
    over=NOW + 12.5,
    ended=Ended.FINISHED,
    pages=243,
    requests=253,
    read_bytes=6_100_000,
    sent_bytes=750_500,
    cpu_seconds=1.25,
    spared_requests=250,
    spared_bytes=5_349_500,
    root=bytes(range(32)),
)
SIGNED = SignedReceipt.make(RECEIPT, HOST)
BOTH = SIGNED.countersign(HOME)
ENDING = Ending(visit="v1", parcels=0, pages=0, usage=Usage(), ended=Ended.FINISHED, root=bytes(32)).signed(
    HOST
)


def signed_with(**fields: Any) -> SignedReceipt:
    """What a host signs that does not care whether it can be."""
    return SignedReceipt.make(msgspec.structs.replace(RECEIPT, **fields), HOST)


def opened(data: bytes) -> Receipt:
    return decode_receipt(data).open()


# -- both signatures


@pytest.mark.parametrize("signed", [SIGNED, BOTH])
def test_receipt_comes_as_it_was_signed(signed: SignedReceipt) -> None:
    assert decode_receipt(signed.encode()) == signed
    assert opened(signed.encode()) == RECEIPT
    assert len(signed.encode()) < 500


def test_copy_in_which_one_byte_is_another_is_never_believed() -> None:
    assert not any(is_read(opened, copy) for copy in spoiled(BOTH.encode()))


@pytest.mark.parametrize("name", Receipt.__struct_fields__)
def test_every_field_is_signed(name: str) -> None:
    others: dict[str, Any] = {
        "version": 2,
        "visit": "v2",
        "site": "https://other.test",
        "home": STRANGER.public.data,
        "host": STRANGER.public.data,
        "began": NOW - 1,
        "over": NOW + 13,
        "ended": Ended.BUDGET,
        "root": bytes(32),
        "cpu_seconds": 1.5,
        "read_bytes": 6_100_001,
        "sent_bytes": 750_499,
        "spared_bytes": 5_349_501,
    }
    changed = msgspec.structs.replace(RECEIPT, **{name: others.get(name, 7)})
    forged = msgspec.structs.replace(SIGNED, payload=msgspec.msgpack.encode(changed))
    with pytest.raises(WireError):
        forged.open()


@pytest.mark.parametrize("signer", [HOME, STRANGER])
def test_receipt_that_another_than_its_host_signed_is_refused(signer: Identity) -> None:
    assert refusal(SignedReceipt.make(RECEIPT, signer).open) == "bad-signature"


@pytest.mark.parametrize(
    "signature",
    [
        STRANGER.sign("receipt-home", SIGNED.payload),
        HOME.sign("receipt", SIGNED.payload),
        HOME.sign("ending", SIGNED.payload),
        HOME.sign("receipt-home", SIGNED.payload[:-1]),
        SIGNED.by_host,
        b"short",
    ],
)
def test_only_the_home_that_is_named_can_countersign(signature: bytes) -> None:
    assert refusal(msgspec.structs.replace(SIGNED, by_home=signature).open) == "bad-signature"


# -- what cannot be


@pytest.mark.parametrize(
    "fields",
    [
        {"began": NOW + 13},
        {"began": -1.0},
        {"began": nan},
        {"over": inf},
        {"over": MAX_TIME * 2},
        {"cpu_seconds": -0.1},
        {"cpu_seconds": nan},
        {"cpu_seconds": 1e12},
        {"pages": -1},
        {"requests": 2**63},
        {"spared_bytes": 5_349_501},
        {"spared_bytes": 0},
        {"spared_requests": 252},
        {"sent_bytes": 7_000_000},
        {"root": b"short"},
        {"home": b"short"},
        {"visit": "../../etc"},
        {"visit": ""},
        {"site": "a site\n"},
        {"ended": "vanished"},
    ],
)
def test_figures_that_cannot_be_are_refused_whoever_signed_them(fields: dict[str, Any]) -> None:
    assert refusal(signed_with(**fields).open) == "malformed"


def test_what_was_spared_is_never_below_nothing() -> None:
    assert (spared(100, 30), spared(30, 100)) == (70, 0)
    costly = signed_with(sent_bytes=7_000_000, spared_bytes=0, requests=1, spared_requests=0)
    assert costly.open().spared_bytes == 0


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x90", b"\x91" * 3_000, bytes(MAX_RECEIPT_BYTES + 1), msgspec.msgpack.encode([1])],
)
def test_bytes_that_are_no_receipt_are_refused(data: bytes) -> None:
    assert refusal(decode_receipt, data) in ("malformed", "too-large")


def test_field_of_a_later_release_is_passed_over_and_proves_the_same() -> None:
    payload = msgspec.msgpack.encode([*msgspec.structs.astuple(RECEIPT), "new"])
    later = SignedReceipt(payload, HOST.sign("receipt", payload)).countersign(HOME)
    assert opened(later.encode()) == RECEIPT


def test_later_version_is_refused_before_the_rest_is_read() -> None:
    payload = msgspec.msgpack.encode([2, {"all": "new"}])
    assert refusal(SignedReceipt(payload, HOST.sign("receipt", payload)).open) == "version"


# -- in the stream


def test_receipt_comes_before_the_end_with_the_bytes_before_it() -> None:
    writer, reader = StreamWriter(KEY, level=3), StreamReader(KEY, max_bytes=10_000)
    before = writer.begin() + writer.line("a line") + writer.parcel(b"parcel") + writer.alive()
    sent = before + writer.receipt(SIGNED.encode()) + writer.end(ENDING)
    *_, receipt, ending = reader.feed(sent)
    assert receipt == ReceiptCame(SIGNED.encode(), len(before))
    assert ending == ENDING
    assert reader.opened_bytes == len(sent)


def test_receipt_may_be_all_that_comes() -> None:
    writer, reader = StreamWriter(KEY, level=3), StreamReader(KEY, max_bytes=10_000)
    (receipt,) = reader.feed(writer.begin() + writer.receipt(b""))
    assert receipt == ReceiptCame(b"", HEADER_BYTES)


@pytest.mark.parametrize("kind", [Kind.ALIVE, Kind.LOG, Kind.PARCELS, Kind.PROBLEM, Kind.RECEIPT])
def test_nothing_but_the_end_follows_a_receipt(kind: Kind) -> None:
    frames, reader = FrameWriter(KEY), StreamReader(KEY, max_bytes=10_000)
    sent = frames.header + frames.frame(Kind.LOG, b"x") + frames.frame(Kind.RECEIPT, b"r")
    assert [type(each) for each in reader.feed(sent)] == [LineCame, ReceiptCame]
    with pytest.raises(WireError, match="malformed"):
        list(reader.feed(frames.frame(kind)))


# -- with the last acknowledgement


class OldAcknowledgement(Record, frozen=True):
    """As it was before there were receipts."""

    visit: str
    number: int


def test_signature_comes_with_an_acknowledgement() -> None:
    _, keys = session()
    said = open_acknowledgement(keys, seal_acknowledgement(keys, "v1", 3, receipt=BOTH.by_home))
    assert said == Acknowledgement("v1", 3, BOTH.by_home)
    assert open_acknowledgement(keys, seal_acknowledgement(keys, "v1", 3)).receipt == b""
    with pytest.raises(WireError, match="malformed"):
        open_acknowledgement(keys, seal_acknowledgement(keys, "v1", 3, receipt=bytes(65)))


def test_old_and_new_peers_read_each_others_acknowledgements() -> None:
    new = msgspec.msgpack.encode(Acknowledgement("v1", 3, BOTH.by_home))
    old = msgspec.msgpack.encode(OldAcknowledgement("v1", 3))
    assert msgspec.msgpack.decode(new, type=OldAcknowledgement) == OldAcknowledgement("v1", 3)
    assert msgspec.msgpack.decode(old, type=Acknowledgement) == Acknowledgement("v1", 3)


# -- the vector, read from the page alone


def test_the_code_makes_the_vector() -> None:
    assert {
        "receipt_payload": BOTH.payload.hex(),
        "receipt_by_host": BOTH.by_host.hex(),
        "receipt_by_home": BOTH.by_home.hex(),
        "receipt_frame": SIGNED.encode().hex(),
    } == VECTOR


def test_the_vector_is_as_the_page_says() -> None:
    payload, by_host, by_home = msgspec.msgpack.decode(bytes.fromhex(VECTOR["receipt_frame"]))
    assert (payload, by_home) == (bytes.fromhex(VECTOR["receipt_payload"]), b"")
    for key, context, signature in (
        (HOST.public.data, b"receipt", by_host),
        (HOME.public.data, b"receipt-home", bytes.fromhex(VECTOR["receipt_by_home"])),
    ):
        message = b"sterna 1 " + context + b"\0" + payload
        assert sodium.crypto_sign_open(signature + message, key) == message
    fields = msgspec.msgpack.decode(payload)
    assert fields[:5] == [1, "v1", SITE, HOME.public.data, HOST.public.data]
    assert fields[5:8] == [NOW, NOW + 12.5, "finished"]
    assert fields[8:15] == [243, 253, 6_100_000, 750_500, 1.25, 250, 5_349_500]


def test_the_page_lists_the_fields_and_shows_the_vector() -> None:
    listed = dict(re.findall(r"^\| `((?:Signed)?Receipt)` \| ((?:`\w+` ?)+)\|$", PAGE, re.MULTILINE))
    for record in (Receipt, SignedReceipt):
        assert re.findall(r"\w+", listed[record.__name__]) == list(record.__struct_fields__)
    shown = dict(re.findall(r"^(receipt_\w+) +(\S+)$", PAGE, re.MULTILINE))
    assert shown == {name: VECTOR[name] for name in ("receipt_by_host", "receipt_by_home")}
