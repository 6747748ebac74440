"""What a visit's rules decide, whatever becomes of their engine.

An engine that dies loses the facts since the last parcel. So the visit gives up the pages since then too, and
another engine goes on from the state that the last parcel carried. What was under way is then judged one by
one: of a page that kills a fresh engine there is no ruling, and the others go on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec.structs import replace

from sterna.errors import EngineEnded, JailError
from sterna.model import Ended, State, StateChange, Target, Visit
from sterna.runtime.engine.client import Engine, Engines
from sterna.runtime.engine.messages import PageView, Verdict
from sterna.web.weight import weight_of_fact

MAX_DEATHS = 50  # of engines in one visit
MAX_KILLS = 3  # from outside, of engines that judged one page alone: then it may be the page after all
MAX_STATE_BYTES = 64 * 1024 * 1024  # of memory for facts; with more, an engine's death ends the visit
_LEAST_CPU_SECONDS = 1e-3

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer", Verdict, bool)


class Rulings:
    """Judges the pages and requests of one visit; used by its loop and its workers.

    `begin` takes what the rules say before any page, each time that they begin anew; `give_up` puts back
    whatever was judged since the last call of change().
    """

    def __init__(
        self,
        visit: Visit,
        engines: Engines,
        *,
        begin: Callable[[Verdict], None],
        give_up: Callable[[], None],
    ) -> None:
        self._visit = visit
        self._engines = engines
        self._begin = begin
        self._give_up = give_up
        # The state as of the last parcel; changed by change() alone.
        self._facts = dict(visit.state.facts)
        self.facts_bytes = sum(map(weight_of_fact, self._facts.values()))
        self._memory = visit.state.memory
        # Changed by open(), _replace() and close().
        self._engine: Engine | None = None
        self._over: EngineEnded | None = None  # there is no other engine
        self._deaths = 0
        self._earlier_seconds = 0.0  # of CPU, of the engines before this one
        self._opening = asyncio.Lock()
        # After a death questions are put one at a time, until a parcel takes the state.
        self._is_careful = False
        self._waiting = 0  # for their turn, or taking it
        self._turn = asyncio.Lock()
        # Requests that were admitted since the last parcel, and those of them that a dead engine admitted.
        self._admitted: dict[str, Target] = {}
        self._lapsed: dict[str, Target] = {}

    async def open(self) -> None:
        """Starts the rules; raises EngineEnded or JailError."""
        await self._start()

    @property
    def cpu_seconds(self) -> float:
        return self._earlier_seconds + (self._engine.cpu_seconds if self._engine else 0.0)

    def memory_bytes(self) -> int:
        return self._engine.memory_bytes() if self._engine else 0

    async def close(self) -> None:
        self._over = self._over or EngineEnded(Ended.STOPPED, "the visit is over")
        if self._engine:
            await self._engine.close()

    # -- questions -----------------------------------------------------------------------------------------

    async def judge(self, view: PageView) -> Verdict | None:
        """What the rules decide on a page; None if it kills every engine. Raises EngineEnded."""

        async def ask(engine: Engine) -> Verdict:
            await self._admit_again(engine, view.url)
            return await engine.judge(view)

        return await self._ask(ask)

    async def admits(self, target: Target) -> bool | None:
        """False if a rule refuses to have the URL fetched, None if asking kills every engine."""
        if not (await self._current()).asks_before_fetch:
            return True
        is_admitted = await self._ask(lambda engine: engine.admits(target))
        self._admitted[target.url] = target
        return is_admitted

    async def pass_over(self, url: str) -> None:
        """For a page that is not judged: its request may have led to facts."""
        if url in self._lapsed:
            await self._ask(lambda engine: self._admit_again(engine, url))

    async def _admit_again(self, engine: Engine, url: str) -> bool:
        """Repeats a request that was admitted by an engine which has died since, and its facts with it."""
        if lapsed := self._lapsed.get(url):
            await engine.admits(lapsed)
            del self._lapsed[url]
            self._admitted[url] = lapsed
        return True

    async def change(self) -> StateChange:
        """The change of the state since the last call, which belongs to what was judged since then."""
        self._waiting += 1
        try:
            async with self._turn:
                change = await self._change()
        finally:
            self._waiting -= 1
        self._note(change)
        self._admitted.clear()
        self._is_careful = self._is_careful and self._waiting > 0
        return change

    async def _change(self) -> StateChange:
        while True:
            engine = await self._current()
            try:
                return await engine.change()
            except EngineEnded as error:
                # Unless somebody killed it, its state is at fault, and not a single page.
                await self._replace(engine, error, is_last=not error.is_outside)

    async def _ask(self, ask: Callable[[Engine], Awaitable[_Answer]]) -> _Answer | None:
        if not self._is_careful:
            engine = await self._current()
            try:
                return await ask(engine)
            except EngineEnded as error:
                await self._replace(engine, error)
        self._waiting += 1
        try:
            async with self._turn:
                return await self._ask_alone(ask)
        finally:
            self._waiting -= 1

    async def _ask_alone(self, ask: Callable[[Engine], Awaitable[_Answer]]) -> _Answer | None:
        kills = 0
        while True:
            engine = await self._current()
            is_fresh = not engine.has_judged
            try:
                return await ask(engine)
            except EngineEnded as error:
                await self._replace(engine, error)
                kills += error.is_outside
                if is_fresh and (not error.is_outside or kills >= MAX_KILLS):
                    return None

    # -- engines -------------------------------------------------------------------------------------------

    async def _current(self) -> Engine:
        async with self._opening:
            if self._over:
                raise EngineEnded(self._over.ended, self._over.detail)
            assert self._engine
            return self._engine

    async def _replace(self, dead: Engine, error: EngineEnded, *, is_last: bool = False) -> None:
        """Starts another engine in place of a dead one, once; raises EngineEnded if there is none to come."""
        if not dead.is_dead:
            raise error  # the rules were stopped at a limit, and their state can still be taken
        async with self._opening:
            if self._over:
                raise error
            if dead is not self._engine:
                return  # another caller has replaced it
            self._is_careful = True
            self._lapsed |= self._admitted
            self._admitted.clear()
            self._give_up()
            self._earlier_seconds += dead.cpu_seconds
            self._engine = None
            self._deaths += 1
            if is_last or not self._may_go_on(error):
                self._over = error
                raise error
            await self._start_again(error)

    def _may_go_on(self, error: EngineEnded) -> bool:
        has_state = self.facts_bytes <= MAX_STATE_BYTES
        return has_state and self._deaths <= MAX_DEATHS and error.ended != Ended.CPU_SECONDS

    async def _start_again(self, error: EngineEnded) -> None:
        _log.warning("%s: the crawler's engine died (%s): another goes on", self._visit.site, error)
        try:
            await self._start()
        except (EngineEnded, JailError) as failure:
            ended = failure.ended if isinstance(failure, EngineEnded) else Ended.CRASH
            self._over = EngineEnded(ended, f"{error.detail}; no other could be started: {failure}")
            raise self._over from failure

    async def _start(self) -> None:
        visit, budget = self._visit, self._visit.budget
        if budget.cpu_seconds:
            left = max(budget.cpu_seconds - self._earlier_seconds, _LEAST_CPU_SECONDS)
            budget = replace(budget, cpu_seconds=left)
        state = State(tuple(self._facts.items()), self._memory)
        self._engine = await self._engines.open(
            visit.crawler.program, state=state, facts=visit.crawler.facts, budget=budget
        )
        self._begin(self._engine.first)

    def _note(self, change: StateChange) -> None:
        if self.facts_bytes > MAX_STATE_BYTES:
            return
        for number in change.removed:
            self._forget(number)
        for number, fact in change.added:
            self._forget(number)
            self.facts_bytes += weight_of_fact(fact)
            self._facts[number] = fact
        if self.facts_bytes > MAX_STATE_BYTES:
            self._facts.clear()
        self._memory = self._memory if change.memory is None else change.memory

    def _forget(self, number: int) -> None:
        if (fact := self._facts.pop(number, None)) is not None:
            self.facts_bytes -= weight_of_fact(fact)
