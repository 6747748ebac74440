"""Home's end of the line to one host: sessions, orders, the stream of a visit. Secrets are never stored."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

from sterna.errors import HostGone, LineBroken, Refused, WireError
from sterna.home.away import events as ev
from sterna.home.away.acknowledgements import Acknowledgements
from sterna.home.away.inbox import Inbox
from sterna.home.away.luggage import luggage
from sterna.home.away.negotiation import Facts
from sterna.home.away.patience import Patience
from sterna.home.away.receipts import Keep, countersign, forget
from sterna.model import Budget, Etiquette, Target, Visit
from sterna.transport.interface import Call, Transport, read_whole
from sterna.web.clock import Clock
from sterna.wire.discovery import Offer
from sterna.wire.handshake import MAX_WELCOME_BYTES, Greeting, Session
from sterna.wire.holdings import MAX_SEALED_BYTES, QUERY_SECONDS, Holdings, open_holdings
from sterna.wire.keys import Identity
from sterna.wire.known import Marks, marks_of, pack_known
from sterna.wire.orders import (
    MAX_SMALL_BYTES,
    Agent,
    Kill,
    Look,
    Order,
    Query,
    Report,
    Resume,
    Send,
    open_report,
    seal_acknowledgement,
    seal_order,
)
from sterna.wire.receipts import TAKES_RECEIPTS
from sterna.wire.stream import TAKES_STOPS

UNDERSTANDS = ("zstd", TAKES_RECEIPTS, TAKES_STOPS)
MAX_NAME = 100
MAX_AGENT = 400

StreamEvent = ev.Came | ev.Said | ev.OwnerStopped | ev.StreamOver


@dataclass(slots=True)
class Traffic:
    """Bytes of messages without HTTP headers; counted as they pass, failed calls included."""

    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class Contact:
    """A session with a host: valid for one order, and for acknowledgements after it."""

    session: Session
    seconds: float  # that the host's answer took
    ahead_seconds: float = 0.0  # of the host's clock before ours, if the difference made it refuse


@dataclass(eq=False, repr=False)
class Lines:
    """Opens lines to hosts in the name of this home."""

    transport: Transport
    identity: Identity
    _: KW_ONLY
    home: str  # its name, which hosts may show
    clock: Clock
    patience: Patience = field(default_factory=Patience)
    priorities: Mapping[str, int] = field(default_factory=dict)  # for revisits, that home offers to sites
    keep_receipt: Keep = forget

    def to(self, offer: Offer) -> "Line":
        return Line(self, offer)

    async def kill(self, offer: Offer, visit: str) -> Report:
        """Ends a visit at its host, and returns its state; raises HostGone if the host does not know it."""
        try:
            return await self.to(offer).ask(Kill(visit))
        except Refused as refusal:
            if refusal.problem != "gone":
                raise
            raise HostGone(f"the host of {offer.site} does not know visit {visit}") from refusal


class Line:
    """Calls one host, for one trip; raises Refused and LineBroken, like its transport."""

    def __init__(self, lines: Lines, offer: Offer) -> None:
        self._lines = lines
        self._offer = offer
        self.traffic = Traffic()
        # Set by greet(), load() and order(), which are called in this order; then read() ..., sign().
        self._contact: Contact | None = None
        self._visit: Visit | None = None
        self._starts: tuple[Target, ...] = ()
        self._known = b""
        self._inbox: Inbox | None = None
        self._stream = AsyncExitStack()
        self._events: AsyncGenerator[StreamEvent, None] | None = None
        self._acknowledgements: Acknowledgements | None = None

    @property
    def session(self) -> Session:
        assert self._contact
        return self._contact.session

    # -- sessions ----------------------------------------------------------------------------------------

    async def greet(self, wants: Budget, *, is_known: bool) -> ev.Greeted:
        """Opens a session. An invalid reply raises Refused, or HostGone if the host should have the visit."""
        try:
            self._contact = await self.contact(wants)
        except WireError as error:
            if is_known:
                raise HostGone(f"the host of {self._offer.site} has changed its identity: {error}") from error
            raise Refused(error.problem, f"invalid reply to the greeting: {error.detail}") from error
        session = self._contact.session
        return ev.Greeted(
            seconds=self._contact.seconds,
            ticket_seconds=session.seconds,
            level=Facts.of(session.platform).level,
            priority=session.priority,
        )

    async def contact(self, wants: Budget) -> Contact:
        """A new session; if the clocks differ too much, greets again with the host's time."""
        try:
            return await self._greet(wants, ahead_seconds=0.0)
        except Refused as refusal:
            if refusal.problem != "stale" or refusal.time is None:
                raise
            return await self._greet(wants, ahead_seconds=refusal.time - self._lines.clock.now())

    async def _greet(self, wants: Budget, *, ahead_seconds: float) -> Contact:
        lines = self._lines
        greeting = Greeting.begin(
            lines.identity,
            home="".join(each if each.isprintable() else " " for each in lines.home)[:MAX_NAME] or "home",
            audience=self._offer.site,
            wants=wants,
            now=lines.clock.now() + ahead_seconds,
            understands=UNDERSTANDS,
            priority=lines.priorities.get(self._offer.site, 0),
        )
        async with self._exchange(Call("hello", greeting.body)) as (chunks, seconds):
            reply = await read_whole(chunks, most=MAX_WELCOME_BYTES)
        return Contact(greeting.finish(reply, self._offer.public_key), seconds, ahead_seconds)

    async def ask(self, order: Look | Kill) -> Report:
        """Gives an order that is answered by a report, in a session of its own."""
        contact = await self.contact(Budget())
        async with self._exchange(_order_call(contact.session, order)) as (chunks, _):
            data = await read_whole(chunks, most=MAX_SMALL_BYTES)
        return open_report(contact.session.keys, data)

    async def query(self, visit: str) -> tuple[Holdings, float]:
        """What a crawler holds, and by how many seconds the host's clock is ahead; LineBroken if too late."""
        limit, site = QUERY_SECONDS, self._offer.site
        try:
            async with asyncio.timeout(limit):
                contact = await self.contact(Budget())
                if contact.session.platform.get("queries", "") != "yes":
                    raise Refused("version", _why_no_query(contact.session.platform))
                async with self._exchange(_order_call(contact.session, Query(visit))) as (chunks, _):
                    data = await read_whole(chunks, most=MAX_SEALED_BYTES)
                holdings = await asyncio.to_thread(open_holdings, contact.session.keys, data)
                return holdings, contact.ahead_seconds
        except TimeoutError:
            raise LineBroken(f"the host of {site} did not answer the query within {limit:g} s") from None
        except WireError as error:
            raise HostGone(f"the host of {site} sent a malformed reply: {error}") from error

    async def kill(self, visit: str) -> None:
        """Asks the host to end a visit; an unreachable host ends it itself, without a reader."""
        with suppress(Refused, LineBroken, WireError, TimeoutError):
            async with asyncio.timeout(self._lines.patience.stop_seconds):
                await self.ask(Kill(visit))

    # -- one visit ---------------------------------------------------------------------------------------

    async def load(self, visit: Visit, *, first: int, began: float, waiting: Iterable[Target] = ()) -> None:
        """Packs a visit for the next order; its first parcel has number `first`. Slow if much is known.

        `waiting`: what earlier runs received and what is not done since; see `Claims`.
        """
        self._visit = visit
        self._starts, self._known, marks = await asyncio.to_thread(_packed, visit)
        key = self._offer.public_key
        self._inbox = Inbox(visit, marks, host_key=key, began=began, first=first, waiting=waiting)

    async def order(self, *, resume_from: int, level: int) -> None:
        """Sends the visit, or resumes it; the stream is then read with read()."""
        assert self._contact
        assert self._inbox
        contact = self._contact
        await self._stream.aclose()
        with self._translated():
            call = _order_call(contact.session, self._order_of(contact.session, resume_from, level))
            chunks, _ = await self._stream.enter_async_context(self._exchange(call))
            self._inbox.begin(contact.session.keys.stream, ahead_seconds=contact.ahead_seconds)
        self._acknowledgements = Acknowledgements(partial(self._acknowledge, contact))
        sending = asyncio.create_task(self._acknowledgements.run())
        self._stream.push_async_callback(cancel, sending)
        self._events = self._read(chunks)

    def _order_of(self, session: Session, resume_from: int, level: int) -> Order:
        visit = self._visit
        assert visit
        if resume_from:
            return Resume(visit.id, resume_from, level)
        return Send(
            visit=visit.id,
            part=visit.part,
            epoch=visit.epoch,
            crawler=visit.crawler,
            agent=_agent(visit.etiquette),
            starts=self._starts,
            known=self._known,
            state=visit.state,
            budget=visit.budget,  # the host reduces it to what it granted
            level=level,
            priority=session.priority,
            within=visit.within,
        )

    async def read(self) -> StreamEvent:
        """The next event of the stream; raises LineBroken if it is cut or silent, HostGone if malformed."""
        assert self._events
        with self._translated():
            return await anext(self._events)

    async def _read(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[StreamEvent, None]:
        inbox, clock, size = self._inbox, self._lines.clock, 0
        assert inbox
        async for chunk in self._with_timeout(chunks):
            size += len(chunk)
            opened = inbox.feed(chunk, now=clock.now())
            is_silent = True
            while (parcel := await asyncio.to_thread(next, opened, None)) is not None:
                yield ev.Came(parcel, size)
                del parcel  # it is stored, and the next one may be as large
                size, is_silent = 0, False
            while inbox.lines:
                yield ev.Said(inbox.lines.pop(0))
                is_silent = False
            if stop := inbox.stop:
                inbox.stop, is_silent = None, False
                yield stop
            if inbox.is_over:
                yield ev.StreamOver(inbox.is_proven)
                return
            failure = self._acknowledgements and self._acknowledgements.failure
            if failure:
                raise LineBroken(f"the host refuses acknowledgements: {failure}")
            if is_silent:
                yield ev.Said()
        inbox.finish()

    async def _with_timeout(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        seconds = self._lines.patience.silence_seconds
        while True:
            try:
                async with asyncio.timeout(seconds):
                    chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise LineBroken(f"the host of {self._offer.site} was silent for {seconds:g} s") from None
            yield chunk

    def acknowledge(self, number: int, size_bytes: int) -> None:
        """Lets the host delete this parcel and all before it."""
        if self._acknowledgements:
            self._acknowledgements.note(number, size_bytes)

    async def sign(self, *, lost_streams: int) -> ev.Signed:
        """Countersigns the receipt if there is one, and sends the last acknowledgement."""
        assert self._inbox
        assert self._acknowledgements
        signature, result = b"", ""
        if self._inbox.receipt:
            seen = self._inbox.witnessed(now=self._lines.clock.now(), lost_streams=lost_streams)
            packed, lines = self._inbox.receipt.packed, self._lines
            signature, reason = await countersign(packed, seen, lines.identity, keep=lines.keep_receipt)
            result = reason or "signed"
        await self._acknowledgements.finish(signature)
        return ev.Signed(result)

    async def close(self) -> None:
        await self._stream.aclose()

    # -- messages ----------------------------------------------------------------------------------------

    async def _acknowledge(self, contact: Contact, number: int, receipt: bytes) -> None:
        """Acknowledges the parcels up to this one, with home's signature of the receipt."""
        assert self._visit
        body = seal_acknowledgement(contact.session.keys, self._visit.id, number, receipt=receipt)
        async with self._exchange(Call("acknowledge", body)) as (chunks, _):
            await read_whole(chunks, most=MAX_SMALL_BYTES)

    @asynccontextmanager
    async def _exchange(self, call: Call) -> AsyncIterator[tuple[AsyncIterator[bytes], float]]:
        self.traffic.sent += len(call.body)
        async with self._lines.transport.exchange(self._offer.endpoint, call) as reply:
            yield self._counted(reply.chunks), reply.seconds

    async def _counted(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            self.traffic.received += len(chunk)
            yield chunk

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except WireError as error:
            if error.problem == "cut off":
                raise LineBroken(str(error)) from error
            raise HostGone(f"the host of {self._offer.site} sent a malformed stream: {error}") from error


async def cancel(*tasks: asyncio.Task[Any] | None) -> None:
    """Returns when the tasks are over."""
    under_way = [task for task in tasks if task]
    for task in under_way:
        task.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)


def _packed(visit: Visit) -> tuple[tuple[Target, ...], bytes, Marks]:
    starts, known = luggage(visit)
    return starts, pack_known(known), marks_of(known)


def _order_call(session: Session, order: Order) -> Call:
    return Call("order", seal_order(session.keys, session.ticket, order))


def _why_no_query(platform: Mapping[str, str]) -> str:
    if Facts.of(platform).is_live_only:
        return "it keeps no visits, so its crawlers cannot be queried"
    release = platform.get("sterna", "")
    return f"it is of an earlier release{f' ({release[:20]})' if release else ''}, which takes no queries"


def _agent(etiquette: Etiquette) -> Agent:
    texts = (etiquette.user_agent, etiquette.robots_name, etiquette.sender)
    user_agent, name, sender = (text.encode("ascii", "replace").decode()[:MAX_AGENT] for text in texts)
    return Agent(user_agent, name, sender, etiquette.strict_robots)
