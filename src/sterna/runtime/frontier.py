"""The URLs of one visit: which to fetch next, which were seen, which to retry later."""

import heapq
from array import array
from bisect import bisect_left
from collections import deque

import msgspec

from sterna.model import Target

_Rank = tuple[int, int]  # the negative priority, then the depth


class Frontier:
    """Higher priorities first, then breadth first. Pure: the caller passes the time; nothing waits here."""

    def __init__(self, known: bytes, *, max_depth: int, is_best_first: bool = False) -> None:
        self._known = array("q")  # to home before (F), sorted; eight bytes a URL
        self._known.frombytes(known)
        self._max_depth = max_depth
        # Changed by add(), next(), raise_to() and put_back() only.
        self.seen: set[int] = set()  # fingerprints
        self._levels: dict[_Rank, deque[Target]] = {}
        self._ranks: list[_Rank] = []  # a heap of those that have a level
        # Where priorities may change: waiting targets by URL. A target that is not in here is stale.
        self._current: dict[str, Target] | None = {} if is_best_first else None
        self._later: list[tuple[float, int, Target]] = []
        self._ties = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting + len(self._later)

    def add(self, target: Target, fingerprint: int, *, is_wanted: bool = True) -> bool:
        """True if the URL is new; it is then fetched in its turn if it is wanted and not too deep."""
        if fingerprint in self.seen or self.is_known(fingerprint):
            return False
        self.seen.add(fingerprint)
        if not is_wanted or target.depth > self._max_depth:
            return True
        if target.not_before:  # it was tried before the visit was interrupted
            self.put_back(target)
        else:
            self._line_up(target)
            self._waiting += 1
        return True

    def is_known(self, fingerprint: int) -> bool:
        """True if home knew the URL before the visit."""
        at = bisect_left(self._known, fingerprint)
        return at < len(self._known) and self._known[at] == fingerprint

    def raise_to(self, priority: int, url: str) -> Target | None:
        """Raises the priority of a waiting URL; returns the new target, or None if nothing changed."""
        target = self._current.get(url) if self._current else None
        if target is None or priority <= target.priority:
            return None
        raised = msgspec.structs.replace(target, priority=priority)
        self._line_up(raised)
        return raised

    def _line_up(self, target: Target) -> None:
        rank = (-target.priority, target.depth)
        level = self._levels.get(rank)
        if level is None:
            level = self._levels[rank] = deque()
            heapq.heappush(self._ranks, rank)
        level.append(target)
        if self._current is not None:
            self._current[target.url] = target

    def put_back(self, target: Target) -> None:
        self._ties += 1
        heapq.heappush(self._later, (target.not_before, self._ties, target))

    def next(self, now: float) -> Target | None:
        if self._later and self._later[0][0] <= now:
            return heapq.heappop(self._later)[2]
        while self._ranks:
            rank = self._ranks[0]
            level = self._levels[rank]
            target = level.popleft()
            if not level:
                del self._levels[rank]
                heapq.heappop(self._ranks)
            if self._current is not None:
                if self._current.get(target.url) is not target:
                    continue  # the URL waits, or was taken, under a higher priority
                del self._current[target.url]
            self._waiting -= 1
            return target
        return None

    def next_depth(self) -> int | None:
        return self._ranks[0][1] if self._ranks else None

    def wakes_at(self) -> float | None:
        """When the next retry is due; None without one."""
        return self._later[0][0] if self._later else None

    def again(self) -> tuple[Target, ...]:
        """The targets that wait for a retry."""
        return tuple(target for _, _, target in self._later)
