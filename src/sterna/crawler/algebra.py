"""Weaker predicates: what can be said of a page when not all of it is known, so that no page is lost.

A weaker one is true of every page of which the whole is. Under NOT it has to be turned round: there a part
that is not known counts as false, and elsewhere as true.
"""

from collections.abc import Callable, Collection, Iterable

from sterna.crawler.grammar import columns_of
from sterna.model import Predicate

TRUE, FALSE = Predicate("true"), Predicate("false")

# Of NULL neither is true.
_OPPOSITES = {
    "true": "false",
    "false": "true",
    "=": "<>",
    "<>": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}

# Gives for a part (and whether a NOT stands over it) what takes its place.
Leaf = Callable[[Predicate, bool], Predicate]


def weakened(predicate: Predicate, leaf: Leaf, *, is_negated: bool = False) -> Predicate:
    """The predicate with other leaves, simplified."""
    if predicate.op == "not":
        return negated(weakened(predicate.parts[0], leaf, is_negated=not is_negated))
    if predicate.op in ("and", "or"):
        return joined(predicate.op, (weakened(each, leaf, is_negated=is_negated) for each in predicate.parts))
    return leaf(predicate, is_negated)


def unknown(is_negated: bool) -> Predicate:
    """What stands for a part of which nothing is known."""
    return FALSE if is_negated else TRUE


def joined(op: str, parts: Iterable[Predicate]) -> Predicate:
    """AND or OR of these, without what makes no difference."""
    neutral, decisive = (TRUE, FALSE) if op == "and" else (FALSE, TRUE)
    found: list[Predicate] = []
    for part in parts:
        found += part.parts if part.op == op else [] if part == neutral else [part]
    if decisive in found:
        return decisive
    if len(found) > 1:
        return Predicate(op, parts=tuple(dict.fromkeys(found)))
    return found[0] if found else neutral


def negated(part: Predicate) -> Predicate:
    """NOT of this."""
    if part.op == "not":
        return part.parts[0]
    if part.op in _OPPOSITES:
        return Predicate(_OPPOSITES[part.op], part.column, part.values)
    return Predicate("not", parts=(part,))


def restricted(predicate: Predicate, columns: Collection[str]) -> Predicate | None:
    """What can be said of a page by these columns alone; None if nothing can."""

    def leaf(part: Predicate, is_negated: bool) -> Predicate:
        return part if columns_of(part) <= set(columns) else unknown(is_negated)

    return or_none(weakened(predicate, leaf))


def or_none(predicate: Predicate) -> Predicate | None:
    """The predicate, unless it is true of all."""
    return None if predicate == TRUE else predicate


def prune_of(predicate: Predicate) -> Predicate | None:
    """What a URL must be for its page, or any page that is found through it, to be wanted.

    A page is found through others, so only two things can be said before the fetch without losing any: a page
    lies no nearer than the one that leads to it, so a largest depth holds for both; and a condition on sites
    says where the crawl goes, as a scope does.
    """
    return or_none(joined("and", (weakened(predicate, _bounded), weakened(predicate, _sited))))


def prunable_of(predicate: Predicate) -> Predicate | None:
    """The same, for a crawl that passes only through URLs that match; where it starts is always fetched."""
    matching = restricted(predicate, {"url", "referrer"})
    starts = Predicate("=", "depth", (0,))
    near = joined("or", (starts, matching)) if matching else TRUE
    return or_none(joined("and", (prune_of(predicate) or TRUE, near)))


def _sited(part: Predicate, is_negated: bool) -> Predicate:
    return part if columns_of(part) == {"site"} else unknown(is_negated)


def _bounded(part: Predicate, is_negated: bool) -> Predicate:
    """A bound on the depth, as deep as the part allows; of what else it says nothing remains."""
    if columns_of(part) != {"depth"}:
        return part if part in (TRUE, FALSE) else unknown(is_negated)
    if part.op in ((">", ">=") if is_negated else ("<", "<=")):
        return part
    deepest = _deepest_false(part) if is_negated else _deepest_true(part)
    if deepest is None:
        return unknown(is_negated)
    return Predicate(">" if is_negated else "<=", "depth", (deepest,))


def _deepest_true(part: Predicate) -> int | None:
    numbers = [value for value in part.values if isinstance(value, int)]
    if part.op not in ("=", "between", "in") or len(numbers) != len(part.values):
        return None
    return numbers[-1] if part.op == "between" else max(numbers)


def _deepest_false(part: Predicate) -> int | None:
    (value,) = part.values if len(part.values) == 1 else (None,)
    return value if part.op in ("<>", "is_distinct") and isinstance(value, int) else None
