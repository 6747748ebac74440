"""Finds the elements that fit a selector, in time that grows with the page and no faster."""

from collections import Counter
from collections.abc import Callable, Iterator
from operator import attrgetter

from selectolax.lexbor import LexborNode

from sterna.web.selector import Chain, Position
from sterna.web.tree import parse

_MAX_LOOKS = 1_500_000  # at elements, for all selectors of a page: about two seconds
_CHARACTERS_A_LOOK = 64

_Test = Callable[[LexborNode], bool]


class Exhausted(Exception):
    """So much was looked at that the rest of the page is left alone."""


class Effort:
    """What may still be looked at of a page; whoever looks counts it."""

    def __init__(self) -> None:
        self._looks = _MAX_LOOKS

    def look(self, elements: int = 1, *, characters: int = 0) -> None:
        self._looks -= elements + characters // _CHARACTERS_A_LOOK
        if self._looks < 0:
            raise Exhausted


class Finder:
    """The elements of one page."""

    def __init__(self, markup: str, effort: Effort) -> None:
        self._tree = parse(markup)
        self._size = markup.count("<")
        self._effort = effort
        # Of elements whose siblings were counted: their numbers from both ends, among all and their like.
        self._numbers: dict[int, tuple[int, int, int, int]] = {}

    def find(self, chains: tuple[Chain, ...]) -> Iterator[LexborNode]:
        """Gives the elements that fit one of the chains, each once, in document order."""
        found = [self._fitting(chain) for chain in chains]
        if len(found) == 1:
            yield from found[0]
            return
        wanted = {node.mem_id for nodes in found for node in nodes}
        for node in self._css(", ".join([chain[-1].css for chain in chains])):
            if node.mem_id in wanted:
                wanted.remove(node.mem_id)
                yield node

    def _fitting(self, chain: Chain) -> list[LexborNode]:
        """Gives the elements that fit a chain, found step by step from the left."""
        nodes: list[LexborNode] = []
        for step in chain:
            stands_well = self._relation(step.combinator, {node.mem_id for node in nodes})
            nodes = [
                node
                for node in self._css(step.css)
                if stands_well(node) and self._is_at(node, step.positions)
            ]
        return nodes

    def _css(self, css: str) -> list[LexborNode]:
        nodes = self._tree.css(css)
        self._effort.look(len(nodes) + self._size // 16)
        return nodes

    def _relation(self, combinator: str, fitting: set[int]) -> _Test:
        """Gives what tells whether an element stands as the combinator says to a fitting one."""
        if combinator == ">":
            return lambda node: node.parent is not None and node.parent.mem_id in fitting
        if combinator == "+":
            return lambda node: (before := _element_before(node)) is not None and before.mem_id in fitting
        if combinator:
            return self._reach(attrgetter("parent" if combinator == " " else "prev"), fitting)
        return lambda _: True

    def _reach(self, step: Callable[[LexborNode], LexborNode | None], fitting: set[int]) -> _Test:
        """Gives what tells whether steps from an element lead to a fitting one; no step is done twice."""
        known: dict[int, bool] = {}

        def reaches(node: LexborNode) -> bool:
            path: list[int] = []
            at = step(node)
            while at is not None and at.mem_id not in fitting and at.mem_id not in known:
                path.append(at.mem_id)
                at = step(at)
            is_reached = at is not None and known.get(at.mem_id, True)
            known.update(dict.fromkeys(path, is_reached))
            self._effort.look(1 + len(path))
            return is_reached

        return reaches

    def _is_at(self, node: LexborNode, positions: tuple[Position, ...]) -> bool:
        if not positions:
            return True
        if node.mem_id not in self._numbers and node.parent is not None:
            self._number(node.parent)
        numbers = self._numbers[node.mem_id]
        return all(each.holds(numbers[2 * each.is_of_type + each.is_from_end]) for each in positions)

    def _number(self, parent: LexborNode) -> None:
        children = [child for child in children_of(parent) if child.is_element_node]
        self._effort.look(4 * len(children))  # which takes so much longer
        left = Counter(child.tag_id for child in children)
        seen: Counter[int] = Counter()
        for number, child in enumerate(children):
            tag = child.tag_id
            self._numbers[child.mem_id] = (number + 1, len(children) - number, seen[tag] + 1, left[tag])
            seen[tag] += 1
            left[tag] -= 1


def children_of(node: LexborNode) -> Iterator[LexborNode]:
    """Gives the children of a node, texts and comments too."""
    child = node.first_child
    while child is not None:
        yield child
        child = child.next


def _element_before(node: LexborNode) -> LexborNode | None:
    before = node.prev
    while before is not None and not before.is_element_node:
        before = before.prev
    return before
