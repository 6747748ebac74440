"""The driver of trips to hosts: carries out the actions of `trip`, and reports their events."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

from msgspec.structs import replace

from sterna.errors import HostGone, LineBroken, ParcelRefused, Refused
from sterna.home.away import events as ev
from sterna.home.away.claims import kinds_left
from sterna.home.away.line import Line, Lines, cancel
from sterna.home.away.luggage import pack, unpack
from sterna.home.away.negotiation import Facts, bounded, narrowed_words, room_for, shape
from sterna.home.away.place import Placement
from sterna.home.away.trip import Departure, Trip
from sterna.home.belief.inquiry import Inquiries, Inquiry
from sterna.home.belief.quarantine import HeldVisit
from sterna.home.ledger.interface import Ledger, LedgerDesk
from sterna.home.ledger.records import UNDER_WAY, Out, OutboxRow, OwnerRow
from sterna.home.progress import Progress
from sterna.model import Deliver, Target, Usage, Visit
from sterna.web.clock import Clock
from sterna.wire.discovery import Offer
from sterna.wire.handshake import Session
from sterna.wire.stream import PAUSED

MAX_STOP_SECONDS = 30 * 24 * 3600.0  # for which what an owner asked holds; then the host is asked again
CLOSED_SLACK_SECONDS = 3600.0  # closed paths that have not changed are stored again after this

Blame = Callable[[ev.Fault], Awaitable[None]]
_INTERRUPTIBLE = (ev.Greet, ev.Shape, ev.Order, ev.Sleep)


class TripRequest(Departure, frozen=True, kw_only=True):
    """A trip to make, or one that an earlier run began."""

    offer: Offer
    order_bytes: int = 0  # estimated


@dataclass(eq=False, repr=False)
class Courier:
    """Makes trips, as many at once as the caller likes."""

    open_lines: Callable[[], Lines]  # called when the first crawler leaves: until then home needs no key
    ledger: LedgerDesk
    _: KW_ONLY
    clock: Clock
    progress: Progress
    inquiries: Inquiries | None = None  # None: all hosts are trusted
    level: int = 0
    tell: Callable[[Placement], None] = lambda placement: None
    warn: Callable[[str], None] = lambda line: None
    _paused_sites: set[str] = field(default_factory=set)  # grows by note_line()
    is_defiant: bool = False  # the user crawls whatever owners ask for
    killed_sites: set[str] = field(default_factory=set)  # grows by _look_for_kill()

    def note_line(self, site: str, line: str) -> None:
        """Warns that a host paused a visit, and why: once for each site, since hosts may repeat it often."""
        if line.startswith(PAUSED) and site not in self._paused_sites:
            self._paused_sites.add(site)
            self.warn(f"the host of {site} paused the crawler: {line.removeprefix(PAUSED).strip()}")

    async def travel(
        self, request: TripRequest, *, deliver: Deliver, stop: asyncio.Event, blame: Blame
    ) -> Trip:
        """Returns when the crawler is back or lost, and its parcels are stored.

        Calls `blame` before the site is free for another visit. A refused parcel is a failure of the trip;
        any other error of `deliver` is raised.
        """
        visit, offer, lines = request.visit, request.offer, self.open_lines()
        departure = replace(
            request, is_live_only=offer.is_live_only, level=self.level, patience=lines.patience
        )
        trip = Trip(departure, now=self.clock.now())
        line = lines.to(offer)
        driver = _TripDriver(self, request, trip, line=line, deliver=deliver, stop=stop, blame=blame)
        self.progress.away.add(visit.id)
        self.progress.has_sent = True
        try:
            await driver.run()
        finally:
            self.progress.away.discard(visit.id)
            self.progress.count(Usage(bytes_received=line.traffic.received))
        return trip

    async def note_closed(self, site: str, paths: tuple[str, ...]) -> None:
        """Stores the paths that the site's owner closed, so that visits from here keep away from them too."""
        now, closed = self.clock.now(), "\n".join(paths)

        def note(ledger: Ledger) -> None:
            row = ledger.owner_row(site) or OwnerRow(site=site)
            until = now + MAX_STOP_SECONDS if closed else 0.0
            if row.closed != closed or abs(until - row.closed_until) > CLOSED_SLACK_SECONDS:
                ledger.set_owner(replace(row, closed=closed, closed_until=until))

        if not self.is_defiant:
            await self.ledger.do(note)

    async def shape(self, visit: Visit, offer: Offer, session: Session) -> Visit:
        """The visit shaped to what the host grants, written into the outbox: a restart resumes it."""
        facts = Facts.of(session.platform, is_live_only=offer.is_live_only)
        estimate = await self.ledger.do(lambda ledger: ledger.estimate(visit.site))
        granted = bounded(visit.budget, session.grants, facts)
        if len(visit.starts) > room_for(granted, estimate, wanted=visit.budget):
            # It does not fit into one visit: the parts of the site are needed too.
            estimate = await self.ledger.do(lambda ledger: ledger.estimate(visit.site, with_subtrees=True))
        shaped = await asyncio.to_thread(shape, visit, session.grants, facts, estimate)
        luggage = await asyncio.to_thread(pack, shaped, offer, visit.budget)
        await self.ledger.do(lambda ledger: ledger.set_luggage(visit.id, luggage))
        if shaped.within:
            self.tell(Placement(site=visit.site, place="host", reason=narrowed_words(visit, shaped)))
        return shaped


