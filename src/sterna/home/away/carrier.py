"""Finds each visit its place, at the site's host where that saves enough or here, and has it carried out.

Looking for a host is a request to the site like any other: it waits for the site's delay and for the rates of
its address, the visit's first request waits for it, and it counts as one of the visit's. Sites on a private
network are asked too, if the visit may go there.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

import msgspec

from sterna.errors import FetchError, HostGone, ParcelRefused
from sterna.home.away.courier import Courier, Journey
from sterna.home.away.events import Fault
from sterna.home.away.hosts import Hosts
from sterna.home.away.luggage import luggage
from sterna.home.away.place import (
    HERE,
    Choice,
    Place,
    PlaceKind,
    Placement,
    choose,
    closed_words,
    prospect_of,
)
from sterna.home.ledger.desk import LedgerDesk
from sterna.home.ledger.records import HostRow
from sterna.model import Crawler, Deliver, Hold, Parcel, Visit
from sterna.web.clock import Clock
from sterna.web.politeness import site_key
from sterna.wire.discovery import Offer

AWAY_AT_ONCE = 64  # each may have the window of its stream in memory
FAILED_SECONDS = 300.0  # for which a site whose host failed is visited from here

T = TypeVar("T")


class Here(Protocol):
    """The runtime here."""

    async def take_turn(self, visit: Visit) -> None: ...

    async def carry_out(self, visit: Visit, *, deliver: Deliver, stop: asyncio.Event) -> None: ...


class Stationary:
    """Carries every visit out here: see `dispatch.Carrier`."""

    def __init__(self, here: Here) -> None:
        self._here = here

    async def carry_out(
        self, visit: Visit, *, deliver: Deliver, stop: asyncio.Event, leave: Callable[[], None]
    ) -> Place:
        await self._here.carry_out(visit, deliver=deliver, stop=stop)
        return HERE

    async def unfinished(self) -> list[Visit]:
        return []

    def may_visit(self, site: str) -> bool:
        return True


class Migrating:
    """Sends crawlers to hosts; what is not worth a trip or has nowhere to go is carried out here."""

    def __init__(  # noqa: PLR0913 - each is somebody it works with
        self,
        here: Here,
        hosts: Hosts,
        courier: Courier,
        *,
        ledger: LedgerDesk,
        clock: Clock,
        is_host_required: bool = False,
        tell: Callable[[Placement], None] = lambda placement: None,
        warn: Callable[[str], None] = lambda line: None,
        welcome: Callable[[], str] = str,  # the command by which a host's owner admits this home
    ) -> None:
        self._here = here
        self._hosts = hosts
        self._courier = courier
        self._ledger = ledger
        self._clock = clock
        self._is_host_required = is_host_required
        self._tell = tell
        self._warn = warn
        self._welcome = welcome
        self._room = asyncio.Semaphore(AWAY_AT_ONCE)
        self._weighed: tuple[Crawler, int] | None = None  # the last crawler, and its size
        self._under_way: dict[str, Journey] = {}  # filled by unfinished(), emptied by carry_out()

    def may_visit(self, site: str) -> bool:
        """False where a crawler of this run was killed: none goes there again before the next run."""
        return site not in self._courier.killed_sites

    async def unfinished(self) -> list[Visit]:
        """Visits of an earlier run that are still at their hosts."""
        journeys = await self._courier.unfinished()
        for journey in journeys:
            self._hosts.let_reach(journey.visit, journey.offer)
        self._under_way = {journey.visit.id: journey for journey in journeys}
        return [journey.visit for journey in journeys]

    async def carry_out(
        self, visit: Visit, *, deliver: Deliver, stop: asyncio.Event, leave: Callable[[], None]
    ) -> Place:
        """At the host if there is one and it is worth it; what a host did not take is carried out here."""
        journey = self._under_way.pop(visit.id, None)
        if journey is None:
            before = visit
            journey, visit = await _unless_stopped(self._plan(visit), stop, (None, visit))
            deliver = deliver if visit is before else _counting_the_question(deliver)
        if journey and await self._send(journey, deliver=deliver, stop=stop, leave=leave):
            return Place("host", journey.offer.endpoint)
        await self._here.carry_out(visit, deliver=deliver, stop=stop)
        return HERE

    async def _send(
        self, journey: Journey, *, deliver: Deliver, stop: asyncio.Event, leave: Callable[[], None]
    ) -> bool:
        """False if the host did not take the crawler; HostGone where a host is required and it failed."""
        async with self._room:
            leave()
            outcome = await self._courier.travel(journey, deliver=deliver, stop=stop, blame=self._blame)
        if isinstance(outcome.failure, ParcelRefused):
            raise outcome.failure
        if outcome.faults and self._is_host_required:
            raise _unserved(journey.visit.site, f"its host failed: {outcome.faults[0].reason}")
        return outcome.was_taken

    async def _blame(self, fault: Fault) -> None:
        """Leaves a host that failed alone for a while."""
        site = fault.site
        self._say(site, "here", fault.reason)
        if fault.problem == "unknown-home":
            self._warn(
                f"the host of {site} does not know this home; its owner admits it with: {self._welcome()}"
            )
        if fault.problem == "closed-now" and not self._is_host_required:
            closed = closed_words(fault.seconds)
            self._warn(f"the host of {site} is closed {closed}: the site is visited from here")
        await self._hosts.fail(site, fault.reason, seconds=fault.seconds or FAILED_SECONDS)

    # -- where to ----------------------------------------------------------------------------------------

    async def _plan(self, visit: Visit) -> tuple[Journey | None, Visit]:
        """The trip to make, if any, and the visit, which must wait if the site was asked for its host."""
        choice = self._choose(visit)
        if choice.place == "here" and not self._is_host_required:
            self._say(visit.site, "here", f"not worth a trip, {choice.reason}")
            return None, visit
        before = visit
        offer, visit, reason = await self._find(visit)
        if offer:
            self._say(visit.site, "host", f"{offer.endpoint}, {choice.reason}")
            journey = Journey(
                visit=visit, offer=offer, is_live_only=offer.is_live_only, order_bytes=choice.order_bytes
            )
            return journey, visit
        if self._is_host_required:
            raise _unserved(visit.site, f"it has no host ({reason})" if reason else "it has no host")
        self._say(visit.site, "here", reason or "the site has no host")
        if visit is not before:
            # Not in the visit's own time, of which its crawler may have little.
            await self._clock.sleep(visit.etiquette.delay_seconds)
        return None, visit

    def _choose(self, visit: Visit) -> Choice:
        if self._weighed is None or self._weighed[0] is not visit.crawler:
            self._weighed = (visit.crawler, len(msgspec.msgpack.encode(visit.crawler)))
        return choose(prospect_of(visit, crawler_bytes=self._weighed[1], named=len(luggage(visit)[0])))

    async def _find(self, visit: Visit) -> tuple[Offer | None, Visit, str]:
        """The host's offer, the visit, and why there is no offer; a site not known yet is asked."""
        is_known = (row := await self._row(visit.site)) is not None and row.until > self._clock.now()
        if not is_known and (refusal := await self._take_turn(visit)):
            return None, visit, refusal
        asked_at = self._clock.now()
        offer = await self._hosts.find(visit)
        row = await self._row(visit.site)
        if row and row.checked_at >= asked_at:
            until = self._clock.now() + visit.etiquette.delay_seconds
            visit = msgspec.structs.replace(visit, holds=(*visit.holds, Hold(site_key(visit.site), until)))
        return offer, visit, row.reason if row else ""

    async def _take_turn(self, visit: Visit) -> str:
        """Waits until the site may be asked; why it may not, if so."""
        held = max((hold.until for hold in visit.holds if hold.key == site_key(visit.site)), default=0.0)
        if held > self._clock.now() + visit.budget.patience_seconds:
            return "the site asks for a pause"
        try:
            await self._here.take_turn(visit)
        except FetchError as error:
            return str(error)
        return ""

    async def _row(self, site: str) -> HostRow | None:
        return await self._ledger.do(lambda ledger: ledger.host_row(site))

    def _say(self, site: str, place: PlaceKind, reason: str) -> None:
        self._tell(Placement(site=site, place=place, reason=reason))


def _counting_the_question(deliver: Deliver) -> Deliver:
    """Counts the question for a host as a request of the visit, with its first parcel."""
    is_counted = False

    async def counting(parcel: Parcel) -> None:
        nonlocal is_counted
        if not is_counted:
            is_counted = True
            usage = msgspec.structs.replace(parcel.usage, requests=parcel.usage.requests + 1)
            parcel = msgspec.structs.replace(parcel, usage=usage)
        await deliver(parcel)

    return counting


def _unserved(site: str, reason: str) -> HostGone:
    return HostGone(f"{site}: {reason}; without --require-host it is visited from here")


async def _unless_stopped(begin: Coroutine[Any, Any, T], stop: asyncio.Event, instead: T) -> T:
    """The result of `begin`, or `instead` if the run is stopped before."""
    beginning, stopping = asyncio.create_task(begin), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({beginning, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return beginning.result() if beginning.done() else instead
    finally:
        stopping.cancel()
        beginning.cancel()
        await asyncio.wait({beginning, stopping})
