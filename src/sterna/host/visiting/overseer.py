"""Checks every second whether the visits at a host may work, must rest or must end, and acts on it."""

import asyncio
import logging
from weakref import WeakKeyDictionary

from sterna.errors import SternaError
from sterna.host.policy.load import Load, LoadMeter
from sterna.host.policy.permission import why_not_permitted
from sterna.host.policy.terms import Decision, Terms, decide
from sterna.host.premises import Premises
from sterna.host.state import Left
from sterna.host.visiting.hosted import HostedVisit
from sterna.host.visiting.visits import Visits
from sterna.wire.keys import PublicKey

LOOK_SECONDS = 1.0
NO_SLOT = "it waits for a place"

_log = logging.getLogger(__name__)


class Overseer:
    """Controls visits by their reins."""

    def __init__(self, premises: Premises, visits: Visits, meter: LoadMeter) -> None:
        self._premises = premises
        self._visits = visits
        self._meter = meter
        # By visit: the permitted crawlers, and why its crawler is not among them. Changed by look() alone.
        self._permissions = WeakKeyDictionary[HostedVisit, tuple[tuple[str, ...], str]]()

    async def run(self) -> None:
        """Runs until cancelled; errors are logged, and the next look is tried."""
        while True:
            try:
                await self.look()
            except Exception as error:
                # Whatever it is, visits that nobody oversees would be worse.
                _log.error("cannot oversee the visits: %r", error, exc_info=error)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        premises = self._premises
        premises.refresh()
        here = self._visits.under_way()
        if here and (closure := premises.doors.closure()):
            if count := self._visits.kill_all(closure.problem):
                premises.notes.note("owner-stopped", count=count, why=closure.reason)
            return
        visits = [hosted for hosted in here if not hosted.reins.is_over]
        if not visits:
            return
        terms = {hosted: premises.terms(hosted.home) for hosted in visits}
        rules = [each.load for each in terms.values() if each]
        load = Load()
        if any(each.machine or each.latency_ms for each in rules):
            load = await self._meter.measure(has_probe=any(each.latency_ms for each in rules))
        for hosted in visits:
            if not hosted.is_over:
                self._carry_out(hosted, self._decide(hosted, terms[hosted], load))

    def _decide(self, hosted: HostedVisit, terms: Terms | None, load: Load) -> Decision:
        premises = self._premises
        if premises.notes.fault:
            return Decision(does="end", why="the host cannot write its audit log")
        try:
            left = premises.left(PublicKey.parse(hosted.home), terms) if terms else Left()
        except SternaError as error:
            _log.error("visit %s ends: %s", hosted.visit.id, error)
            return Decision(does="end", why="the host cannot read the day's ration")
        if terms:
            hosted.governor.rules = terms.load
            if why := self._why_not_permitted(hosted, terms):
                return Decision(does="end", why=why)
        decision = decide(terms, left, wall=premises.wall(), busy=hosted.governor.judge(load))
        if decision.does == "rest" and hosted.rested_seconds > premises.limits.deferred_seconds:
            return Decision(does="end", why="it has rested for as long as a visit may")
        return decision

    def _why_not_permitted(self, hosted: HostedVisit, terms: Terms) -> str:
        """Verified once for each list of permitted crawlers: that of a large crawler takes long."""
        known = self._permissions.get(hosted)
        if known is None or known[0] != terms.crawlers:
            known = terms.crawlers, why_not_permitted(hosted.visit.crawler, terms)
            self._permissions[hosted] = known
        return known[1]

    def _carry_out(self, hosted: HostedVisit, decision: Decision) -> None:
        if decision.does == "end":
            hosted.log(f"the host ends the visit: {decision.why}")
            if hosted.state == "running":
                hosted.reins.end()
            else:
                self._visits.give_up(hosted, decision.why)
        elif decision.does == "rest":
            self._rest(hosted, decision)
        elif hosted.reins.is_paused:
            if hosted.state == "running" and not self._visits.slots.take_now(hosted):
                hosted.rest(NO_SLOT)
                return
            hosted.go_on()
            self._premises.notes.note("visit-resumed", **hosted.names)

    def _rest(self, hosted: HostedVisit, decision: Decision) -> None:
        if not hosted.reins.is_paused:
            why = f"{decision.why}: {decision.detail}" if decision.detail else decision.why
            self._premises.notes.note("visit-paused", why=why, **hosted.names)
        if decision.is_outside_hours:  # this may take long, and others may work meanwhile
            hosted.defer()
            self._visits.slots.leave(hosted)
            if hosted.state == "queued":
                hosted.state = "waiting"
        hosted.rest(decision.why)
