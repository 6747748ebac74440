"""Homes that send crawlers to a host, with the real messages, and keep nothing of what comes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

from bench.engine import RULES
from tests.transport.calling import whole

from sterna.home.away.acknowledgements import Acknowledgements
from sterna.model import Budget, Crawler, Program, Source, Target
from sterna.transport.http import HttpTransport
from sterna.transport.interface import Call
from sterna.web.clock import SystemClock
from sterna.wire.discovery import decode_offer
from sterna.wire.handshake import Greeting, Session
from sterna.wire.keys import Identity, PublicKey
from sterna.wire.orders import Agent, Send, seal_acknowledgement, seal_order
from sterna.wire.receipts import TAKES_RECEIPTS, decode_receipt
from sterna.wire.stream import Ending, LineCame, ParcelCame, ProblemCame, ReceiptCame, StreamReader

LEVEL = 9  # what a home that is far away asks for
SECONDS = 3600.0
# More than the rules of bench.engine need: three rules that look for words in each page's text.
CRAWLER = Crawler(name="bench", program=Program(rules=(Source("bench.clp", RULES),)))
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Home:
    """One of them; its crawlers ask for pages under its name."""

    name: str
    identity: Identity = field(default_factory=Identity.new)


@dataclass(slots=True)
class Trip:
    """What came back of one crawler."""

    ending: Ending | None = None
    problem: str = ""
    parcels: int = 0
    received_bytes: int = 0
    lines: list[str] = field(default_factory=list)  # of the host's log

    @property
    def pages(self) -> int:
        return self.ending.pages if self.ending else 0


async def travel(
    line: HttpTransport, home: Home, *, site: str, start: str, key: PublicKey, pages: int
) -> Trip:
    """Sends a crawler for so many pages, and reads what comes to its end."""
    offer = decode_offer(await whole(line, site, Call("discover")), site)
    budget = Budget(pages=pages, seconds=SECONDS)
    greeting = Greeting.begin(
        home.identity,
        home=home.name,
        audience=site,
        wants=budget,
        now=SystemClock().now(),
        understands=(TAKES_RECEIPTS,),
    )
    session = greeting.finish(await whole(line, offer.endpoint, Call("hello", greeting.body)), key)
    order = Send(
        visit=f"b{next(_numbers)}",
        part="/",
        epoch=1,
        agent=Agent(home.name, "Tern"),
        starts=(Target(start),),
        crawler=CRAWLER,
        budget=budget,
        level=LEVEL,
    )
    trip = Trip()
    body = seal_order(session.keys, session.ticket, order)
    async with line.exchange(offer.endpoint, Call("order", body)) as answer:
        await _read(trip, answer.chunks, line, offer.endpoint, session, home, order.visit)
    return trip


async def _read(
    trip: Trip,
    chunks: AsyncIterator[bytes],
    line: HttpTransport,
    endpoint: str,
    session: Session,
    home: Home,
    visit: str,
) -> None:
    async def tell(number: int, receipt: bytes) -> None:
        body = seal_acknowledgement(session.keys, visit, number, receipt=receipt)
        await whole(line, endpoint, Call("acknowledge", body))

    reader = StreamReader(session.keys.stream, max_bytes=1 << 40)
    acknowledging, receipt = Acknowledgements(tell), b""
    async with acknowledged(acknowledging):
        async for chunk in chunks:
            trip.received_bytes += len(chunk)
            for came in reader.feed(chunk):
                if isinstance(came, ParcelCame):
                    trip.parcels += 1
                    acknowledging.note(trip.parcels, len(came.packed))
                elif isinstance(came, ReceiptCame):
                    receipt = decode_receipt(came.packed).countersign(home.identity).by_home
                elif isinstance(came, LineCame):
                    trip.lines.append(came.text)
                elif isinstance(came, ProblemCame):
                    trip.problem = came.json.decode(errors="replace")
                elif isinstance(came, Ending):
                    trip.ending = came
        reader.finish()
        await acknowledging.finish(receipt)


@asynccontextmanager
async def acknowledged(acknowledging: Acknowledgements) -> AsyncIterator[None]:
    telling = asyncio.create_task(acknowledging.run())
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
