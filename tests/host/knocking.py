"""A home that knocks at a service in the same process, with the real messages."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from tests import making

from sterna.host.calls import Reply
from sterna.host.config import HostConfig
from sterna.host.keyring import ALLOWED, allow
from sterna.host.policy.load import LoadMeter
from sterna.host.policy.policy import HostLimits
from sterna.host.service import Service
from sterna.host.visiting.workshop import Workshop
from sterna.model import Budget, Crawler, Known, Page, Parcel, Target, Visit
from sterna.transport.interface import Call
from sterna.web.clock import Clock, SystemClock
from sterna.web.http import Fetcher, Request, Response
from sterna.wire.handshake import Greeting, Session
from sterna.wire.keys import Identity
from sterna.wire.known import marks_of
from sterna.wire.orders import Agent, Order, Report, Send, open_report, seal_acknowledgement, seal_order
from sterna.wire.parcels import Unpacker
from sterna.wire.problems import Problem, decode_problem
from sterna.wire.stream import Came, Ending, LineCame, ParcelCame, ProblemCame, StreamReader

SITE = "http://site.test"
NAME = "ada"


def write_site(folder: Path, pages: int = 12) -> None:
    """A front page with links to the others."""
    folder.mkdir(parents=True, exist_ok=True)
    links = "".join(f'<a href="/{n}.html">{n}</a>' for n in range(pages))
    (folder / "index.html").write_text(f"<title>Front</title>{links}")
    for n in range(pages):
        (folder / f"{n}.html").write_text(f"<title>Page {n}</title><p>{'tern ' * 50}{n}")


def config_of(folder: Path, **fields: Any) -> HostConfig:
    """A host for the site in `folder/site`, without a web server."""
    given: dict[str, Any] = {"root": folder / "site", "check": "never"}
    return HostConfig(site=SITE, state=folder / "state", keys=folder / "keys", **(given | fields))


def limits_of(**fields: Any) -> HostLimits:
    """The usual limits with some others."""
    return msgspec.structs.replace(HostLimits(readers=1), **fields)


@dataclass
class Home:
    """A home and the service at which it knocks."""

    service: Service
    host: Identity
    identity: Identity = field(default_factory=Identity.new)
    clock: SystemClock = field(default_factory=SystemClock)

    def greeting(self, **fields: Any) -> Greeting:
        given: dict[str, Any] = {"home": NAME, "audience": SITE, "wants": Budget(), "now": self.clock.now()}
        return Greeting.begin(self.identity, **(given | fields))

    async def greet(self, **fields: Any) -> Session:
        """A session; fails the test if there is none."""
        greeting = self.greeting(**fields)
        reply = await self.service.answer(Call("hello", greeting.body))
        assert reply.status == 200, reply.body
        assert isinstance(reply.body, bytes)
        return greeting.finish(reply.body, self.host.public)

    async def order(self, order: Order, session: Session | None = None) -> tuple[Reply, Session]:
        """The reply to an order under a session of its own, unless one is given."""
        session = session or await self.greet()
        body = seal_order(session.keys, session.ticket, order)
        return await self.service.answer(Call("order", body)), session

    async def report(self, order: Order) -> Report:
        reply, session = await self.order(order)
        assert isinstance(reply.body, bytes)
        assert reply.status == 200, reply.body
        return open_report(session.keys, reply.body)

    async def acknowledge(self, session: Session, visit: str, number: int) -> Reply:
        body = seal_acknowledgement(session.keys, visit, number)
        return await self.service.answer(Call("acknowledge", body))

    async def visit(self, order: Order) -> "Stream":
        """The whole stream of an order."""
        reply, session = await self.order(order)
        stream = Stream(reply, session, order.visit)
        await stream.read()
        return stream


@dataclass
class Stream:
    """What came of a reply, as it is read."""

    reply: Reply
    session: Session
    visit: str = "v1"
    came: list[Came] = field(default_factory=list)
    size: int = 0

    def __post_init__(self) -> None:
        assert self.reply.status == 200, self.reply.body
        self._reader = StreamReader(self.session.keys.stream, max_bytes=1 << 30)

    async def read(self, *, until: type[Came] | None = None) -> None:
        """Reads to the end, or until something of this kind has come."""
        assert not isinstance(self.reply.body, bytes)
        async for chunk in self.reply.body:
            self.size += len(chunk)
            new = list(self._reader.feed(chunk))
            self.came += new
            if until and any(isinstance(each, until) for each in new):
                return

    def check_end(self) -> None:
        """WireError if the stream was cut off."""
        self._reader.finish()

    async def close(self) -> None:
        """The client goes away."""
        await self.reply.body.aclose()  # type: ignore[union-attr]

    @property
    def parcels(self) -> list[Parcel]:
        visit = msgspec.structs.replace(visit_of(), id=self.visit)
        packed = [each.packed for each in self.came if isinstance(each, ParcelCame)]
        return [Unpacker(visit, marks_of(Known())).unpack(each, now=SystemClock().now()) for each in packed]

    @property
    def pages(self) -> dict[str, Page]:
        return {page.url.removeprefix(SITE): page for parcel in self.parcels for page in parcel.pages}

    @property
    def numbers(self) -> list[int]:
        return [parcel.number for parcel in self.parcels]

    @property
    def lines(self) -> list[str]:
        return [each.text for each in self.came if isinstance(each, LineCame)]

    @property
    def ending(self) -> Ending:
        last = self.came[-1]
        assert isinstance(last, Ending), last
        self._reader.finish()
        return last

    @property
    def problem(self) -> Problem:
        last = self.came[-1]
        assert isinstance(last, ProblemCame), last
        return decode_problem(last.json)


def visit_of() -> Visit:
    """The visit as home leased it, as far as reading parcels needs it."""
    order = send()
    budget = Budget(pages=10**6, urls=10**6)
    return making.visit(*order.starts, id=order.visit, site=SITE, epoch=order.epoch, budget=budget)


def send(**fields: Any) -> Send:
    """An order for a visit from the front page on."""
    given: dict[str, Any] = {
        "visit": "v1",
        "part": "/",
        "epoch": 7,
        "agent": Agent("Tern/1 (+mailto:ada@home.test)", "Tern"),
        "starts": (Target(f"{SITE}/"),),
        "crawler": Crawler(),
    }
    return Send(**(given | fields))


async def until(check: Callable[[], bool]) -> None:
    """Waits for what other tasks and processes are about to do; asks ever less often, for that costs too."""
    pause = 0.01
    async with asyncio.timeout(20):
        while not check():  # nobody tells a test of it
            await asyncio.sleep(pause)
            pause = min(1.2 * pause, 0.1)


def problem_in(reply: Reply) -> Problem:
    """The problem that a reply is."""
    assert reply.media_type == "application/problem+json", reply
    assert isinstance(reply.body, bytes)
    problem = decode_problem(reply.body)
    assert problem.status == reply.status
    return problem


class FastClock(SystemClock):
    """The system's clock, which a test can put forward."""

    ahead_seconds = 0.0

    def now(self) -> float:
        return super().now() + self.ahead_seconds


