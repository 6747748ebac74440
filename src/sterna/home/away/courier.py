"""The driver of trips to hosts: carries out the actions of `trip`, and reports their events."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from sterna.errors import HostGone, LineBroken, ParcelRefused, Refused
from sterna.home.away import events as ev
from sterna.home.away.line import Line, Lines
from sterna.home.away.luggage import pack, unpack
from sterna.home.away.negotiation import Facts, bounded, narrowed_words, room_for, shape
from sterna.home.away.patience import Pauses
from sterna.home.away.place import Placement
from sterna.home.away.trip import Departure, Trip
from sterna.home.belief.inquiry import Inquiries, Inquiry
from sterna.home.ledger.interface import Ledger, LedgerDesk
from sterna.home.ledger.records import UNDER_WAY, Estimate, Out, OutboxRow
from sterna.home.progress import Progress
from sterna.model import Budget, Deliver, Visit
from sterna.web.clock import Clock
from sterna.wire.discovery import Offer
from sterna.wire.handshake import Session

Blame = Callable[[ev.Fault], Awaitable[None]]
_INTERRUPTIBLE = (ev.Greet, ev.Shape, ev.Order, ev.Read, ev.Sleep)


class TripRequest(Departure, frozen=True, kw_only=True):
    """A trip to make, or one that an earlier run began."""

    offer: Offer
    order_bytes: int = 0  # estimated


class Courier:
    """Makes trips, as many at once as the caller likes."""

    def __init__(
        self,
        lines: Callable[[], Lines],  # called when the first crawler leaves: until then home needs no key
        ledger: LedgerDesk,
        *,
        clock: Clock,
        progress: Progress,
        inquiries: Inquiries | None = None,  # None: all hosts are trusted
        level: int = 0,
        tell: Callable[[Placement], None] = lambda placement: None,
        warn: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._lines = lines
        self.ledger = ledger
        self.clock = clock
        self._progress = progress
        self.inquiries = inquiries
        self._level = level
        self._tell = tell
        self._pauses = Pauses(warn)
        self.killed_sites: set[str] = set()  # grows by _look_for_kill()

    def note_line(self, site: str, line: str) -> None:
        """Warns of a pause that a line of a host's log reports."""
        self._pauses.note(site, line)

    async def unfinished(self) -> list[TripRequest]:
        """The trips of an earlier run that are still under way."""
        rows = await self.ledger.do(lambda ledger: ledger.outbox(states=UNDER_WAY))
        return [await self.ledger.do(partial(self._request, row)) for row in rows]

    def _request(self, row: OutboxRow, ledger: Ledger) -> TripRequest:
        visit, offer, own = unpack(ledger.luggage(row.visit))
        return TripRequest(
            visit=visit,
            offer=offer,
            is_live_only=offer.is_live_only,
            resume_from=row.parcels + 1,
            own=own,
        )

    async def travel(
        self, request: TripRequest, *, deliver: Deliver, stop: asyncio.Event, blame: Blame
    ) -> ev.Outcome:
        """Returns when the crawler is back or lost, and its parcels are stored.

        Calls `blame` before the site is free for another visit. A refused parcel is a failure of the trip;
        any other error of `deliver` is raised.
        """
        visit = request.visit
        lines = self._lines()
        departure = replace(request, level=self._level, patience=lines.patience)
        trip = Trip(departure, now=self.clock.now())
        driver = _TripDriver(
            self, request, trip, line=lines.to(request.offer), deliver=deliver, stop=stop, blame=blame
        )
        self._progress.away.add(visit.id)
        self._progress.has_sent = True
        try:
            await driver.run()
        finally:
            self._progress.away.discard(visit.id)
            self._progress.bytes_received += driver.line.traffic.received
        return replace(
            trip.outcome, bytes_sent=driver.line.traffic.sent, bytes_received=driver.line.traffic.received
        )

    async def shape(self, visit: Visit, offer: Offer, session: Session) -> Visit:
        """The visit shaped to what the host grants, written into the outbox: a restart resumes it."""
        facts = Facts.of(session.platform, is_live_only=offer.is_live_only)
        estimate = await self._estimate(visit, session.grants, facts)
        shaped = await asyncio.to_thread(shape, visit, session.grants, facts, estimate)
        luggage = await asyncio.to_thread(pack, shaped, offer, visit.budget)
        await self.ledger.do(lambda ledger: ledger.set_luggage(visit.id, luggage))
        if shaped.within:
            self._tell(Placement(site=visit.site, place="host", reason=narrowed_words(visit, shaped)))
        return shaped

    async def _estimate(self, visit: Visit, grants: Budget, facts: Facts) -> Estimate:
        """The estimate of the visit; with the parts of the site only if it does not fit into one visit."""
        estimate = await self.ledger.do(lambda ledger: ledger.estimate(visit.site))
        granted = bounded(visit.budget, grants, facts)
        if len(visit.starts) <= room_for(granted, estimate, wanted=visit.budget):
            return estimate
        return await self.ledger.do(lambda ledger: ledger.estimate(visit.site, with_subtrees=True))


