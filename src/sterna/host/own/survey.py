"""The survey of the own site: the crawler of the owner himself, at his own host, with the runtime of visits.

It reads the site as the host's visits do and asks as everybody would: robots.txt, noindex and nofollow hold
as they do for all (`*`), and what the policy closes is closed to it too.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path

from sterna.errors import StorageError, UsageError
from sterna.host.config import HostConfig
from sterna.host.locks import lock
from sterna.host.own.dating import LEAST_CHANGE
from sterna.host.own.index import MAX_PAGES, Index, Survey
from sterna.host.own.pace import Pace
from sterna.host.own.plan import Plan
from sterna.host.own.register import EVERYBODY
from sterna.host.owner.doors import Doors
from sterna.host.policy.load import LoadMeter
from sterna.host.policy.policy import PolicyFile
from sterna.host.site.closed import Closed
from sterna.host.site.source import ShieldedFetcher
from sterna.host.visiting.workshop import Workshop
from sterna.model import (
    Budget,
    Crawler,
    Ended,
    Etiquette,
    Field,
    Keep,
    Known,
    Parcel,
    Program,
    Record,
    Robots,
    RobotsState,
    Scope,
    Target,
    Visit,
)
from sterna.runtime.reins import Reins
from sterna.version import __version__
from sterna.web.clock import Clock
from sterna.web.http import Fetcher
from sterna.web.urls import DEFAULT_DROP_PARAMS, Canonical, site_of

LOCK = "own.lock"  # in the folder of state
VISIT_PAGES = 20_000
VISIT_SECONDS = 3_600.0
MAX_URLS = 1_000_000
LOOK_SECONDS = 1.0  # between two looks at the load and at the doors

_FIELDS: tuple[Field, ...] = ("title", "headings", "text", "language", "links", "headers")
_CRAWLER = Crawler(
    name="own-index",
    scope=Scope(drop_params=DEFAULT_DROP_PARAMS, exclude=(r"\?C=[NMSD];O=[AD]$",)),  # Apache's lists, sorted
    program=Program(keep=Keep(fields=_FIELDS), needs=_FIELDS, least_change=LEAST_CHANGE),
)
_GOES_ON = frozenset({Ended.FINISHED, Ended.BUDGET})

_log = logging.getLogger(__name__)


class Outcome(Record, frozen=True):
    """How far a survey came; `why` says what kept it from its end, and is empty if nothing did."""

    survey: Survey
    left: int = 0
    why: str = ""

    @property
    def is_over(self) -> bool:
        return self.survey.ended is not None


class Surveyor:
    """Surveys one site; an index has one at a time."""

    def __init__(
        self,
        config: HostConfig,
        workshop: Workshop,
        clock: Clock,
        *,
        meter: LoadMeter | None = None,
        announce: Callable[[str], None] = _log.info,
    ) -> None:
        self._config = config
        self._workshop = workshop
        self._clock = clock
        self._policy = PolicyFile(config.policy_file, config.policy)
        self._pace = Pace(config, self._policy, meter)
        self._doors = Doors(config.state)
        self._announce = announce

    async def survey(
        self,
        *,
        stop: asyncio.Event,
        starts: tuple[str, ...] = ("/",),
        max_pages: int = MAX_PAGES,
        is_anew: bool = False,
    ) -> Outcome:
        """Begins a survey or goes on with the last one; what was read stays, however this ends."""
        urls = tuple(_url_of(self._config.site, start) for start in starts)
        with _locked(self._config.state):
            index = await asyncio.to_thread(Index, self._config.state, site=self._config.site)
            try:
                plan = await asyncio.to_thread(Plan.begin, index, starts=urls, now=self._clock.now())
                why = await self._visit(plan, stop=stop, max_pages=max_pages, is_anew=is_anew)
                left = await asyncio.to_thread(plan.left)
                is_cut = bool(why) and plan.standing().pages >= max_pages
                if not why or is_cut:
                    closed = Closed(self._policy.policy.closed)
                    await asyncio.to_thread(
                        plan.finish, is_whole=not why, now=self._clock.now(), closed=closed
                    )
                return Outcome(plan.standing(), left, why)
            finally:
                index.close()

    async def _visit(self, plan: Plan, *, stop: asyncio.Event, max_pages: int, is_anew: bool) -> str:
        """Makes visits until nothing is left to ask for; what kept it from that, if anything did."""
        before: tuple[int, int] | None = None
        for number in count(1):
            standing = plan.standing()
            room = max_pages - standing.pages
            progress = standing.pages, await asyncio.to_thread(plan.left)
            starts, known = await asyncio.to_thread(plan.next, is_anew=is_anew, now=self._clock.now())
            if not starts:
                return ""
            if room <= 0:
                return f"{max_pages:,} pages are the most"
            if progress == before:
                return "the site gives no answers"
            before = progress
            visit = self._visit_of(f"own-{standing.number}-{number}", starts, known, pages=room)
            delivery = _Delivery(plan)
            reins = Reins(self._clock)
            async with self._workshop.use() as runtime, self._held(reins, stop) as halt:
                await runtime.carry_out(
                    visit, deliver=delivery, stop=halt, reins=reins, through=self._through
                )
            if delivery.ended not in _GOES_ON:
                return delivery.why(self._doors)
        raise AssertionError  # there is always a next number

    def _through(self, fetcher: Fetcher) -> Fetcher:
        """What the policy closes now, and not only what it closed when the host began."""
        return ShieldedFetcher(fetcher, lambda: self._policy.policy.closed)

    def _visit_of(self, id: str, starts: tuple[Target, ...], known: Known, *, pages: int) -> Visit:
        policy = self._policy.policy
        return Visit(
            id=id,
            site=self._config.site,
            part="/",
            epoch=1,
            crawler=_CRAWLER,
            etiquette=Etiquette(
                user_agent=f"Sterna/{__version__} (index of {self._config.site} by its own host)",
                robots_name=EVERYBODY,
                delay_seconds=policy.delay_seconds,
                response_factor=0.0,  # it is the owner who says how fast
                connections=policy.connections,
            ),
            starts=starts,
            known=known,
            budget=Budget(
                pages=min(pages, VISIT_PAGES),
                seconds=VISIT_SECONDS,
                urls=MAX_URLS,
                patience_seconds=VISIT_SECONDS,
            ),
            robots=Robots(),
            may_be_private=True,  # its own site, and nothing else has an address here
        )

    @asynccontextmanager
    async def _held(self, reins: Reins, stop: asyncio.Event) -> AsyncIterator[asyncio.Event]:
        """Makes the visit rest while the machine is busy; what it gives is set when the visit is to stop."""
        halt = asyncio.Event()
        task = asyncio.create_task(self._hold(reins, stop, halt))
        try:
            yield halt
        finally:
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            task.result()  # it may have failed

    async def _hold(self, reins: Reins, stop: asyncio.Event, halt: asyncio.Event) -> None:
        while not (stop.is_set() or self._doors.are_closed()):
            reason = await self._pace.why_not()
            if bool(reason) != reins.is_paused:
                self._announce(f"the survey rests: {reason}" if reason else "the survey goes on")
                reins.pause() if reason else reins.go_on()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await stop.wait()
        halt.set()
        reins.go_on()  # so that it can end


class _Delivery:
    """Takes the parcels of one visit, and remembers how it ended."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.ended: Ended | None = None
        self._robots = Robots()

    async def __call__(self, parcel: Parcel) -> None:
        self.ended = parcel.ended
        self._robots = parcel.robots or self._robots
        await asyncio.to_thread(self._plan.take, parcel)

    def why(self, doors: Doors) -> str:
        """Why the visit ended before its end."""
        if self.ended is Ended.STOPPED:
            reason = doors.are_closed()
            return f"the doors are closed ({reason})" if reason else "stopped"
        if self._robots.state is RobotsState.DISQUALIFIED:
            return f"robots.txt cannot be had: {self._robots.reason}"
        if self.ended is Ended.BLOCKED:
            return "the site asks for a long pause"
        return "the site does not answer"


def _url_of(site: str, start: str) -> str:
    url = Canonical()(start, f"{site}/")
    if url is None or site_of(url) != site:
        raise UsageError(f"--start {start} cannot be: name a page of {site}, such as /news/")
    return url


@contextmanager
def _locked(state: Path) -> Iterator[None]:
    """One survey at a time; UsageError if there is another."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{state} cannot be made: {error.strerror}") from error
    descriptor = lock(state / LOCK)
    if descriptor is None:
        raise UsageError(f"another survey is under way in {state}: wait for its end")
    try:
        yield
    finally:
        os.close(descriptor)
