"""What visits share: slots are given first come, first served; streams are bounded in number and memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest
from tests.host.knocking import limits_of

from sterna.errors import Refused
from sterna.host.policy.policy import HostLimits
from sterna.host.visiting.room import LEAST_BYTES, SPARE_STREAMS, Slot, Slots, Streams
from sterna.wire.compression import squeezing_bytes

MIB = 1024 * 1024


# -- slots -------------------------------------------------------------------------------------------------


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_waited_longest_is_next() -> None:
    slots = Slots(lambda: 1)
    first = Slot(slots)
    await first.take()
    order: list[int] = []

    async def wait(number: int) -> None:
        await Slot(slots).take()
        order.append(number)
        slots.leave()

    waiting = [asyncio.create_task(wait(number)) for number in range(5)]
    await settle()
    assert order == []
    first.leave()
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2, 3, 4]
    assert slots.taken == 0


async def test_who_gives_up_leaves_nothing_taken() -> None:
    slots = Slots(lambda: 1)
    first = Slot(slots)
    await first.take()
    early, late = asyncio.create_task(Slot(slots).take()), asyncio.create_task(Slot(slots).take())
    await settle()
    early.cancel()
    await settle()
    first.leave()  # it is the other's at once, and he gives up in the same moment
    late.cancel()
    await asyncio.gather(early, late, return_exceptions=True)
    assert slots.taken == 0
    assert slots.take_now()


async def test_nobody_jumps_the_queue() -> None:
    slots = Slots(lambda: 1)
    first = Slot(slots)
    await first.take()
    waiting = asyncio.create_task(Slot(slots).take())
    await settle()
    first.leave()
    assert not Slot(slots).take_now()
    await waiting


async def test_more_slots_are_handed_out_at_once_and_fewer_in_time() -> None:
    count = 1
    slots = Slots(lambda: count)
    one, two = Slot(slots), Slot(slots)
    await one.take()
    waiting = asyncio.create_task(two.take())
    await settle()
    count = 2
    slots.hand_out()
    await waiting
    count = 1
    one.leave()
    assert not one.take_now()
    two.leave()
    assert one.take_now()


async def test_place_is_taken_and_left_once() -> None:
    slots = Slots(lambda: 2)
    slot = Slot(slots)
    await slot.take()
    await slot.take()
    assert (slots.taken, slot.take_now()) == (1, True)
    slot.leave()
    slot.leave()
    assert slots.taken == 0


# -- streams -----------------------------------------------------------------------------------------------


class Opened:
    """Streams that were opened, with the memory that each was given."""

    def __init__(self, limits: HostLimits) -> None:
        self.streams = Streams(lambda: limits)
        self.given: list[int] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Opened":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def open(self, home: str = "ada", level: int = 9) -> Any:
        stream = self.streams.counted(self._stream, level=level, home=home)
        await self._stack.enter_async_context(aclosing(stream))  # type: ignore[type-var]
        await anext(stream)
        return stream

    async def _stream(self, memory_bytes: int) -> AsyncIterator[bytes]:
        self.given.append(memory_bytes)
        while True:
            yield b"x"


async def test_first_stream_compresses_as_well_as_can_be() -> None:
    async with Opened(HostLimits()) as opened:
        await opened.open()
        assert opened.given == [squeezing_bytes(9)]


@pytest.mark.parametrize("crawlers", [4, 100])
@pytest.mark.parametrize("level", [3, 9])
async def test_all_streams_together_stay_within_their_memory(crawlers: int, level: int) -> None:
    limits = limits_of(crawlers_at_once=crawlers, visits_of_a_home=1000)
    async with Opened(limits) as opened:
        for _ in range(crawlers + limits.queue + limits.deferred + SPARE_STREAMS):
            opened.streams.check("ada")
            await opened.open(level=level)
        at_work = opened.given[:crawlers]
        assert sum(at_work) <= limits.compressor_bytes
        assert min(at_work) >= LEAST_BYTES
        assert opened.given[0] == max(at_work) > 3 * min(at_work)
        with pytest.raises(Refused, match="too many streams"):
            opened.streams.check("bob")


async def test_stream_that_ends_gives_its_memory_back() -> None:
    async with Opened(HostLimits()) as opened:
        for _ in range(3):
            stream = await opened.open()
            await stream.aclose()
        assert opened.given == [squeezing_bytes(9)] * 3


async def test_one_home_cannot_have_all_streams() -> None:
    async with Opened(limits_of(visits_of_a_home=1)) as opened:
        for _ in range(1 + SPARE_STREAMS):
            await opened.open()
        with pytest.raises(Refused):
            opened.streams.check("ada")
        opened.streams.check("bob")
