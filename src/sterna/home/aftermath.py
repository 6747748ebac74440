"""What happens after visits: a journey moves on, and gathering rules run over the facts.

A journey visits sites one after the other; home carries the crawler's facts to the next site, so no host has
to trust another. Gathering rules run at home, in the sandbox, over the facts that came back. They make facts
and seeds for later visits: `(follow URL)` adds a start URL, `(emit ...)` a fact. Each time they run over all
facts of all sites, so their results need not be stored and a crash loses nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

from sterna.errors import EngineEnded, RulesError
from sterna.home.ledger.interface import Ledger, LedgerDesk
from sterna.model import Budget, Ended, Parcel, Program, Source, Target
from sterna.runtime.engine.client import Engines
from sterna.web.clock import Clock
from sterna.web.urls import Canonical

_SETTING = "journey"
# After these the same site gets another visit; after all others the crawler moves on.
_STAYS = frozenset({Ended.BUDGET, Ended.STOPPED, Ended.LOST})
_BUDGET = Budget(cpu_seconds=60.0)


class Journey:
    """The position of a crawler on its journey. All but may_visit() and note() run in the ledger's thread."""

    def __init__(self, sites: Sequence[str], ledger: Ledger) -> None:
        self._sites = tuple(sites)  # none without a journey
        self._ledger = ledger
        self._at = int(ledger.setting(_SETTING) or 0)
        self._is_over_here = False  # set by note(), cleared by move_on()

    def may_visit(self, site: str) -> bool:
        """True for the site whose turn it is, and for those outside of the journey."""
        return site not in self._sites or site == self._current

    def note(self, parcel: Parcel) -> None:
        if parcel.site == self._current and parcel.ended and parcel.ended not in _STAYS:
            self._is_over_here = True

    def move_on(self, *, now: float) -> None:
        """Carries the facts to the next site, if the visit to this one is over."""
        if not self._is_over_here:
            return
        self._is_over_here = False
        here = self._current
        self._at += 1
        if here and self._current:
            self._ledger.set_state(self._current, self._ledger.state(here))
        self._ledger.set_setting(_SETTING, str(self._at))
        self._ledger.wake(now=now)

    @property
    def _current(self) -> str:
        return self._sites[self._at] if self._at < len(self._sites) else ""


@dataclass(eq=False, repr=False)
class Aftermath:
    """Notes which visits are over, and acts on it before the next sites are chosen."""

    ledger: LedgerDesk
    _: KW_ONLY
    journey: Journey
    gather: tuple[Source, ...]  # the gathering rules, if any
    engines: Engines
    seed: Callable[[Sequence[Target]], None]  # called in the ledger's thread
    clock: Clock
    _has_news: bool = True  # an earlier run may have brought facts; set by note(), cleared by settle()
    facts: tuple[bytes, ...] = ()  # with which later visits set out; changed by settle()

    def note(self, parcels: Sequence[Parcel]) -> None:
        for parcel in parcels:
            self._has_news = self._has_news or parcel.ended is not None
            self.journey.note(parcel)

    async def settle(self) -> None:
        """Runs the gathering rules, then moves the journey on."""
        if not self._has_news:
            return
        self._has_news = False
        if self.gather:
            seeds = await self._gathered()
            await self.ledger.do(lambda ledger: self.seed(seeds))
        await self.ledger.do(lambda ledger: self.journey.move_on(now=self.clock.now()))

    async def _gathered(self) -> tuple[Target, ...]:
        """The seeds that the rules make of all facts; raises RulesError if the rules fail."""
        kept = await self.ledger.do(lambda ledger: ledger.facts())
        facts = (fact.data for fact in kept)
        try:
            engine = await self.engines.open(Program(rules=self.gather), facts=facts, budget=_BUDGET)
            await engine.close()
        except EngineEnded as error:
            raise RulesError(f"the gathering rules failed: {error}") from error
        if engine.first.ended:
            raise RulesError(f"the gathering rules failed: {engine.first.ended} {engine.first.detail}")
        self.facts = tuple(dict.fromkeys(engine.first.rows))
        canonical = Canonical()
        urls = (canonical(url) for url, _ in engine.first.follow)
        return tuple(Target(url) for url in urls if url)
