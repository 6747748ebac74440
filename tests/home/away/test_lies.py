"""Visits at a host that lies: whatever it does, home has a true part of the visit, each parcel once."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.home.away import lying
from tests.home.away.lying import (
    SITE,
    Chunks,
    Distort,
    LyingHost,
    Stream,
    honest,
    page,
    parcel,
    parcels,
)
from tests.home.away.outings import QUICK, Outing, lying_by

from sterna.errors import HostGone, Refused
from sterna.model import Budget, Checkpoint, Ended, Parcel, Target, Visit
from sterna.wire.keys import Identity
from sterna.wire.parcels import pack_parcel
from sterna.wire.problems import encode_problem, problem

# -- lies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(1, 6))
async def test_swapped_frames_are_seen(at: int) -> None:
    def swap(chunks: Chunks, stream: Stream) -> Chunks:
        return [*chunks[:at], chunks[at + 1], chunks[at], *chunks[at + 2 :]]

    outing = lying_by(swap)
    await outing.gone()
    assert len(outing.delivered.parcels) == at - 1


@pytest.mark.parametrize("at", range(1, 7))
async def test_repeated_frame_is_seen(at: int) -> None:
    outing = lying_by(lambda chunks, stream: [*chunks[: at + 1], *chunks[at:]])
    if at == 6:  # the end: nothing after it is read
        assert (await outing.go()).is_proven
        return
    await outing.gone()
    assert len(outing.delivered.parcels) == at


@pytest.mark.parametrize("at", range(6))
async def test_dropped_frame_is_seen(at: int) -> None:
    outing = lying_by(lambda chunks, stream: [*chunks[:at], *chunks[at + 1 :]])
    await outing.gone()
    assert len(outing.delivered.parcels) == max(at - 1, 0)


@pytest.mark.parametrize("at", range(7))
async def test_changed_byte_is_seen(at: int) -> None:
    def change(chunks: Chunks, stream: Stream) -> Chunks:
        spoiled = bytearray(chunks[at])
        spoiled[-1] ^= 1
        return [*chunks[:at], bytes(spoiled), *chunks[at + 1 :]]

    outing = lying_by(change)
    await outing.gone()
    assert len(outing.delivered.parcels) == max(at - 1, 0)


async def test_stream_of_another_session_is_seen() -> None:
    recorded: list[Chunks] = []

    def replay(chunks: Chunks, stream: Stream) -> Chunks:
        recorded.append(chunks)
        return recorded[0]

    outing = lying_by(replay)
    await outing.go()
    again = Outing(outing.host)
    await again.gone()
    assert again.delivered.parcels == []


async def test_greeting_of_another_session_is_seen() -> None:
    replies: list[bytes] = []

    def replay(reply: bytes) -> bytes:
        replies.append(reply)
        return replies[0]

    outing = lying_by(honest, hello=replay)
    await outing.go()
    with pytest.raises(Refused, match="bad-signature"):
        await Outing(outing.host).go()


async def test_host_with_another_key_never_has_the_visit() -> None:
    outing = lying_by(honest)
    offer = replace(outing.host.offer, key=Identity.new().public.text)
    with pytest.raises(Refused, match="bad-signature"):
        await outing.go(offer=offer)
    assert outing.host.orders == []


async def test_host_that_has_another_key_after_a_cut_is_gone() -> None:
    def usurp(chunks: Chunks, stream: Stream) -> Chunks:
        outing.host.identity = Identity.new()
        return chunks[:3]

    outing = lying_by(usurp)
    assert "changed its identity" in await outing.gone(offer=outing.host.offer)
    assert outing.delivered.numbers == [1, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        parcel(2, page("https://other.example/x")),
        parcel(2, page("/x"), epoch=2),
        parcel(2, page("/x"), visit="v0"),
        parcel(2, page("/x"), part="/x/"),
        parcel(3, page("/x")),
        parcel(1, page("/x")),
        parcel(2, page("/x", fetched=lying.NOW + 9999)),
        parcel(2, page("/x", fetched=lying.NOW - 9999)),
        parcel(2, page("/x"), page("/x")),
        parcel(2, page("/x"), checkpoint=Checkpoint(found=(Target("https://other.example/"),))),
        parcel(2, *(page(f"/{number}") for number in range(1001))),
    ],
    ids=["site", "epoch", "visit", "part", "gap", "again", "future", "past", "twice", "found", "many"],
)
async def test_parcel_that_cannot_be_is_not_delivered(wrong: Parcel) -> None:
    outing = Outing(LyingHost([parcels()[0], wrong, *parcels()[2:]]))
    await outing.gone()
    assert outing.delivered.numbers == [1]


@pytest.mark.parametrize(
    "ending",
    [
        {"root": bytes(32)},
        {"root": b""},
        {"pages": 9},
        {"pages": -1},
        {"parcels": 4},
        {"parcels": 6},
        {"ended": Ended.BUDGET},
        {"visit": "v2"},
        {"signature": bytes(64)},
        {"signature": b"short"},
    ],
    ids=repr,
)
async def test_end_that_is_not_true_is_seen(ending: dict[str, Any]) -> None:
    outing = lying_by(honest, ending=ending)
    await outing.gone()
    assert outing.delivered.numbers == [1, 2, 3, 4, 5]


async def test_end_that_another_signed_is_seen() -> None:
    assert "bad-signature" in await lying_by(honest, signer=Identity.new()).gone()


async def test_end_before_the_last_parcel_is_seen() -> None:
    def hurry(stream: Stream) -> Chunks:
        return [
            stream.writer.begin(),
            *map(stream.writer.parcel, stream.packed[:3]),
            stream.writer.end(stream.ending),
        ]

    outing = Outing(LyingHost(parcels(), compose=hurry, ending={"parcels": 3}))
    await outing.gone()
    assert outing.delivered.numbers == [1, 2, 3]


async def test_parcel_after_the_last_one_is_seen() -> None:
    outing = Outing(LyingHost([*parcels(2), parcel(3, page("/more"))]))
    await outing.gone()
    assert outing.delivered.numbers == [1, 2]


async def test_problem_in_the_stream_is_told() -> None:
    def give_up(stream: Stream) -> Chunks:
        why = encode_problem(problem("internal", "the host failed"))
        return [stream.writer.begin(), stream.writer.parcel(stream.packed[0]), stream.writer.problem(why)]

    outing = Outing(LyingHost(parcels(), compose=give_up))
    assert "the host failed" in await outing.gone()
    assert outing.delivered.numbers == [1]


@pytest.mark.parametrize("garbage", [b"", b"{}", b"\xff" * 1000])
async def test_problem_that_nobody_can_read_is_one(garbage: bytes) -> None:
    outing = Outing(
        LyingHost(parcels(), compose=lambda stream: [stream.writer.begin(), stream.writer.problem(garbage)])
    )
    assert "malformed reason" in await outing.gone()


async def test_garbage_instead_of_a_stream_is_seen() -> None:
    outing = lying_by(lambda chunks, stream: [b"<html>" * 10_000])
    await outing.gone()


@pytest.mark.parametrize("size", [0, 10, 1 << 20])
async def test_garbage_instead_of_a_greeting_is_a_refusal(size: int) -> None:
    outing = lying_by(honest, hello=lambda reply: bytes(size))
    with pytest.raises(Refused):
        await outing.go()
    assert outing.host.orders == []


# -- without end -------------------------------------------------------------------------------------------


def forever(make: Callable[[Stream], bytes], *, tick: Callable[[], None] = lambda: None) -> Distort:
    """A stream that begins well and never ends."""

    async def going_on(stream: Stream) -> AsyncIterator[bytes]:
        yield stream.writer.begin()
        yield stream.writer.parcel(stream.packed[0])
        while True:
            tick()
            yield make(stream)
            await asyncio.sleep(0)

    return lambda chunks, stream: going_on(stream)


async def test_endless_silence_is_a_broken_line() -> None:
    async def fall_silent(chunks: Chunks) -> AsyncIterator[bytes]:
        yield chunks[0]
        await asyncio.Event().wait()

    outing = lying_by(lambda chunks, stream: fall_silent(chunks))
    assert "was silent for" in await outing.gone()
    assert outing.host.streams == QUICK.tries


async def test_signs_of_life_alone_are_not_enough() -> None:
    outing = Outing(LyingHost(parcels(), compose=lambda stream: []))

    def tick() -> None:
        outing.clock.time += 10

    outing.host.distort = forever(lambda stream: stream.writer.alive(), tick=tick)
    assert "makes no progress" in await outing.gone()
    assert outing.clock.time < lying.NOW + 60 + 120 + 100


def small_visit() -> Visit:
    return lying.visit(budget=Budget(pages=50, seconds=60.0, urls=1_000))


async def test_endless_parcels_are_too_many() -> None:
    numbers = itertools.count(2)
    outing = Outing(LyingHost(parcels(), compose=lambda stream: []), small_visit())
    outing.host.distort = forever(
        lambda stream: stream.writer.parcel(pack_parcel(parcel(next(numbers)), outing.host.marks))
    )
    with pytest.raises(HostGone, match="too-large"):
        await outing.go()
    assert len(outing.delivered.parcels) < 1_200


async def test_endless_urls_are_too_many() -> None:
    numbers = itertools.count(2)

    def flood(stream: Stream) -> bytes:
        number = next(numbers)
        found = tuple(Target(f"{SITE}/{number}/{each}", depth=1) for each in range(20_000))
        sent = parcel(number, checkpoint=Checkpoint(found=found))
        return stream.writer.parcel(pack_parcel(sent, outing.host.marks))

    outing = Outing(LyingHost(parcels(), compose=lambda stream: [], distort=forever(flood)), small_visit())
    with pytest.raises(HostGone, match="too-large"):
        await outing.go()
    assert len(outing.delivered.parcels) < 10


async def test_parcel_that_swells_is_not_read() -> None:
    outing = Outing(LyingHost(parcels(), compose=lambda stream: []))
    outing.host.distort = forever(lambda stream: stream.writer.parcel(bytes(65 << 20)))
    with pytest.raises(HostGone, match="too-large"):
        await outing.go()
    assert outing.delivered.numbers == [1]
