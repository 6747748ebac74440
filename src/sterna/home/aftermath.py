"""What follows from visits that are over: their facts are gathered, and a journey moves on."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

from sterna.home.gathering import Gathering
from sterna.home.journey import Journey
from sterna.home.ledger.interface import Ledger
from sterna.model import Parcel, Target
from sterna.web.clock import Clock

T = TypeVar("T")


class Aftermath:
    """Notes which visits are over, and does what follows before the next sites are chosen."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        journey: Journey | None,
        gathering: Gathering | None,
        seed: Callable[[Sequence[Target]], None],
        clock: Clock,
        thread: Executor,
    ) -> None:
        self._ledger = ledger
        self._journey = journey
        self._gathering = gathering
        self._seed = seed
        self._clock = clock
        self._thread = thread
        self._has_news = True  # an earlier run may have brought facts; set by note(), cleared by settle()

    def note(self, parcels: Sequence[Parcel]) -> None:
        for parcel in parcels:
            self._has_news = self._has_news or parcel.ended is not None
            if self._journey:
                self._journey.note(parcel)

    def may_visit(self, site: str) -> bool:
        return self._journey is None or self._journey.may_visit(site)

    def facts(self) -> tuple[bytes, ...]:
        """With which later visits set out."""
        return self._gathering.facts if self._gathering else ()

    async def settle(self) -> None:
        """Gathers from what visits brought, then lets the journey move on."""
        if not self._has_news:
            return
        self._has_news = False
        if self._gathering:
            facts = await self._in_thread(self._ledger.facts)
            seeds = await self._gathering.gather(fact.data for fact in facts)
            await self._in_thread(partial(self._seed, seeds))
        if self._journey:
            await self._in_thread(partial(self._journey.move_on, now=self._clock.now()))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
