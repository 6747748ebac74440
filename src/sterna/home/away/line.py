"""Home's end of the line to one host: greetings, orders, acknowledgements; its secrets are never stored."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sterna.errors import Refused
from sterna.model import Budget
from sterna.transport.interface import Call, Transport
from sterna.transport.reading import read_whole
from sterna.web.clock import Clock
from sterna.wire.discovery import Offer
from sterna.wire.handshake import MAX_WELCOME_BYTES, Greeting, Session
from sterna.wire.keys import Identity
from sterna.wire.orders import (
    MAX_SMALL_BYTES,
    Kill,
    Look,
    Order,
    Report,
    open_report,
    seal_acknowledgement,
    seal_order,
)
from sterna.wire.receipts import TAKES_RECEIPTS

UNDERSTANDS = ("zstd", TAKES_RECEIPTS)
MAX_NAME = 100


@dataclass(slots=True)
class Traffic:
    """Bytes of messages, without the heads that carry them; grows as they pass, of failures too."""

    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class Contact:
    """A session that a host opened: good for one order, and for acknowledgements after it."""

    session: Session
    seconds: float  # that the host's answer took
    ahead_seconds: float = 0.0  # of its clock, where that differs so much that it said so


class Line:
    """Calls one host; raises Refused and LineBroken as the transport does, WireError for what cannot be."""

    def __init__(
        self,
        transport: Transport,
        identity: Identity,
        offer: Offer,
        *,
        home: str,
        clock: Clock,
        traffic: Traffic,
        priority: int = 0,  # that home offers the site in its revisits
    ) -> None:
        self._transport = transport
        self._identity = identity
        self._offer = offer
        self._home = "".join(sign if sign.isprintable() else " " for sign in home)[:MAX_NAME] or "home"
        self._clock = clock
        self._priority = priority
        self.traffic = traffic

    async def greet(self, wants: Budget) -> Contact:
        """Opens a session; if the clocks differ, once more with the host's time."""
        try:
            return await self._greet(wants, ahead_seconds=0.0)
        except Refused as refusal:
            if refusal.problem != "stale" or refusal.time is None:
                raise
            return await self._greet(wants, ahead_seconds=refusal.time - self._clock.now())

    async def _greet(self, wants: Budget, *, ahead_seconds: float) -> Contact:
        greeting = Greeting.begin(
            self._identity,
            home=self._home,
            audience=self._offer.site,
            wants=wants,
            now=self._clock.now() + ahead_seconds,
            understands=UNDERSTANDS,
            priority=self._priority,
        )
        async with self._exchange(Call("hello", greeting.body)) as (chunks, seconds):
            reply = await read_whole(chunks, most=MAX_WELCOME_BYTES)
        return Contact(greeting.finish(reply, self._offer.public_key), seconds, ahead_seconds)

    @asynccontextmanager
    async def order(self, contact: Contact, order: Order) -> AsyncIterator[AsyncIterator[bytes]]:
        """Gives the session's one order; the answer comes in chunks, as long as the context is open."""
        body = seal_order(contact.session.keys, contact.session.ticket, order)
        async with self._exchange(Call("order", body)) as (chunks, _):
            yield chunks

    async def ask(self, order: Look | Kill) -> Report:
        """Greets, and has one of the orders carried out that a report answers."""
        contact = await self.greet(Budget())
        async with self.order(contact, order) as chunks:
            data = await read_whole(chunks, most=MAX_SMALL_BYTES)
        return open_report(contact.session.keys, data)

    async def acknowledge(self, contact: Contact, visit: str, number: int, *, receipt: bytes = b"") -> None:
        """Tells the host that home has the parcels up to this one for good, and signs the receipt."""
        body = seal_acknowledgement(contact.session.keys, visit, number, receipt=receipt)
        async with self._exchange(Call("acknowledge", body)) as (chunks, _):
            await read_whole(chunks, most=MAX_SMALL_BYTES)

    @asynccontextmanager
    async def _exchange(self, call: Call) -> AsyncIterator[tuple[AsyncIterator[bytes], float]]:
        self.traffic.sent += len(call.body)
        async with self._transport.exchange(self._offer.endpoint, call) as answer:
            yield self._counted(answer.chunks), answer.seconds

    async def _counted(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            self.traffic.received += len(chunk)
            yield chunk
