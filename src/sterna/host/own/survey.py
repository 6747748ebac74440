"""The survey of the own site: the owner's own crawler at the host, carried out by the runtime of visits.

It reads the site as visits do: robots.txt, noindex and nofollow apply as for all agents (`*`), and what the
policy closes is closed to it too.
"""

import asyncio
import logging
import os
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from itertools import count

import msgspec

from sterna.errors import UsageError
from sterna.host.config import HostConfig
from sterna.host.files import lock
from sterna.host.own.index import MAX_PAGES, OPEN, Index, Survey
from sterna.host.own.register import (
    EVERYBODY,
    LEAST_CHANGE,
    Register,
    forget_changes,
    line_up,
    line_up_absent,
)
from sterna.host.owner.control import Doors
from sterna.host.policy.load import Governor, LoadMeter, meter_of
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
    Validator,
    Visit,
)
from sterna.runtime.reins import Reins
from sterna.version import __version__
from sterna.web.clock import Clock
from sterna.web.robots import Rules
from sterna.web.urls import DEFAULT_DROP_PARAMS, Canonical, fingerprint, site_of

LOCK = "own.lock"  # in the folder of state
VISIT_PAGES = 20_000
VISIT_SECONDS = 3_600.0
MAX_URLS = 1_000_000
LOOK_SECONDS = 1.0  # between two looks at the load and at the doors
STARTS_AT_ONCE = 20_000  # of one visit, so that a large site takes no more memory than a small one
WHOLE_SECONDS = 7 * 24 * 3600.0  # until a page is read again even if the server would answer "unchanged"

_FIELDS: tuple[Field, ...] = ("title", "headings", "text", "language", "links", "headers")
_CRAWLER = Crawler(
    name="own-index",
    scope=Scope(drop_params=DEFAULT_DROP_PARAMS, exclude=(r"\?C=[NMSD];O=[AD]$",)),  # Apache's sorted lists
    program=Program(keep=Keep(fields=_FIELDS), needs=_FIELDS, least_change=LEAST_CHANGE),
)
_decode = msgspec.msgpack.Decoder(Target).decode
_GOES_ON = frozenset({Ended.FINISHED, Ended.BUDGET})

_log = logging.getLogger(__name__)


class Outcome(Record, frozen=True):
    """How far a survey came; `why` is the reason for an early end, or empty."""

    survey: Survey
    left: int = 0
    why: str = ""

    @property
    def is_over(self) -> bool:
        return self.survey.ended is not None


