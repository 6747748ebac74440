"""A home with its ledger and one site with a host, for whole crawls over the real service."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from tests import making
from tests.host.knocking import NAME, SITE, Home, answer, open_home
from tests.transport.serving import MemoryTransport

from sterna.errors import ParcelRefused
from sterna.home.away import line as home_line
from sterna.home.away.carrier import Migrating
from sterna.home.away.courier import Courier
from sterna.home.away.hosts import Hosts
from sterna.home.away.line import Lines
from sterna.home.away.patience import Patience
from sterna.home.away.place import Placement
from sterna.home.dispatch import Dispatch, Plan
from sterna.home.ledger.interface import LedgerDesk
from sterna.home.ledger.records import Change, Disposal
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.progress import Progress
from sterna.host.config import HostConfig
from sterna.host.policy.policy import Caps, LoadRules, Policy
from sterna.model import Checkpoint, Crawler, Ended, Etiquette, Parcel, Target, Visit
from sterna.transport.interface import Call
from sterna.web.clock import Clock, SystemClock
from sterna.web.http import Fetcher, Request, Response
from sterna.web.urls import fingerprint
from sterna.wire.discovery import Offer, decode_offer
from sterna.wire.handshake import SessionKeys
from sterna.wire.orders import Order, Send, seal_order

ENDPOINT = f"{SITE}/sterna"
SOON_SECONDS = 60.0
QUICK = Patience(silence_seconds=20.0, stop_seconds=5.0, tries=3, pause_seconds=0.01)
CALM = LoadRules(machine=0.0)  # tests make a machine busy

Tree = dict[str, list[str]]  # a path, and where it leads


def tree(**parts: int) -> Tree:
    """A front page, an index for each part and the part's pages, each of which also leads to another part."""
    names = list(parts)
    pages: Tree = {"/": [f"/{part}/" for part in names]}
    for at, (part, count) in enumerate(parts.items()):
        inner = [f"/{part}/{number}" for number in range(count - 1)]
        pages[f"/{part}/"] = inner
        for number, path in enumerate(inner):
            neighbour = names[(at + 1) % len(names)]
            pages[path] = [f"/{neighbour}/{number}", "/"]
    known = set(pages)
    return {path: [link for link in links if link in known] for path, links in pages.items()}


# 243 pages: the front page and eleven parts of two pages to forty.
SITE_243 = tree(a=40, b=38, c=36, d=30, e=28, f=24, g=18, h=14, i=8, j=4, k=2)
SMALL = tree(a=20, b=18, c=16)


class TreeSite:
    """A site in memory; it counts what is asked of it, and stops where a test wants it."""

    def __init__(self, pages: Tree) -> None:
        self._pages = pages
        self.asked: Counter[str] = Counter()
        self.gate_at = -1  # so many pages come, and then none until `gate` is set
        self.gate = asyncio.Event()

    async def fetch(self, request: Request) -> Response:
        path = request.url.removeprefix(SITE)
        if path == "/robots.txt":
            return answer(404, "")
        if self.asked.total() == self.gate_at:
            await self.gate.wait()
        self.asked[path] += 1
        links = self._pages.get(path)
        if links is None:
            return answer(404, "")
        body = "".join(f'<a href="{link}">{link}</a>' for link in links)
        return answer(200, f"<title>{path}</title>{'tern ' * 50}{body}")

    @asynccontextmanager
    async def open(self, config: HostConfig, clock: Clock) -> AsyncIterator[Fetcher]:
        yield self


class ClockAhead(SystemClock):
    """A clock that a test can set."""

    ahead_seconds = 0.0

    def now(self) -> float:
        return super().now() + self.ahead_seconds


class NotingCourier(Courier):
    """A courier that keeps what hosts say."""

    lines: list[str]  # set by its estate

    def note_line(self, site: str, line: str) -> None:
        self.lines.append(line)


