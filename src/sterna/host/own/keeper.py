"""Keeps the index of a running host fresh: makes a survey at an interval, and continues one that was cut."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from sterna.errors import SternaError
from sterna.host.config import HostConfig
from sterna.host.own.index import Index, Survey
from sterna.host.own.survey import Outcome, Surveyor
from sterna.host.visiting.workshop import Workshop
from sterna.web.clock import SystemClock

LOOK_SECONDS = 60.0  # between two looks at most: the owner may have made a survey by hand
AGAIN_SECONDS = 900.0  # after one that ended early
END_SECONDS = 10.0  # for a survey to end
HOUR = 3600.0

_log = logging.getLogger(__name__)

Announce = Callable[[str], None]


@asynccontextmanager
async def keeping(config: HostConfig, *, hours: float, announce: Announce) -> AsyncIterator[None]:
    """Surveys the site at this interval while the context lasts; failures are logged."""
    keeper = Keeper(config, hours=hours, announce=announce)
    task = asyncio.create_task(keeper.run())
    try:
        yield
    finally:
        keeper.stop.set()
        await asyncio.wait({task}, timeout=END_SECONDS)
        task.cancel()
        await asyncio.wait({task})


class Keeper:
    """Makes a survey when one is due."""

    def __init__(self, config: HostConfig, *, hours: float, announce: Announce) -> None:
        self._config = config
        self._hours = hours
        self._announce = announce
        self.stop = asyncio.Event()

    async def run(self) -> None:
        """Runs until `stop` is set."""
        not_before = 0.0
        while not self.stop.is_set():
            now = time.time()
            last = await asyncio.to_thread(self._last_survey)
            wait = max(due_at(last, hours=self._hours, now=now), not_before) - now
            if wait > 0:
                await self._rest(min(wait, LOOK_SECONDS))
            elif not await self._survey():
                not_before = time.time() + min(AGAIN_SECONDS, self._hours * HOUR)

    async def _survey(self) -> bool:
        """True if the survey came to its end."""
        clock = SystemClock()  # a new one, which shows the current time
        workshop = Workshop(self._config, clock)
        try:
            surveyor = Surveyor(self._config, workshop, clock, announce=self._announce)
            outcome = await surveyor.survey(stop=self.stop)
        except Exception as error:  # a survey that fails must not end the host
            is_known = isinstance(error, SternaError)
            _log.error("the survey of the site failed: %s", error, exc_info=None if is_known else error)
            return False
        finally:
            await workshop.close()
        self._announce(said_of(outcome))
        return outcome.is_over

    def _last_survey(self) -> Survey | None:
        try:
            index = Index(self._config.state)
        except SternaError:  # there is none; if it is damaged, the survey says so
            return None
        try:
            return index.last_survey(is_over=False)
        finally:
            index.close()

    async def _rest(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stop.wait()


def due_at(last: Survey | None, *, hours: float, now: float) -> float:
    """When the next survey is due; at once if the last one was cut."""
    # A survey in the future was made before the clock was set back.
    if last is None or last.ended is None or last.began > now:
        return now
    return last.began + hours * HOUR


def said_of(outcome: Outcome) -> str:
    """A survey in one line."""
    survey = outcome.survey
    changes = f"{survey.created:,} created, {survey.updated:,} updated, {survey.deleted:,} deleted"
    if outcome.is_over:
        end = f" ({outcome.why})" if outcome.why else ""
        return f"the survey of the site is over{end}: {survey.pages:,} pages read, {changes}"
    return f"the survey of the site is not over ({outcome.why}): {survey.pages:,} pages read, {changes}"
