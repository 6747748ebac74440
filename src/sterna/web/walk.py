"""What is noted of a page while its tree is walked, element by element."""

from collections.abc import Collection
from enum import Enum
from typing import ClassVar

from selectolax.lexbor import LexborNode, create_tag

from sterna.model import Field
from sterna.web.content import MAX_PIECE_LENGTH, MAX_PIECES, Kind, Span, content_of, headings_of
from sterna.web.markup import (
    MAX_LINK_TEXT_LENGTH,
    MAX_TITLE_LENGTH,
    READERS,
    Findings,
    collapse,
    cut,
    href_of,
    is_weak,
    read_described_meta,
    rel_of,
)

# What can be told without a tree; links that are wanted with nothing else have no texts.
WITHOUT_TREE: frozenset[Field] = frozenset({"links", "language", "headers", "html"})


def _ids(*names: str) -> frozenset[int]:
    """Gives the numbers under which the parser knows these elements; they are fastest to compare."""
    return frozenset(create_tag(name).tag_id for name in names)


_TAG_READERS = {create_tag(name).tag_id: reader for name, reader in READERS.items()}
_A, _TITLE = create_tag("a").tag_id, create_tag("title").tag_id
TEXT = 2  # no tag makes these numbers: a text, and in the next set an instruction and a comment
INLINE = frozenset({0, 4}) | _ids(
    "a", "abbr", "acronym", "area", "b", "base", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn",
    "em", "font", "i", "img", "ins", "kbd", "label", "link", "map", "mark", "meta", "nobr", "q", "rb", "rp",
    "rt", "rtc", "ruby", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u",
    "var", "wbr",
)  # fmt: skip
_SKIPPED = _ids("iframe", "noembed", "noframes", "script", "style", "template", "title")
_MUTED = _ids("noscript", "svg")  # their links count, their text does not
UNSEEN = _SKIPPED | _MUTED
_SPECIAL = frozenset(_TAG_READERS) | UNSEEN | {_A}
_KINDS = {
    create_tag("header").tag_id: Kind.HEADER,
    **dict.fromkeys(_ids("h1", "h2", "h3", "h4", "h5", "h6"), Kind.HEADING),
    **dict.fromkeys(_ids("aside", "button", "footer", "form", "menu", "nav", "select"), Kind.FRAME),
}


class End(Enum):
    """What ends with an element: a line of text, or a text that nobody sees."""

    BLOCK = 1
    MUTED = 2


BLOCK = End.BLOCK  # looking up a member of an Enum takes as long as reading a node
# A link whose text is still being read: its href, its rel, and the piece at which its text starts.
_Anchor = tuple[str, str, int]
Ending = _Anchor | End | Span
Stack = list[LexborNode | Ending]


class Reading(Findings):
    """What the walk has found so far; only the walk fills it."""

    special: ClassVar[frozenset[int]] = _SPECIAL  # the elements to enter
    _readers: ClassVar = _TAG_READERS

    def __init__(self, agent: str) -> None:
        super().__init__(agent)
        self.pieces: list[str] = []  # of the visible text
        self.muted = 0  # how many elements are open whose text nobody sees

    def enter(self, node: LexborNode, tag: int, stack: Stack) -> LexborNode | None:
        """Reads an element that says something, and gives the child at which to go on."""
        if tag == _A:
            anchor = self._open_link(node)
            if anchor:
                stack.append(anchor)
        elif tag in _MUTED:
            self.muted += 1
            stack.append(End.MUTED)
        elif tag == _TITLE:
            if not self.muted and not self.title:  # drawings have titles too
                self.title = cut(node.text(), MAX_TITLE_LENGTH)
        elif tag in self._readers:
            self._readers[tag](self, node.attributes)
        return None if tag in _SKIPPED else node.first_child

    def leave(self, ending: LexborNode | Ending) -> LexborNode | None:
        """Ends what an element began, and gives the node that follows it."""
        if isinstance(ending, LexborNode):
            return ending
        if ending is BLOCK:
            self.pieces.append(" ")
        elif isinstance(ending, tuple):
            self._close_link(ending)
        elif isinstance(ending, Span):
            ending.end = len(self.pieces)
        else:
            self.muted -= 1
        return None

    def finish(self, wants: Collection[Field]) -> None:
        """Makes what is wanted of what was found."""
        if WITHOUT_TREE.issuperset(wants):
            self.title = ""
            self.hrefs = {href: ("", rel) for href, (_, rel) in self.hrefs.items()}
        elif "text" in wants:
            self.text = collapse("".join(self.pieces))

    def _open_link(self, node: LexborNode) -> _Anchor | tuple[()] | None:
        """Gives a link whose text is to be read; () where it is not, None where there is no link at all."""
        attributes = node.attributes
        href = href_of(attributes).partition("#")[0].strip()
        if not href:
            return () if attributes.get("href") else None
        known = self.hrefs.get(href)
        if known and known[0] and not is_weak(known[1]):
            return ()  # many links stand on a page twice, and reading a second text takes time
        return href, rel_of(attributes), len(self.pieces)

    def _close_link(self, anchor: _Anchor) -> None:
        href, rel, start = anchor
        pieces = self.pieces[start : start + MAX_PIECES]
        text = "".join([piece[:MAX_PIECE_LENGTH] for piece in pieces])
        self.add_link(href, rel, text=cut(text, MAX_LINK_TEXT_LENGTH))


class CloseReading(Reading):
    """A reading that also minds the description, the headings, and what is only a frame of the page."""

    special: ClassVar[frozenset[int]] = _SPECIAL.union(_KINDS)
    _readers: ClassVar = {**_TAG_READERS, create_tag("meta").tag_id: read_described_meta}

    def __init__(self, agent: str) -> None:
        super().__init__(agent)
        self.spans: list[Span] = []
        self.links: list[int] = []  # the pieces that are the text of a link

    def enter(self, node: LexborNode, tag: int, stack: Stack) -> LexborNode | None:
        if tag == _A:
            anchor = self._open_link(node)
            child = node.first_child
            if anchor:
                stack.append(anchor)
            if anchor is not None and child is not None and child.tag_id == TEXT and not self.muted:
                self.links.append(len(self.pieces))
            return child
        if tag in _KINDS:
            span = Span(_KINDS[tag], len(self.pieces))
            self.spans.append(span)
            stack.append(span)
            return node.first_child
        return super().enter(node, tag, stack)

    def finish(self, wants: Collection[Field]) -> None:
        super().finish(wants)
        self.description = self.description or self.shared_description
        if "headings" in wants:
            self.headings = headings_of(self.pieces, self.spans)
        if "keywords" in wants:
            self.content = content_of(self.pieces, self.spans, self.links)
