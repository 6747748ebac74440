"""The URLs of one visit: what to fetch next, what was seen, what is tried again later."""

import heapq
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable

from sterna.model import Target


class Frontier:
    """Breadth first. Pure: it is told the time, and never waits itself.

    `seen` is exact within a visit; what home knew before (F) is a sorted array, eight bytes a URL.
    """

    def __init__(self, known: bytes, *, max_depth: int) -> None:
        self._known = array("q")
        self._known.frombytes(known)
        self._max_depth = max_depth
        # Changed by add(), next() and put_back() only.
        self._seen: set[int] = set()
        self._levels: dict[int, deque[Target]] = {}
        self._later: list[tuple[float, int, Target]] = []
        self._ties = 0

    def __len__(self) -> int:
        return sum(map(len, self._levels.values())) + len(self._later)

    @property
    def seen_count(self) -> int:
        return len(self._seen)

    def add(self, target: Target, fingerprint: int) -> bool:
        """True if the URL is new here; it is then fetched in its turn unless it lies too deep."""
        if fingerprint in self._seen or self._is_known(fingerprint):
            return False
        self._seen.add(fingerprint)
        if target.depth <= self._max_depth:
            self._levels.setdefault(target.depth, deque()).append(target)
        return True

    def unseen(self, marks: Iterable[int]) -> set[int]:
        """Those of the fingerprints that were not added in this visit."""
        return set(marks).difference(self._seen)

    def put_back(self, target: Target) -> None:
        """To be tried once more, not before its time."""
        self._ties += 1
        heapq.heappush(self._later, (target.not_before, self._ties, target))

    def next(self, now: float) -> Target | None:
        """The next URL that may be fetched now, lowest depth first."""
        if self._later and self._later[0][0] <= now:
            return heapq.heappop(self._later)[2]
        if not self._levels:
            return None
        depth = min(self._levels)
        level = self._levels[depth]
        target = level.popleft()
        if not level:
            del self._levels[depth]
        return target

    def next_depth(self) -> int | None:
        """The depth of the shallowest URL that is waiting."""
        return min(self._levels, default=None)

    def wakes_at(self) -> float | None:
        """When the first URL that is tried again comes due."""
        return self._later[0][0] if self._later else None

    def again(self) -> tuple[Target, ...]:
        """What is still to be tried again."""
        return tuple(target for _, _, target in self._later)

    def _is_known(self, fingerprint: int) -> bool:
        at = bisect_left(self._known, fingerprint)
        return at < len(self._known) and self._known[at] == fingerprint
