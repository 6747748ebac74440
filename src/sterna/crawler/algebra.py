"""The algebra of predicates: AND, OR, NOT, and weaker predicates for when a page is only partly known.

A weaker predicate is true for every page for which the original is true, so no wanted page is lost. A part
that is unknown counts as true, and as false under NOT.
"""

from collections.abc import Callable, Collection, Iterable

from sterna.crawler.grammar import columns_of
from sterna.model import Predicate

TRUE, FALSE = Predicate("true"), Predicate("false")

# For NULL neither is true.
_OPPOSITES = {
    "true": "false", "false": "true", "=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"
}  # fmt: skip

# Replaces a part; the flag says whether it is under a NOT.
Leaf = Callable[[Predicate, bool], Predicate]


def weakened(predicate: Predicate, leaf: Leaf, *, is_negated: bool = False) -> Predicate:
    """The predicate with its leaves replaced, simplified."""
    if predicate.op == "not":
        return negated(weakened(predicate.parts[0], leaf, is_negated=not is_negated))
    if predicate.op in ("and", "or"):
        return joined(predicate.op, (weakened(each, leaf, is_negated=is_negated) for each in predicate.parts))
    return leaf(predicate, is_negated)


def unknown(is_negated: bool) -> Predicate:
    """The replacement for a part that is unknown."""
    return FALSE if is_negated else TRUE


def joined(op: str, parts: Iterable[Predicate]) -> Predicate:
    """AND or OR of these, simplified."""
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
    if part.op == "not":
        return part.parts[0]
    if part.op in _OPPOSITES:
        return Predicate(_OPPOSITES[part.op], part.column, part.values)
    return Predicate("not", parts=(part,))


def restricted(predicate: Predicate, columns: Collection[str]) -> Predicate | None:
    """The predicate weakened to these columns; None if nothing is left."""

    def leaf(part: Predicate, is_negated: bool) -> Predicate:
        return part if columns_of(part) <= set(columns) else unknown(is_negated)

    return or_none(weakened(predicate, leaf))


def or_none(predicate: Predicate) -> Predicate | None:
    """The predicate; None if it is true for every page."""
    return None if predicate == TRUE else predicate


def prune_of(predicate: Predicate) -> Predicate | None:
    """The condition that a URL must meet before it is fetched, such that no wanted page is lost.

    Pages are found through other pages, so only two conditions can be tested before the fetch. A page is at
    least as deep as the page that leads to it, so a maximum depth holds for both. And a condition on sites
    limits where the crawl goes, as a scope does.
    """

    def sited(part: Predicate, is_negated: bool) -> Predicate:
        return part if columns_of(part) == {"site"} else unknown(is_negated)

    return or_none(joined("and", (weakened(predicate, _bounded), weakened(predicate, sited))))


def prunable_of(predicate: Predicate) -> Predicate | None:
    """The same for a crawl that follows only URLs that match; start pages are always fetched."""
    matching = restricted(predicate, {"url", "referrer"})
    starts = Predicate("=", "depth", (0,))
    near = joined("or", (starts, matching)) if matching else TRUE
    return or_none(joined("and", (prune_of(predicate) or TRUE, near)))


def _bounded(part: Predicate, is_negated: bool) -> Predicate:
    """The maximum depth that the part allows; the rest of it is unknown."""
    if columns_of(part) != {"depth"}:
        return part if part in (TRUE, FALSE) else unknown(is_negated)
    if part.op in ((">", ">=") if is_negated else ("<", "<=")):
        return part
    depths = [value for value in part.values if isinstance(value, int)]
    ops = ("<>", "is_distinct") if is_negated else ("=", "between", "in")
    if part.op not in ops or len(depths) != len(part.values):
        return unknown(is_negated)
    deepest = depths[-1] if part.op == "between" else max(depths)
    return Predicate(">" if is_negated else "<=", "depth", (deepest,))
