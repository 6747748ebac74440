"""What is left of a crawler's own limits at a site, when home goes on there with another visit."""

from dataclasses import dataclass

import msgspec

from sterna.model import Budget, Parcel

_LEAST = 1e-9  # of a limit that is used up: 0 would stand for none


@dataclass(slots=True)
class Spent:
    """What the visits of a run have used at one site; changed by dispatch alone."""

    requests: int = 0
    fetched_bytes: int = 0
    sent_bytes: int = 0
    cpu_seconds: float = 0.0
    began: float | None = None  # when the first of them was sent out

    def add(self, parcel: Parcel) -> None:
        usage = parcel.usage
        self.requests += usage.requests
        self.fetched_bytes += usage.bytes_received
        self.sent_bytes += usage.sent_bytes
        self.cpu_seconds += usage.cpu_seconds


def has_limits(budget: Budget) -> bool:
    """True if a crawler has limits that several visits share."""
    return bool(
        budget.requests
        or budget.fetched_bytes
        or budget.sent_bytes
        or budget.cpu_seconds
        or budget.wall_seconds
    )


def rest_of(budget: Budget, spent: Spent, *, now: float) -> Budget:
    """The budget of the next visit; limits that are used up end it at once, by their names."""
    spent.began = now if spent.began is None else spent.began
    return msgspec.structs.replace(
        budget,
        requests=_rest(budget.requests, spent.requests),
        fetched_bytes=_rest(budget.fetched_bytes, spent.fetched_bytes),
        sent_bytes=_rest(budget.sent_bytes, spent.sent_bytes),
        cpu_seconds=budget.cpu_seconds and max(budget.cpu_seconds - spent.cpu_seconds, _LEAST),
        wall_seconds=budget.wall_seconds and max(budget.wall_seconds - (now - spent.began), _LEAST),
    )


def _rest(limit: int, used: int) -> int:
    return max(limit - used, 1) if limit else 0
