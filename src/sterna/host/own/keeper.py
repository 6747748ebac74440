"""Keeps the index of a running host fresh: makes a survey at an interval, and continues one that was cut."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing, suppress
from pathlib import Path

from sterna.errors import SternaError
from sterna.host.config import HostConfig
from sterna.host.own.index import Index, Survey
from sterna.host.own.survey import Surveyor
from sterna.host.premises import Announce
from sterna.host.visiting.workshop import Workshop
from sterna.web.clock import SystemClock

LOOK_SECONDS = 60.0  # between two looks at most: the owner may have made a survey by hand
AGAIN_SECONDS = 900.0  # after one that ended early
END_SECONDS = 10.0  # for a survey to end
HOUR = 3600.0

_log = logging.getLogger(__name__)


@asynccontextmanager
async def keeping(config: HostConfig, *, hours: float, announce: Announce) -> AsyncIterator[None]:
    """Surveys the site at this interval while the context lasts; failures are logged."""
    stop = asyncio.Event()
    task = asyncio.create_task(_keep(config, hours=hours, announce=announce, stop=stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait({task}, timeout=END_SECONDS)
        task.cancel()
        await asyncio.wait({task})


async def _keep(config: HostConfig, *, hours: float, announce: Announce, stop: asyncio.Event) -> None:
    """Makes a survey whenever one is due, until `stop` is set."""
    not_before = 0.0
    while not stop.is_set():
        now = time.time()
        last = await asyncio.to_thread(_last_survey, config.state)
        wait = max(due_at(last, hours=hours, now=now) - now, not_before - time.monotonic())
        if wait > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(wait, LOOK_SECONDS)):
                    await stop.wait()
        elif not await _survey(config, announce=announce, stop=stop):
            not_before = time.monotonic() + min(AGAIN_SECONDS, hours * HOUR)


async def _survey(config: HostConfig, *, announce: Announce, stop: asyncio.Event) -> bool:
    """True if the survey came to its end."""
    clock = SystemClock()  # a new one, which shows the current time
    try:
        async with aclosing(Workshop(config, clock, is_own=True)) as workshop:
            outcome = await Surveyor(config, workshop, clock, announce=announce).survey(stop=stop)
    except Exception as error:  # a survey that fails must not end the host
        is_known = isinstance(error, SternaError)
        _log.error("the survey of the site failed: %s", error, exc_info=None if is_known else error)
        return False
    survey = outcome.survey
    changes = f"{survey.created:,} created, {survey.updated:,} updated, {survey.deleted:,} deleted"
    end = f"{'over' if outcome.is_over else 'not over'}{f' ({outcome.why})' if outcome.why else ''}"
    announce(f"the survey of the site is {end}: {survey.pages:,} pages read, {changes}")
    return outcome.is_over


def _last_survey(state: Path) -> Survey | None:
    with suppress(SternaError), closing(Index(state)) as index:  # if it is damaged, the survey says so
        return index.last_survey(is_over=False)
    return None


def due_at(last: Survey | None, *, hours: float, now: float) -> float:
    """When the next survey is due; at once if the last one was cut."""
    # A survey in the future was made before the clock was set back.
    if last is None or last.ended is None or last.began > now:
        return now
    return last.began + hours * HOUR
