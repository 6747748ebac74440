"""Visits at a host that may lie: whatever it does, home has a true part of the visit, each parcel once."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace
from tests.clocks import StillClock
from tests.home import lying
from tests.home.lying import (
    ENDPOINT,
    SITE,
    Chunks,
    Distort,
    LyingHost,
    Stream,
    cut_after,
    honest,
    page,
    parcel,
    parcels,
)
from tests.transport.serving import Cut, MemoryTransport, Said, refusing

from sterna.errors import HostGone, LineBroken, ParcelRefused, Refused, StorageError
from sterna.home.away import Away, Patience, Traffic, Trip
from sterna.home.line import Line
from sterna.model import Budget, Checkpoint, Ended, Known, Parcel, Target, Usage, Validator, Visit
from sterna.transport.interface import Call
from sterna.web.urls import fingerprint
from sterna.wire.handshake import read_hello
from sterna.wire.keys import Identity
from sterna.wire.known import Marks
from sterna.wire.orders import Kill, Look, Resume, Send
from sterna.wire.parcels import pack_parcel
from sterna.wire.problems import encode_problem, problem

HOME = Identity(bytes([1]) * 32)
QUICK = Patience(silence_seconds=0.3, stop_seconds=2.0, tries=3)
SOON_SECONDS = 30.0


@dataclass
class Delivered:
    """Where parcels go; a test may have one refused."""

    parcels: list[Parcel] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    failure: Exception | None = None

    async def __call__(self, parcel: Parcel, size_bytes: int) -> None:
        if self.failure:
            raise self.failure
        self.parcels.append(parcel)
        self.sizes.append(size_bytes)

    @property
    def numbers(self) -> list[int]:
        return [parcel.number for parcel in self.parcels]


@dataclass
class Outing:
    """A home, a host that may lie, and what comes of it."""

    host: LyingHost
    visit: Visit = field(default_factory=lying.visit)
    delivered: Delivered = field(default_factory=Delivered)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    patience: Patience = QUICK
    clock: StillClock = field(default_factory=StillClock)
    traffic: Traffic = field(default_factory=Traffic)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock.time = lying.NOW

    @property
    def away(self) -> Away:
        return Away(
            MemoryTransport({ENDPOINT: self.host.answer}),
            HOME,
            home="lab",
            clock=self.clock,
            patience=self.patience,
            on_line=lambda site, line: self.lines.append(line),
        )

    async def go(self, **fields: Any) -> Trip:
        async with asyncio.timeout(SOON_SECONDS):
            return await self.away.carry_out(
                self.visit,
                fields.pop("offer", self.host.offer),
                deliver=self.delivered,
                stop=self.stop,
                traffic=self.traffic,
                **fields,
            )

    async def gone(self, **fields: Any) -> str:
        """Why the host is gone."""
        with pytest.raises(HostGone) as error:
            await self.go(**fields)
        assert "\n" not in str(error.value)
        self.assert_true()
        return str(error.value)

    def assert_true(self) -> None:
        """What was delivered is the beginning of what the host has, each parcel once."""
        assert self.delivered.parcels == self.host.parcels[: len(self.delivered.parcels)]


def lying_by(distort: Distort, **fields: Any) -> Outing:
    return Outing(LyingHost(parcels(), distort=distort, **fields))


# -- what goes well ----------------------------------------------------------------------------------------


async def test_parcels_are_delivered_in_order_and_proven() -> None:
    outing = Outing(LyingHost(parcels(5)))
    taken: list[bool] = []
    trip = await outing.go(on_taken=lambda: taken.append(True))
    assert outing.delivered.parcels == outing.host.parcels
    assert taken == [True]
    assert trip == Trip(
        ended=Ended.FINISHED,
        parcels=5,
        pages=10,
        bytes_sent=outing.traffic.sent,
        bytes_received=outing.traffic.received,
        is_proven=True,
    )
    assert outing.traffic.sent == sum(len(call.body) for call in outing.host.calls)
    assert 0 < sum(outing.delivered.sizes) < outing.traffic.received


async def test_order_says_what_home_decides_and_no_more() -> None:
    outing = Outing(LyingHost(parcels(1)))
    await outing.go()
    (order,) = outing.host.orders
    assert isinstance(order, Send)
    assert (order.visit, order.part, order.epoch, order.starts) == ("v1", "/", 3, outing.visit.starts)
    assert (order.agent.user_agent, order.budget) == ("Tern/1", outing.visit.budget)


async def test_parcels_are_acknowledged_when_home_has_them() -> None:
    outing = Outing(LyingHost(parcels(30)))
    await outing.go()
    told = outing.host.acknowledged
    assert told[-1] == 30
    assert told == sorted(set(told))
    assert len(told) < 10  # some of them go with the next


async def test_nothing_is_acknowledged_that_home_has_not() -> None:
    outing = Outing(LyingHost(parcels(30)))
    outing.delivered.failure = StorageError("the disk is full")
    with pytest.raises(StorageError):
        await outing.go()
    assert outing.host.acknowledged == []


@pytest.mark.parametrize(("seconds", "level", "expected"), [(0.0, 0, 3), (0.05, 0, 9), (0.0, 7, 7)])
async def test_level_of_compression_is_by_the_round_trip(seconds: float, level: int, expected: int) -> None:
    outing = Outing(LyingHost(parcels(1)))

    async def answer(call: Call) -> Any:
        await asyncio.sleep(seconds if call.op == "hello" else 0)
        return await outing.host.answer(call)

    away = Away(
        MemoryTransport({ENDPOINT: answer}), HOME, home="lab", clock=outing.clock, level=level, patience=QUICK
    )
    await away.carry_out(outing.visit, outing.host.offer, deliver=outing.delivered, stop=outing.stop)
    (order,) = outing.host.orders
    assert isinstance(order, Send)
    assert order.level == expected


async def test_large_parcel_comes_in_many_frames() -> None:
    noise = random.Random(1).randbytes(300_000).hex()
    outing = Outing(LyingHost([parcel(1, page("/large", html=noise), ended=Ended.FINISHED)]))
    trip = await outing.go()
    assert trip.is_proven
    assert outing.delivered.parcels[0].pages[0].html == noise


async def test_lines_of_the_host_are_passed_on_and_bounded() -> None:
    def talk(stream: Stream) -> Chunks:
        writer = stream.writer
        lines = [writer.begin(), *(writer.line(f"{number}\x1b[2J") for number in range(3000))]
        return [*lines, *map(writer.parcel, stream.packed), writer.end(stream.ending)]

    outing = Outing(LyingHost(parcels(), compose=talk))
    await outing.go()
    assert outing.lines[:2] == ["0 [2J", "1 [2J"]
    assert len(outing.lines) == 1000


async def test_clock_of_the_host_may_be_another() -> None:
    hour = 3600.0
    host = LyingHost([parcel(1, page("/late", fetched=lying.NOW + hour), ended=Ended.FINISHED)])

    async def answer(call: Call) -> Said:
        if call.op == "hello" and read_hello(call.body).hello.time < lying.NOW + hour - 1:
            return refusing("stale", time=lying.NOW + hour)
        return await host.answer(call)

    outing = Outing(host)
    away = Away(MemoryTransport({ENDPOINT: answer}), HOME, home="lab", clock=outing.clock, patience=QUICK)
    trip = await away.carry_out(outing.visit, host.offer, deliver=outing.delivered, stop=outing.stop)
    assert trip.is_proven
    assert outing.delivered.parcels[0].pages[0].fetched == lying.NOW


async def test_host_that_stays_stale_is_not_asked_a_third_time() -> None:
    calls = 0

    async def answer(call: Call) -> Said:
        nonlocal calls
        calls += 1
        return refusing("stale", time=lying.NOW + 9999)

    outing = Outing(LyingHost(parcels()))
    away = Away(MemoryTransport({ENDPOINT: answer}), HOME, home="lab", clock=outing.clock, patience=QUICK)
    with pytest.raises(Refused, match="stale"):
        await away.carry_out(outing.visit, outing.host.offer, deliver=outing.delivered, stop=outing.stop)
    assert calls == 2


async def test_unchanged_pages_are_made_again_from_what_home_knows() -> None:
    urls = [f"{SITE}/{number}" for number in range(3)]
    validators = tuple(Validator(fingerprint(url), etag="x", digest=bytes([7]) * 32) for url in urls)
    starts = tuple(Target(url, depth=1) for url in urls)
    marks = Marks(Known(b"", validators))
    host = LyingHost(
        [
            parcel(
                1,
                *(page(url, status=304, is_unchanged=True, title="") for url in urls),
                usage=Usage(pages=3, unchanged=3),
                ended=Ended.FINISHED,
            )
        ],
        marks=marks,
    )
    outing = Outing(host, lying.visit(starts=starts, known=Known(b"", validators)))
    trip = await outing.go()
    assert trip.is_proven
    pages = outing.delivered.parcels[0].pages
    assert {(each.url, each.etag, each.is_unchanged) for each in pages} == {(url, "x", True) for url in urls}


# -- cuts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(7))
async def test_cut_at_every_frame_is_gone_on_with(count: int) -> None:
    outing = lying_by(cut_after(count))
    trip = await outing.go()
    assert outing.delivered.parcels == outing.host.parcels
    assert (trip.is_proven, trip.cuts, outing.host.streams) == (True, 1, 2)
    assert outing.host.orders[1] == Resume("v1", min(max(count, 1), 6), 3)


async def test_cut_within_a_frame_is_gone_on_with() -> None:
    def tear(chunks: Chunks, stream: Stream) -> Chunks:
        return [b"".join(chunks)[: 100 * stream.number]] if stream.number < 9 else chunks

    outing = lying_by(tear)
    outing.patience = replace(QUICK, tries=20)
    trip = await outing.go()
    assert trip.is_proven
    assert outing.delivered.parcels == outing.host.parcels


async def test_stream_that_ends_well_too_early_is_a_cut() -> None:
    """Apache ends the reply of a killed CGI as if it were whole."""
    outing = lying_by(lambda chunks, stream: chunks[:3] if stream.number == 1 else chunks)
    trip = await outing.go()
    assert (trip.is_proven, trip.cuts) == (True, 1)
    assert outing.delivered.parcels == outing.host.parcels


async def test_host_that_is_cut_again_and_again_without_a_parcel_is_gone() -> None:
    outing = lying_by(cut_after(1, streams=99))
    assert "lost after parcel 0" in await outing.gone()
    assert outing.host.streams == QUICK.tries


async def test_cuts_that_bring_something_are_borne() -> None:
    outing = lying_by(lambda chunks, stream: chunks[:-1][:2])
    trip = await outing.go()
    assert outing.delivered.numbers == [1, 2, 3, 4, 5]
    assert (trip.ended, trip.is_proven) == (Ended.FINISHED, False)  # all of it is here, but for the proof


async def test_pauses_between_tries_grow() -> None:
    outing = lying_by(cut_after(1, streams=99))
    outing.patience = replace(QUICK, tries=4)
    await outing.gone()
    assert outing.clock.time == lying.NOW + 1 + 2 + 4


async def test_host_that_keeps_nothing_is_gone_after_a_cut() -> None:
    outing = lying_by(cut_after(3))
    offer = replace(outing.host.offer, is_live_only=True)
    assert "lost after parcel 2" in await outing.gone(offer=offer)
    assert (outing.host.streams, outing.host.acknowledged) == (1, [])


async def test_visit_is_gone_on_with_by_another_run() -> None:
    outing = lying_by(honest)
    trip = await outing.go(resume_from=4)
    assert outing.delivered.numbers == [4, 5]
    assert outing.host.orders == [Resume("v1", 4, 3)]
    assert (trip.parcels, trip.ended, trip.is_proven) == (2, Ended.FINISHED, False)


async def test_host_that_forgot_the_visit_is_gone() -> None:
    outing = lying_by(cut_after(3), refusals=[None, Refused("gone", "no such visit")])
    assert "no such visit" in await outing.gone()
    assert outing.delivered.numbers == [1, 2]


async def test_busy_host_is_asked_again_when_it_says_so() -> None:
    outing = lying_by(cut_after(3), refusals=[None, Refused("busy", "later", retry_after=40.0)])
    trip = await outing.go()
    assert trip.is_proven
    assert outing.clock.time == lying.NOW + 1 + 40


async def test_order_that_may_have_arrived_is_asked_after_before_it_is_sent_again() -> None:
    outing = Outing(LyingHost(parcels()))
    is_first = True

    async def answer(call: Call) -> Said:
        nonlocal is_first
        if call.op == "order" and is_first:
            is_first = False
            raise Cut
        return await outing.host.answer(call)

    outing.host.refusals = [Refused("gone", "no such visit")]
    away = Away(MemoryTransport({ENDPOINT: answer}), HOME, home="lab", clock=outing.clock, patience=QUICK)
    trip = await away.carry_out(outing.visit, outing.host.offer, deliver=outing.delivered, stop=outing.stop)
    assert trip.is_proven
    assert [type(order) for order in outing.host.orders] == [Resume, Send]


@pytest.mark.parametrize("name", ["ticket-spent", "replayed"])
async def test_order_that_was_there_before_is_gone_on_with(name: str) -> None:
    outing = lying_by(honest, refusals=[Refused(name)])
    trip = await outing.go()
    assert trip.is_proven
    assert [type(order) for order in outing.host.orders] == [Send, Resume]


@pytest.mark.parametrize("name", ["refused", "too-large", "busy", "no-jail", "unknown-home"])
async def test_order_that_is_refused_never_was(name: str) -> None:
    outing = lying_by(honest, refusals=[Refused(name, "no")])
    with pytest.raises(Refused, match=name):
        await outing.go()
    assert len(outing.host.orders) == 1


async def test_host_that_cannot_be_reached_never_had_it() -> None:
    outing = lying_by(honest)
    with pytest.raises(LineBroken):
        await outing.go(offer=replace(outing.host.offer, endpoint="https://nowhere.example"))


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
    assert "another now" in await outing.gone(offer=outing.host.offer)
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
    assert "cannot be read" in await outing.gone()


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
    assert "no sign of life" in await outing.gone()
    assert outing.host.streams == QUICK.tries


async def test_signs_of_life_alone_are_not_enough() -> None:
    outing = Outing(LyingHost(parcels(), compose=lambda stream: []))

    def tick() -> None:
        outing.clock.time += 10

    outing.host.distort = forever(lambda stream: stream.writer.alive(), tick=tick)
    assert "does not get on" in await outing.gone()
    assert outing.clock.time < lying.NOW + 60 + 120 + 100


async def test_endless_parcels_are_too_many() -> None:
    numbers = itertools.count(2)
    outing = Outing(LyingHost(parcels(), compose=lambda stream: []))
    outing.host.distort = forever(
        lambda stream: stream.writer.parcel(pack_parcel(parcel(next(numbers)), outing.host.marks))
    )
    with pytest.raises(HostGone, match="too-large"):
        await outing.go()
    assert len(outing.delivered.parcels) < 5000


async def test_endless_urls_are_too_many() -> None:
    numbers = itertools.count(2)

    def flood(stream: Stream) -> bytes:
        number = next(numbers)
        found = tuple(Target(f"{SITE}/{number}/{each}", depth=1) for each in range(20_000))
        sent = parcel(number, checkpoint=Checkpoint(found=found))
        return stream.writer.parcel(pack_parcel(sent, outing.host.marks))

    outing = Outing(LyingHost(parcels(), compose=lambda stream: [], distort=forever(flood)))
    with pytest.raises(HostGone, match="too-large"):
        await outing.go()
    assert len(outing.delivered.parcels) < 50


async def test_parcel_that_swells_is_not_read() -> None:
    outing = Outing(LyingHost(parcels(), compose=lambda stream: []))
    outing.host.distort = forever(lambda stream: stream.writer.parcel(bytes(65 << 20)))
    with pytest.raises(HostGone, match="too-large"):
        await outing.go()
    assert outing.delivered.numbers == [1]


# -- ends --------------------------------------------------------------------------------------------------


async def test_parcel_that_home_refuses_ends_the_visit_there() -> None:
    outing = lying_by(honest)
    outing.delivered.failure = ParcelRefused("stale")
    with pytest.raises(ParcelRefused):
        await outing.go()
    assert isinstance(outing.host.orders[-1], Kill)


async def test_stopped_visit_is_killed_and_what_it_still_sends_is_taken() -> None:
    killed = asyncio.Event()

    async def wait_for_the_end(chunks: Chunks) -> AsyncIterator[bytes]:
        yield chunks[0]
        yield chunks[1]
        outing.stop.set()
        await killed.wait()
        for chunk in chunks[2:]:
            yield chunk

    async def answer(call: Call) -> Said:
        said = await outing.host.answer(call)
        if any(isinstance(order, Kill) for order in outing.host.orders):
            killed.set()
        return said

    outing = lying_by(lambda chunks, stream: wait_for_the_end(chunks))
    away = Away(MemoryTransport({ENDPOINT: answer}), HOME, home="lab", clock=outing.clock, patience=QUICK)
    trip = await away.carry_out(outing.visit, outing.host.offer, deliver=outing.delivered, stop=outing.stop)
    assert (trip.parcels, trip.is_proven) == (5, True)


async def test_host_that_does_not_end_a_killed_visit_is_left() -> None:
    async def ignore(chunks: Chunks) -> AsyncIterator[bytes]:
        yield chunks[0]
        yield chunks[1]
        outing.stop.set()
        await asyncio.Event().wait()

    outing = lying_by(lambda chunks, stream: ignore(chunks))
    outing.patience = replace(QUICK, stop_seconds=0.2, silence_seconds=9.0)
    trip = await outing.go()
    assert (trip.ended, trip.parcels) == (None, 1)
    assert isinstance(outing.host.orders[-1], Kill)


async def test_visit_that_is_stopped_before_it_left_stays() -> None:
    outing = lying_by(honest)

    async def answer(call: Call) -> Said:
        outing.stop.set()
        await asyncio.Event().wait()
        raise AssertionError

    away = Away(MemoryTransport({ENDPOINT: answer}), HOME, home="lab", clock=outing.clock, patience=QUICK)
    trip = await away.carry_out(outing.visit, outing.host.offer, deliver=outing.delivered, stop=outing.stop)
    assert (trip.ended, trip.parcels, outing.host.orders) == (None, 0, [])


async def test_refused_acknowledgements_lead_to_another_session() -> None:
    outing = Outing(LyingHost(parcels(40)))
    refusals = 0

    async def slow(chunks: Chunks) -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk
            await asyncio.sleep(0.005)

    async def answer(call: Call) -> Said:
        nonlocal refusals
        if call.op == "acknowledge" and outing.host.streams == 1:
            refusals += 1
            return refusing("ticket-expired", "there is no such session")
        return await outing.host.answer(call)

    outing.host.distort = lambda chunks, stream: slow(chunks)
    away = Away(MemoryTransport({ENDPOINT: answer}), HOME, home="lab", clock=outing.clock, patience=QUICK)
    trip = await away.carry_out(outing.visit, outing.host.offer, deliver=outing.delivered, stop=outing.stop)
    assert (refusals, outing.host.streams, trip.is_proven) == (1, 2, True)
    assert outing.delivered.parcels == outing.host.parcels
    assert outing.host.acknowledged[-1] == 40


async def test_lost_last_acknowledgement_is_no_harm() -> None:
    outing = Outing(LyingHost(parcels()))

    async def answer(call: Call) -> Said:
        if call.op == "acknowledge":
            raise Cut
        return await outing.host.answer(call)

    away = Away(MemoryTransport({ENDPOINT: answer}), HOME, home="lab", clock=outing.clock, patience=QUICK)
    trip = await away.carry_out(outing.visit, outing.host.offer, deliver=outing.delivered, stop=outing.stop)
    assert trip.is_proven


async def test_look_and_kill_bring_a_report() -> None:
    outing = Outing(LyingHost(parcels()))
    assert (await outing.away.look(outing.host.offer, "v1")).state == "running"
    assert (await outing.away.kill(outing.host.offer, "v1")).visit == "v1"
    assert outing.host.orders == [Look("v1"), Kill("v1")]


async def test_secrets_are_not_shown() -> None:
    host = LyingHost(parcels())
    transport = MemoryTransport({ENDPOINT: host.answer})
    line = Line(transport, HOME, host.offer, home="lab", clock=StillClock(), traffic=Traffic())
    contact = await line.greet(Budget())
    shown = f"{contact!r} {contact.session!r} {contact.session.keys!r}"
    for secret in (contact.session.ticket, contact.session.keys.stream, contact.session.keys.order):
        assert repr(secret) not in shown
        assert secret.hex() not in shown
