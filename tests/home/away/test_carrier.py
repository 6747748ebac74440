"""Each visit in its place: what goes to a host, what stays here, and what is asked of a site for it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import msgspec
import pytest
from tests.clocks import StillClock
from tests.home.away.scripted import ScriptedLines
from tests.home.away.visits import OFFER, SITE, parcel, target, visit

from sterna.errors import FetchError, HostGone, LineBroken, Refused, SternaError
from sterna.home.away.carrier import Migrating, Stationary
from sterna.home.away.courier import Courier
from sterna.home.away.hosts import Hosts
from sterna.home.away.place import HERE, Placement
from sterna.home.ledger.interface import LedgerDesk
from sterna.home.ledger.records import Change, HostRow
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.progress import Progress
from sterna.model import Ended, Etiquette, Hold, Parcel, Scope, Target, Visit
from sterna.web.politeness import site_key
from sterna.wire.discovery import Offer, encode_offer

WORTHY = visit(target("/"))  # links are followed: there may be many pages
SMALL = msgspec.structs.replace(
    WORTHY, crawler=msgspec.structs.replace(WORTHY.crawler, scope=Scope(max_depth=0))
)


class World:
    """A site with or without a host, a runtime here, and a ledger; all of it notes what is asked of it."""

    def __init__(self, ledger: SqliteLedger, thread: ThreadPoolExecutor) -> None:
        self.ledger = ledger
        self.clock = StillClock()
        self.progress = Progress(began=0.0)
        self.offer: Offer | None = OFFER
        self.error: SternaError | None = None
        self.is_required = False
        self.is_closed = False  # no request to the site may be made
        self.log: list[str] = []
        self.told: list[Placement] = []
        self.warnings: list[str] = []
        self.here: list[Visit] = []
        self.left = 0
        self.reached: list[str] = []
        self._thread = thread
        self.script = ScriptedLines()
        self.script.sent_to = self.log

    def carrier(self) -> Migrating:
        desk = LedgerDesk(self.ledger, self._thread)
        self.script.error = self.error
        courier = Courier(self.script.open, desk, clock=self.clock, progress=self.progress)
        return Migrating(
            Here(self),
            cast(Hosts, self),
            courier,
            ledger=desk,
            clock=self.clock,
            is_host_required=self.is_required,
            tell=self.told.append,
            warn=self.warnings.append,
            welcome=lambda: "sterna keys allow KEY",
        )

    async def carry(self, trip: Visit, stop: asyncio.Event | None = None) -> str:
        self.script.parcels = [] if self.error else [parcel(trip, 1, "/", ended=Ended.FINISHED)]
        place = await self.carrier().carry_out(
            trip, deliver=self.deliver, stop=stop or asyncio.Event(), leave=self.leave
        )
        return place.kind

    def leave(self) -> None:
        self.left += 1

    async def deliver(self, each: Parcel) -> None:
        self.ledger.commit(Change(parcels=(each,)), now=self.clock.now())

    # -- as the finder of hosts

    async def find(self, visit: Visit) -> Offer | None:
        self.log.append(f"find at {self.clock.now():g}")
        offer = encode_offer(self.offer) if self.offer else None
        row = self.ledger.host_row(SITE)
        if row is None or row.until <= self.clock.now():
            self.ledger.set_host(
                HostRow(
                    site=SITE, checked_at=self.clock.now(), until=9_000.0, offer=offer, reason="none there"
                )
            )
        return self.offer

    async def fail(self, site: str, reason: str, *, seconds: float) -> None:
        self.log.append(f"fail for {seconds:g}: {reason}")

    def let_reach(self, visit: Visit, offer: Offer) -> None:
        self.reached.append(offer.endpoint)


class Here:
    """The runtime here, which brings each visit home at once."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def take_turn(self, visit: Visit) -> None:
        if self._world.is_closed:
            raise FetchError("private_address", "a.example is on a private network")
        for hold in visit.holds:
            self._world.clock.time = max(self._world.clock.time, hold.until)

    async def carry_out(
        self, visit: Visit, *, deliver: Callable[[Parcel], Awaitable[None]], stop: asyncio.Event
    ) -> None:
        self._world.here.append(visit)
        await deliver(parcel(visit, 1, "/", ended=Ended.STOPPED if stop.is_set() else Ended.FINISHED))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    ledger.seed([Target(f"{SITE}/")], now=1.0)
    ledger.lease(["v"], now=10.0, pages=5, max_depth=5)
    with ThreadPoolExecutor(1) as thread:
        yield World(ledger, thread)
    ledger.close()


async def test_crawler_goes_to_the_host_of_its_site(world: World) -> None:
    assert await world.carry(WORTHY) == "host"
    assert (world.here, world.left, world.log) == ([], 1, ["find at 1000", OFFER.endpoint])
    assert [(each.site, each.place) for each in world.told] == [(SITE, "host")]


async def test_what_is_not_worth_a_trip_stays_here_and_nobody_is_asked(world: World) -> None:
    assert await world.carry(SMALL) == "here"
    assert (world.here, world.left, world.log) == ([SMALL], 0, [])
    assert world.told[0].reason.startswith("not worth a trip, about 1 page expected")


async def test_site_without_a_host_is_visited_from_here(world: World) -> None:
    world.offer = None
    assert await world.carry(WORTHY) == "here"
    assert (world.left, [each.reason for each in world.told]) == (0, ["none there"])


