"""Visits at a host: how they go well, and how they end."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.home.away import lying
from tests.home.away.lying import (
    SITE,
    Chunks,
    LyingHost,
    Stream,
    honest,
    page,
    parcel,
    parcels,
)
from tests.home.away.outings import QUICK, Outing, lying_by
from tests.transport.serving import Cut, Said, refusing

from sterna.errors import ParcelRefused, Refused, StorageError
from sterna.home.away import trip as trip_module
from sterna.home.ledger.records import Out
from sterna.model import Budget, Ended, Known, Target, Usage, Validator
from sterna.transport.interface import Call
from sterna.web.urls import fingerprint
from sterna.wire.handshake import read_hello
from sterna.wire.known import marks_of
from sterna.wire.orders import Kill, Look, Send

# -- what goes well ----------------------------------------------------------------------------------------


async def test_parcels_are_delivered_in_order_and_proven() -> None:
    outing = Outing(LyingHost(parcels(5)))
    trip = await outing.go()
    assert outing.delivered.parcels == outing.host.parcels
    assert (trip.out, trip.ended, trip.parcels, trip.pages) == (Out.RETURNED, Ended.FINISHED, 5, 10)
    assert trip.is_proven
    assert outing.noted.bytes_sent == sum(len(call.body) for call in outing.host.calls)
    assert 0 < sum(outing.delivered.sizes) < outing.noted.bytes_received


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


@pytest.mark.parametrize(("seconds", "level", "expected"), [(0.0, 0, 3), (0.6, 0, 9), (0.0, 7, 7)])
async def test_level_of_compression_is_by_the_round_trip(
    monkeypatch: pytest.MonkeyPatch, seconds: float, level: int, expected: int
) -> None:
    monkeypatch.setattr(trip_module, "NEAR_SECONDS", 0.5)  # other tests keep the machine busy
    outing = Outing(LyingHost(parcels(1)))

    async def answer(call: Call) -> Any:
        await asyncio.sleep(seconds if call.op == "hello" else 0)
        return await outing.host.answer(call)

    outing.answer = answer
    await outing.go(level=level)
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
        lines = [writer.begin(), *(writer.line(f"{number}\x1b[2J") for number in range(1_200))]
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
    outing.answer = answer
    trip = await outing.go()
    assert trip.is_proven
    assert outing.delivered.parcels[0].pages[0].fetched == lying.NOW


async def test_host_that_stays_stale_is_not_asked_a_third_time() -> None:
    calls = 0

    async def answer(call: Call) -> Said:
        nonlocal calls
        calls += 1
        return refusing("stale", time=lying.NOW + 9999)

    outing = Outing(LyingHost(parcels()))
    outing.answer = answer
    with pytest.raises(Refused, match="stale"):
        await outing.go()
    assert calls == 2


async def test_unchanged_pages_are_made_again_from_what_home_knows() -> None:
    urls = [f"{SITE}/{number}" for number in range(3)]
    validators = tuple(Validator(fingerprint(url), etag="x", digest=bytes([7]) * 32) for url in urls)
    starts = tuple(Target(url, depth=1) for url in urls)
    marks = marks_of(Known(b"", validators))
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
    outing.answer = answer
    trip = await outing.go()
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

    outing.answer = answer
    trip = await outing.go()
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
    outing.answer = answer
    trip = await outing.go()
    assert (refusals, outing.host.streams, trip.is_proven) == (1, 2, True)
    assert outing.delivered.parcels == outing.host.parcels
    assert outing.host.acknowledged[-1] == 40


async def test_lost_last_acknowledgement_is_no_harm() -> None:
    outing = Outing(LyingHost(parcels()))

    async def answer(call: Call) -> Said:
        if call.op == "acknowledge":
            raise Cut
        return await outing.host.answer(call)

    outing.answer = answer
    trip = await outing.go()
    assert trip.is_proven


async def test_look_and_kill_bring_a_report() -> None:
    outing = Outing(LyingHost(parcels()))
    lines = outing.courier().lines
    assert (await lines.to(outing.host.offer).ask(Look("v1"))).state == "running"
    assert (await lines.kill(outing.host.offer, "v1")).visit == "v1"
    assert outing.host.orders == [Look("v1"), Kill("v1")]


async def test_secrets_are_not_shown() -> None:
    host = LyingHost(parcels())
    contact = await Outing(host).courier().lines.to(host.offer).contact(Budget())
    shown = f"{contact!r} {contact.session!r} {contact.session.keys!r}"
    for secret in (contact.session.ticket, contact.session.keys.stream, contact.session.keys.order):
        assert repr(secret) not in shown
        assert secret.hex() not in shown
