"""What a visit has used of its budget, and which limit it reached first."""

from sterna.model import Budget, Ended
from sterna.runtime.access import Access
from sterna.runtime.packer import Packer


class Spending:
    """Looks at those who spend; the engine's CPU time is told to it."""

    def __init__(self, budget: Budget, *, access: Access, packer: Packer, site: str) -> None:
        self._budget = budget
        self._access = access
        self._packer = packer
        self._site = site
        self._began = access.now()
        self._rested_before = access.paused_seconds  # while it waited to begin
        self._seconds = min(budget.seconds, budget.wall_seconds or budget.seconds)
        self.engine_seconds = 0.0  # of CPU; set by whoever speaks with the engine
        # Most visits have none of these, and this is looked at for every page.
        self._has_own_limits = bool(
            budget.requests
            or budget.fetched_bytes
            or budget.sent_bytes
            or budget.cpu_seconds
            or budget.wall_seconds
        )

    @property
    def deadline(self) -> float:
        """When the time is used up; it moves on while the visit is made to rest."""
        return self._began + self._seconds + self._rested_seconds

    @property
    def left_seconds(self) -> float:
        """Of the time that home gave it; a crawler's own limit of time is another thing."""
        return self._began + self._budget.seconds + self._rested_seconds - self._access.now()

    @property
    def _rested_seconds(self) -> float:
        return self._access.paused_seconds - self._rested_before

    @property
    def cpu_seconds(self) -> float:
        return self._packer.reading_seconds + self.engine_seconds

    def reached(self, *, held_urls: int) -> Ended | None:
        """The limit that ends the visit now: home's own, after which it goes on, or one of the crawler's."""
        budget = self._budget
        if self._has_own_limits and (own := self._own_limit()):
            return own
        if (
            self._packer.pages_total >= budget.pages
            or held_urls >= budget.urls
            or self._access.now() >= self.deadline
            or self._access.wait_seconds(self._site) > budget.patience_seconds
        ):
            return Ended.BUDGET
        return None

    def _own_limit(self) -> Ended | None:
        budget = self._budget
        for limit, ended, used in (
            (budget.requests, Ended.REQUESTS, self._access.requests_total),
            (budget.fetched_bytes, Ended.FETCHED_BYTES, self._access.bytes_total),
            (budget.sent_bytes, Ended.SENT_BYTES, self._packer.sent_bytes),
            (budget.cpu_seconds, Ended.CPU_SECONDS, self.cpu_seconds),
        ):
            if limit and used >= limit:
                return ended
        # Added up as the deadline is, so that both are reached at the same moment.
        wall_end = self._began + budget.wall_seconds + self._rested_seconds
        is_late = bool(budget.wall_seconds) and self._access.now() >= wall_end
        return Ended.WALL_SECONDS if is_late else None
