"""Dispatch: leases the sites that are due and runs their visits, as many at once as there are slots."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Protocol

import msgspec

from sterna.errors import ParcelRefused
from sterna.home.away.place import HERE, Place
from sterna.home.ledger.interface import Ledger, LedgerDesk
from sterna.home.ledger.records import WHOLE, Counts, Lease
from sterna.home.progress import Progress
from sterna.model import LIMITS, Budget, Crawler, Deliver, Etiquette, Parcel, Stay, Target, Usage, Visit
from sterna.web.clock import Clock
from sterna.web.urls import domain_of, hostname_of, is_within, site_of

VISIT_PAGES = 5_000
HOST_VISIT_PAGES = 20_000  # more than here, because each trip takes all that is known of the site along
VISIT_SECONDS = 600.0
LEASES_AT_ONCE = 256
POLL_SECONDS = 1.0
PATIENCE_SECONDS = 60.0
CROWDED_PATIENCE_SECONDS = 1.0  # while other sites wait for a slot


class Carrier(Protocol):
    """Carries out visits: the runtime here, or the hosts of sites."""

    async def carry_out(
        self, visit: Visit, *, deliver: Deliver, stop: asyncio.Event, leave: Callable[[], None]
    ) -> Place:
        """Returns where it was carried out; calls `leave` once the crawler needs no slot here."""

    async def unfinished(self) -> list[Visit]:
        """Visits of an earlier run that are still under way at hosts: they are carried out first."""

    def may_visit(self, site: str) -> bool:
        """False if the site must not be visited in this run; called from the ledger's thread."""


