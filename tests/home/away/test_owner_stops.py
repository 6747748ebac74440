"""An owner stops a crawler: its home fetches nothing of the site from outside, for a bounded time."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.home.away.estates import CALM, SMALL, ClockAhead, Estate, estate_at, once
from tests.home.away.test_trip import FIRST, GREETED, LAST, TO_THE_STREAM, begun, replay
from tests.host.knocking import SITE

from sterna.errors import HostGone, Refused
from sterna.home.away import events as ev
from sterna.home.away.carrier import ASK_SECONDS
from sterna.home.away.courier import MAX_STOP_SECONDS
from sterna.home.ledger.records import Out, OwnerRow
from sterna.host.owner.control import Closure, Doors
from sterna.host.policy.policy import Caps, Policy
from sterna.host.visiting import overseer
from sterna.model import Ended
from sterna.web.closed import ClosedPaths
from sterna.wire.handshake import MAX_PATHS

STOPPED = ev.OwnerStopped("it reads too much", 99.0)
HELD = ev.Opened(is_checked=True, is_held=True)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overseer, "LOOK_SECONDS", 0.02)


@asynccontextmanager
async def estate(folder: Path, **fields: Any) -> AsyncIterator[Estate]:
    given: dict[str, Any] = {"caps": Caps(pages=1000), "is_required": False, "clock": ClockAhead()}
    async with estate_at(folder, SMALL, **(given | fields)) as opened:
        yield opened


async def stopped_in_the_middle(estate: Estate, closure: Closure) -> str:
    """A crawl whose crawler the owner stops after twenty pages; returns how the run ended."""
    estate.site.gate_at = 20
    crawling = asyncio.create_task(estate.crawl())
    async with asyncio.timeout(20):
        while estate.site.asked.total() < 20:  # noqa: ASYNC110 - nobody tells a test of it
            await asyncio.sleep(0.01)
    service = estate.home.service
    stopping = asyncio.create_task(service.stop_visits(service.status().visits, closure))
    await asyncio.sleep(0.05)
    estate.site.gate.set()
    assert await stopping
    return await crawling


def owner(estate: Estate) -> OwnerRow:
    (row,) = estate.ledger.owner_rows()
    return row


# -- whole crawls ------------------------------------------------------------------------------------------


async def test_home_of_a_stopped_crawler_fetches_nothing_from_outside(tmp_path: Path) -> None:
    async with estate(tmp_path) as home:
        until = home.clock.now() + 3600
        assert await stopped_in_the_middle(home, Closure("it reads too much", until)) == "waiting"
        assert home.here == []
        assert 20 <= sum(home.paths.values()) < len(SMALL)  # what it had found is stored
        assert (owner(home).reason, owner(home).until) == ("it reads too much", until)
        (line,) = home.warnings
        assert "it reads too much" in line
        assert time.strftime("%Y-%m-%d %H:%M", time.gmtime(until)) in line
        assert "--despite-owner" in line


async def test_next_run_asks_the_host_and_goes_on_when_it_has_opened(tmp_path: Path) -> None:
    async with estate(tmp_path) as home:
        await stopped_in_the_middle(home, Closure("later"))
        home.ledger.ask_owners(now=home.clock.now(), may_ask=True)
        assert await home.crawl() == "waiting"  # asked, and told again
        assert (home.here, len(home.orders), len(home.warnings)) == ([], 2, 2)
        assert owner(home).ask_at > home.clock.now()
        assert await home.crawl() == "waiting"
        assert len(home.orders) == 2  # within the same day it is not asked again
        home.home.service._premises.stops.lift()
        home.ledger.ask_owners(now=home.clock.now(), may_ask=True)
        assert await home.crawl() == "finished"
        assert (home.here, home.paths) == ([], once(SMALL))
        assert owner(home).until == 0.0


async def test_closed_host_stops_its_home_too(tmp_path: Path) -> None:
    async with estate(tmp_path) as home:
        Doors(tmp_path / "state").close("back on Monday", until=time.time() + 5000)
        assert await home.crawl() == "waiting"
        assert (home.here, home.orders) == ([], [])
        assert owner(home).reason == "back on Monday"


async def test_run_that_sends_no_crawlers_keeps_away_too(tmp_path: Path) -> None:
    """`--here` is no word of the user's against the owner."""
    async with estate(tmp_path) as home:
        now = home.clock.now()
        home.ledger.set_owner(OwnerRow(site=SITE, reason="no", until=now + 5000))
        home.ledger.ask_owners(now=now, may_ask=False)
        assert home.ledger.lease(["v"], now=now, pages=9, max_depth=9) == []
        assert home.ledger.counts(now=now).next_turn == now + 5000


