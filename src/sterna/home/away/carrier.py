"""Carries visits out, each at its place: at the site's host if that saves enough, or here.

Looking for a host is a request to the site like any other: it obeys the site's delay and the rates of its
address, the visit's first request waits for it, and it counts as a request of the visit. Sites on a private
network are asked too, if the visit may go there.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol, TypeVar

import msgspec

from sterna.errors import FetchError, HostGone, ParcelRefused
from sterna.home.away.courier import MAX_STOP_SECONDS, Courier, TripRequest, unfinished
from sterna.home.away.events import Fault
from sterna.home.away.hosts import MAX_REASON, Hosts
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
    stop_words,
)
from sterna.home.away.trip import Trip
from sterna.home.ledger.interface import Ledger, LedgerDesk
from sterna.home.ledger.records import HostRow, OwnerRow
from sterna.model import REQUISITES, Crawler, Deliver, Ended, Hold, Parcel, Usage, Visit
from sterna.web.clock import Clock
from sterna.web.politeness import site_key
from sterna.wire.discovery import Offer

AWAY_AT_ONCE = 64  # each may buffer a window of its stream in memory
FAILED_SECONDS = 300.0  # for which a host that failed is not contacted
ASK_SECONDS = 24 * 3600.0  # after which a host whose owner stopped the crawler is asked again; each run asks

T = TypeVar("T")


class Here(Protocol):
    """The runtime here, which waits for a site's turn too."""

    async def carry_out(self, visit: Visit, *, deliver: Deliver, stop: asyncio.Event) -> None: ...

    async def take_turn(self, visit: Visit) -> None: ...


class Stationary:
    """Carries out every visit here; see `dispatch.Carrier`."""

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


