"""A carrier that finds each visit its place: at the site's host, where that saves enough, or here.

Looking for a host is a request to the site like any other: it waits for the site's delay and for the rates of
its address, the visit's first request waits for it, and it counts as one of the visit's. Sites on a private
network are asked too, if the visit may go there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from sterna.errors import FetchError, HostGone
from sterna.home.away.luggage import luggage
from sterna.home.away.outbox import Fault, Outbox, Trip
from sterna.home.away.place import Choice, Place, Placement, choose, closed_words, prospect_of
from sterna.home.dispatch import Deliver
from sterna.home.ledger.interface import Arrival, HostRow, Ledger
from sterna.model import Crawler, Hold, Parcel, Visit
from sterna.web.clock import Clock
from sterna.web.politeness import site_key
from sterna.wire.discovery import Offer

AWAY_AT_ONCE = 64  # each may have the window of its stream in memory
FAILED_SECONDS = 300.0  # in which a site whose host failed is visited from here

T = TypeVar("T")


class Here(Protocol):
    """The runtime here."""

    async def take_turn(self, visit: Visit) -> None: ...

    async def carry_out(
        self, visit: Visit, *, deliver: Callable[[Parcel], Awaitable[None]], stop: asyncio.Event
    ) -> None: ...


class Finder(Protocol):
    """Finds the hosts of sites: see `hosts.Hosts`."""

    async def find(self, visit: Visit) -> Offer | None: ...

    async def fail(self, site: str, reason: str, *, seconds: float) -> None: ...


class Stationary:
    """Carries every visit out here."""

    def __init__(self, here: Here) -> None:
        self._here = here

    async def carry_out(
        self, visit: Visit, *, deliver: Deliver, stop: asyncio.Event, leave: Callable[[], None]
    ) -> Place:
        await self._here.carry_out(visit, deliver=deliver, stop=stop)
        return "here"

    async def unfinished(self) -> list[Visit]:
        return []

    def may_visit(self, site: str) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """What a placed carrier works with."""

    here: Here
    hosts: Finder
    outbox: Outbox
    ledger: Ledger
    clock: Clock
    thread: Executor  # the ledger's
    is_host_required: bool = False
    tell: Callable[[Placement], None] = lambda placement: None
    warn: Callable[[str], None] = lambda line: None
    welcome: Callable[[], str] = str  # the command by which a host's owner lets this home in


class Placed:
    """Sends crawlers to hosts, and carries out here what is not worth a trip or has nowhere to go."""

    def __init__(self, ways: Ways) -> None:
        self._ways = ways
        self._room = asyncio.Semaphore(AWAY_AT_ONCE)
        self._weighed: tuple[Crawler, int] | None = None  # the last crawler, and its size
        self._under_way: dict[str, Trip] = {}  # filled by unfinished(), emptied by carry_out()

    def may_visit(self, site: str) -> bool:
        """False where a crawler of this run was killed: none goes there again before the next run."""
        return site not in self._ways.outbox.killed_sites

    async def unfinished(self) -> list[Visit]:
        """Visits of an earlier run that are still at their hosts."""
        self._under_way = {trip.visit.id: trip for trip in await self._ways.outbox.unfinished()}
        return [trip.visit for trip in self._under_way.values()]

    async def carry_out(
        self, visit: Visit, *, deliver: Deliver, stop: asyncio.Event, leave: Callable[[], None]
    ) -> Place:
        """At the host if there is one and it is worth it; what a host did not take is carried out here."""
        trip = self._under_way.pop(visit.id, None)
        if trip is None:
            before = visit
            trip, visit = await _unless_stopped(self._plan(visit), stop, (None, visit))
            deliver = deliver if visit is before else _WithQuestion(deliver)
        if trip and await self._send(trip, deliver=deliver, stop=stop, leave=leave):
            return "host"
        await self._ways.here.carry_out(visit, deliver=deliver, stop=stop)
        return "here"

    async def _send(
        self, trip: Trip, *, deliver: Deliver, stop: asyncio.Event, leave: Callable[[], None]
    ) -> bool:
        """False if the host did not take the crawler; HostGone where there must be one and it failed."""
        faults: list[Fault] = []

        async def blame(fault: Fault) -> None:
            faults.append(fault)
            await self._blame(fault)

        async with self._room:
            leave()
            fate = await self._ways.outbox.send(trip, deliver=deliver, stop=stop, blame=blame)
        if faults and self._ways.is_host_required:
            raise _unserved(trip.visit.site, f"its host failed: {faults[0].reason}")
        return fate.was_taken

    async def _blame(self, fault: Fault) -> None:
        """Leaves a host that failed alone for a while."""
        ways, site = self._ways, fault.site
        self._tell(site, "here", fault.reason)
        if fault.problem == "unknown-home":
            ways.warn(
                f"the host of {site} does not know this home; its owner lets it in by: {ways.welcome()}"
            )
        if fault.problem == "closed-now" and not ways.is_host_required:
            ways.warn(f"the host of {site} is closed {closed_words(fault.seconds)}: it is visited from here")
        await ways.hosts.fail(site, fault.reason, seconds=fault.seconds or FAILED_SECONDS)

    # -- where to ----------------------------------------------------------------------------------------

    async def _plan(self, visit: Visit) -> tuple[Trip | None, Visit]:
        """The trip to make, if any, and the visit, which must wait if the site was asked for its host."""
        ways = self._ways
        choice = self._choose(visit)
        if choice.place == "here" and not ways.is_host_required:
            self._tell(visit.site, "here", f"not worth a trip, {choice.reason}")
            return None, visit
        before = visit
        offer, visit, reason = await self._find(visit)
        if offer:
            self._tell(visit.site, "host", f"{offer.endpoint}, {choice.reason}")
            return Trip(visit=visit, offer=offer, order_bytes=choice.order_bytes), visit
        if ways.is_host_required:
            raise _unserved(visit.site, f"it has no host ({reason})" if reason else "it has no host")
        self._tell(visit.site, "here", reason or "the site has no host")
        if visit is not before:
            # Not in the visit's own time, of which its crawler may have little.
            await ways.clock.sleep(visit.etiquette.delay_seconds)
        return None, visit

    def _choose(self, visit: Visit) -> Choice:
        if self._weighed is None or self._weighed[0] is not visit.crawler:
            self._weighed = (visit.crawler, len(msgspec.msgpack.encode(visit.crawler)))
        return choose(prospect_of(visit, crawler_bytes=self._weighed[1], named=len(luggage(visit)[0])))

    async def _find(self, visit: Visit) -> tuple[Offer | None, Visit, str]:
        """The host's offer, the visit, and why there is no offer; a site that is not known yet is asked."""
        ways = self._ways
        is_known = (row := await self._row(visit.site)) is not None and row.until > ways.clock.now()
        if not is_known and (refusal := await self._take_turn(visit)):
            return None, visit, refusal
        asked_at = ways.clock.now()
        offer = await ways.hosts.find(visit)
        row = await self._row(visit.site)
        if row and row.checked_at >= asked_at:
            until = ways.clock.now() + visit.etiquette.delay_seconds
            visit = msgspec.structs.replace(visit, holds=(*visit.holds, Hold(site_key(visit.site), until)))
        return offer, visit, row.reason if row else ""

    async def _take_turn(self, visit: Visit) -> str:
        """Waits until the site may be asked; tells why it may not."""
        held = max((hold.until for hold in visit.holds if hold.key == site_key(visit.site)), default=0.0)
        if held > self._ways.clock.now() + visit.budget.patience_seconds:
            return "the site asks for a pause"
        try:
            await self._ways.here.take_turn(visit)
        except FetchError as error:
            return str(error)
        return ""

    async def _row(self, site: str) -> HostRow | None:
        ways = self._ways
        call = partial(ways.ledger.host_row, site)
        return await asyncio.get_running_loop().run_in_executor(ways.thread, call)

    def _tell(self, site: str, place: Place, reason: str) -> None:
        self._ways.tell(Placement(site=site, place=place, reason=reason))


class _WithQuestion:
    """Counts the question for a host as a request of the visit, with its first parcel."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._is_told = False

    async def __call__(self, parcel: Parcel, arrival: Arrival | None = None, /) -> None:
        if not self._is_told:
            self._is_told = True
            usage = msgspec.structs.replace(parcel.usage, requests=parcel.usage.requests + 1)
            parcel = msgspec.structs.replace(parcel, usage=usage)
        await self._deliver(parcel, arrival)


def _unserved(site: str, reason: str) -> HostGone:
    return HostGone(f"{site}: {reason}; without --require-host it is visited from here")


async def _unless_stopped(begin: Coroutine[Any, Any, T], stop: asyncio.Event, instead: T) -> T:
    """What `begin` gives, or `instead` if the run is stopped before."""
    beginning, stopping = asyncio.create_task(begin), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({beginning, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return beginning.result() if beginning.done() else instead
    finally:
        stopping.cancel()
        beginning.cancel()
        await asyncio.wait({beginning, stopping})
