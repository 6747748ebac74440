"""The rank of a URL that waits: its priority and its depth in one number; the least is fetched first.

Without a priority the rank is the depth, so that a crawl that gives none pays nothing for them: neither in
the tables, which are the ledger's largest, nor where every link is looked up.
"""

from sterna.model import Target

BITS = 20
LEVELS = 1 << BITS  # depths of one priority
MAX_DEPTH = LEVELS - 1
MAX_PRIORITY = 2**31 - 1
LEAST = -(MAX_PRIORITY << BITS)
GREATEST = -LEAST + MAX_DEPTH


def rank_of(target: Target) -> int:
    """The rank; a depth or a priority that is out of all bounds counts as the nearest within."""
    if not target.priority and 0 <= target.depth < LEVELS:
        return target.depth
    depth = min(max(target.depth, 0), MAX_DEPTH)
    priority = min(max(target.priority, -MAX_PRIORITY), MAX_PRIORITY)
    return depth - (priority << BITS)


def depth_of(rank: int) -> int:
    return rank & MAX_DEPTH


def priority_of(rank: int) -> int:
    return -(rank >> BITS)


def best(one: int, other: int) -> int:
    """The higher of both priorities with the lower of both depths."""
    return (min(one >> BITS, other >> BITS) << BITS) + min(depth_of(one), depth_of(other))