@dataclass(eq=False, repr=False)
class Migrating:
    """Sends crawlers to hosts; visits without a host, or not worth a trip, are carried out here."""

    here: Here
    hosts: Hosts
    courier: Courier
    _: KW_ONLY
    ledger: LedgerDesk
    clock: Clock
    is_host_required: bool = False
    is_defiant: bool = False  # the user crawls whatever owners ask for
    tell: Callable[[Placement], None] = lambda placement: None
    warn: Callable[[str], None] = lambda line: None
    welcome: Callable[[], str] = str  # the command by which a host's owner admits this home
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AWAY_AT_ONCE))
    _weighed: tuple[Crawler, int] | None = None  # the last crawler, and its size
    _under_way: dict[str, TripRequest] = field(default_factory=dict)  # of an earlier run, not yet resumed

    def may_visit(self, site: str) -> bool:
        """False if a crawler of this run was killed there: the site waits for the next run."""
        return site not in self.courier.killed_sites

    async def unfinished(self) -> list[Visit]:
        requests = await self.ledger.do(unfinished)
        for request in requests:
            self.hosts.let_reach(request.visit, request.offer)
        self._under_way = {request.visit.id: request for request in requests}
        return [request.visit for request in requests]

    async def carry_out(
        self, visit: Visit, *, deliver: Deliver, stop: asyncio.Event, leave: Callable[[], None]
    ) -> Place:
        """Carries the visit out at the host if it has one and is worth the trip; here otherwise.

        While the site's owner stops the crawler, its host is asked, and nothing is fetched from here.
        """
        is_halted = await self._is_halted(visit.site)
        if visit.part == REQUISITES:  # hosts bring pages
            await self._stay(visit, deliver, stop, is_halted=is_halted)
            return HERE
        request = self._under_way.pop(visit.id, None)
        if request is None:
            before, planning = visit, self._plan(visit, is_halted=is_halted)
            request, visit = await _unless_stopped(planning, stop, (None, visit))
            deliver = deliver if visit is before else _counting_discovery(deliver)
        if request:
            request = msgspec.structs.replace(request, is_halted=is_halted)
            trip = await self._send(request, deliver=deliver, stop=stop, leave=leave)
            if trip.was_taken:
                if is_halted and not trip.stop and trip.parcels:
                    await self._note_stop(visit.site, until=0.0)  # the host has opened again
                return Place("host", request.offer.endpoint)
            is_halted = is_halted or bool(trip.stop)
        await self._stay(visit, deliver, stop, is_halted=is_halted)
        return HERE

    async def _stay(self, visit: Visit, deliver: Deliver, stop: asyncio.Event, *, is_halted: bool) -> None:
        if is_halted and not self.is_defiant:
            await self._rest(visit, deliver)
        else:
            await self.here.carry_out(visit, deliver=deliver, stop=stop)

    async def _send(
        self, request: TripRequest, *, deliver: Deliver, stop: asyncio.Event, leave: Callable[[], None]
    ) -> Trip:
        """The trip, also if the host did not take the crawler; raises HostGone if a required host failed."""
        async with self._room:
            leave()
            trip = await self.courier.travel(request, deliver=deliver, stop=stop, blame=self._blame)
        if isinstance(trip.failure, ParcelRefused):
            raise trip.failure
        if trip.stop and self.is_host_required and not self.is_defiant:
            raise HostGone(self._stop_line(trip.stop))
        if trip.faults and self.is_host_required:
            raise _unserved(request.visit.site, f"its host failed: {trip.faults[0].reason}")
        return trip

    async def _blame(self, fault: Fault) -> None:
        """Stops contacting a host that failed, for a while."""
        site = fault.site
        if fault.is_stop:
            await self._halt(fault)
            return
        self._say(site, "here", fault.reason)
        if fault.problem == "unknown-home":
            self.warn(f"the host of {site} does not know this home; ask its owner to run: {self.welcome()}")
        if fault.problem == "refused" and not self.is_host_required:
            self.warn(f"the host of {site} {fault.reason}: crawling the site from here")
        if fault.problem == "closed-now" and not self.is_host_required:
            closed = closed_words(fault.seconds)
            self.warn(f"the host of {site} is closed {closed}: crawling the site from here")
        await self.hosts.fail(site, fault.reason, seconds=fault.seconds or FAILED_SECONDS)

    # -- owners who stop the crawler ---------------------------------------------------------------------

    async def _is_halted(self, site: str) -> bool:
        row = await self.ledger.do(lambda ledger: ledger.owner_row(site))
        return row is not None and row.until > self.clock.now() and not self.is_defiant

    async def _halt(self, fault: Fault) -> None:
        """Stores what the owner asked for: it holds in later runs, too."""
        if self.is_defiant:
            self.warn(f"{self._stop_line(fault)} (crawled all the same: --despite-owner)")
            return
        await self._note_stop(fault.site, until=self._until(fault), reason=fault.reason[:MAX_REASON])
        if not self.is_host_required:  # else the line is the error that ends the run
            self.warn(self._stop_line(fault))

    async def _note_stop(self, site: str, *, until: float, reason: str = "") -> None:
        ask_at = self.clock.now() + ASK_SECONDS

        def note(ledger: Ledger) -> None:
            row = ledger.owner_row(site) or OwnerRow(site=site)
            ledger.set_owner(msgspec.structs.replace(row, until=until, reason=reason, ask_at=ask_at))

        await self.ledger.do(note)

    async def _rest(self, visit: Visit, deliver: Deliver) -> None:
        """Ends a visit without a request; the site is leased again when its host is to be asked again."""
        row = await self.ledger.do(lambda ledger: ledger.owner_row(visit.site))
        if row:
            await self._note_stop(visit.site, until=row.until, reason=row.reason)
        await deliver(
            Parcel(
                visit=visit.id,
                site=visit.site,
                part=visit.part,
                epoch=visit.epoch,
                number=1,
                ended=Ended.BLOCKED,
            )
        )

    def _until(self, fault: Fault) -> float:
        """When the stop is over, by home's own bound: a host cannot keep home away for ever."""
        latest = self.clock.now() + MAX_STOP_SECONDS
        return latest if fault.until is None else min(fault.until, latest)

    def _stop_line(self, fault: Fault) -> str:
        return stop_words(fault.site, fault.reason, self._until(fault))

    # -- where to ----------------------------------------------------------------------------------------

    async def _plan(self, visit: Visit, *, is_halted: bool) -> tuple[TripRequest | None, Visit]:
        """The trip to make, if any, and the visit, with a hold if the site was asked for its host."""
        choice = self._choose(visit)
        if choice.place == "here" and not (self.is_host_required or is_halted):
            self._say(visit.site, "here", f"not worth a trip, {choice.reason}")
            return None, visit
        before = visit
        offer, visit, reason = await self._find(visit)
        if offer:
            self._say(visit.site, "host", f"{offer.endpoint}, {choice.reason}")
            return TripRequest(visit=visit, offer=offer, order_bytes=choice.order_bytes), visit
        if self.is_host_required:
            raise _unserved(visit.site, "the site has no host" + (f" ({reason})" if reason else ""))
        self._say(visit.site, "here", reason or "the site has no host")
        if visit is not before:
            # Before the visit begins: its crawler may have a short time limit.
            await self.clock.sleep(visit.etiquette.delay_seconds)
        return None, visit

    def _choose(self, visit: Visit) -> Choice:
        if self._weighed is None or self._weighed[0] is not visit.crawler:
            self._weighed = (visit.crawler, len(msgspec.msgpack.encode(visit.crawler)))
        return choose(prospect_of(visit, crawler_bytes=self._weighed[1], named=len(luggage(visit)[0])))

    async def _find(self, visit: Visit) -> tuple[Offer | None, Visit, str]:
        """The host's offer if any, the visit, and why there is no offer; asks the site if need be."""
        is_known = (row := await self._row(visit.site)) is not None and row.until > self.clock.now()
        if not is_known and (refusal := await self._take_turn(visit)):
            return None, visit, refusal
        asked_at = self.clock.now()
        offer = await self.hosts.find(visit)
        row = await self._row(visit.site)
        if row and row.checked_at >= asked_at:
            until = self.clock.now() + visit.etiquette.delay_seconds
            visit = msgspec.structs.replace(visit, holds=(*visit.holds, Hold(site_key(visit.site), until)))
        return offer, visit, row.reason if row else ""

    async def _take_turn(self, visit: Visit) -> str:
        """Waits until the site may be asked; returns the reason if it may not."""
        held = max((hold.until for hold in visit.holds if hold.key == site_key(visit.site)), default=0.0)
        if held > self.clock.now() + visit.budget.patience_seconds:
            return "the site asked for a pause"
        try:
            await self.here.take_turn(visit)
        except FetchError as error:
            return str(error)
        return ""

    async def _row(self, site: str) -> HostRow | None:
        return await self.ledger.do(lambda ledger: ledger.host_row(site))

    def _say(self, site: str, place: PlaceKind, reason: str) -> None:
        self.tell(Placement(site=site, place=place, reason=reason))


def _counting_discovery(deliver: Deliver) -> Deliver:
    """Counts the discovery request as one of the visit, with its first parcel."""

    async def counting(parcel: Parcel) -> None:
        if parcel.number == 1:
            parcel = msgspec.structs.replace(parcel, usage=parcel.usage.plus(Usage(requests=1)))
        await deliver(parcel)

    return counting


def _unserved(site: str, reason: str) -> HostGone:
    return HostGone(f"{site}: {reason}; to crawl it from here, leave out --require-host")


async def _unless_stopped(begin: Coroutine[Any, Any, T], stop: asyncio.Event, instead: T) -> T:
    """The result of `begin`, or `instead` if the run is stopped first."""
    beginning, stopping = asyncio.create_task(begin), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({beginning, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return beginning.result() if beginning.done() else instead
    finally:
        stopping.cancel()
        beginning.cancel()
        await asyncio.wait({beginning, stopping})
