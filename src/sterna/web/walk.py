"""The walk through a page's tree: what is noted of its elements, and what of its text is its own.

The text comes in pieces, with a space where a block begins or ends, and with the spans of pieces that some
elements hold. From these come the headings, and the text without the menus and frames around it.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import ClassVar, Literal

from selectolax.lexbor import LexborNode, create_tag

from sterna.model import DEFAULT_FIELDS, Field
from sterna.web.markup import (
    MAX_HEADINGS,
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
from sterna.web.tree import parse

MAX_HEADING_LENGTH = 200
# What is looked at of the text of a link or a heading, in pieces and in characters of each: they can nest,
# and each would read the text of all the inner ones.
MAX_PIECES, MAX_PIECE_LENGTH = 64, 1_000
# Fields that need no tree; links have no texts where only these are wanted.
WITHOUT_TREE: frozenset[Field] = frozenset({"links", "language", "headers", "html"})

_CLOSE: frozenset[Field] = frozenset({"description", "headings", "keywords"})

# Tags that say nothing and part no words, plainly written: half of all tags, and without them both the parser
# and the walk have half as much to do. Behind another "<" they are left: what is before and behind them would
# become a tag.
_SILENT = re.compile(
    r"<(?<!<<)(?<!</<)/?(?:a(?:bbr|cronym)|b(?:d[io]|ig)?|c(?:ite|ode)|d(?:ata|el|fn)|em|font|i(?:ns)?|kbd|label|mark|nobr|q"
    r"|s(?:amp|mall|pan|trike|trong|u[bp])?|t(?:ime|t)|u|var|wbr)"
    r"""(?:[ \t\n\r\f/][^<>"']*+(?:"[^"<>]*+"[^<>"']*+)*+)?+>"""
)


# A header, of a page or an article, is a frame, but what it has of headings is the page's own.
SpanKind = Literal["heading", "header", "frame"]


@dataclass(slots=True)
class Span:
    """The pieces that an element holds, from `start` up to `end`, which the walk sets when it comes there."""

    kind: SpanKind
    start: int
    end: int


def _ids(*names: str) -> frozenset[int]:
    """Returns the parser's numbers for these elements, which are fastest to compare."""
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
_KINDS: dict[int, SpanKind] = {
    create_tag("header").tag_id: "header",
    **dict.fromkeys(_ids("h1", "h2", "h3", "h4", "h5", "h6"), "heading"),
    **dict.fromkeys(_ids("aside", "button", "footer", "form", "menu", "nav", "select"), "frame"),
}

# What ends with an element: a block of text, or text that is not visible.
_BLOCK: Literal["block"] = "block"
_MUTED_TEXT: Literal["muted"] = "muted"
# A link whose text is still being read: its href, its rel, and the piece at which its text starts.
_Anchor = tuple[str, str, int]
Ending = _Anchor | Literal["block", "muted"] | Span
Stack = list[LexborNode | Ending]


class Reading(Findings):
    """What the walk has found so far; only the walk fills it."""

    special: ClassVar[frozenset[int]] = _SPECIAL  # the elements to enter
    _readers: ClassVar = _TAG_READERS

    def __init__(self, agent: str) -> None:
        super().__init__(agent)
        self.pieces: list[str] = []  # of the visible text
        self.muted = 0  # the number of open elements whose text is not visible

    def enter(self, node: LexborNode, tag: int, stack: Stack) -> LexborNode | None:
        """Reads a special element; returns the child at which the walk continues."""
        if tag == _A:
            anchor = self._open_link(node)
            if anchor:
                stack.append(anchor)
        elif tag in _MUTED:
            self.muted += 1
            stack.append(_MUTED_TEXT)
        elif tag == _TITLE:
            if not self.muted and not self.title:  # drawings have titles too
                self.title = cut(node.text(), MAX_TITLE_LENGTH)
        elif tag in self._readers:
            self._readers[tag](self, node.attributes)
        return None if tag in _SKIPPED else node.first_child

    def leave(self, ending: LexborNode | Ending) -> LexborNode | None:
        """Ends what an element began; returns the node that follows it."""
        if isinstance(ending, LexborNode):
            return ending
        if ending is _BLOCK:
            self.pieces.append(" ")
        elif isinstance(ending, tuple):
            href, rel, start = ending
            text = _text_of(self.pieces, start, len(self.pieces))
            self.add_link(href, rel, text=cut(text, MAX_LINK_TEXT_LENGTH))
        elif isinstance(ending, Span):
            ending.end = len(self.pieces)
        else:
            self.muted -= 1
        return None

    def finish(self, wants: Collection[Field]) -> None:
        if WITHOUT_TREE.issuperset(wants):
            self.title = ""
            self.hrefs = {href: ("", rel) for href, (_, rel) in self.hrefs.items()}
        elif "text" in wants:
            self.text = collapse("".join(self.pieces))

    def _open_link(self, node: LexborNode) -> _Anchor | tuple[()] | None:
        """Returns a link whose text is to be read; () where it is not, None where there is no link at all."""
        attributes = node.attributes
        href = href_of(attributes).partition("#")[0].strip()
        if not href:
            return () if attributes.get("href") else None
        known = self.hrefs.get(href)
        if known and known[0] and not is_weak(known[1]):
            return ()  # many links stand on a page twice, and reading a second text takes time
        return href, rel_of(attributes), len(self.pieces)


class CloseReading(Reading):
    """A reading that also notes the description, the headings, and the frames around the page's own text."""

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
            span = Span(_KINDS[tag], len(self.pieces), len(self.pieces))
            self.spans.append(span)
            stack.append(span)
            return node.first_child
        return super().enter(node, tag, stack)

    def finish(self, wants: Collection[Field]) -> None:
        super().finish(wants)
        self.description = self.description or self.shared_description
        if "headings" in wants:
            spans = [span for span in self.spans if span.kind == "heading"]
            texts = (cut(_text_of(self.pieces, span.start, span.end), MAX_HEADING_LENGTH) for span in spans)
            self.headings = tuple(islice(filter(None, texts), MAX_HEADINGS))
        if "keywords" in wants:
            self.content = content_of(self.pieces, self.spans, self.links)


# -- the walk ----------------------------------------------------------------------------------------------


def read_tree(text: str, *, agent: str, wants: Collection[Field] = DEFAULT_FIELDS) -> Findings:
    """Returns what is wanted of a page, and always its links."""
    page = Reading(agent) if _CLOSE.isdisjoint(wants) else CloseReading(agent)
    tree = parse(_slimmed(text))
    walk(tree.root, page)
    page.finish(wants)
    return page


def _slimmed(text: str) -> str:
    body = max(text.find("<body"), text.find("</title"), 0)  # what looks like a tag in a title is its text
    return text[:body] + _SILENT.sub("", text[body:])


def walk(root: LexborNode | None, page: Reading) -> None:
    """Walks a tree once, in document order and without recursion: a page may nest to any depth."""
    add, special = page.pieces.append, page.special
    stack: Stack = []  # what follows when the current branch ends: an element's end, then its next sibling
    node = root
    while node is not None or stack:
        if node is None:
            node = page.leave(stack.pop())
            continue
        tag, following = node.tag_id, node.next
        if tag == TEXT:
            if not page.muted:
                add(node.text_content or "")
            node = following
            continue
        is_block = tag not in INLINE
        if is_block:
            add(" ")
        if tag not in special:
            child = node.first_child
            if child is None:
                node = following
                continue
            if child.tag_id == TEXT and child.next is None:  # as half of all elements are: nothing but a text
                if not page.muted:
                    add(child.text_content or "")
                if is_block:
                    add(" ")
                node = following
                continue
        if following is not None:
            stack.append(following)
        if is_block:
            stack.append(_BLOCK)
        node = page.enter(node, tag, stack) if tag in special else child


# -- what a page itself says -------------------------------------------------------------------------------


def _text_of(pieces: Sequence[str], start: int, end: int) -> str:
    some = pieces[start : min(end, start + MAX_PIECES)]
    return "".join([piece[:MAX_PIECE_LENGTH] for piece in some])


def content_of(
    pieces: Sequence[str], spans: Iterable[Span], links: Sequence[int]
) -> tuple[tuple[str, ...], str]:
    """Returns the headings and the text of a page without its frames and menus.

    `spans` are in the order of their starts; `links` are the pieces that are a link's text.
    """
    headings: list[str] = []
    frames: list[Span] = []
    framed_until = silent_until = 0
    for span in spans:
        if span.kind == "heading":
            if span.start >= silent_until and len(headings) < MAX_HEADINGS:
                headings.append("".join(pieces[span.start : span.end])[:MAX_HEADING_LENGTH])
                silent_until = span.end  # for headings within this one
        elif 2 * (span.end - span.start) < len(pieces):  # what holds most of a page is no frame around it
            if span.kind == "frame":
                silent_until = max(silent_until, span.end)
            if span.start >= framed_until:
                frames.append(span)
                framed_until = span.end
    return tuple(headings), "".join(_without(frames, links, pieces))


_SEPARATORS = " \t\n\r\f\xa0|/\\,;:.<>[](){}*+-–—·•→←»«›‹▸▾"


def _without(frames: Iterable[Span], links: Sequence[int], pieces: Sequence[str]) -> list[str]:
    """Returns the pieces without the frames, and without links by themselves or among others: menus."""
    kept = [*pieces, " "]  # for the last piece, and by its index -1 for the first
    for at, next_link in pairwise([*links, -1]):
        before, after = kept[at - 1], kept[at + 1]
        if (before == " " or not before.strip(_SEPARATORS)) and (
            after == " " or next_link == at + 1 or not after.strip(_SEPARATORS)
        ):
            kept[at] = " "
    for frame in frames:
        kept[frame.start : frame.end] = [" "] * (frame.end - frame.start)
    return kept
