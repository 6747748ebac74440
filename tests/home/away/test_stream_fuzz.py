"""A few thousand inputs of `bench.fuzz`: home believes of a lying host what can be, and refuses the rest."""

import time
from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest
from bench.fuzz_parts import home_inputs, reading
from bench.fuzz_parts.answering import Answering
from bench.fuzz_parts.home_inputs import HOME, HOST, KEYS, MARKS, NOW, VISIT
from bench.fuzz_parts.knocking import chance_of
from bench.fuzz_parts.reading import read
from bench.fuzz_parts.spoiling import garbage, spoil_bytes, spoil_fields, tree_of
from bench.fuzz_parts.storing import Desk

from sterna.home.away.inbox import Inbox
from sterna.home.away.receipts import Witnessed, countersign, dispute
from sterna.model import Ended, Parcel, Usage
from sterna.wire.parcels import pack_parcel
from sterna.wire.receipts import Receipt, decode_receipt

SEED = 7
SECONDS = 10.0  # for any input
COUNTS = {"offer": 800, "problem": 500, "robots.txt": 200, "reply 1": 700, "report": 400, "stream": 1_200}


def test_every_kind_is_read() -> None:
    assert set(COUNTS) == set(reading._READ)


@pytest.mark.parametrize("kind", COUNTS)
def test_every_input_is_believed_or_cleanly_refused(kind: str) -> None:
    words: Counter[str] = Counter()
    for number in range(COUNTS[kind]):
        began = time.monotonic()
        try:
            words[read(kind, chance_of(SEED, kind, number))] += 1
        except Exception as error:
            raise AssertionError(f"input {number} of {kind!r}, seed {SEED}: {error!r}") from error
        assert time.monotonic() - began < SECONDS, number
    assert len(words) > 1  # some come through to where it matters


async def test_what_is_believed_can_be_stored(tmp_path: Path) -> None:
    async with Desk(tmp_path / "desk") as desk:
        words = Counter([await desk.take(chance_of(SEED, "stored", number)) for number in range(150)])
    assert sum(count for word, count in words.items() if "stored" in word) > 30


async def test_whatever_a_web_server_answers_ends_a_call_cleanly() -> None:
    async with Answering() as answering:
        words = Counter([await answering.call(chance_of(SEED, "http answer", n)) for n in range(300)])
    assert {"ok", "line broken"} <= set(words)


def honest(count: int) -> list[Parcel]:
    return [
        home_inputs.honest_parcel(
            number, chance_of(SEED, "honest", number), ended=Ended.FINISHED if number == count else None
        )
        for number in range(1, count + 1)
    ]


def test_honest_host_is_proven() -> None:
    """Else all that the others are refused for could be a mistake of theirs."""
    parcels = honest(3)
    unloading = Inbox(VISIT, MARKS, host_key=HOST.public, began=NOW)
    unloading.begin(KEYS.stream)
    packed = [pack_parcel(each, MARKS) for each in parcels]
    came = [
        parcel
        for chunk in home_inputs.sealed(packed, home_inputs.ending(parcels), chance_of(SEED, "sealed", 0))
        for parcel in unloading.feed(chunk, now=NOW)
    ]
    unloading.finish()
    assert len(came) == 3
    assert unloading.is_proven
    for parcel in came:
        reading.check(parcel)


# -- receipts ----------------------------------------------------------------------------------------------


RECEIPT = Receipt(
    visit=VISIT.id,
    site=VISIT.site,
    home=HOME.public.data,
    host=HOST.public.data,
    began=NOW,
    over=NOW + 5,
    ended=Ended.FINISHED,
    pages=10,
    requests=12,
    read_bytes=5_000,
    sent_bytes=1_000,
    cpu_seconds=0.5,
    spared_requests=10,
    spared_bytes=4_000,
    root=bytes(32),
)
SEEN = Witnessed(
    visit=VISIT.id,
    site=VISIT.site,
    host=HOST.public.data,
    is_whole=True,
    ended=Ended.FINISHED,
    costs=Usage(pages=10, requests=12, bytes_received=5_000, cpu_seconds=0.5),
    root=bytes(32),
    received_bytes=1_000,
    lost_streams=0,
    earliest=NOW,
    latest=NOW + 10,
)


def spoiled_receipt(chance: Random) -> bytes:
    """One that its host signed whatever it says; or whose bytes are others."""
    fields = tree_of(RECEIPT) if chance.random() < 0.1 else spoil_fields(tree_of(RECEIPT), chance)
    payload = msgspec.msgpack.encode(fields) if chance.random() < 0.9 else garbage(chance)
    signed = [payload, HOST.sign("receipt", payload), b""]
    whole = msgspec.msgpack.encode(signed if chance.random() < 0.9 else spoil_fields(signed, chance))
    return spoil_bytes(whole, chance) if chance.random() < 0.1 else whole


async def test_every_receipt_is_signed_kept_or_cleanly_refused() -> None:
    kept: list[bytes] = []

    async def keep(visit: str, site: str, data: bytes) -> None:
        assert (visit, site) == (VISIT.id, VISIT.site)
        kept.append(data)

    words: Counter[str] = Counter()
    for number in range(1_500):
        packed = spoiled_receipt(chance_of(SEED, "receipt", number))
        signature, reason = await countersign(packed, SEEN, HOME, keep=keep)
        assert "\n" not in reason, number
        words["signed" if signature else "refused"] += 1
        if signature:
            signed = decode_receipt(kept[-1]).open()
            assert dispute(signed, SEEN) == "", number
            assert (signed.home, signed.host) == (RECEIPT.home, RECEIPT.host), number
    for data in kept:  # whatever is kept, its host signed it
        assert decode_receipt(data).open().visit == VISIT.id
    assert words["signed"] > 50
    assert len(kept) > words["signed"]
    assert words["refused"] > 500
