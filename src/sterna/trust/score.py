"""A host's score: how many of its pages were checked and found true or false, the older the less.

The share of its pages that are true is taken for a beta distribution, which begins as Beta(1, 1): of a host
that nobody checked every share is as likely as any other.
"""

from sterna.model import Record
from sterna.trust.beta import quantile

DAY = 24 * 3600.0
HALF_LIFE_SECONDS = 30 * DAY
TRUSTED = 0.9  # of whose pages, with 95 % certainty, at least so many are true: used before they are checked
MOST_ALONE_DAYS = 30.0
_DOUBT = 0.05


class Score(Record, frozen=True):
    """Counts of pages as they were at a time."""

    good: float = 0.0
    bad: float = 0.0
    at: float = 0.0


class Belief(Record, frozen=True):
    """What share of a host's pages is likely to be true."""

    mean: float
    lower: float  # with 95 % certainty it is not less

    @property
    def is_trusted(self) -> bool:
        return self.lower >= TRUSTED


def faded(score: Score, now: float) -> Score:
    """What of a score still counts."""
    share = 0.5 ** (max(now - score.at, 0.0) / HALF_LIFE_SECONDS)
    return Score(score.good * share, score.bad * share, now)


def counted(score: Score, *, good: int, bad: int, now: float) -> Score:
    """The score after a check: who lied loses what it had earned, that of the same check too."""
    old = faded(score, now)
    return Score(0.0 if bad else old.good + good, old.bad + bad, now)


def succeeded(score: Score) -> Score:
    """The score of who comes with another key: it earned nothing yet, and washes nothing off."""
    return Score(0.0, score.bad, score.at)


def belief(score: Score, now: float) -> Belief:
    """What to think of a host now."""
    old = faded(score, now)
    a, b = 1.0 + old.good, 1.0 + old.bad
    return Belief(a / (a + b), quantile(_DOUBT, a, b))


def alone_seconds(score: Score) -> float:
    """For how long a host that was just found lying is left alone: a day for each bad page that counts."""
    return min(score.bad, MOST_ALONE_DAYS) * DAY
