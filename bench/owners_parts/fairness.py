"""Who got how much, from a list of who asked, one after the other."""

from collections import Counter
from collections.abc import Sequence


def shares_of(asked: Sequence[str], names: Sequence[str]) -> tuple[list[int], list[int]]:
    """Pages of each, from when all were there until the first was done, and from the beginning until then."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for at, name in enumerate(asked):
        first.setdefault(name, at)
        last[name] = at
    if set(first) != set(names):
        return [0] * len(names), [0] * len(names)
    begin, end = max(first.values()), min(last.values())
    within, until = Counter(asked[begin:end]), Counter(asked[:end])
    return [within[name] for name in names], [until[name] for name in names]


def least(shares: Sequence[int]) -> float:
    """The smallest share / the largest."""
    return min(shares) / max(shares) if max(shares) else 0.0


def jain(shares: Sequence[int]) -> float:
    """Jain's index: 1 if all have the same, 1/n if one has all."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0
