"""What CSS selectors find on a page: the texts of its elements, or the values of an attribute.

An engine that goes from element to element can take time with any power of the page: `a b c d` on deep pages,
`a ~ b ~ c` and `:nth-child()` on wide ones. So the parser's engine only matches single elements; the
relations between elements are found once for each. Selectors that need more, such as `:has()`, are refused.
Hosts check the selectors of strangers where they answer all homes: that takes Python's own expressions alone,
which accept less than the parser does.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Annotated

from msgspec import Meta
from selectolax.lexbor import LexborNode, create_tag

from sterna.errors import UsageError
from sterna.model import Record, Selector
from sterna.web.markup import collapse
from sterna.web.tree import parse
from sterna.web.walk import INLINE, TEXT, UNSEEN

MAX_MATCHES = 1_000  # of each selector
MAX_CHARACTERS = 100_000  # of all that is taken from a page
MAX_MARKUP_LENGTH = 2_000_000  # selectors see no more of a page
MAX_SHOWN = 100  # characters of a selector that is refused
_MAX_LENGTH, _MAX_COMPOUNDS = 500, 20

MAX_SELECTORS = 1_000
_Matches = Annotated[tuple[str, ...], Meta(max_length=MAX_MATCHES)]
Extracts = Annotated[tuple[tuple[str, _Matches], ...], Meta(max_length=MAX_SELECTORS)]


class Position(Record, frozen=True):
    """Requires that an element is the (cycle * n + offset)th of its siblings, for some n >= 0."""

    cycle: int
    offset: int
    is_of_type: bool  # counted among those of its own name
    is_from_end: bool

    def holds(self, number: int) -> bool:
        """Whether it holds for the element with this number, counted from 1."""
        rest = number - self.offset
        return rest == 0 if self.cycle == 0 else rest % self.cycle == 0 and rest // self.cycle >= 0


class Compound(Record, frozen=True):
    """An element: its relation to the compound before, its own CSS, and its places among its siblings."""

    combinator: str
    css: str
    positions: tuple[Position, ...] = ()


Chain = tuple[Compound, ...]


@lru_cache(maxsize=256)
def parse_selector(css: str) -> tuple[Chain, ...]:
    """Returns the chains of a selector; an element must fit one. UsageError if it is not supported."""
    if len(css) > _MAX_LENGTH:
        raise UsageError(f"selector {css[:40]!r}...: longer than {_MAX_LENGTH} characters; make it shorter")
    chains: list[list[Compound]] = []
    for combinator, text in _compounds_of(css.strip(_BLANK)):
        if not combinator:
            chains.append([])
        chains[-1].append(_compound_of(combinator, text))
    compounds = [compound for chain in chains for compound in chain]
    if len(compounds) > _MAX_COMPOUNDS:
        raise UsageError(f"selector {css[:40]!r}...: more than {_MAX_COMPOUNDS} parts; make it shorter")
    return tuple(map(tuple, chains))


# White space and digits of CSS, which are fewer than those of Python's expressions.
_BLANK = " \t\n\r\f"
_GAP = r"[ \t\n\r\f]*+"
_ESCAPE = r"\\(?:[0-9a-fA-F]{1,6}+[ \t\n]?+|[^\n\r\f0-9a-fA-F])"
_NAME = rf"-?(?:[^\W\d]|{_ESCAPE})(?:[\w-]|{_ESCAPE})*+"
_STRING = r"""(?:"(?:[^"\\\n\r\f]|\\[^\n\r\f])*+"|'(?:[^'\\\n\r\f]|\\[^\n\r\f])*+')"""
_ATTRIBUTE = rf"\[{_GAP}{_NAME}{_GAP}(?:[~|^$*]?={_GAP}(?:{_NAME}|{_STRING}){_GAP}[iIsS]?{_GAP})?\]"
_STATE = r":(?i:first-child|last-child|only-child|empty|root|any-link|link|checked|disabled)(?![\w(-])"
_SIMPLE = rf"(?:[#.]{_NAME}|{_ATTRIBUTE}|{_STATE})"
_PLAIN = rf"(?:(?:\*|{_NAME}){_SIMPLE}*+|{_SIMPLE}++)"
_CHOICE = rf":(?i:not|is|where)\({_GAP}{_PLAIN}(?:{_GAP},{_GAP}{_PLAIN})*+{_GAP}\)"
_NTH = rf"(?:even|odd|[+-]?[0-9]*+n(?:{_GAP}[+-]{_GAP}[0-9]++)?|[+-]?[0-9]++)"
_PLACE = (
    rf":(?i:nth-(?:last-)?(?:child|of-type)\({_GAP}{_NTH}{_GAP}\)"
    r"|(?:first|last|only)-of-type(?![\w(-]))"
)

