"""Room for large bodies: who waits for it, who gets it, and that it comes back."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.web.bodies import SMALL_BYTES, BodyRoom

LARGE = 2 * SMALL_BYTES


async def test_bodies_wait_in_their_order_until_there_is_room() -> None:
    room, admitted = BodyRoom(3 * LARGE), list[int]()

    async def hold(number: int, size_bytes: int, over: asyncio.Event) -> None:
        with room.claim() as claim:
            await claim.wait(size_bytes)
            admitted.append(number)
            await over.wait()

    sizes, ends = [2 * LARGE, 2 * LARGE, LARGE], [asyncio.Event() for _ in range(3)]
    tasks = [asyncio.create_task(hold(number, sizes[number], ends[number])) for number in range(3)]
    await settle()
    assert admitted == [0], "the third would fit, but came after the second"
    ends[0].set()
    await settle()
    assert admitted == [0, 1, 2]
    ends[1].set()
    ends[2].set()
    await asyncio.gather(*tasks)
    assert room.left_bytes == 3 * LARGE


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_small_bodies_never_wait() -> None:
    with BodyRoom(0).claim() as claim:
        await claim.wait(SMALL_BYTES)


async def test_who_gives_up_waiting_leaves_its_place_to_the_next() -> None:
    room = BodyRoom(LARGE)
    with room.claim() as first, room.claim() as third:
        await first.wait(LARGE)
        with pytest.raises(TimeoutError), room.claim() as second:
            async with asyncio.timeout(0):
                await second.wait(LARGE)
        waiting = asyncio.create_task(third.wait(SMALL_BYTES + 1))
        await settle()
        first.shrink(100)
        assert not waiting.done(), "it is told in the loop"
        first.__exit__(None, None, None)
        await waiting
    assert (room.left_bytes, len(room.waiting)) == (LARGE, 0)


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=20))
async def test_no_more_is_taken_than_there_is_and_everybody_ends(bodies: list[tuple[int, bool]]) -> None:
    room = BodyRoom(6 * LARGE)

    async def hold(size_bytes: int, *, is_cancelled: bool) -> None:
        with room.claim() as claim:
            async with asyncio.timeout(0 if is_cancelled else 10):
                await claim.wait(size_bytes)
                assert room.left_bytes >= 0
                await asyncio.sleep(0)

    tasks = [hold(size * LARGE, is_cancelled=is_cancelled) for size, is_cancelled in bodies]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(result is None or isinstance(result, TimeoutError) for result in results)
    assert (room.left_bytes, len(room.waiting)) == (6 * LARGE, 0)


async def test_room_that_is_passed_on_is_given_back_by_its_new_owner() -> None:
    room = BodyRoom(2 * LARGE)
    with room.claim() as claim:
        assert claim.pass_on() is None
        await claim.wait(LARGE)
        other = claim.pass_on()
    assert other
    assert room.left_bytes == LARGE
    other.release()
    other.release()
    assert room.left_bytes == 2 * LARGE
