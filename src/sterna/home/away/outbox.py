"""The outbox: crawlers on their way to hosts, written down before they leave, and what becomes of them."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from sterna.errors import HostGone, LineBroken, ParcelRefused, Refused, SternaError, WireError
from sterna.home.away.homecoming import Homecoming
from sterna.home.away.line import Traffic
from sterna.home.away.luggage import pack, unpack, unpack_all
from sterna.home.away.negotiation import Estimate, Facts, bounded, narrowed_words, room_for, shape
from sterna.home.away.trip import Shape, as_it_is
from sterna.home.dispatch import Deliver
from sterna.home.ledger.interface import UNDER_WAY, Ledger, Out, OutboxRow
from sterna.home.progress import Progress
from sterna.model import Budget, Ended, Parcel, Record, Visit
from sterna.web.clock import Clock
from sterna.wire.discovery import Offer
from sterna.wire.handshake import Session

T = TypeVar("T")


class Sender(Protocol):
    """What carries a visit out at a host: see `away.Away`."""

    async def carry_out(
        self,
        visit: Visit,
        offer: Offer,
        *,
        deliver: Callable[[Parcel, int], Awaitable[None]],
        stop: asyncio.Event,
        resume_from: int = 0,
        traffic: Traffic | None = None,
        shape: Shape = as_it_is,
    ) -> object: ...


class Trip(Record, frozen=True, kw_only=True):
    """A crawler that is to go to a host, or that is there already."""

    visit: Visit
    offer: Offer
    order_bytes: int = 0  # as expected
    resume_from: int = 0  # the first parcel that is still to come; 0: it has not left yet
    own: Budget | None = None  # of one that is there: its crawler's, where the visit's is what was granted


class Fault(Record, frozen=True, kw_only=True):
    """What is wrong with a host: why the next visit is better made from here."""

    site: str
    reason: str
    problem: str = ""  # by its name, where the host itself said no
    seconds: float | None = None  # for how long, where it said so


Blame = Callable[[Fault], Awaitable[None]]


class Fate(Record, frozen=True, kw_only=True):
    """What became of a crawler."""

    out: Out
    was_taken: bool = True  # False: it never left, and its visit is still to be made


@dataclass(slots=True)
class _Journal:
    """What one trip notes as it goes."""

    traffic: Traffic
    coming: Homecoming
    promised: int | None = None  # the priority for which the host granted what it did


def _ignore(site: str, line: str) -> None:
    pass


class Outbox:
    """Sends crawlers out, as many at once as the caller likes."""

    def __init__(
        self,
        ledger: Ledger,
        sender: Callable[
            [], Sender
        ],  # called when the first crawler leaves: who never sends one needs no key
        *,
        clock: Clock,
        thread: Executor,
        progress: Progress,
        let_reach: Callable[[Visit, Offer], None],  # told of those that are out there since an earlier run
        tell: Callable[[str, str], None] = _ignore,  # told a site, and what is sent there
    ) -> None:
        self._let_reach = let_reach
        self._tell = tell
        self._ledger = ledger
        self._sender = sender
        self._clock = clock
        self._thread = thread
        self._progress = progress
        self.killed_sites: set[str] = set()  # where crawlers were killed; grows by _look_for_kill()

    async def unfinished(self) -> list[Trip]:
        """The trips of an earlier run that are still under way."""
        trips = list[Trip]()
        for row in await self._in_thread(partial(self._ledger.outbox, states=UNDER_WAY)):
            visit, offer, own = unpack_all(await self._in_thread(partial(self._ledger.luggage, row.visit)))
            self._let_reach(visit, offer)
            trips.append(Trip(visit=visit, offer=offer, resume_from=row.parcels + 1, own=own))
        return trips

    async def send(self, trip: Trip, *, deliver: Deliver, stop: asyncio.Event, blame: Blame) -> Fate:
        """Returns when the crawler is back or lost; what it brought is stored by then.

        `blame` is told of a fault before the site is free for another visit.
        """
        visit = trip.visit

        async def before_end(ended: Ended, fault: str) -> None:
            if ended is Ended.STOPPED:
                await self._look_for_kill(visit)
            is_fair = not (trip.resume_from or stop.is_set() or visit.site in self.killed_sites)
            if fault and is_fair:
                await blame(Fault(site=visit.site, reason=fault))

        if not trip.resume_from:
            await self._write_out(trip)
        coming = Homecoming(visit, deliver, clock=self._clock, before_end=before_end, own=trip.own)
        journal = _Journal(Traffic(), coming)
        self._progress.away.add(visit.id)
        self._progress.has_sent = True
        try:
            return await self._travel(trip, journal, stop, blame)
        except ParcelRefused as error:
            await self._close(visit, journal, Out.LOST, str(error))
            raise
        finally:
            self._progress.away.discard(visit.id)
            self._progress.bytes_received += journal.traffic.received

    async def _travel(self, trip: Trip, journal: _Journal, stop: asyncio.Event, blame: Blame) -> Fate:
        visit = trip.visit
        try:
            await self._sender().carry_out(
                visit,
                trip.offer,
                deliver=journal.coming.take,
                stop=stop,
                resume_from=trip.resume_from,
                traffic=journal.traffic,
                shape=partial(self._shaped, trip, journal),
            )
        except (Refused, LineBroken) as error:
            # Nothing happened there, unless it is there since an earlier run.
            was_taken = trip.resume_from > 0
            await blame(_fault(visit.site, error))
            out = await self._close(visit, journal, Out.LOST, f"not taken: {error}", is_over=was_taken)
            return Fate(out=out, was_taken=was_taken)
        except (HostGone, WireError) as error:
            await self._look_for_kill(visit)
            if visit.site not in self.killed_sites:
                await blame(_fault(visit.site, error))
            return Fate(out=await self._close(visit, journal, Out.LOST, str(error)))
        return Fate(out=await self._close(visit, journal, Out.RETURNED, journal.coming.ended or "stopped"))

    async def _shaped(self, trip: Trip, journal: _Journal, visit: Visit, session: Session) -> Visit:
        """What of the visit is sent; it is written down before, for who must hear of it after a restart."""
        facts = Facts.of(session.platform, is_live_only=trip.offer.is_live_only)
        estimate = await self._estimate(visit, session.grants, facts)
        shaped = await asyncio.to_thread(shape, visit, session.grants, facts, estimate)
        luggage = await asyncio.to_thread(pack, shaped, trip.offer, visit.budget)
        await self._in_thread(partial(self._ledger.set_luggage, visit.id, luggage))
        journal.coming.expect(shaped)
        journal.promised = session.priority
        if shaped.within:
            self._tell(visit.site, narrowed_words(visit, shaped))
        return shaped

    async def _estimate(self, visit: Visit, grants: Budget, facts: Facts) -> Estimate:
        """What earlier visits teach; of the parts of the site only where not all of it fits into one."""
        estimate = await self._in_thread(partial(self._ledger.estimate, visit.site))
        granted = bounded(visit.budget, grants, facts)
        if len(visit.starts) <= room_for(granted, estimate, wanted=visit.budget):
            return estimate
        return await self._in_thread(partial(self._ledger.estimate, visit.site, with_subtrees=True))

    async def _look_for_kill(self, visit: Visit) -> None:
        """Who stopped the crawler: its host, or somebody here who wrote so into the outbox."""
        mark = partial(self._ledger.mark_out, visit.id, Out.AWAY, now=self._clock.now())
        if await self._in_thread(mark) is Out.KILLED:
            self.killed_sites.add(visit.site)

    async def _write_out(self, trip: Trip) -> None:
        visit, offer = trip.visit, trip.offer
        row = OutboxRow(
            visit=visit.id,
            site=visit.site,
            endpoint=offer.endpoint,
            key=offer.key,
            state=Out.WAITING,
            written_at=self._clock.now(),
            order_bytes=trip.order_bytes,
            is_live_only=offer.is_live_only,
        )
        await self._in_thread(lambda: self._ledger.write_out(row, pack(visit, offer)))

    async def _close(
        self, visit: Visit, journal: _Journal, out: Out, reason: str, *, is_over: bool = True
    ) -> Out:
        """Notes what became of a crawler; if its visit is over, so is the lease, last parcel or not."""
        now, traffic = self._clock.now(), journal.traffic

        def note() -> Out:
            state = self._ledger.mark_out(
                visit.id,
                out,
                now=now,
                bytes_sent=traffic.sent,
                bytes_received=traffic.received,
                reason=reason,
            )
            if is_over:
                self._ledger.lose(visit.id, now=now, reason=reason)
                self._promise(visit.site, journal.promised)
            return state

        return await self._in_thread(note)

    def _promise(self, site: str, priority: int | None) -> None:
        """Keeps what home owes the site for the visit; in the ledger's thread."""
        row = self._ledger.host_row(site)
        if priority is not None and priority != (row.priority if row else 0):
            self._ledger.set_priority(site, priority)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


def call_back(ledger: Ledger, is_waited_for: Callable[[Visit], bool], *, now: float) -> None:
    """Gives up those of an earlier run that nobody waits for: what they bring is not stored."""
    for row in ledger.outbox(states=UNDER_WAY):
        try:
            visit, _ = unpack(ledger.luggage(row.visit))
            reason = "" if is_waited_for(visit) else "nobody waits for it any more"
        except HostGone as error:
            reason = str(error)
        if reason:
            ledger.lose(row.visit, now=now, reason=reason)


def _fault(site: str, error: SternaError) -> Fault:
    if isinstance(error, Refused):
        return Fault(site=site, reason=str(error), problem=error.problem, seconds=error.retry_after)
    return Fault(site=site, reason=str(error))
