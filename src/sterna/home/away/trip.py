"""One trip of a crawler to a host and back: the order, the stream, and another try after each cut."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from sterna.errors import HostGone, LineBroken, ParcelRefused, Refused, WireError
from sterna.home.away.acknowledgements import Acknowledging
from sterna.home.away.inbox import Unloading
from sterna.home.away.line import Contact, Line
from sterna.home.away.luggage import Cargo
from sterna.home.away.negotiation import Facts
from sterna.home.away.patience import Patience, Waiting
from sterna.home.away.receipts import Countersigning
from sterna.model import Ended, Etiquette, Known, Parcel, Record, Visit
from sterna.web.clock import Clock
from sterna.wire.discovery import Offer
from sterna.wire.handshake import Session
from sterna.wire.known import Marks
from sterna.wire.orders import Agent, Kill, Order, Resume, Send

NEAR_SECONDS = 0.02  # an answer to a greeting in less: compressing takes longer than sending
NEAR_LEVEL, FAR_LEVEL = 3, 9
MAX_AGENT = 400

# What a host says of an order that it may have taken the first time it came.
_TAKEN_BEFORE = frozenset({"ticket-spent", "replayed"})
# What another try can change, of a visit that is there.
_PASSING = frozenset({"busy", "ticket-spent", "ticket-expired", "replayed", "internal"})

Deliver = Callable[[Parcel, int], Awaitable[None]]  # the parcel, and how many bytes brought it
Shape = Callable[[Visit, Session], Awaitable[Visit]]  # what of a visit is sent where this was granted


async def as_it_is(visit: Visit, session: Session) -> Visit:
    """Sends a visit whole, whatever was granted."""
    return visit


class Trip(Record, frozen=True, kw_only=True):
    """What a visit to a host came to."""

    ended: Ended | None  # None: it was stopped here, and its host did not say in time how it ended
    parcels: int  # delivered in this trip
    pages: int
    bytes_sent: int
    bytes_received: int
    cuts: int = 0  # after which it was gone on with
    is_proven: bool = False  # the pages that came are those whose root the host signed
    receipt: str = ""  # "signed", or why home did not sign the one that came


class Travel:
    """The trip while it is under way; run() once."""

    def __init__(  # noqa: PLR0913 - each is somebody it works with
        self,
        visit: Visit,
        offer: Offer,
        line: Line,
        *,
        shape: Shape,
        deliver: Deliver,
        clock: Clock,
        patience: Patience,
        level: int,
        resume_from: int,
        countersigning: Countersigning,
        on_taken: Callable[[], None],
        on_line: Callable[[str], None],
    ) -> None:
        self._whole = visit
        self._offer = offer
        self._line = line
        self._shape = shape
        self._deliver = deliver
        self._clock = clock
        self._patience = patience
        self._level = level
        self._countersigning = countersigning
        self._on_taken = on_taken
        self._on_line = on_line
        # Changed as the trip goes on, by the task that reads.
        self._first = max(resume_from, 1)
        self._is_resumed = resume_from > 0
        self._visit = visit  # what of it is sent, once the host has said what it grants
        self._cargo: Cargo | None = None
        self._unloading = self._begin_unloading(Marks(Known()))
        self._was_sent = self._is_taken = self._is_resumed
        self._streams = int(self._was_sent)  # that were asked for, and the one of an earlier run
        self._receipt = ""
        self._cuts = 0
        self._waiting = Waiting(visit.budget.seconds, patience, now=clock.now())

    async def run(self, stop: asyncio.Event) -> Trip:
        """Goes on until the end; after `stop` only as long as it takes the host to end the visit."""
        going = asyncio.create_task(self._go())
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({going, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if going.done():
                return going.result()
            return await self._end_soon(going)
        finally:
            going.cancel()
            stopped.cancel()
            await asyncio.gather(going, stopped, return_exceptions=True)

    # -- tries -------------------------------------------------------------------------------------------

    async def _go(self) -> Trip:
        tries = 0
        while True:
            before = self._unloading.next
            try:
                await self._follow(await self._make_ready())
                return self._result(self._unloading.ended)
            except (LineBroken, Refused) as error:
                tries = 0 if self._unloading.next > before else tries
                pause = self._pause_after(error, tries)
            if pause is None:
                return self._result(self._unloading.ended)
            tries += 1
            self._cuts += self._is_taken
            await self._clock.sleep(pause)

    def _pause_after(self, error: LineBroken | Refused, tries: int) -> float | None:
        """Seconds until another try, None if all is here but the proof; raises where no try is worth it."""
        if not self._was_sent:
            raise error
        may_try = not self._offer.is_live_only and tries + 1 < self._patience.tries
        if isinstance(error, Refused):
            may_try = may_try and self._may_change(error)
        if may_try:
            pause = self._patience.pause_seconds * float(2**tries)
            asked = error.retry_after if isinstance(error, Refused) else None
            return min(max(pause, asked or 0.0), self._patience.longest_pause_seconds)
        if self._unloading.has_all:
            return None
        if isinstance(error, Refused) and not self._is_taken:
            raise error
        number = self._unloading.next - 1
        raise HostGone(f"the host of {self._visit.site} was lost after parcel {number}: {error}")

    def _may_change(self, refusal: Refused) -> bool:
        if self._is_taken:
            return refusal.problem in _PASSING
        if refusal.problem == "gone":  # it never had the visit: it is sent again
            self._was_sent = False
            return True
        return refusal.problem in _TAKEN_BEFORE

    async def _make_ready(self) -> Contact:
        """A session, with the visit shaped to what it grants, and packed."""
        contact = await self._greet()
        if self._cargo and self._was_sent:
            return contact
        began = self._clock.now()
        if not self._was_sent:
            self._visit = await self._shape(self._whole, contact.session)
            self._waiting = Waiting(self._visit.budget.seconds, self._patience, now=began)
        self._cargo = await asyncio.to_thread(Cargo.of, self._visit)
        self._unloading = self._begin_unloading(self._cargo.marks)
        # Where much is known this takes a while, and a ticket is soon too old.
        is_late = self._clock.now() - began > contact.session.seconds / 2
        return await self._greet() if is_late else contact

    def _begin_unloading(self, marks: Marks) -> Unloading:
        return Unloading(
            self._visit,
            marks,
            host_key=self._offer.public_key,
            # Of one that is there since an earlier run nobody knows it any more.
            began=0.0 if self._is_resumed else self._clock.now(),
            first=self._first,
        )

    async def _greet(self) -> Contact:
        try:
            return await self._line.greet(self._whole.budget)
        except WireError as error:
            if self._was_sent:
                raise HostGone(f"the host of {self._visit.site} is another now: {error}") from error
            raise Refused(error.problem, f"the greeting was answered wrongly: {error.detail}") from error

    # -- one stream --------------------------------------------------------------------------------------

    async def _follow(self, contact: Contact) -> None:
        """Reads a stream to its end; LineBroken if it is cut off, HostGone if it cannot be."""
        order = self._order(contact)
        self._streams += 1
        self._was_sent = True
        try:
            async with self._line.order(contact, order) as chunks:
                keys = contact.session.keys
                self._unloading.begin(keys.stream, ahead_seconds=contact.ahead_seconds)
                if not self._is_taken:
                    self._is_taken = True
                    self._on_taken()
                await self._read(contact, chunks)
        except WireError as error:
            if error.problem == "cut off":
                raise LineBroken(str(error)) from error
            raise HostGone(f"the host of {self._visit.site} sent what cannot be: {error}") from error
        except ParcelRefused:
            await self._kill()
            raise

    async def _read(self, contact: Contact, chunks: AsyncIterator[bytes]) -> None:
        async def tell(number: int, receipt: bytes) -> None:
            await self._line.acknowledge(contact, self._visit.id, number, receipt=receipt)

        acknowledging = Acknowledging(tell)
        telling = asyncio.create_task(acknowledging.run())
        try:
            await self._take(chunks, acknowledging)
            await acknowledging.finish(await self._countersign())
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _countersign(self) -> bytes:
        """Home's signature under the receipt of the visit, which is kept by then; b"" if there is none."""
        came = self._unloading.receipt
        if came is None:
            return b""
        seen = self._unloading.witnessed(now=self._clock.now(), lost_streams=self._streams - 1)
        outcome = await self._countersigning.take(came.packed, seen)
        self._receipt = outcome.reason or "signed"
        return outcome.signature

    async def _take(self, chunks: AsyncIterator[bytes], acknowledging: Acknowledging) -> None:
        unloading, size = self._unloading, 0
        self._waiting.begin(self._clock.now())
        async for chunk in self._timed(chunks):
            size += len(chunk)
            opened = unloading.feed(chunk, now=self._clock.now())
            # In a thread: a large parcel takes long enough for others to notice.
            while (parcel := await asyncio.to_thread(next, opened, None)) is not None:
                await self._deliver(parcel, size)
                if not self._offer.is_live_only:  # else the host keeps nothing that it could forget
                    acknowledging.note(parcel.number, size)
                size = 0
                self._waiting.note_parcel(self._clock.now())
            while unloading.lines:
                line = unloading.lines.pop(0)
                self._waiting.note_line(line, self._clock.now())
                self._on_line(line)
            if unloading.is_over:
                return
            if acknowledging.failure:
                raise LineBroken(f"the host takes no acknowledgement: {acknowledging.failure}")
        unloading.finish()

    async def _timed(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The chunks; LineBroken after a silence, HostGone if the visit gets nowhere."""
        while True:
            try:
                async with asyncio.timeout(self._patience.silence_seconds):
                    chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise LineBroken(f"{self._visit.site}: no sign of life of its host") from None
            if self._waiting.is_over(self._clock.now()):
                pages = self._unloading.pages
                await self._kill()  # whatever it still did would be for nobody
                raise HostGone(f"the host of {self._visit.site} does not get on: {pages} pages so far")
            yield chunk

    def _order(self, contact: Contact) -> Order:
        visit, session = self._visit, contact.session
        level = self._level or (NEAR_LEVEL if contact.seconds < NEAR_SECONDS else FAR_LEVEL)
        level = min(level, Facts.of(session.platform).level)
        assert self._cargo
        if self._was_sent:
            return Resume(visit.id, self._unloading.next, level)
        return Send(
            visit=visit.id,
            part=visit.part,
            epoch=visit.epoch,
            crawler=visit.crawler,
            agent=_agent(visit.etiquette),
            starts=self._cargo.starts,
            known=self._cargo.known,
            state=visit.state,
            budget=visit.budget,  # the host takes of it what it granted
            level=level,
            priority=session.priority,
            within=visit.within,
        )

    # -- the end -----------------------------------------------------------------------------------------

    async def _end_soon(self, going: asyncio.Task[Trip]) -> Trip:
        """Kills the visit, and takes what its host still sends of it."""
        if self._was_sent and not self._offer.is_live_only:
            killing = asyncio.create_task(self._kill())
            await asyncio.wait({going}, timeout=self._patience.stop_seconds)
            killing.cancel()
            await asyncio.gather(killing, return_exceptions=True)
        if not going.done():
            return self._result(None)
        try:
            return going.result()
        except (HostGone, LineBroken, Refused):
            return self._result(None)  # a host may well break off what it was told to kill

    async def _kill(self) -> None:
        """Asks the host to end the visit; who cannot be asked sees in time that nobody is there."""
        with suppress(Refused, LineBroken, WireError, TimeoutError):
            async with asyncio.timeout(self._patience.stop_seconds):
                await self._line.ask(Kill(self._visit.id))

    def _result(self, ended: Ended | None) -> Trip:
        return Trip(
            ended=ended,
            parcels=self._unloading.next - self._first,
            pages=self._unloading.pages,
            bytes_sent=self._line.traffic.sent,
            bytes_received=self._line.traffic.received,
            cuts=self._cuts,
            is_proven=self._unloading.is_proven,
            receipt=self._receipt,
        )


def _agent(etiquette: Etiquette) -> Agent:
    texts = (etiquette.user_agent, etiquette.robots_name, etiquette.sender)
    return Agent(*(text.encode("ascii", "replace").decode()[:MAX_AGENT] for text in texts))
