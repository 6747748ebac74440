"""What visits share: slots are given first come, first served; streams are bounded in number and memory."""

import asyncio
from contextlib import ExitStack

import pytest
from tests.host.knocking import limits_of

from sterna.errors import Refused
from sterna.host.policy.policy import HostLimits
from sterna.host.visiting.room import LEAST_BYTES, SPARE_STREAMS, Slots, Streams
from sterna.wire.compression import squeezing_bytes

MIB = 1024 * 1024


# -- slots -------------------------------------------------------------------------------------------------


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_waited_longest_is_next() -> None:
    slots = Slots(lambda: 1)
    await slots.take("first")
    order: list[int] = []

    async def wait(number: int) -> None:
        await slots.take(number)
        order.append(number)
        slots.leave(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(5)]
    await settle()
    assert order == []
    slots.leave("first")
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2, 3, 4]
    assert not slots.holders


async def test_who_gives_up_leaves_nothing_taken() -> None:
    slots = Slots(lambda: 1)
    await slots.take("first")
    early, late = asyncio.create_task(slots.take("early")), asyncio.create_task(slots.take("late"))
    await settle()
    early.cancel()
    await settle()
    slots.leave("first")  # it is the other's at once, and he gives up in the same moment
    late.cancel()
    await asyncio.gather(early, late, return_exceptions=True)
    assert not slots.holders
    assert slots.take_now("another")


async def test_nobody_jumps_the_queue() -> None:
    slots = Slots(lambda: 1)
    await slots.take("first")
    waiting = asyncio.create_task(slots.take("second"))
    await settle()
    slots.leave("first")
    assert not slots.take_now("third")
    await waiting


async def test_more_slots_are_handed_out_at_once_and_fewer_in_time() -> None:
    count = 1
    slots = Slots(lambda: count)
    await slots.take("one")
    waiting = asyncio.create_task(slots.take("two"))
    await settle()
    count = 2
    slots.hand_out()
    await waiting
    count = 1
    slots.leave("one")
    assert not slots.take_now("one")
    slots.leave("two")
    assert slots.take_now("one")


async def test_place_is_taken_and_left_once() -> None:
    slots = Slots(lambda: 2)
    await slots.take("one")
    await slots.take("one")
    assert (len(slots.holders), slots.take_now("one")) == (1, True)
    slots.leave("one")
    slots.leave("one")
    assert not slots.holders


# -- streams -----------------------------------------------------------------------------------------------


class Opened(ExitStack):
    """Streams that are open, with the memory that each was given."""

    def __init__(self, limits: HostLimits) -> None:
        super().__init__()
        self.streams = Streams(lambda: limits)
        self.given: list[int] = []

    def open(self, home: str = "ada", level: int = 9) -> None:
        self.given.append(self.enter_context(self.streams.open(home, level=level)))


def test_first_stream_compresses_as_well_as_can_be() -> None:
    with Opened(HostLimits()) as opened:
        opened.open()
        assert opened.given == [squeezing_bytes(9)]


@pytest.mark.parametrize("crawlers", [4, 100])
@pytest.mark.parametrize("level", [3, 9])
def test_all_streams_together_stay_within_their_memory(crawlers: int, level: int) -> None:
    limits = limits_of(crawlers_at_once=crawlers, visits_of_a_home=1000)
    with Opened(limits) as opened:
        for _ in range(crawlers + limits.queue + limits.deferred + SPARE_STREAMS):
            opened.streams.check("ada")
            opened.open(level=level)
        at_work = opened.given[:crawlers]
        assert sum(at_work) <= limits.compressor_bytes
        assert min(at_work) >= LEAST_BYTES
        assert opened.given[0] == max(at_work) > 3 * min(at_work)
        with pytest.raises(Refused, match="too many streams"):
            opened.streams.check("bob")


def test_stream_that_ends_gives_its_memory_back() -> None:
    with Opened(HostLimits()) as opened:
        for _ in range(3):
            opened.open()
            opened.close()
        assert opened.given == [squeezing_bytes(9)] * 3


def test_one_home_cannot_have_all_streams() -> None:
    with Opened(limits_of(visits_of_a_home=1)) as opened:
        for _ in range(1 + SPARE_STREAMS):
            opened.open()
        with pytest.raises(Refused):
            opened.streams.check("ada")
        opened.streams.check("bob")
