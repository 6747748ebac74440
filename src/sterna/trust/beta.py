"""The beta distribution: its quantiles, by bisection of the regularised incomplete beta function."""

from math import exp, lgamma, log, log1p

_TERMS = 300  # of the continued fraction, which for the counts of a score needs far fewer
_HALVINGS = 60
_TINY = 1e-300


def quantile(share: float, a: float, b: float) -> float:
    """Where a share of the distribution Beta(a, b) lies below."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if below(middle, a, b) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def below(x: float, a: float, b: float) -> float:
    """How much of Beta(a, b) lies below x (Numerical Recipes 6.4)."""
    if not 0.0 < x < 1.0:
        return float(x >= 1.0)
    if x > (a + 1) / (a + b + 2):  # where the fraction of the mirrored one converges faster
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