# Compiled where they are needed, for that takes time, and few crawlers have selectors.
_COMPOUND = rf"(?:\*|{_NAME})?(?:{_SIMPLE}|{_CHOICE}|{_PLACE})*+"
_PART = rf"{_PLACE}|{_CHOICE}|{_SIMPLE}|\*|{_NAME}"
_JOINT = rf"{_GAP}([,>+~]){_GAP}|[ \t\n\r\f]++"


def _compounds_of(css: str) -> Iterator[tuple[str, str]]:
    """Yields the compounds of a selector, each with its combinator; "" begins a chain."""
    at, combinator = 0, ""
    while True:
        found = re.compile(_COMPOUND).match(css, at)
        if not found or not found[0]:
            raise _refusal(css, at)
        yield combinator, found[0]
        at = found.end()
        if at == len(css):
            return
        joint = re.compile(_JOINT).match(css, at)
        if not joint:
            raise _refusal(css, at)
        at = joint.end()
        combinator = "" if joint[1] == "," else joint[1] or " "


def _refusal(css: str, at: int) -> UsageError:
    what = f"{css[at : at + 30]!r} is not supported" if css[at:] else "its end is missing"
    shown = css if len(css) <= MAX_SHOWN else css[:MAX_SHOWN] + "..."
    return UsageError(
        f"selector {shown!r}: {what}; write elements, #ids, .classes, [attributes], :not(), :is(),"
        " :nth-child() and the like, with spaces, >, + or ~ between them"
    )


def _compound_of(combinator: str, text: str) -> Compound:
    css: list[str] = []
    positions: list[Position] = []
    for part in re.findall(_PART, text):
        if re.fullmatch(_PLACE, part):
            positions += _positions_of(part.lower())
        else:
            css.append(part)
    return Compound(combinator, "".join(css) or "*", tuple(positions))


_FORMULA = r"([+-]?\d*)n([+-]\d+)?"
_CYCLES = {"": 1, "+": 1, "-": -1}


def _positions_of(place: str) -> list[Position]:
    kind, _, argument = place.rstrip(")").partition("(")
    is_of_type = kind.endswith("of-type")
    if not argument:
        edges = [True, False] if "only" in kind else ["last" in kind]
        return [Position(0, 1, is_of_type=True, is_from_end=edge) for edge in edges]
    argument = "".join(argument.split()).replace("even", "2n").replace("odd", "2n+1")
    formula = re.fullmatch(_FORMULA, argument)
    cycle, offset = formula.groups() if formula else ("0", argument)
    number = _CYCLES[cycle] if cycle in _CYCLES else int(cycle)
    return [Position(number, int(offset or 0), is_of_type=is_of_type, is_from_end="last" in kind)]


# -- finding elements ---------------------------------------------------------------------------------------

_MAX_LOOKS = 1_500_000  # at elements, for all selectors of a page: about two seconds
_CHARACTERS_A_LOOK = 64

_Test = Callable[[LexborNode], bool]
_TR, _TD, _TH = (create_tag(name).tag_id for name in ("tr", "td", "th"))


class Exhausted(Exception):
    """The effort for the page is used up; the rest is skipped."""


