"""What bounds a visit while it runs: its operator, who pauses, resumes and ends it, and its budget."""

import asyncio
from collections.abc import Callable

from sterna.model import Budget, Ended, Record
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
    """The operator's hold on one visit; changed in the event loop's thread.

    A paused visit starts no requests; those under way finish. Pauses do not count against its time.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._free = asyncio.Event()
        self._free.set()
        self._over = asyncio.Event()
        self._paused_at: float | None = None
        self._paused_seconds = 0.0  # sum of the finished pauses
        self.look: Callable[[], Gauge] = Gauge  # set by the visit's loop

    @property
    def is_paused(self) -> bool:
        return self._paused_at is not None

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    @property
    def paused_seconds(self) -> float:
        present = self._clock.now() - self._paused_at if self._paused_at is not None else 0.0
        return self._paused_seconds + present

    def pause(self) -> None:
        if self._paused_at is None:
            self._paused_at = self._clock.now()
            self._free.clear()

    def go_on(self) -> None:
        if self._paused_at is not None:
            self._paused_seconds += self._clock.now() - self._paused_at
            self._paused_at = None
            self._free.set()

    def end(self) -> None:
        """Ends the visit as a used-up budget does: it sends its state, and home may continue it later."""
        self._over.set()

    async def wait(self) -> None:
        """Returns when the visit is not paused, even if it is to end."""
        await self._free.wait()

    async def wait_for_end(self) -> None:
        await self._over.wait()


class Spending:
    """What a visit has used of its budget, and which limit it reached first."""

    def __init__(self, budget: Budget, *, reins: Reins, began: float, look: Callable[[], Gauge]) -> None:
        self._budget = budget
        self._reins = reins
        self._began = began
        self._look = look
        self._paused_before = reins.paused_seconds  # while it waited to begin
        self._seconds = min(budget.seconds, budget.wall_seconds or budget.seconds)
        # Most visits have none of these, and this is checked for every page.
        self._has_own_limits = budget.has_own_limits

    @property
    def deadline(self) -> float:
        """When the time is used up; it moves on while the visit is paused."""
        return self._began + self._seconds + self._paused_seconds

    @property
    def home_deadline(self) -> float:
        """When the time that home gave is used up, whatever the crawler's own limit of time is."""
        return self._began + self._budget.seconds + self._paused_seconds

    @property
    def _paused_seconds(self) -> float:
        return self._reins.paused_seconds - self._paused_before

    def reached(self, now: float, *, pages: int, urls: int, wait_seconds: float) -> Ended | None:
        """The limit that ends the visit now: home's own, after which it goes on, or one of the crawler's."""
        budget = self._budget
        if self._has_own_limits and (own := self._own_limit(now)):
            return own
        if (
            pages >= budget.pages
            or urls >= budget.urls
            or now >= self.deadline
            or wait_seconds > budget.patience_seconds
        ):
            return Ended.BUDGET
        return None

    def _own_limit(self, now: float) -> Ended | None:
        budget, used = self._budget, self._look()
        for limit, ended, spent in (
            (budget.requests, Ended.REQUESTS, used.requests),
            (budget.fetched_bytes, Ended.FETCHED_BYTES, used.read_bytes),
            (budget.sent_bytes, Ended.SENT_BYTES, used.sent_bytes),
            (budget.cpu_seconds, Ended.CPU_SECONDS, used.cpu_seconds),
        ):
            if limit and spent >= limit:
                return ended
        # Added up as the deadline is, so that both are reached at the same moment.
        wall_end = self._began + budget.wall_seconds + self._paused_seconds
        return Ended.WALL_SECONDS if budget.wall_seconds and now >= wall_end else None
