"""What CSS selectors find on a page: the texts of its elements, or the values of an attribute."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from selectolax.lexbor import LexborNode, create_tag

from sterna.model import Selector
from sterna.web.markup import collapse
from sterna.web.selector import Effort, Exhausted, Finder, children_of, parse_selector
from sterna.web.walk import INLINE, TEXT, UNSEEN

MAX_MATCHES = 1_000  # of each selector
MAX_CHARACTERS = 100_000  # of all that is taken from a page
MAX_MARKUP_LENGTH = 2_000_000  # selectors see no more of a page

Extracts = tuple[tuple[str, tuple[str, ...]], ...]


def check_selector(css: str) -> None:
    """Raises UsageError, in one line, for a selector that `extract` cannot follow."""
    parse_selector(css)


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
    effort = Effort()
    finder = Finder(markup, effort)
    for selector in selectors:
        for node in islice(finder.find(parse_selector(selector.css)), MAX_MATCHES):
            if selector.attribute:
                yield selector, node.attributes.get(selector.attribute) or ""
            else:
                yield selector, _text_of(node, effort)


_TR, _TD, _TH = (create_tag(name).tag_id for name in ("tr", "td", "th"))


def _text_of(element: LexborNode, effort: Effort) -> str:
    if element.tag_id != _TR:
        return collapse("".join(_pieces_of(element, effort)))
    cells = [child for child in children_of(element) if child.tag_id in (_TD, _TH)]
    return "\t".join([collapse("".join(_pieces_of(cell, effort))) for cell in cells])


def _pieces_of(element: LexborNode, effort: Effort) -> Iterator[str]:
    """Yields the visible text of an element in pieces, with spaces between blocks."""
    stack: list[tuple[LexborNode | None, str]] = []  # where to continue after an element, and what ends it
    node = element.first_child
    while node is not None or stack:
        if node is None:
            node, end = stack.pop()
            yield end
            continue
        tag = node.tag_id
        text = (node.text_content or "") if tag == TEXT else ""
        effort.look(characters=len(text))
        if tag == TEXT or tag in UNSEEN:
            yield text or " "
            node = node.next
        else:
            edge = "" if tag in INLINE else " "
            yield edge
            stack.append((node.next, edge))
            node = node.first_child
