"""The visit's loop: which URL is next, when to end, and when a parcel goes home."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from sterna.errors import EngineEnded, FetchError, SternaError
from sterna.model import Deliver, Ended, Robots, RobotsState, StateChange, Target, Visit
from sterna.runtime.access import Access, Kit
from sterna.runtime.frontier import Frontier
from sterna.runtime.handler import FAILING_PAUSE_SECONDS, Handler
from sterna.runtime.packer import FULL_PAGES, Packer, is_too_heavy
from sterna.runtime.qualification import qualify
from sterna.runtime.reins import Gauge, Spending
from sterna.runtime.rulings import Rulings
from sterna.web.bodies import BodyClaim
from sterna.web.robots import Rules, is_due
from sterna.web.urls import Canonical
from sterna.web.weight import MAX_STATE_BYTES

FIRST_FLUSH_SECONDS = 0.25  # a user sees something soon; not where many visits report
FLUSH_SECONDS = 5.0
STOP_GRACE_SECONDS = 5.0
LOOK_SECONDS = 0.2
REST_LOOK_SECONDS = 1.0  # while the visit is paused and its deadline moves

_log = logging.getLogger(__name__)


class VisitLoop:
    """Carries out one visit; `deliver` returns when home has committed the parcel."""

    def __init__(
        self,
        visit: Visit,
        kit: Kit,
        *,
        deliver: Deliver,
        stop: asyncio.Event,
        is_one_of_many: bool,
        parcels: int = 0,
    ) -> None:
        """`parcels` were sent before the visit was interrupted; it goes on with the next number."""
        self._visit = visit
        self._kit = kit
        self._deliver = deliver
        self._stop = stop
        self._flush_seconds = FLUSH_SECONDS if is_one_of_many else FIRST_FLUSH_SECONDS
        self._access = Access(kit, visit)
        full_pages = kit.config.ruled_pages if visit.crawler.program.rules else FULL_PAGES
        self._packer = Packer(
            visit, full_bytes=kit.config.parcel_bytes, full_pages=full_pages, number=parcels
        )
        self._full = asyncio.Event()  # the next parcel should be sent soon
        self._frontier = Frontier(
            visit.known.fingerprints,
            max_depth=min(visit.budget.depth, visit.crawler.scope.max_depth),
            is_best_first=visit.crawler.program.is_best_first,
        )
        self._handler = Handler(
            visit,
            kit,
            access=self._access,
            frontier=self._frontier,
            packer=self._packer,
            end=self._end,
            send_soon=self._full.set,
        )
        # The loop's state: changed by the workers, never across an await.
        self._in_flight: Counter[int] = Counter()  # how many URLs of each depth are under way
        self._idle: deque[asyncio.Future[None]] = deque()  # workers that found nothing to take
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sending = asyncio.Lock()
        self._robots = visit.robots  # the state of the site; changed by _is_qualified() alone
        self._qualifying = asyncio.Lock()
        self._ended: Ended | None = None
        self._trouble = "took too long for its robots.txt"  # why the visit fails, if it does
        self._spending = Spending(visit.budget, reins=kit.reins, began=kit.clock.now(), look=self._spent)

    async def run(self) -> None:
        """Returns when the last parcel is delivered."""
        reins = self._kit.reins
        watches = [
            asyncio.create_task(self._end_after(self._stop.wait, Ended.STOPPED)),
            asyncio.create_task(self._end_after(reins.wait_for_end, Ended.BUDGET)),
        ]
        reins.look = self._gauge
        try:
            if await self._unless_over(self._qualify()) and await self._open_engine():
                await self._kit.readers.start()
                await self._crawl()
            await self._send(is_last=True)
        finally:
            used = self._spent()
            reins.look = lambda: used  # the reins must not keep the whole visit in memory
            for watch in watches:
                watch.cancel()
            _release(self._packer.take_claims())
            self._kit.notices.left_out += self._handler.following.left_out
            if self._handler.rulings:
                await self._handler.rulings.close()

    async def _open_engine(self) -> bool:
        """Starts the crawler's rules, if it has any; False if they fail."""
        if not self._visit.crawler.program.rules:
            return True
        handler = self._handler
        rulings = Rulings(self._visit, self._kit.engines, begin=handler.begin, give_up=handler.give_up)
        try:
            await rulings.open()
        except EngineEnded as error:
            handler.end_engine(error)
            return False
        handler.rulings = rulings
        return True

    async def _crawl(self) -> None:
        await self._handler.following.begin()
        if self._handler.rules and self._visit.crawler.scope.use_sitemaps:
            canonical = Canonical()
            for written in self._handler.rules.sitemaps:
                if url := canonical(written, f"{self._visit.site}/robots.txt"):
                    self._handler.following.add(Target(url, kind="sitemap"))
        try:
            async with asyncio.TaskGroup() as group:
                sender = group.create_task(self._send_when_full_or_old())
                workers = {group.create_task(self._work()) for _ in range(self._visit.etiquette.connections)}
                await self._wait_for(workers)
                async with self._sending:  # never in the middle of a parcel: its failure must surface
                    sender.cancel()
        except BaseExceptionGroup as failures:
            # All of them come from one parcel that was refused or not stored; the caller gets that error.
            raise failures.exceptions[0] from failures

    # -- when to end -------------------------------------------------------------------------------------

    def _end(self, reason: Ended) -> None:
        """Ends the visit; the first reason counts, and no URL is taken after it."""
        if self._ended is None:
            self._ended = reason
            self._over.set_result(None)
            self._wake_all()

    async def _end_after(self, event: Callable[[], Awaitable[object]], reason: Ended) -> None:
        await event()
        self._end(reason)

    async def _wait_for(self, workers: set[asyncio.Task[None]]) -> None:
        done_at_all = asyncio.create_task(asyncio.wait(workers))
        try:
            while not (self._over.done() or done_at_all.done()):
                await self._wait_until(self._spending.deadline, done_at_all)
                if not done_at_all.done():  # all workers may wait for something that takes longer
                    self._check_budget()  # a timer that fires early ends nothing
            await self._end_workers(workers, done_at_all)
        finally:
            done_at_all.cancel()

    async def _wait_until(self, deadline: float, task: asyncio.Task[Any]) -> None:
        """Returns when the task or the visit is over, or time may be."""
        left = self._look_after(deadline - self._kit.clock.now())
        await asyncio.wait((self._over, task), timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def _look_after(self, left: float) -> float:
        """Seconds until the next check whether time is over; a paused visit is checked now and then."""
        return max(left, REST_LOOK_SECONDS if self._kit.reins.is_paused else 0.0)

    async def _end_workers(self, workers: set[asyncio.Task[None]], done_at_all: asyncio.Future[Any]) -> None:
        late_at = self._kit.clock.now() + self._kit.config.timeout_seconds
        while not done_at_all.done():
            now = self._kit.clock.now()
            if self._stop.is_set():
                late_at = min(late_at, now + STOP_GRACE_SECONDS)
            # A worker that waits for a delay loses nothing; one in a transfer may finish it.
            for worker in workers if now >= late_at else self._access.waiting & workers:
                worker.cancel()
            await asyncio.wait({done_at_all}, timeout=LOOK_SECONDS)

    def _check_budget(self) -> None:
        limit = self._spending.reached(
            self._kit.clock.now(),
            pages=self._packer.pages_total,
            urls=self._handler.following.held_count,
            wait_seconds=self._access.wait_seconds(self._visit.site),
        )
        if limit:
            self._end(limit)

    # -- which URL next ----------------------------------------------------------------------------------

    async def _work(self) -> None:
        while (target := await self._next()) is not None:
            self._in_flight[target.depth] += 1
            self._wake_one()  # a worker that found nothing wakes no other
            try:
                if await self._is_qualified():
                    await self._handler.handle(target)
                else:
                    self._frontier.put_back(target)
            finally:
                self._in_flight[target.depth] -= 1
                if not self._in_flight[target.depth]:
                    del self._in_flight[target.depth]
                self._wake_one()

    async def _next(self) -> Target | None:
        """The next target, or None when the visit is at its end."""
        while True:
            self._check_budget()
            if self._ended:
                return None
            now = self._kit.clock.now()
            may_take = self._may_take()
            target = self._frontier.next(now) if may_take else None
            if target is not None:
                return target
            if not self._in_flight and not len(self._frontier):
                self._wake_all()
                return None
            # A retry that comes due is no reason to wake while nothing may be taken.
            wakes_at = self._frontier.wakes_at() if may_take else None
            left = self._look_after(self._spending.deadline - now)
            left = min(left, wakes_at - now) if wakes_at else left
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            timer = loop.call_later(max(left, 0.001), _wake, waiter)
            self._idle.append(waiter)
            try:
                await waiter
            finally:
                timer.cancel()

    def _may_take(self) -> bool:
        """Within budget and parcel; level by level for exact depths, unless rules give priorities."""
        if self._packer.pages_total + self._in_flight.total() >= self._visit.budget.pages:
            return False
        if self._packer.is_full:
            self._full.set()
            return False
        if self._visit.crawler.program.is_best_first:
            return True
        depth = self._frontier.next_depth()
        return depth is None or depth <= min(self._in_flight, default=depth)

    def _wake_one(self) -> None:
        while self._idle:
            if _wake(self._idle.popleft()):
                return

    def _wake_all(self) -> None:
        while self._idle:
            _wake(self._idle.popleft())

    # -- whether to begin, and with what -----------------------------------------------------------------

    async def _unless_over(self, begin: Coroutine[None, None, bool]) -> bool:
        """The result of `begin`; False if the visit ends before."""
        beginning = asyncio.create_task(begin)
        try:
            while not (beginning.done() or self._over.done()):
                if self._spending.home_deadline <= self._kit.clock.now():
                    break
                await self._wait_until(self._spending.home_deadline, beginning)
            if not beginning.done():
                self._fail()
                async with self._sending:  # never in the middle of a parcel, or its number would be missing
                    beginning.cancel()
                await asyncio.wait({beginning})
            return not beginning.cancelled() and beginning.result()
        finally:
            beginning.cancel()

    async def _qualify(self) -> bool:
        """Whether the site may be crawled: its address is allowed and its robots.txt is known."""
        try:
            await self._access.addresses(self._visit.site)
        except FetchError as error:
            if error.kind == "private_address":  # a network that this visit must not enter
                self._packer.errors[error.kind] += 1
                self._end(Ended.REFUSED)
                return False
            # Any other fault is reported, and retried, by fetching robots.txt.
        if not await self._is_qualified():
            return False
        if not self._packer.is_empty:
            await self._send()  # robots rules and delay must survive a crash before any page is fetched
        return True

    async def _is_qualified(self) -> bool:
        """Whether the site may be crawled now; asks for robots.txt if it is due, also in a long visit."""
        visit, kit = self._visit, self._kit
        if not visit.etiquette.obey_robots:
            return True
        async with self._qualifying:
            if self._ended:
                return False
            keep_seconds = visit.etiquette.robots_times.keep_seconds
            if is_due(self._robots, kit.clock.now(), keep_seconds=keep_seconds):
                robots = await self._ask_for_robots()
                if robots is None:
                    self._fail()
                    return False
                self._robots = robots
                self._packer.robots, self._handler.rules = self._robots, None
            if self._robots.state is not RobotsState.QUALIFIED:
                self._end(Ended.DISQUALIFIED)
                return False
            if self._handler.rules is None:
                rules = Rules.parse(self._robots.rules, visit.etiquette.robots_name, site=visit.site)
                self._handler.rules = rules
                self._access.obey(rules.crawl_delay or 0.0)
        return True

    async def _ask_for_robots(self) -> Robots | None:
        """The site's new state; None if that fails for another reason than the site's."""
        visit, kit = self._visit, self._kit
        try:
            return await qualify(
                visit.site, self._robots, access=self._access, kit=kit, etiquette=visit.etiquette
            )
        except FetchError as error:  # a fault of the proxy
            self._packer.errors[error.kind] += 1
            self._trouble = f"could not be asked ({error})"
        except SternaError:
            raise
        except Exception as error:
            # One site must not end a crawl: after a restart it would do so again.
            _log.warning("%s: its robots.txt was given up: %r", visit.site, error)
            _log.debug("where it happened", exc_info=error)
            self._packer.errors["internal"] += 1
            self._trouble = f"has a robots.txt that could not be read ({type(error).__name__})"
        return None

    def _fail(self) -> None:
        """Ends the visit, unless it has ended, and pauses the site for a while."""
        if self._ended is None:
            self._access.hold_site(self._visit.site, FAILING_PAUSE_SECONDS, why=self._trouble)
            self._end(Ended.FAILING)

    def _gauge(self) -> Gauge:
        rulings = self._handler.rulings
        return replace(self._spent(), memory_bytes=rulings.memory_bytes() if rulings else 0)

    def _spent(self) -> Gauge:
        rulings = self._handler.rulings
        return Gauge(
            pages=self._packer.pages_total,
            requests=self._access.requests_total,
            read_bytes=self._access.bytes_total,
            sent_bytes=self._packer.sent_bytes,
            cpu_seconds=self._packer.reading_seconds + (rulings.cpu_seconds if rulings else 0.0),
        )

    # -- parcels -----------------------------------------------------------------------------------------

    async def _send_when_full_or_old(self) -> None:
        """The only sender while the visit runs; workers wait if the next parcel is full too."""
        seconds = self._flush_seconds
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._full.wait()
            seconds = min(2 * seconds, FLUSH_SECONDS)
            self._full.clear()
            if not self._packer.is_empty or self._access.held:
                await self._send()

    async def _send(self, *, is_last: bool = False) -> None:
        async with self._sending:
            state = await self._take_state()
            keys, self._access.held = sorted(self._access.held), set()
            claims = self._packer.take_claims()
            parcels = self._packer.take(
                self._spent(),
                holds=self._kit.gate.holds(keys, self._kit.clock.now()),
                delay_seconds=self._access.delay_seconds,
                again=self._frontier.again(),
                state=state,
                ended=self._why_over() if is_last else None,
            )
            self._wake_one()
            try:
                for parcel in parcels:
                    await self._deliver(parcel)
            finally:
                _release(claims)

    async def _take_state(self) -> StateChange:
        """The change of the crawler's facts since the last parcel.

        The engine replies in order, and a judged page is packed as soon as its verdict is here. So this
        change belongs to the pages that are packed now, and to no others. If the engine is dead, there are
        none: they are in the frontier again.
        """
        rulings = self._handler.rulings
        if rulings is None:
            return StateChange()
        try:
            change = await rulings.change()
            if is_too_heavy(change) or rulings.facts_bytes > MAX_STATE_BYTES:
                # No parcel could carry them, or no home hold them, and pages never go without their facts.
                self._handler.give_up()
                detail = f"too many or too large facts: {len(change.added):,} since the last parcel"
                raise EngineEnded(Ended.FACTS, detail)
            return change
        except EngineEnded as error:
            self._handler.end_engine(error)
            return StateChange()

    def _why_over(self) -> Ended:
        """Why the visit is over; it has not finished if an engine's death has just put pages back."""
        return self._ended or (Ended.BUDGET if len(self._frontier) else Ended.FINISHED)


def _release(claims: Iterable[BodyClaim]) -> None:
    for claim in claims:
        claim.release()


def _wake(waiter: asyncio.Future[None]) -> bool:
    """Wakes a waiter; False if it was awake."""
    if waiter.done():
        return False
    waiter.set_result(None)
    return True
