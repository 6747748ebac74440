"""How many pages of a visit are checked, and which.

A host that altered a share f of its pages is found out by k samples with the probability 1 - (1 - f)^k. A
visit to an unknown host is worth as many as find one page in twenty with 95 %: 59. Who is proven is
sampled less, in proportion to what may still be wrong with it. No visit is checked by more than one page in
twenty, so that checking never costs more than a twentieth of ordinary crawling; and none by no page at all.
"""

from math import ceil, log
from random import Random
from typing import Generic, TypeVar

from sterna.trust.score import Belief, Score, belief

ALTERED_SHARE = 0.05
WANTED_DETECTION = 0.95
ONE_IN = 20  # pages of a visit, at most

T = TypeVar("T")


def detection(share: float, samples: int) -> float:
    """How likely so many samples find a host out that altered this share of its pages."""
    return 1.0 - (1.0 - share) ** samples


def needed(share: float = ALTERED_SHARE, wanted: float = WANTED_DETECTION) -> int:
    """The samples that it takes."""
    return ceil(log(1.0 - wanted) / log(1.0 - share))


MOST_SAMPLES = needed()
_UNKNOWN = belief(Score(), 0.0)


def sample_count(of: Belief, pages: int, *, is_strict: bool = False) -> int:
    """How many of a visit's pages are checked; strictly as many as of an unknown host, whatever its size."""
    if is_strict:
        return min(MOST_SAMPLES, pages)
    doubt = (1.0 - of.lower) / (1.0 - _UNKNOWN.lower)
    wanted = min(ceil(MOST_SAMPLES * doubt), MOST_SAMPLES)
    return min(max(min(wanted, ceil(pages / ONE_IN)), 1), pages)


class Reservoir(Generic[T]):
    """Keeps so many of what it is shown, each with the same chance, however many there are (Vitter's R).

    Nobody who does not see the random numbers can tell which.
    """

    def __init__(self, room: int, random: Random) -> None:
        self._room = room
        self._random = random
        self._kept: list[T] = []  # changed by keep() alone
        self.shown = 0

    def place(self) -> int | None:
        """Where the next one goes; None: it is passed by. Each is asked for once, in its order."""
        self.shown += 1
        if len(self._kept) < self._room:
            return len(self._kept)
        place = self._random.randrange(self.shown)
        return place if place < self._room else None

    def keep(self, place: int, each: T) -> None:
        """Puts it where `place` said."""
        if place == len(self._kept):
            self._kept.append(each)
        else:
            self._kept[place] = each

    def draw(self, count: int) -> list[T]:
        """So many of those that are kept, again each with the same chance."""
        return self._random.sample(self._kept, min(count, len(self._kept)))