class GatedSite:
    """A site whose pages, but for robots.txt and the front page, come when the test lets them through."""

    def __init__(self, pages: int = 12) -> None:
        self._pages = pages
        self._through = asyncio.Semaphore(0)
        self.asked: list[str] = []

    def let(self, pages: int) -> None:
        """Lets so many more pages through."""
        for _ in range(pages):
            self._through.release()

    async def fetch(self, request: Request) -> Response:
        path = request.url.removeprefix(SITE)
        self.asked.append(path)
        if path == "/robots.txt":
            return answer(404, "")
        if path == "/":
            return answer(200, "".join(f'<a href="/{n}">{n}</a>' for n in range(self._pages)))
        await self._through.acquire()
        return answer(200, f"<title>{path}</title>{'tern ' * 200}")

    @asynccontextmanager
    async def open(self, config: HostConfig, clock: Clock) -> AsyncIterator[Fetcher]:
        yield self


def answer(status: int, body: str, content_type: str = "text/html") -> Response:
    """A page of a site that is not there."""
    return Response(
        status=status,
        head=f"HTTP/1.1 {status} Made\r\n\r\n".encode(),
        body=body.encode(),
        headers=(("content-type", content_type),),
        seconds=0.0,
        wire_bytes=len(body),
    )


@asynccontextmanager
async def open_home(
    folder: Path,
    *,
    pages: int = 12,
    site: GatedSite | None = None,
    is_live_only: bool = False,
    clock: Clock | None = None,
    serving: dict[str, Any] | None = None,
    before: Home | None = None,
    is_allowed: bool = True,
    **fields: Any,
) -> AsyncIterator[Home]:
    """A home that is allowed at a service, with a site of so many pages or the one that is given.

    Home and host are those that were there `before`, if they are given.

    Nobody measures the load of the machine, which is busy with other tests; `serving` may say otherwise.
    """
    write_site(folder / "site", pages)
    config = config_of(folder, **({"limits": limits_of()} | fields))
    host = before.host if before else Identity.new()
    workshop = Workshop(config, SystemClock(), open_source=site.open) if site else None
    given = {"meter": LoadMeter(machine=lambda: None)} | (serving or {})
    service = Service(
        config,
        identity=host,
        clock=clock or SystemClock(),
        is_live_only=is_live_only,
        workshop=workshop,
        **given,
    )
    home = Home(service, host, before.identity if before else Identity.new())
    if is_allowed:
        allow(config.keys / ALLOWED, home.identity.public, NAME)
    try:
        await service.restore()
        yield home
    finally:
        await asyncio.wait_for(service.close(), 30)