async def test_question_for_a_host_counts_as_a_request_and_the_visit_waits_after_it(world: World) -> None:
    world.offer = None
    polite = msgspec.structs.replace(WORTHY, etiquette=Etiquette(delay_seconds=7.0))
    await world.carry(polite)
    assert world.here[0].holds == (Hold(site_key(SITE), 1007.0),)
    assert world.clock.now() == 1007.0
    assert world.ledger.counts(now=20.0).requests == 1 + 1


async def test_question_for_a_host_waits_until_the_site_may_be_asked(world: World) -> None:
    held = msgspec.structs.replace(WORTHY, holds=(Hold(site_key(SITE), 1030.0), Hold("total", 1050.0)))
    await world.carry(held)
    assert world.log[0] == "find at 1050"


async def test_site_that_must_not_be_asked_is_not_asked_for_its_host_either(world: World) -> None:
    world.is_closed = True
    assert await world.carry(WORTHY) == "here"
    assert (world.log, world.here) == ([], [WORTHY])
    assert world.told[0].reason == "private_address: a.example is on a private network"


async def test_site_that_asks_for_a_long_pause_is_not_asked(world: World) -> None:
    held = msgspec.structs.replace(WORTHY, holds=(Hold(site_key(SITE), 5_000.0),))
    assert await world.carry(held) == "here"
    assert (world.log, world.here, world.clock.now()) == ([], [held], 1000.0)


async def test_site_that_was_asked_before_waits_for_nothing(world: World) -> None:
    world.offer = None
    world.ledger.set_host(HostRow(site=SITE, checked_at=500.0, until=5_000.0))
    held = msgspec.structs.replace(WORTHY, holds=(Hold(site_key(SITE), 1030.0),))
    await world.carry(held)
    assert (world.log, world.here, world.clock.now()) == (["find at 1000"], [held], 1000.0)
    assert world.ledger.counts(now=20.0).requests == 1


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(LineBroken("no route"), 300), (Refused("busy", "full", retry_after=30.0), 30)],
)
async def test_visit_that_its_host_does_not_take_is_made_from_here(
    world: World, error: SternaError, seconds: int
) -> None:
    world.error = error
    assert await world.carry(WORTHY) == "here"
    assert len(world.here) == 1
    assert world.log[-1] == f"fail for {seconds}: {error}"
    assert world.ledger.counts(now=20.0).pages == 1


async def test_host_that_broke_off_is_left_alone_and_the_visit_is_over(world: World) -> None:
    world.error = HostGone("lost after parcel 3")
    assert await world.carry(WORTHY) == "host"
    assert (world.here, world.log[-1]) == ([], "fail for 300: lost after parcel 3")
    assert world.ledger.due_count(now=2_000.0, most=1) == 1


async def test_home_that_a_host_does_not_know_learns_how_it_is_let_in(world: World) -> None:
    world.error = Refused("unknown-home", "key 1234 is not allowed")
    await world.carry(WORTHY)
    assert world.warnings == [
        f"the host of {SITE} does not know this home; ask its owner to run: sterna keys allow KEY"
    ]


async def test_home_that_a_host_refuses_says_why(world: World) -> None:
    world.error = Refused("refused", "the site's owner has revoked this home's key")
    await world.carry(WORTHY)
    assert world.warnings == [
        f"the host of {SITE} refused: the site's owner has revoked this home's key:"
        " crawling the site from here"
    ]


async def test_stopped_run_looks_for_no_host(world: World) -> None:
    stop = asyncio.Event()

    async def never(visit: Visit) -> Offer | None:
        stop.set()
        await asyncio.Event().wait()
        return None

    world.find = never  # type: ignore[method-assign]
    assert await world.carry(WORTHY, stop) == "here"
    assert world.here == [WORTHY]


# -- where a host is required ----------------------------------------------------------------------------


async def test_site_without_a_host_ends_a_crawl_that_requires_one(world: World) -> None:
    world.offer, world.is_required = None, True
    with pytest.raises(HostGone, match=rf"{SITE}: the site has no host \(none there\); to crawl it"):
        await world.carry(WORTHY)
    assert world.here == []


async def test_required_host_is_gone_to_for_one_page_too(world: World) -> None:
    world.is_required = True
    assert await world.carry(SMALL) == "host"


async def test_required_host_that_fails_ends_the_crawl(world: World) -> None:
    world.is_required, world.error = True, LineBroken("no route")
    with pytest.raises(HostGone, match="its host failed: no route"):
        await world.carry(WORTHY)
    assert world.here == []
    assert world.ledger.recover(now=50.0, least_pause=0.0) == 1


# -- after a restart -------------------------------------------------------------------------------------


async def test_visit_of_an_earlier_run_is_gone_on_with_and_its_site_not_asked(world: World) -> None:
    class Died(Exception):
        pass

    world.error = Died()  # type: ignore[assignment]
    with pytest.raises(Died):
        await world.carry(WORTHY)
    world.log.clear()
    world.error = None
    carrier = world.carrier()
    world.script.parcels = [parcel(WORTHY, 1, "/", ended=Ended.FINISHED)]
    (again,) = await carrier.unfinished()
    place = await carrier.carry_out(again, deliver=world.deliver, stop=asyncio.Event(), leave=world.leave)
    assert (again.id, place.kind, world.log) == ("v", "host", [OFFER.endpoint])
    assert world.reached == [OFFER.endpoint]
    assert await carrier.unfinished() == []


async def test_stationary_carrier_stays_here(world: World) -> None:
    carrier = Stationary(Here(world))
    place = await carrier.carry_out(WORTHY, deliver=world.deliver, stop=asyncio.Event(), leave=world.leave)
    assert (place, world.left, await carrier.unfinished(), carrier.may_visit(SITE)) == (HERE, 0, [], True)
