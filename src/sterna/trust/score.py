"""A host's score: how many of its pages were checked and found true or false; older checks count less.

The share of true pages is modelled by a beta distribution. It starts as Beta(1, 1): for a host that was never
checked every share is equally likely.
"""

from bisect import bisect
from math import exp, lgamma, log, log1p

from sterna.model import Record

DAY = 24 * 3600.0
HALF_LIFE_SECONDS = 30 * DAY
TRUSTED = 0.9  # a host is trusted if, with 95 % certainty, at least this share of its pages is true
MOST_ALONE_DAYS = 30.0
_DOUBT = 0.05
_TERMS = 300  # of the continued fraction; the counts of a score need far fewer
_STEPS = 2**53  # between 0 and 1, as many as a float can tell apart
_TINY = 1e-300


class Score(Record, frozen=True):
    """Weighted counts of checked pages at a point in time."""

    good: float = 0.0
    bad: float = 0.0
    at: float = 0.0


class Belief(Record, frozen=True):
    """The estimated share of a host's pages that is true."""

    mean: float
    lower: float  # lower bound with 95 % certainty

    @property
    def is_trusted(self) -> bool:
        return self.lower >= TRUSTED


def faded(score: Score, now: float) -> Score:
    """The score with its counts halved for every half-life that passed."""
    share = 0.5 ** (max(now - score.at, 0.0) / HALF_LIFE_SECONDS)
    return Score(score.good * share, score.bad * share, now)


def counted(score: Score, *, good: int, bad: int, now: float) -> Score:
    """The score after a check; one bad page resets the good count, including that of the same check."""
    old = faded(score, now)
    return Score(0.0 if bad else old.good + good, old.bad + bad, now)


def succeeded(score: Score) -> Score:
    """The score of a host that returns with a new key: bad pages still count, good ones do not."""
    return Score(0.0, score.bad, score.at)


def belief(score: Score, now: float) -> Belief:
    old = faded(score, now)
    a, b = 1.0 + old.good, 1.0 + old.bad
    return Belief(a / (a + b), quantile(_DOUBT, a, b))


def alone_seconds(score: Score) -> float:
    """How long a host caught lying is not contacted: a day for each bad page that still counts."""
    return min(score.bad, MOST_ALONE_DAYS) * DAY


# -- the beta distribution ---------------------------------------------------------------------------------


def quantile(share: float, a: float, b: float) -> float:
    """The point below which this share of Beta(a, b) lies."""
    return bisect(range(_STEPS), share, key=lambda step: below(step / _STEPS, a, b)) / _STEPS


def below(x: float, a: float, b: float) -> float:
    """The share of Beta(a, b) below x: the regularised incomplete beta function (Numerical Recipes 6.4)."""
    if not 0.0 < x < 1.0:
        return float(x >= 1.0)
    if x > (a + 1) / (a + b + 2):  # the fraction of the mirrored distribution converges faster here
        return 1.0 - below(1.0 - x, b, a)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + step * d)
            c = _away_from_zero(1.0 + step / c)
            value *= c * d
        if abs(c * d - 1.0) < 1e-12:
            break
    return value


def _away_from_zero(number: float) -> float:
    return number if abs(number) > _TINY else _TINY