class Finder:
    """The elements of one page and their texts; each look at one is counted."""

    def __init__(self, markup: str) -> None:
        self._tree = parse(markup)
        self._size = markup.count("<")
        self._looks = _MAX_LOOKS  # that are left
        # Of elements whose siblings were counted: their numbers from both ends, among all and their like.
        self._numbers: dict[int, tuple[int, int, int, int]] = {}

    def _look(self, elements: int = 1, *, characters: int = 0) -> None:
        self._looks -= elements + characters // _CHARACTERS_A_LOOK
        if self._looks < 0:
            raise Exhausted

    def find(self, chains: tuple[Chain, ...]) -> Iterator[LexborNode]:
        """Yields the elements that fit one of the chains, each once, in document order."""
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
        """Returns the elements that fit a chain, found compound by compound from the left."""
        nodes: list[LexborNode] = []
        for compound in chain:
            stands_well = self._relation(compound.combinator, {node.mem_id for node in nodes})
            nodes = [
                node
                for node in self._css(compound.css)
                if stands_well(node) and self._is_at(node, compound.positions)
            ]
        return nodes

    def _css(self, css: str) -> list[LexborNode]:
        nodes = self._tree.css(css)
        self._look(len(nodes) + self._size // 16)
        return nodes

    def _relation(self, combinator: str, fitting: set[int]) -> _Test:
        """Returns a test whether an element has the combinator's relation to a fitting one."""
        if combinator == ">":
            return lambda node: node.parent is not None and node.parent.mem_id in fitting
        if combinator == "+":
            return lambda node: (before := _element_before(node)) is not None and before.mem_id in fitting
        if combinator:
            return self._reach(attrgetter("parent" if combinator == " " else "prev"), fitting)
        return lambda _: True

    def _reach(self, step: Callable[[LexborNode], LexborNode | None], fitting: set[int]) -> _Test:
        """Returns a test whether steps from an element lead to a fitting one; no step is repeated."""
        known: dict[int, bool] = {}

        def reaches(node: LexborNode) -> bool:
            path: list[int] = []
            at = step(node)
            while at is not None and at.mem_id not in fitting and at.mem_id not in known:
                path.append(at.mem_id)
                at = step(at)
            is_reached = at is not None and known.get(at.mem_id, True)
            known.update(dict.fromkeys(path, is_reached))
            self._look(1 + len(path))
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
        children = [child for child in parent.iter() if child.is_element_node]
        self._look(4 * len(children))  # which takes so much longer
        left = Counter(child.tag_id for child in children)
        seen: Counter[int] = Counter()
        for number, child in enumerate(children):
            tag = child.tag_id
            self._numbers[child.mem_id] = (number + 1, len(children) - number, seen[tag] + 1, left[tag])
            seen[tag] += 1
            left[tag] -= 1

    def text_of(self, element: LexborNode) -> str:
        if element.tag_id != _TR:
            return collapse("".join(self._pieces_of(element)))
        cells = [child for child in element.iter() if child.tag_id in (_TD, _TH)]
        return "\t".join([collapse("".join(self._pieces_of(cell))) for cell in cells])

    def _pieces_of(self, element: LexborNode) -> Iterator[str]:
        """Yields the visible text of an element in pieces, with spaces between blocks."""
        stack: list[
            tuple[LexborNode | None, str]
        ] = []  # where to continue after an element, and what ends it
        node = element.first_child
        while node is not None or stack:
            if node is None:
                node, end = stack.pop()
                yield end
                continue
            tag = node.tag_id
            text = (node.text_content or "") if tag == TEXT else ""
            self._look(characters=len(text))
            if tag == TEXT or tag in UNSEEN:
                yield text or " "
                node = node.next
            else:
                edge = "" if tag in INLINE else " "
                yield edge
                stack.append((node.next, edge))
                node = node.first_child


def _element_before(node: LexborNode) -> LexborNode | None:
    before = node.prev
    while before is not None and not before.is_element_node:
        before = before.prev
    return before


# -- what is taken of them ----------------------------------------------------------------------------------


def extract(markup: str, selectors: tuple[Selector, ...]) -> Extracts:
    """Returns for each selector's name a text for each element that it finds, in document order.

    The text is what is seen of the element, its white space collapsed. Of a row of a table it is the texts of
    the cells with tabs between them. With an attribute it is that attribute's value, "" where there is none.
    Of a page that has more than the limits allow, the rest is left out.
    """
    found: dict[str, list[str]] = {selector.name: [] for selector in selectors}
    left = MAX_CHARACTERS
    with suppress(Exhausted):
        for selector, value in _values(markup[:MAX_MARKUP_LENGTH], selectors):
            found[selector.name].append(value[:left])
            left -= len(value)
            if left <= 0:
                break
    return tuple([(name, tuple(values)) for name, values in found.items()])


def _values(markup: str, selectors: tuple[Selector, ...]) -> Iterator[tuple[Selector, str]]:
    finder = Finder(markup)
    for selector in selectors:
        for node in islice(finder.find(parse_selector(selector.css)), MAX_MATCHES):
            if selector.attribute:
                yield selector, node.attributes.get(selector.attribute) or ""
            else:
                yield selector, finder.text_of(node)
