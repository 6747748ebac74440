"""Looks every second whether the visits at a host may work, must rest or must end, and sees to it."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from sterna.errors import SternaError
from sterna.host.policy.load import Load, LoadMeter
from sterna.host.policy.ration import Left
from sterna.host.policy.steering import Step, decide
from sterna.host.policy.terms import Terms
from sterna.host.premises import Premises
from sterna.host.visiting.hosted import HostedVisit
from sterna.wire.keys import PublicKey

LOOK_SECONDS = 1.0
NO_PLACE = "it waits for a place"

_log = logging.getLogger(__name__)


class Overseer:
    """Changes visits by their reins alone; `give_up` ends those that never began, `kill_all` all."""

    def __init__(
        self,
        premises: Premises,
        meter: LoadMeter,
        *,
        under_way: Callable[[], Iterable[HostedVisit]],
        give_up: Callable[[HostedVisit, str], None],
        kill_all: Callable[[], int],
    ) -> None:
        self._premises = premises
        self._meter = meter
        self._under_way = under_way
        self._give_up = give_up
        self._kill_all = kill_all

    async def run(self) -> None:
        """Looks until it is cancelled; whatever goes wrong is said, and looked at again."""
        while True:
            try:
                await self.look()
            except Exception as error:
                # Whatever it is, visits without anybody who looks after them would be worse.
                _log.error("the visits could not be looked after: %r", error, exc_info=error)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Looks once."""
        premises = self._premises
        premises.refresh()
        here = list(self._under_way())
        if here and (reason := premises.doors.are_closed()) is not None:
            if count := self._kill_all():
                premises.notes.note("owner-stopped", count=count, why=reason)
            return
        visits = [hosted for hosted in here if not hosted.reins.is_over]
        if not visits:
            return
        terms = {hosted: premises.terms(hosted.home) for hosted in visits}
        load = await self._measure(each for each in terms.values() if each)
        for hosted in visits:
            if not hosted.is_over:
                self._take(hosted, self._step(hosted, terms[hosted], load))

    async def _measure(self, terms: Iterable[Terms]) -> Load:
        rules = [each.load for each in terms]
        if not any(each.machine or each.latency_ms for each in rules):
            return Load()
        return await self._meter.measure(has_probe=any(each.latency_ms for each in rules))

    def _step(self, hosted: HostedVisit, terms: Terms | None, load: Load) -> Step:
        premises = self._premises
        if premises.notes.fault:
            return Step(does="end", why="the audit log of the host cannot be written")
        try:
            left = premises.left(PublicKey.parse(hosted.home), terms) if terms else Left()
        except SternaError as error:
            _log.error("visit %s ends: %s", hosted.visit.id, error)
            return Step(does="end", why="the host cannot read what is left of the day")
        if terms:
            hosted.governor.rules = terms.load
        step = decide(terms, left, wall=premises.wall(), busy=hosted.governor.judge(load))
        if step.does == "rest" and hosted.rested_seconds > premises.limits.deferred_seconds:
            return Step(does="end", why="it rested as long as a visit may")
        return step

    def _take(self, hosted: HostedVisit, step: Step) -> None:
        if step.does == "end":
            self._end(hosted, step)
        elif step.does == "rest":
            self._rest(hosted, step)
        elif hosted.reins.is_paused:
            self._go_on(hosted)

    def _end(self, hosted: HostedVisit, step: Step) -> None:
        hosted.log(f"the host ends the visit: {step.why}")
        if hosted.state == "running":
            hosted.reins.end()
        else:
            self._give_up(hosted, step.why)

    def _rest(self, hosted: HostedVisit, step: Step) -> None:
        if not hosted.reins.is_paused:
            why = f"{step.why}: {step.detail}" if step.detail else step.why
            self._premises.notes.note("visit-paused", why=why, **hosted.names)
        if step.is_outside_hours:  # it may take long, and others may work meanwhile
            hosted.is_deferred = True
            hosted.place.leave()
            if hosted.state == "queued":
                hosted.state = "waiting"
        hosted.rest(step.why)

    def _go_on(self, hosted: HostedVisit) -> None:
        if hosted.state == "running" and not hosted.place.take_now():
            hosted.rest(NO_PLACE)
            return
        hosted.go_on()
        self._premises.notes.note("visit-resumed", **hosted.names)
