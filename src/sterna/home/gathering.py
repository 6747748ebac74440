"""Rules at home, in the jail, over the facts that came back: they make facts and seeds for later visits.

Here `(follow URL)` names a start page of later visits, and `(emit ...)` a fact with which they set out. The
rules begin anew each time, with all facts of all sites: what they make depends on these alone, so nothing of
it has to be kept, and a crash loses nothing.
"""

from collections.abc import Iterable

from sterna.errors import EngineEnded, RulesError
from sterna.model import Budget, Program, Source, Target
from sterna.runtime.engine.client import Engines
from sterna.web.urls import Canonical

_BUDGET = Budget(cpu_seconds=60.0)


class Gathering:
    """The gathering rules of a crawl."""

    def __init__(self, rules: tuple[Source, ...], engines: Engines) -> None:
        self._program = Program(rules=rules)
        self._engines = engines
        self.facts: tuple[bytes, ...] = ()  # with which later visits set out; changed by gather()

    async def gather(self, facts: Iterable[bytes]) -> tuple[Target, ...]:
        """The seeds that the rules make of all facts; RulesError if they cannot be run."""
        try:
            engine = await self._engines.open(self._program, facts=facts, budget=_BUDGET)
            await engine.close()
        except EngineEnded as error:
            raise RulesError(f"the gathering rules cannot go on: {error}") from error
        if engine.first.ended:
            raise RulesError(f"the gathering rules cannot go on: {engine.first.ended} {engine.first.detail}")
        self.facts = tuple(dict.fromkeys(engine.first.rows))
        canonical = Canonical()
        urls = (canonical(url) for url, _ in engine.first.follow)
        return tuple(Target(url) for url in urls if url)
