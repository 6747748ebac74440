"""How whoever runs a visit holds it while it goes on: it is paused, let go on, ended, and looked at."""

import asyncio
from collections.abc import Callable

from sterna.model import Record
from sterna.web.clock import Clock, SystemClock


class Gauge(Record, frozen=True, kw_only=True):
    """What a visit has used so far."""

    pages: int = 0
    requests: int = 0
    read_bytes: int = 0
    sent_bytes: int = 0  # before compression
    cpu_seconds: float = 0.0
    memory_bytes: int = 0  # of its engine's process, now


class Reins:
    """One visit's; changed in the loop's thread.

    A paused visit makes no requests; those under way come to their end. Its pauses are not of its time.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._free = asyncio.Event()
        self._free.set()
        self._over = asyncio.Event()
        self._paused_at: float | None = None
        self._paused_seconds = 0.0  # of the pauses that are over
        self.look: Callable[[], Gauge] = Gauge  # set by the visit's loop

    @property
    def is_paused(self) -> bool:
        return self._paused_at is not None

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    @property
    def paused_seconds(self) -> float:
        """How long it has rested, all its pauses together."""
        now_resting = self._clock.now() - self._paused_at if self._paused_at is not None else 0.0
        return self._paused_seconds + now_resting

    def pause(self) -> None:
        """Lets no request start from now on."""
        if self._paused_at is None:
            self._paused_at = self._clock.now()
            self._free.clear()

    def go_on(self) -> None:
        """Ends a pause."""
        if self._paused_at is not None:
            self._paused_seconds += self._clock.now() - self._paused_at
            self._paused_at = None
            self._free.set()

    def end(self) -> None:
        """Ends the visit as a used up budget does: it sends its state, and home may go on with it later."""
        self._over.set()

    async def wait(self) -> None:
        """Returns when the visit may work; not before a pause is over, even if the visit is to end."""
        await self._free.wait()

    async def wait_for_end(self) -> None:
        """Returns when the visit is to end."""
        await self._over.wait()
