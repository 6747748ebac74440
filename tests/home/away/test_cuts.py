"""Visits at a host on a line that breaks: they are gone on with, and each parcel comes once."""

import pytest
from msgspec.structs import replace
from tests.home.away import lying
from tests.home.away.lying import (
    Chunks,
    LyingHost,
    Stream,
    cut_after,
    honest,
    parcels,
)
from tests.home.away.outings import QUICK, Outing, lying_by
from tests.transport.serving import Cut, Said

from sterna.errors import LineBroken, Refused
from sterna.model import Ended
from sterna.transport.interface import Call
from sterna.wire.orders import Resume, Send


@pytest.mark.parametrize("count", range(7))
async def test_cut_at_every_frame_is_gone_on_with(count: int) -> None:
    outing = lying_by(cut_after(count))
    trip = await outing.go()
    assert outing.delivered.parcels == outing.host.parcels
    assert (trip.is_proven, trip.cuts, outing.host.streams) == (True, 1, 2)
    resumed = outing.host.orders[1]  # its level depends on how long the greeting took
    assert isinstance(resumed, Resume)
    assert (resumed.visit, resumed.first) == ("v1", min(max(count, 1), 6))


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
    (resumed,) = outing.host.orders
    assert isinstance(resumed, Resume)
    assert (resumed.visit, resumed.first) == ("v1", 4)
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
    outing.answer = answer
    trip = await outing.go()
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