@dataclass(eq=False, repr=False)
class _TripDriver:
    """Carries out the actions of one trip; run() once."""

    courier: Courier
    request: TripRequest
    trip: Trip
    _: KW_ONLY
    line: Line
    deliver: Deliver
    stop: asyncio.Event
    blame: Blame
    # Changed by run(), as it carries actions out.
    _inquiry: Inquiry | None = None
    _pending: asyncio.Task[ev.Event | None] | None = None  # the interruptible action under way
    _killing: asyncio.Task[None] | None = None
    _has_seen_stop: bool = False
    _waiting: Sequence[Target] = ()  # in the ledger, of what an earlier run received

    async def run(self) -> None:
        event: ev.Event = ev.Moment.BEGUN
        try:
            while not self.trip.is_over:
                for action in self.trip.on(event, now=self.courier.clock.now()):
                    event = await self._carry_out(action) or event
        finally:
            await cancel(self._pending, self._killing)
            await self.line.close()
            if self._inquiry and self._inquiry.held:
                self._inquiry.held.close()  # parcels that are still held wait for the next run

    async def _carry_out(self, action: ev.Action) -> ev.Event | None:
        if isinstance(action, _INTERRUPTIBLE) or action is ev.Step.READ:
            self._pending = asyncio.create_task(self._attempt(action))
            return await self._watch()
        if isinstance(action, ev.Wait):
            return await self._watch(action.seconds)
        return await self._attempt(action)

    async def _watch(self, seconds: float | None = None) -> ev.Event | None:
        """The event of the action under way, or of what interrupts it: a stop, or the timeout."""
        assert self._pending
        full = self._inquiry.full if self._inquiry else None
        events = [] if self._has_seen_stop else [self.stop, full] if full else [self.stop]
        halts = [asyncio.create_task(each.wait()) for each in events]
        try:
            await asyncio.sleep(0)  # a stop that is already set comes first
            if not any(each.done() for each in halts):
                await asyncio.wait(
                    {self._pending, *halts}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
            if any(each.done() for each in halts):
                self._has_seen_stop = True
                return ev.Stopped(is_run=self.stop.is_set())
            if not self._pending.done():
                return ev.Moment.TIME_UP
            pending, self._pending = self._pending, None
            return pending.result()
        finally:
            await cancel(*halts)

    async def _attempt(self, action: ev.Action) -> ev.Event | None:
        try:
            return await self._act(action)
        except (Refused, LineBroken, HostGone, ParcelRefused) as error:
            return ev.Failed(error)

    async def _act(self, action: ev.Action) -> ev.Event | None:  # noqa: PLR0911, PLR0912 - a case for each
        match action:
            case ev.Step.WRITE_OUT:
                await self._write_out()
            case ev.Step.OPEN:
                return await self._open()
            case ev.Greet(is_known):
                greeted = await self.line.greet(self.request.visit.budget, is_known=is_known)
                await self.courier.note_closed(self.request.visit.site, self.line.session.closed)
                return greeted
            case ev.Shape(is_new):
                return await self._shape(is_new=is_new)
            case ev.Order(resume_from=resume_from, level=level):
                await self.line.order(resume_from=resume_from, level=level)
                return ev.Moment.ACCEPTED
            case ev.Step.READ:
                event = await self.line.read()
                if self._inquiry and isinstance(event, ev.Came):
                    self._inquiry.witness.see(event.parcel)
                return event
            case ev.Acknowledge(number, size_bytes):
                self.line.acknowledge(number, size_bytes)
            case ev.Tell(text):
                self.courier.note_line(self.trip.visit.site, text)
            case ev.Sign(lost_streams):
                return await self.line.sign(lost_streams=lost_streams)
            case ev.Hold(parcel, size_bytes):
                await self._held.add(parcel, size_bytes)
                return ev.Moment.STORED
            case ev.Commit(parcel):
                await self.deliver(parcel)
                return ev.Moment.STORED
            case ev.Sleep(seconds):
                await self.courier.clock.sleep(seconds)
                return ev.Moment.SLEPT
            case ev.Kill(is_beside):
                killing = self.line.kill(self.trip.visit.id)
                if is_beside:
                    self._killing = asyncio.create_task(killing)
                else:
                    await killing
            case ev.Step.LOOK_FOR_KILL:
                return await self._look_for_kill()
            case ev.Fault():
                await self.blame(action)
            case ev.Step.PROVE:
                await self._held.prove()
            case ev.Check(visit, is_whole):
                assert self._inquiry
                return ev.Judged(await self._inquiry.judge(visit, is_whole=is_whole, stop=self.stop))
            case ev.Step.RELEASE:
                held = await self._held.next()
                return ev.Released(held.parcel, held.size_bytes) if held else ev.Released()
            case ev.Step.DISCARD:
                if self._inquiry and self._inquiry.held:
                    self._inquiry.held.leave()
            case ev.Close():
                return await self._close(action)
            case ev.Wait():
                raise AssertionError("_carry_out() waits")
        return None

    @property
    def _held(self) -> HeldVisit:
        """The quarantine, for actions of trips that have one."""
        assert self._inquiry
        assert self._inquiry.held
        return self._inquiry.held

    async def _open(self) -> ev.Opened:
        """Raises Refused if the host was caught lying recently."""
        inquiries, request = self.courier.inquiries, self.request
        visit, is_resumed = request.visit, request.resume_from > 0
        if is_resumed:
            kinds = kinds_left(visit.crawler)
            self._waiting = await self.courier.ledger.do(
                lambda ledger: ledger.waiting(visit.site, visit.part, kinds=kinds)
            )
        if inquiries is None:
            return ev.Opened()
        self._inquiry = inquiry = await inquiries.open(
            visit, request.offer, is_resumed=is_resumed, waiting=self._waiting
        )
        opened = ev.Opened(is_checked=True, pages=inquiry.witness.pages)
        if held := inquiry.held:
            opened = replace(opened, is_held=True, last=held.last, is_proven=held.is_proven)
        return opened

    async def _shape(self, *, is_new: bool) -> ev.Ready:
        visit = self.trip.visit
        if is_new:
            visit = await self.courier.shape(self.request.visit, self.request.offer, self.line.session)
        # The start time of a visit of an earlier run is not stored.
        began = self.courier.clock.now() if is_new else 0.0
        waiting = self._inquiry.witness.waiting if self._inquiry else self._waiting
        await self.line.load(visit, first=self.trip.next, began=began, waiting=waiting)
        if self._inquiry and self._inquiry.witness.refusals:
            self._inquiry.witness.refusals.thin()
        return ev.Ready(visit)

    async def _write_out(self) -> None:
        visit, offer = self.request.visit, self.request.offer
        row = OutboxRow(
            visit=visit.id,
            site=visit.site,
            endpoint=offer.endpoint,
            key=offer.key,
            state=Out.WAITING,
            written_at=self.courier.clock.now(),
            order_bytes=self.request.order_bytes,
            is_live_only=offer.is_live_only,
        )
        await self.courier.ledger.do(lambda ledger: ledger.write_out(row, pack(visit, offer)))

    async def _look_for_kill(self) -> ev.Looked:
        """Looks whether the user killed the crawler, perhaps from another process."""
        visit, now = self.request.visit, self.courier.clock.now()
        out = await self.courier.ledger.do(lambda ledger: ledger.mark_out(visit.id, Out.AWAY, now=now))
        if out is Out.KILLED:
            self.courier.killed_sites.add(visit.site)
        return ev.Looked(visit.site in self.courier.killed_sites)

    async def _close(self, close: ev.Close) -> ev.Closed:
        visit, now, traffic = self.request.visit, self.courier.clock.now(), self.line.traffic

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
                row = ledger.host_row(visit.site)
                if close.promised is not None and close.promised != (row.priority if row else 0):
                    ledger.set_priority(visit.site, close.promised)
            return out

        return ev.Closed(await self.courier.ledger.do(note))


def unfinished(ledger: Ledger) -> list[TripRequest]:
    """The trips of an earlier run that are still under way."""
    requests = []
    for row in ledger.outbox(states=UNDER_WAY):
        visit, offer, own = unpack(ledger.luggage(row.visit))
        requests.append(TripRequest(visit=visit, offer=offer, resume_from=row.parcels + 1, own=own))
    return requests


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