class Borders:
    """Decides which sites a crawl may enter, and which links to other sites it takes."""

    def __init__(self, stay: Stay, *, seed_sites: Collection[str], blocked: Collection[str]) -> None:
        self._stay = stay
        self._blocked = frozenset(blocked)
        # Changed by add(): for a start page that moved, and for seeds of gathering rules.
        self._sites: set[str] = set()
        self._domains: set[str] = set()
        self.add(seed_sites)

    def add(self, sites: Iterable[str]) -> None:
        """Adds start sites."""
        for site in sites:
            self._sites.add(site)
            self._domains.add(domain_of(hostname_of(site)))

    def admits(self, target: Target) -> bool:
        """True if home takes the URL into its frontier."""
        site = site_of(target.url)
        if target.depth == 0:  # a start page that moved
            self.add([site])
        return self.may_visit(site)

    def may_visit(self, site: str) -> bool:
        """True if the crawl may enter the site; its frontier may be from a run with wider borders."""
        hostname = hostname_of(site)
        if is_within(hostname, self._blocked):
            return False
        if self._stay == "any" or site in self._sites:
            return True
        return self._stay == "domain" and domain_of(hostname) in self._domains


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings that all visits of a crawl share."""

    crawler: Crawler
    etiquette: Etiquette
    slots: int
    max_pages: int | None
    wait_seconds: float
    allow_private: bool
    may_visit: Callable[[str], bool]
    part: str = WHOLE  # of each site that is visited
    max_bytes: int | None = None
    budget: Budget = field(default_factory=Budget)  # the crawler's own limits at each site, for the whole run
    between: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)  # before sites are chosen
    facts: Callable[[], tuple[bytes, ...]] = tuple  # for the next visit, besides the crawler's own


@dataclass(eq=False, repr=False)
class Dispatch:
    """One visit to a site at a time, so a big one never fills all slots; visits at hosts take none."""

    ledger: LedgerDesk
    carrier: Carrier
    _: KW_ONLY
    plan: Plan
    clock: Clock
    deliver: Deliver
    progress: Progress
    round_pages: int  # fetched before, as are these bytes; changed by take_note()
    round_bytes: int = 0
    # Changed by run() and take_note(), in the loop's thread.
    _visits: dict[asyncio.Task[None], str] = field(default_factory=dict)
    _left: set[str] = field(default_factory=set)  # visits without a slot
    _granted: dict[str, int] = field(default_factory=dict)  # pages that visits under way may still fetch
    _spent: dict[str, Usage] = field(default_factory=dict)  # by site, if the crawler has limits of its own
    _began: dict[str, float] = field(default_factory=dict)  # when the run's first visit to such a site began
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _over: list[asyncio.Task[None]] = field(default_factory=list)  # visits that ended since the last wait

    def take_note(self, parcels: tuple[Parcel, ...]) -> None:
        """Called after each commit: budgets shrink, and new sites may be due."""
        for parcel in parcels:
            self.round_pages += parcel.usage.pages
            self.round_bytes += parcel.usage.bytes_received
            if parcel.visit in self._granted:
                self._granted[parcel.visit] -= parcel.usage.pages
            if self.plan.budget.has_own_limits:
                self._spent[parcel.site] = self._spent.get(parcel.site, Usage()).plus(parcel.usage)
            if parcel.ended in LIMITS and parcel.part == WHOLE:
                self.progress.limits[parcel.ended] += 1
        self._news.set()

    async def run(self, stop: asyncio.Event) -> str:
        """Visits sites until nothing is left, a limit is reached or `stop` is set; returns which."""
        watch = asyncio.create_task(stop.wait())
        watch.add_done_callback(lambda _: self._news.set())
        try:
            for visit in await self.carrier.unfinished():
                self._begin(visit, stop)
                self._leave(visit.id)
            while True:
                self._news.clear()
                await self.plan.between()
                if not stop.is_set():
                    await self._send_out(stop)
                if not self._visits:
                    ended = await self._why_idle(stop)
                    if ended:
                        return ended
                await self._wait_for_news()
        finally:
            watch.cancel()
            for task in self._visits:
                task.cancel()
            await asyncio.gather(*self._visits, return_exceptions=True)

    def _pages_left(self) -> int:
        if self.plan.max_bytes is not None and self.round_bytes >= self.plan.max_bytes:
            return 0
        if self.plan.max_pages is None:
            return VISIT_PAGES * self.plan.slots
        return self.plan.max_pages - self.round_pages - sum(self._granted.values())

    async def _send_out(self, stop: asyncio.Event) -> None:
        """Fills the free slots; the parts that are due share the remaining pages."""
        while (free := self.plan.slots - len(self._visits) + len(self._left)) > 0:
            leases, patience = await self.ledger.do(partial(self._lease, free, self._pages_left()))
            for lease in leases:
                self._begin(self._visit(lease, patience), stop)
            if not leases:
                return

    def _lease(self, free: int, left: int, ledger: Ledger) -> tuple[list[Lease], float]:
        """Leases at most `free` parts, for `left` pages in all, and the patience of their visits."""
        now = self.clock.now()
        due = ledger.due_count(now=now, most=free + 1, part=self.plan.part)
        count = min(free, due, left, LEASES_AT_ONCE)
        if count <= 0:
            return [], 0.0
        leases = ledger.lease(
            [secrets.token_hex(8) for _ in range(count)],
            now=now,
            pages=min(VISIT_PAGES, left // count),
            host_pages=min(HOST_VISIT_PAGES, left // count),
            max_depth=self.plan.crawler.scope.max_depth,
            part=self.plan.part,
            may_visit=lambda site: self.plan.may_visit(site) and self.carrier.may_visit(site),
        )
        return leases, PATIENCE_SECONDS if due <= free else CROWDED_PATIENCE_SECONDS

    def _rest_of_budget(self, site: str) -> Budget:
        """The rest of the crawler's own limits at a site; an exhausted limit ends the visit at once."""
        budget, now = self.plan.budget, self.clock.now()
        if not budget.has_own_limits:
            return budget
        spent = self._spent.get(site, Usage())
        return budget.minus(spent, seconds=now - self._began.setdefault(site, now))

    def _begin(self, visit: Visit, stop: asyncio.Event) -> None:
        self._granted[visit.id] = visit.budget.pages
        task = asyncio.create_task(self._carry(visit, stop))
        task.add_done_callback(self._over.append)
        task.add_done_callback(lambda _: self._news.set())
        self._visits[task] = visit.id
        self.progress.active = len(self._visits)

    def _leave(self, visit: str) -> None:
        """Frees the visit's slot for another one."""
        self._left.add(visit)
        self._news.set()

    def _visit(self, lease: Lease, patience_seconds: float) -> Visit:
        crawler = self.plan.crawler
        if facts := self.plan.facts():
            crawler = msgspec.structs.replace(crawler, facts=(*crawler.facts, *facts))
        return Visit(
            id=lease.visit,
            site=lease.site,
            part=lease.part,
            epoch=lease.epoch,
            crawler=crawler,
            etiquette=self.plan.etiquette,
            starts=lease.starts,
            known=lease.known,
            budget=msgspec.structs.replace(
                self._rest_of_budget(lease.site),
                pages=lease.pages,
                seconds=VISIT_SECONDS,
                depth=lease.depth,
                patience_seconds=patience_seconds,
            ),
            robots=lease.robots,
            holds=lease.holds,
            state=lease.state,
            closed=lease.closed,
            may_be_private=lease.may_be_private,
            allow_private=self.plan.allow_private,
        )

    async def _carry(self, visit: Visit, stop: asyncio.Event) -> None:
        try:
            place = await self.carrier.carry_out(
                visit, deliver=self.deliver, stop=stop, leave=partial(self._leave, visit.id)
            )
        except ParcelRefused:
            self.progress.count(Usage(errors={"parcel_refused": 1}))
            place = Place("host") if visit.id in self._left else HERE
        self.progress.visits[place.kind] += 1

    async def _wait_for_news(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await self._news.wait()
        while self._over:
            task = self._over.pop()
            visit = self._visits.pop(task)
            self._granted.pop(visit, None)
            self._left.discard(visit)
            task.result()  # a visit's own failure, such as a full disk, ends the crawl
        self.progress.active = len(self._visits)

    def _counts(self, ledger: Ledger) -> Counts:
        return ledger.counts(now=self.clock.now(), part=self.plan.part)

    async def _why_idle(self, stop: asyncio.Event) -> str:
        """Why no visit is under way; "" if a site is due soon."""
        counts = await self.ledger.do(self._counts)
        if stop.is_set():
            return "stopped"
        if self._pages_left() <= 0:
            return "limit"
        if counts.next_turn is None:
            return "waiting" if counts.away else "finished"  # held while an owner stops it
        return "waiting" if counts.next_turn > self.clock.now() + self.plan.wait_seconds else ""
