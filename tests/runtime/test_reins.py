"""A visit on the reins of whoever runs it: it rests, goes on, ends, and its rest is not of its time."""

import asyncio
from collections.abc import Callable

import pytest
from tests.runtime.fakes import FakeWeb, Home, Script, VirtualClock, linking, make_kit, reply, run, visit_of

from sterna.model import Budget, Ended, Parcel
from sterna.runtime.reins import Gauge, Reins
from sterna.runtime.runtime import Runtime

COUNT = 10
WEB: Script = {
    "/": linking(*(f"/{n}" for n in range(COUNT))),
    **{f"/{n}": reply(body=f"<title>{n}</title>") for n in range(COUNT)},
}

Handle = Callable[[Reins], None]


def carried_out(
    budget: Budget, *handles: tuple[float, Handle], web: FakeWeb | None = None
) -> tuple[FakeWeb, list[Parcel], float, Gauge]:
    """A visit with a second for each page, and what is done with its reins after so many seconds."""
    web = web or FakeWeb(WEB, seconds=1.0)
    home = Home()

    async def main() -> tuple[FakeWeb, list[Parcel], float, Gauge]:
        loop = asyncio.get_running_loop()
        reins, began = Reins(VirtualClock()), loop.time()
        timers = [loop.call_later(seconds, handle, reins) for seconds, handle in handles]
        runtime = Runtime(make_kit(web))
        await runtime.carry_out(
            visit_of("/", budget=budget), deliver=home.take, stop=asyncio.Event(), reins=reins
        )
        for timer in timers:
            timer.cancel()
        return web, home.parcels, loop.time() - began, reins.look()

    return run(main())


def test_no_request_starts_while_a_visit_rests() -> None:
    web, parcels, seconds, _ = carried_out(Budget(), (4.5, Reins.pause), (104.5, Reins.go_on))
    began = web.log[0].time
    starts = [sent.time - began for sent in web.log]
    assert not [start for start in starts if 4.5 <= start < 104.5]
    assert parcels[-1].ended is Ended.FINISHED
    assert sum(parcel.usage.pages for parcel in parcels) == COUNT + 1
    assert 110 < seconds < 115


@pytest.mark.parametrize(
    "budget", [Budget(seconds=20.0), Budget(wall_seconds=20.0), Budget(seconds=20.0, wall_seconds=20.0)]
)
def test_rest_is_not_of_the_visits_time(budget: Budget) -> None:
    pauses = [(3.5, Reins.pause), (500.0, Reins.go_on), (502.5, Reins.pause), (1000.0, Reins.go_on)]
    _, parcels, _, _ = carried_out(budget, *pauses)
    assert parcels[-1].ended is Ended.FINISHED


def test_time_is_over_all_the_same_when_what_was_worked_is_enough() -> None:
    _, parcels, seconds, _ = carried_out(Budget(seconds=6.0), (3.5, Reins.pause), (500.0, Reins.go_on))
    assert parcels[-1].ended is Ended.BUDGET
    assert seconds == pytest.approx(6.0 + 496.5, abs=2.0)


def test_rest_before_robots_are_known_ends_nothing() -> None:
    web, parcels, _, _ = carried_out(Budget(seconds=30.0), (0.0, Reins.pause), (3600.0, Reins.go_on))
    assert web.times("/")[0] >= 3600.0
    assert parcels[-1].ended is Ended.FINISHED


def test_visit_that_is_ended_sends_what_it_has_and_may_be_gone_on_with() -> None:
    web, parcels, seconds, _ = carried_out(Budget(), (5.5, Reins.end))
    assert parcels[-1].ended is Ended.BUDGET
    assert 1 < sum(parcel.usage.pages for parcel in parcels) < COUNT
    assert seconds < 7
    assert len(web.log) < COUNT


def test_visit_that_rests_can_be_ended() -> None:
    _, parcels, seconds, _ = carried_out(Budget(), (4.5, Reins.pause), (100.0, Reins.end))
    assert parcels[-1].ended is Ended.BUDGET
    assert seconds == pytest.approx(100.0, abs=1.0)


def test_rest_costs_next_to_nothing() -> None:
    """Nobody polls in vain: with two milliseconds left of its time, too."""

    async def main() -> int:
        loop = asyncio.get_running_loop()
        reins = Reins(VirtualClock())
        loop.call_later(1.999, reins.pause)
        loop.call_later(1000.0, reins.end)
        web, home = FakeWeb(WEB, seconds=0.5), Home()
        await Runtime(make_kit(web)).carry_out(
            visit_of("/", budget=Budget(seconds=2.0)), deliver=home.take, stop=asyncio.Event(), reins=reins
        )
        return loop._selector_of_time.turns  # type: ignore[attr-defined,no-any-return]

    assert run(main()) < 20_000


def test_whoever_holds_the_reins_sees_how_far_the_visit_is() -> None:
    seen: list[Gauge] = []

    def look(reins: Reins) -> None:
        seen.append(reins.look())

    _, _, _, used = carried_out(Budget(), (5.5, look))
    assert 1 <= seen[0].pages < COUNT
    assert seen[0].requests > seen[0].pages
    assert used.pages == COUNT + 1
    assert used.requests == COUNT + 2  # robots.txt too
    assert used.cpu_seconds > 0


def test_rests_add_up() -> None:
    async def main() -> None:
        reins = Reins(VirtualClock())
        reins.pause()
        await asyncio.sleep(5)
        reins.pause()
        assert reins.paused_seconds == pytest.approx(5.0)
        reins.go_on()
        reins.go_on()
        await asyncio.sleep(5)
        reins.pause()
        await asyncio.sleep(2)
        assert reins.paused_seconds == pytest.approx(7.0)

    run(main())