class _TripDriver:
    """Carries out the actions of one trip; run() once."""

    def __init__(
        self,
        courier: Courier,
        request: TripRequest,
        trip: Trip,
        *,
        line: Line,
        deliver: Deliver,
        stop: asyncio.Event,
        blame: Blame,
    ) -> None:
        self._courier = courier
        self._request = request
        self._trip = trip
        self.line = line
        self._deliver = deliver
        self._stop = stop
        self._blame = blame
        # Changed by run(), as it carries actions out.
        self._inquiry: Inquiry | None = None
        self._pending: asyncio.Task[ev.Event | None] | None = None  # the interruptible action under way
        self._killing: asyncio.Task[None] | None = None
        self._has_seen_stop = False

    async def run(self) -> None:
        event: ev.Event = ev.Begun()
        try:
            while not self._trip.is_over:
                for action in self._trip.on(event, now=self._courier.clock.now()):
                    event = await self._carry_out(action) or event
        finally:
            await _cancel(self._pending, self._killing)
            await self.line.close()
            if self._inquiry:
                self._inquiry.close()  # parcels that are still held wait for the next run

    async def _carry_out(self, action: ev.Action) -> ev.Event | None:
        if isinstance(action, _INTERRUPTIBLE):
            self._pending = asyncio.create_task(self._attempt(action))
            return await self._watch()
        if isinstance(action, ev.Wait):
            return await self._watch(action.seconds)
        return await self._attempt(action)

    async def _watch(self, seconds: float | None = None) -> ev.Event | None:
        """The event of the action under way, or of what interrupts it: a stop, or the timeout."""
        assert self._pending
        halts = [] if self._has_seen_stop else [asyncio.create_task(each.wait()) for each in self._halts()]
        try:
            await asyncio.sleep(0)  # a stop that is already set comes first
            if not any(each.done() for each in halts):
                await asyncio.wait(
                    {self._pending, *halts}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
            if any(each.done() for each in halts):
                self._has_seen_stop = True
                return ev.Stopped(is_run=self._stop.is_set())
            if not self._pending.done():
                return ev.TimeUp()
            pending, self._pending = self._pending, None
            return pending.result()
        finally:
            await _cancel(*halts)

    def _halts(self) -> list[asyncio.Event]:
        full = self._inquiry.full if self._inquiry else None
        return [self._stop, full] if full else [self._stop]

    async def _attempt(self, action: ev.Action) -> ev.Event | None:
        try:
            if isinstance(action, ev.Effect):
                await self._effect(action)
                return None
            return await self._answer(action)
        except (Refused, LineBroken, HostGone, ParcelRefused) as error:
            return ev.Failed(error)

    async def _effect(self, action: ev.Effect) -> None:
        match action:
            case ev.WriteOut():
                await self._write_out()
            case ev.Acknowledge(number, size_bytes):
                self.line.acknowledge(number, size_bytes)
            case ev.Tell(text):
                self._courier.note_line(self._trip.visit.site, text)
            case ev.Kill(is_beside):
                await self._kill(is_beside=is_beside)
            case ev.Blame(fault):
                await self._blame(fault)
            case ev.Prove():
                await self._case.prove()
            case ev.Discard():
                if self._inquiry:
                    self._inquiry.discard()

    async def _answer(self, action: ev.Question) -> ev.Event:  # noqa: PLR0911, PLR0912 - a case for each
        match action:
            case ev.Open():
                return await self._open()
            case ev.Greet(is_known):
                return await self.line.greet(self._request.visit.budget, is_known=is_known)
            case ev.Shape(is_new):
                return await self._shape(is_new=is_new)
            case ev.Order(resume_from=resume_from, level=level):
                return await self.line.order(resume_from=resume_from, level=level)
            case ev.Read():
                return self._see(await self.line.read())
            case ev.Sign(lost_streams):
                return await self.line.sign(lost_streams=lost_streams)
            case ev.Hold(parcel, size_bytes):
                await self._case.hold(parcel, size_bytes)
                return ev.Stored()
            case ev.Commit(parcel):
                await self._deliver(parcel)
                return ev.Stored()
            case ev.Sleep(seconds):
                await self._courier.clock.sleep(seconds)
                return ev.Slept()
            case ev.LookForKill():
                return await self._look_for_kill()
            case ev.Check(visit, is_whole):
                return ev.Judged(await self._case.judge(visit, is_whole=is_whole, stop=self._stop))
            case ev.Release():
                held = await self._case.next_held()
                return ev.Released(held.parcel, held.size_bytes) if held else ev.Released()
            case ev.Close():
                return await self._close(action)
            case ev.Wait():
                raise AssertionError("_carry_out() waits")

    @property
    def _case(self) -> Inquiry:
        """The inquiry, for actions of trips that have one."""
        assert self._inquiry
        return self._inquiry

    # -- belief ------------------------------------------------------------------------------------------

    async def _open(self) -> ev.Opened:
        """Raises Refused if the host was caught lying recently."""
        inquiries, request = self._courier.inquiries, self._request
        if inquiries is None:
            return ev.Opened()
        self._inquiry = inquiry = await inquiries.open(
            request.visit, request.offer, is_resumed=request.resume_from > 0
        )
        return ev.Opened(
            is_checked=True,
            is_held=inquiry.is_held,
            last=inquiry.last_held,
            is_proven=inquiry.is_proven,
            pages=inquiry.pages,
        )

    def _see(self, event: ev.Event) -> ev.Event:
        if self._inquiry and isinstance(event, ev.Came):
            self._inquiry.see(event.parcel)
        return event

    # -- the host ----------------------------------------------------------------------------------------

    async def _shape(self, *, is_new: bool) -> ev.Ready:
        visit = self._trip.visit
        if is_new:
            visit = await self._courier.shape(self._request.visit, self._request.offer, self.line.session)
        # The start time of a visit of an earlier run is not stored.
        began = self._courier.clock.now() if is_new else 0.0
        await self.line.load(visit, first=self._trip.next, began=began)
        return ev.Ready(visit)

    async def _kill(self, *, is_beside: bool) -> None:
        killing = self.line.kill(self._trip.visit.id)
        if is_beside:
            self._killing = asyncio.create_task(killing)
        else:
            await killing

    # -- the outbox --------------------------------------------------------------------------------------

    async def _write_out(self) -> None:
        visit, offer = self._request.visit, self._request.offer
        row = OutboxRow(
            visit=visit.id,
            site=visit.site,
            endpoint=offer.endpoint,
            key=offer.key,
            state=Out.WAITING,
            written_at=self._courier.clock.now(),
            order_bytes=self._request.order_bytes,
            is_live_only=offer.is_live_only,
        )
        await self._courier.ledger.do(lambda ledger: ledger.write_out(row, pack(visit, offer)))

    async def _look_for_kill(self) -> ev.Looked:
        """Looks whether the user killed the crawler, perhaps from another process."""
        visit, now = self._request.visit, self._courier.clock.now()
        out = await self._courier.ledger.do(lambda ledger: ledger.mark_out(visit.id, Out.AWAY, now=now))
        if out is Out.KILLED:
            self._courier.killed_sites.add(visit.site)
        return ev.Looked(visit.site in self._courier.killed_sites)

    async def _close(self, close: ev.Close) -> ev.Closed:
        visit, now, traffic = self._request.visit, self._courier.clock.now(), self.line.traffic

        def note(ledger: Ledger) -> Out:
            out = ledger.mark_out(
                visit.id,
                close.out,
                now=now,
                bytes_sent=traffic.sent,
                bytes_received=traffic.received,
                reason=close.reason,
            )
            if close.is_over:
                ledger.lose(visit.id, now=now, reason=close.reason)
                _promise(ledger, visit.site, close.promised)
            return out

        return ev.Closed(await self._courier.ledger.do(note))


def call_back(ledger: Ledger, is_wanted: Callable[[Visit], bool], *, now: float) -> None:
    """Gives up crawlers of an earlier run that this run does not want: their parcels are not stored."""
    for row in ledger.outbox(states=UNDER_WAY):
        try:
            visit, _, _ = unpack(ledger.luggage(row.visit))
            reason = "" if is_wanted(visit) else "no longer wanted by this crawl"
        except HostGone as error:
            reason = str(error)
        if reason:
            ledger.lose(row.visit, now=now, reason=reason)


def _promise(ledger: Ledger, site: str, priority: int | None) -> None:
    """Stores the priority that home promised the site for the visit."""
    row = ledger.host_row(site)
    if priority is not None and priority != (row.priority if row else 0):
        ledger.set_priority(site, priority)


async def _cancel(*tasks: asyncio.Task[Any] | None) -> None:
    under_way = [task for task in tasks if task]
    for task in under_way:
        task.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)