@dataclass
class Estate:
    """A home with its ledger, and one site with a host."""

    home: Home
    site: TreeSite
    ledger: SqliteLedger
    thread: ThreadPoolExecutor
    crawler: Crawler = field(default_factory=Crawler)
    priority: int = 0
    is_required: bool = True  # a host is: whatever is left to do is worth a trip
    is_defiant: bool = False
    clock: SystemClock = field(default_factory=SystemClock)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    # What happens; changed by the run.
    orders: list[Send] = field(default_factory=list)
    told: list[Placement] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    alone_seconds: float = 0.0  # that the host is to be left alone
    warnings: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    here: list[Visit] = field(default_factory=list)
    stored: list[Parcel] = field(default_factory=list)

    async def crawl(self) -> str:
        """Runs dispatch until nothing is left."""
        now = self.clock.now()
        self.ledger.recover(now=now, least_pause=0.0)
        self.ledger.wake(now=now)
        dispatch = Dispatch(
            LedgerDesk(self.ledger, self.thread),
            self.carrier(),
            plan=Plan(
                crawler=self.crawler,
                etiquette=Etiquette(delay_seconds=0.0),
                slots=2,
                max_pages=None,
                wait_seconds=0.0,
                allow_private=False,
                may_visit=lambda site: True,
            ),
            clock=self.clock,
            deliver=self.deliver,
            progress=Progress(began=now),
            round_pages=0,
        )
        self._dispatch = dispatch
        async with asyncio.timeout(SOON_SECONDS):
            return await dispatch.run(self.stop)

    def carrier(self) -> Migrating:
        desk = LedgerDesk(self.ledger, self.thread)
        courier = NotingCourier(
            lambda: self.away,
            desk,
            clock=self.clock,
            progress=Progress(began=0.0),
            tell=self.told.append,
            is_defiant=self.is_defiant,
        )
        courier.lines = self.lines
        return Migrating(
            self,
            cast(Hosts, self),
            courier,
            ledger=desk,
            clock=self.clock,
            is_host_required=self.is_required,
            tell=self.told.append,
            warn=self.warnings.append,
            is_defiant=self.is_defiant,
        )

    @property
    def away(self) -> Lines:
        return Lines(
            MemoryTransport({ENDPOINT: self.home.service.answer}),
            self.home.identity,
            home=NAME,
            clock=self.clock,
            patience=QUICK,
            priorities={SITE: self.priority},
        )

    def note_order(self, keys: SessionKeys, ticket: bytes, order: Order) -> bytes:
        """Seals an order, and remembers it."""
        if isinstance(order, Send):
            self.orders.append(order)
        return seal_order(keys, ticket, order)

    async def deliver(self, parcel: Parcel) -> None:
        def store() -> None:
            if self.ledger.judge(parcel) is not Disposal.NEW:
                raise ParcelRefused("it is not the next one")
            self.ledger.commit(Change(parcels=(parcel,)), now=self.clock.now())

        await asyncio.get_running_loop().run_in_executor(self.thread, store)
        self.stored.append(parcel)
        self._dispatch.take_note((parcel,))

    # -- as the finder of hosts

    async def find(self, visit: Visit) -> Offer | None:
        if self.faults:
            return None
        reply = await self.home.service.answer(Call("discover"))
        assert isinstance(reply.body, bytes)
        return decode_offer(reply.body, SITE)

    def let_reach(self, visit: Visit, offer: Offer) -> None:
        pass

    async def fail(self, site: str, reason: str, *, seconds: float) -> None:
        self.faults.append(reason)
        self.alone_seconds = seconds

    # -- as the runtime here

    async def take_turn(self, visit: Visit) -> None:
        pass

    async def carry_out(
        self, visit: Visit, *, deliver: Callable[[Parcel], Awaitable[None]], stop: asyncio.Event
    ) -> None:
        self.here.append(visit)
        done = tuple(start.url for start in visit.starts)
        await deliver(_nothing_of(visit, done))

    # -- what came of it

    @property
    def paths(self) -> Counter[str]:
        pages = (page for parcel in self.stored for page in parcel.pages)
        return Counter(page.url.removeprefix(SITE) for page in pages)

    @property
    def rounds(self) -> list[int]:
        """Pages of each visit, in their order."""
        return [row.pages for row in self.ledger.visit_rows()]

    def refresh(self) -> None:
        """A new round begins: all pages are to be visited again."""
        self.ledger.refresh(older_than=self.clock.now() + 1, now=self.clock.now())
        self.stored.clear()
        self.orders.clear()
        self.told.clear()
        self.site.asked.clear()


def _nothing_of(visit: Visit, urls: tuple[str, ...]) -> Parcel:
    """A visit from here that has no luck: its pages are given up, so that the run ends."""
    done = Checkpoint(done=tuple(map(fingerprint, urls)))
    return making.parcel(visit, checkpoint=done, ended=Ended.FINISHED)


@asynccontextmanager
async def estate_at(
    folder: Path, pages: Tree = SITE_243, *, caps: Caps | None = None, **fields: Any
) -> AsyncIterator[Estate]:
    """A site whose host grants so much, or has this policy."""
    policy = Policy(budget=caps or Caps(pages=50), load=CALM, priority=fields.pop("rules", ()))
    site = TreeSite(pages)
    names = ("is_live_only", "limits", "policy", "serving")
    hosting = {"policy": policy} | {name: fields.pop(name) for name in names if name in fields}
    async with open_home(folder, site=site, **hosting) as home:  # type: ignore[arg-type]
        ledger = SqliteLedger(folder / "ledger.sqlite")
        ledger.seed([Target(f"{SITE}/")], now=1.0)
        with ThreadPoolExecutor(1) as thread, pytest.MonkeyPatch.context() as patch:
            estate = Estate(home, site, ledger, thread, **fields)
            patch.setattr(home_line, "seal_order", estate.note_order)
            yield estate
        ledger.close()


def once(pages: Tree) -> Counter[str]:
    return Counter(dict.fromkeys(pages, 1))