class SurveyPlan:
    """What one survey still has to do, kept in the index so that a killed one goes on; waits for the disk."""

    def __init__(self, index: Index, *, starts: tuple[str, ...], now: float) -> None:
        """The survey to be continued; if there is none, a new one over all known pages."""
        self._index = index
        with index.transaction() as db:
            row = db.execute("SELECT number FROM survey WHERE ended IS NULL").fetchone()
            if row is None:
                db.execute("INSERT INTO survey (began) VALUES (?)", (now,))
                db.execute("DELETE FROM todo")
                line_up(db, (Target(url, depth) for url, depth in db.execute("SELECT url, depth FROM page")))
                line_up_absent(db, now=now)
            for url in starts:  # entry points named by the owner, known or not
                db.execute("DELETE FROM todo WHERE mark = ? AND target IS NOT NULL", (fingerprint(url),))
                line_up(db, [Target(url)])
            since = db.execute("SELECT max(began) FROM survey WHERE is_whole").fetchone()[0]
        self._register = Register(self.standing().number, since=since)
        # Both are set by take(), from the last parcel and the last robots.txt.
        self.ended: Ended | None = None
        self.robots = Robots()

    def next(self, *, is_anew: bool, now: float) -> tuple[tuple[Target, ...], Known]:
        """The starts of the next visit and what it knows; no starts if nothing is left."""
        with self._index.snapshot() as db:
            rows = db.execute(
                "SELECT mark, target FROM todo WHERE target IS NOT NULL ORDER BY depth LIMIT ?",
                (STARTS_AT_ONCE,),
            ).fetchall()
            starts = {mark: _decode(target) for mark, target in rows}
            marks = db.execute("SELECT mark FROM todo ORDER BY mark")
            others = array("q", (mark for (mark,) in marks if mark not in starts))
            pages = db.execute(
                "SELECT mark, etag, modified, digest FROM page WHERE read > ?", (now - WHOLE_SECONDS,)
            )
            validators = () if is_anew else tuple(Validator(*row) for row in pages if row[0] in starts)
        return tuple(starts.values()), Known(others.tobytes(), validators)

    def take(self, parcel: Parcel) -> None:
        self.ended = parcel.ended
        self.robots = parcel.robots or self.robots
        with self._index.transaction() as db:
            self._register.take(db, parcel)

    def left(self) -> int:
        with self._index.snapshot() as db:
            return int(db.execute("SELECT count(*) FROM todo WHERE target IS NOT NULL").fetchone()[0])

    def standing(self) -> Survey:
        survey = self._index.last_survey(is_over=False)
        assert survey
        return survey

    def finish(self, *, is_whole: bool, now: float, closed: Closed = OPEN, site: str = "") -> None:
        """Ends the survey; from now on sitemap and feed are made from it."""
        rules = Rules.parse(self.robots.rules, EVERYBODY, site=site)
        with self._index.transaction() as db:
            db.execute("UPDATE survey SET ended = ?, is_whole = ? WHERE ended IS NULL", (now, is_whole))
            db.execute("DELETE FROM todo")
            forget_changes(db, lambda url: url not in closed and rules.may_fetch(url))


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
        self._meter = meter or meter_of(config, self._policy)
        self._governor = Governor(self._policy.policy.load)
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
        """Begins a survey or continues the last one; what was read stays, however this ends."""
        urls = tuple(_url_of(self._config.site, start) for start in starts)
        state = self._config.state
        descriptor = lock(state / LOCK)
        if descriptor is None:
            raise UsageError(f"another survey is under way in {state}: wait until it ends")
        try:
            with closing(await asyncio.to_thread(Index, state, site=self._config.site)) as index:
                plan = await asyncio.to_thread(SurveyPlan, index, starts=urls, now=self._clock.now())
                why = await self._visit(plan, stop=stop, max_pages=max_pages, is_anew=is_anew)
                left = await asyncio.to_thread(plan.left)
                is_cut = bool(why) and plan.standing().pages >= max_pages
                if not why or is_cut:
                    closed = Closed(self._policy.policy.closed)
                    await asyncio.to_thread(
                        plan.finish,
                        is_whole=not why,
                        now=self._clock.now(),
                        closed=closed,
                        site=self._config.site,
                    )
                return Outcome(plan.standing(), left, why)
        finally:
            os.close(descriptor)

    async def _visit(self, plan: SurveyPlan, *, stop: asyncio.Event, max_pages: int, is_anew: bool) -> str:
        """Makes visits until the frontier is empty; returns the reason for an early end, or ""."""
        before: tuple[int, int] | None = None
        for number in count(1):
            standing = plan.standing()
            room = max_pages - standing.pages
            progress = standing.pages, await asyncio.to_thread(plan.left)
            starts, known = await asyncio.to_thread(plan.next, is_anew=is_anew, now=self._clock.now())
            if not starts:
                return ""
            if room <= 0:
                return f"the limit of {max_pages:,} pages is reached"
            if progress == before:
                return "the site does not answer"
            before = progress
            visit = self._visit_of(f"own-{standing.number}-{number}", starts, known, pages=room)
            reins = Reins(self._clock)
            async with self._workshop.use() as runtime, self._held(reins, stop) as halt:
                await runtime.carry_out(
                    visit,
                    deliver=lambda parcel: asyncio.to_thread(plan.take, parcel),
                    stop=halt,
                    reins=reins,
                    # What the policy closes now, not only what it closed when the host started.
                    through=lambda fetcher: ShieldedFetcher(fetcher, lambda: self._policy.policy.closed),
                )
            if plan.ended not in _GOES_ON:
                return self._why(plan)
        raise AssertionError  # there is always a next number

    def _why(self, plan: SurveyPlan) -> str:
        if plan.ended is Ended.STOPPED:
            closure = self._doors.closure()
            return f"the doors are closed ({closure.reason})" if closure else "stopped"
        if plan.robots.state is RobotsState.DISQUALIFIED:
            return f"cannot read robots.txt: {plan.robots.reason}"
        if plan.ended is Ended.BLOCKED:
            return "the site asks for a long pause"
        return "the site does not answer"

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
                response_factor=0.0,  # the owner sets the pace
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
            may_be_private=True,  # its own site, the only one that has an address here
        )

    @asynccontextmanager
    async def _held(self, reins: Reins, stop: asyncio.Event) -> AsyncIterator[asyncio.Event]:
        """Makes the visit rest while the site is busy; the event is set when the visit must stop."""
        halt = asyncio.Event()
        task = asyncio.create_task(self._hold(reins, stop, halt))
        try:
            yield halt
        finally:
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            task.result()  # raises if it failed

    async def _hold(self, reins: Reins, stop: asyncio.Event, halt: asyncio.Event) -> None:
        while not (stop.is_set() or self._doors.closure()):
            self._policy.look()  # the owner's load rules apply to a survey too, and may change meanwhile
            self._governor.rules = rules = self._policy.policy.load
            reason = self._governor.judge(await self._meter.measure(has_probe=bool(rules.latency_ms)))
            if bool(reason) != reins.is_paused:
                self._announce(f"the survey is paused: {reason}" if reason else "the survey continues")
                reins.pause() if reason else reins.go_on()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await stop.wait()
        halt.set()
        reins.go_on()  # so that it can end


def _url_of(site: str, start: str) -> str:
    url = Canonical()(start, f"{site}/")
    if url is None or site_of(url) != site:
        raise UsageError(f"--start {start} is not a page of {site}: name one such as /news/")
    return url