async def test_stop_ends_when_its_time_is_over(tmp_path: Path) -> None:
    async with estate(tmp_path) as home:
        await stopped_in_the_middle(home, Closure("an hour", home.clock.now() + 3600))
        home.home.service._premises.stops.lift()
        assert isinstance(home.clock, ClockAhead)
        home.clock.ahead_seconds = 3700
        home.ledger.ask_owners(now=home.clock.now(), may_ask=False)
        assert home.ledger.owner_rows() == []
        assert len(home.ledger.lease(["v"], now=home.clock.now(), pages=9, max_depth=9)) == 1


@pytest.mark.parametrize("until", [None, 9e9])
async def test_host_cannot_keep_its_home_away_for_ever(tmp_path: Path, until: float | None) -> None:
    async with estate(tmp_path) as home:
        Doors(tmp_path / "state").close("for ever", until=until)
        await home.crawl()
        assert owner(home).until == pytest.approx(home.clock.now() + MAX_STOP_SECONDS, abs=60)
        assert owner(home).ask_at == pytest.approx(home.clock.now() + ASK_SECONDS, abs=60)


async def test_user_may_crawl_despite_the_owner(tmp_path: Path) -> None:
    async with estate(tmp_path, is_defiant=True) as home:
        Doors(tmp_path / "state").close("no")
        assert await home.crawl() == "finished"
        assert len(home.here) == 1
        assert home.ledger.owner_rows() == []
        assert "all the same" in home.warnings[0]


async def test_required_host_that_is_closed_ends_the_run_in_clear_words(tmp_path: Path) -> None:
    async with estate(tmp_path, is_required=True) as home:
        Doors(tmp_path / "state").close("back on Monday")
        with pytest.raises(HostGone, match=r"stopped this crawler until .* \(back on Monday\)"):
            await home.crawl()


async def test_closed_paths_are_known_to_later_visits_from_here(tmp_path: Path) -> None:
    policy = msgspec.convert({"closed": ["/a/"], "load": msgspec.to_builtins(CALM)}, Policy)
    async with estate(tmp_path, policy=policy) as home:
        assert await home.crawl() == "finished"
        assert owner(home).closed == "/a/"
        home.refresh()
        (lease,) = home.ledger.lease(["v"], now=home.clock.now(), pages=9, max_depth=9)
        assert lease.closed == ("/a/",)


async def test_home_keeps_away_from_all_closed_paths_also_if_they_are_many(tmp_path: Path) -> None:
    many = [*(f"/a/{number}" for number in range(150)), "/" + "long" * 200]
    policy = msgspec.convert({"closed": many, "load": msgspec.to_builtins(CALM)}, Policy)
    async with estate(tmp_path, policy=policy) as home:
        assert await home.crawl() == "finished"
        known = owner(home).closed.splitlines()

    assert len(known) <= MAX_PATHS
    assert all(SITE + path in ClosedPaths(known) for path in many)
    assert SITE + "/b/1" not in ClosedPaths(known)


# -- trips, event by event ---------------------------------------------------------------------------------


def test_stop_is_stored_before_the_last_parcel_frees_the_site() -> None:
    trip = begun()
    actions = replay(trip, [*TO_THE_STREAM, FIRST, ev.Moment.STORED, STOPPED])
    assert isinstance(actions[0], ev.Fault)
    assert (actions[0].is_stop, actions[0].until, actions[1]) == (True, 99.0, ev.Step.READ)


def test_stopped_trip_that_is_believed_is_over_without_a_check() -> None:
    trip = begun(ev.Opened(is_checked=True))
    last = ev.Came(msgspec.structs.replace(LAST.parcel, ended=Ended.STOPPED), 100)
    events = [*TO_THE_STREAM, last, ev.Looked(False), ev.Moment.STORED, STOPPED, ev.StreamOver(True)]
    (close,) = replay(trip, [*events, ev.Signed("signed")])
    assert isinstance(close, ev.Close)
    assert (close.out, close.reason) == (Out.RETURNED, "stopped by the owner: it reads too much")


def test_stopped_trip_whose_results_are_held_waits_for_a_later_run() -> None:
    """A check would fetch pages from outside; what is held is neither used nor lost."""
    trip = begun(HELD)
    events = [*TO_THE_STREAM, FIRST, ev.Moment.STORED, STOPPED, ev.StreamOver(True)]
    assert replay(trip, [*events, ev.Signed("signed")]) == [ev.Step.PROVE]
    assert (trip.is_over, trip.out) == (True, Out.AWAY)


def test_held_results_are_not_checked_while_the_stop_holds() -> None:
    waiting = msgspec.structs.replace(HELD, last=2, is_proven=True, pages=2)
    assert begun(waiting, resume_from=1, is_halted=True).out is Out.AWAY
    assert not begun(waiting, resume_from=1).is_over


def test_refusal_by_the_owner_is_no_failure_of_the_host() -> None:
    trip = begun()
    actions = replay(trip, [GREETED, ev.Failed(Refused("stopped", "no", until=9.0))])
    assert isinstance(actions[0], ev.Fault)
    assert (actions[0].is_stop, actions[0].reason, actions[0].until) == (True, "no", 9.0)
    assert not trip.was_taken
