"""Slots for crawlers: first come, first served, and there may be more or fewer of them."""

import asyncio

from sterna.host.visiting.room import Slot, Slots


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_waited_longest_is_next() -> None:
    places = Slots(lambda: 1)
    first = Slot(places)
    await first.take()
    order: list[int] = []

    async def wait(number: int) -> None:
        await Slot(places).take()
        order.append(number)
        places.leave()

    waiting = [asyncio.create_task(wait(number)) for number in range(5)]
    await settle()
    assert order == []
    first.leave()
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2, 3, 4]
    assert places.taken == 0


async def test_who_gives_up_leaves_nothing_taken() -> None:
    places = Slots(lambda: 1)
    first = Slot(places)
    await first.take()
    early, late = asyncio.create_task(Slot(places).take()), asyncio.create_task(Slot(places).take())
    await settle()
    early.cancel()
    await settle()
    first.leave()  # it is the other's at once, and he gives up in the same moment
    late.cancel()
    await asyncio.gather(early, late, return_exceptions=True)
    assert places.taken == 0
    assert places.take_now()


async def test_nobody_jumps_the_queue() -> None:
    places = Slots(lambda: 1)
    first = Slot(places)
    await first.take()
    waiting = asyncio.create_task(Slot(places).take())
    await settle()
    first.leave()
    assert not Slot(places).take_now()
    await waiting


async def test_more_places_are_handed_out_at_once_and_fewer_in_time() -> None:
    count = 1
    places = Slots(lambda: count)
    one, two = Slot(places), Slot(places)
    await one.take()
    waiting = asyncio.create_task(two.take())
    await settle()
    count = 2
    places.hand_out()
    await waiting
    count = 1
    one.leave()
    assert not one.take_now()
    two.leave()
    assert one.take_now()


async def test_place_is_taken_and_left_once() -> None:
    places = Slots(lambda: 2)
    place = Slot(places)
    await place.take()
    await place.take()
    assert (places.taken, place.take_now()) == (1, True)
    place.leave()
    place.leave()
    assert places.taken == 0
