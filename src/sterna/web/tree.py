"""Reads a page by the tree that a parser makes of it, as the standard says, of any text at all."""

import re
from enum import Enum

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError, create_tag

from sterna.errors import ReadError
from sterna.web.markup import (
    MAX_LINK_TEXT_LENGTH,
    MAX_TITLE_LENGTH,
    READERS,
    Findings,
    collapse,
    cut,
    href_of,
    is_weak,
    rel_of,
)
from sterna.web.taming import tame

# What is looked at of a link's text, in pieces and in characters of each: links can nest, and each would
# read the text of all the inner ones.
_MAX_LINK_PIECES, _MAX_LINK_PIECE_LENGTH = 64, 1_000


# Tags that say nothing and part no words, plainly written: half of all tags, and without them both the parser
# and the walk have half as much to do.
_SILENT = re.compile(
    r"</?(?:a(?:bbr|cronym)|b(?:d[io]|ig)?|c(?:ite|ode)|d(?:ata|el|fn)|em|font|i(?:ns)?|kbd|label|mark|nobr|q"
    r"|s(?:amp|mall|pan|trike|trong|u[bp])?|t(?:ime|t)|u|var|wbr)"
    r"""(?:[ \t\n\r\f/][^<>"']*+(?:"[^"<>]*+"[^<>"']*+)*+)?+>"""
)


def read_tree(text: str, *, agent: str, wants_text: bool = True) -> Findings:
    """Gives what a page says; without `wants_text` only its links."""
    try:
        tree = LexborHTMLParser(tame(_slimmed(text)))
    except SelectolaxError as error:
        raise ReadError("parser", "the page needs more memory than there is") from error
    page = _Reading(agent)
    _walk(tree.root, page)
    if wants_text:
        page.text = collapse("".join(page.pieces))
    else:
        page.title = ""
        page.hrefs = {href: ("", rel) for href, (_, rel) in page.hrefs.items()}
    return page


def _slimmed(text: str) -> str:
    body = max(text.find("<body"), text.find("</title"), 0)  # what looks like a tag in a title is its text
    return text[:body] + _SILENT.sub("", text[body:])


# A link whose text is still being read: its href, its rel, and the piece at which its text starts.
_Anchor = tuple[str, str, int]


class _Reading(Findings):
    """What the walk has found so far; only the walk fills it."""

    def __init__(self, agent: str) -> None:
        super().__init__(agent)
        self.pieces: list[str] = []  # of the visible text
        self.muted = 0  # how many elements are open whose text nobody sees

    def close_link(self, anchor: _Anchor) -> None:
        href, rel, start = anchor
        pieces = self.pieces[start : start + _MAX_LINK_PIECES]
        text = "".join([piece[:_MAX_LINK_PIECE_LENGTH] for piece in pieces])
        self.add_link(href, rel, text=cut(text, MAX_LINK_TEXT_LENGTH))


def _open_link(page: _Reading, node: LexborNode) -> _Anchor | None:
    attributes = node.attributes
    href = href_of(attributes).partition("#")[0].strip()
    known = page.hrefs.get(href)
    if not href or (known and known[0] and not is_weak(known[1])):
        return None  # many links stand on a page twice, and reading a second text takes time
    return href, rel_of(attributes), len(page.pieces)


def _ids(*names: str) -> frozenset[int]:
    """Gives the numbers under which the parser knows these elements; they are fastest to compare."""
    return frozenset(create_tag(name).tag_id for name in names)


_TAG_READERS = {create_tag(name).tag_id: reader for name, reader in READERS.items()}
_A, _TITLE = create_tag("a").tag_id, create_tag("title").tag_id
_TEXT = 2  # no tag makes these numbers: a text, and in the next set an instruction and a comment
_INLINE = frozenset({0, 4}) | _ids(
    "a", "abbr", "acronym", "area", "b", "base", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn",
    "em", "font", "i", "img", "ins", "kbd", "label", "link", "map", "mark", "meta", "nobr", "q", "rb", "rp",
    "rt", "rtc", "ruby", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u",
    "var", "wbr",
)  # fmt: skip
_SKIPPED = _ids("iframe", "noembed", "noframes", "script", "style", "template", "title")
_MUTED = _ids("noscript", "svg")  # their links count, their text does not
_SPECIAL = _TAG_READERS.keys() | _SKIPPED | _MUTED | {_A}


class _End(Enum):
    """What ends with an element: a line of text, or a text that nobody sees."""

    BLOCK = 1
    MUTED = 2


_BLOCK = _End.BLOCK  # looking up a member of an Enum takes as long as reading a node
_Stack = list[LexborNode | _Anchor | _End]


def _walk(root: LexborNode | None, page: _Reading) -> None:
    """Reads a tree once, in document order and without recursion: a page nests as deep as it likes."""
    add = page.pieces.append
    stack: _Stack = []  # what follows when the current branch ends: an element's end, then its next sibling
    node = root
    while node is not None or stack:
        if node is None:
            node = _leave(stack.pop(), page)
            continue
        tag, following = node.tag_id, node.next
        if tag == _TEXT:
            if not page.muted:
                add(node.text_content or "")
            node = following
            continue
        is_block = tag not in _INLINE
        if is_block:
            add(" ")
        if tag not in _SPECIAL:
            child = node.first_child
            if child is None:
                node = following
                continue
            if (
                child.tag_id == _TEXT and child.next is None
            ):  # as half of all elements are: nothing but a text
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
        node = _enter(node, tag, page=page, stack=stack) if tag in _SPECIAL else child


def _leave(ending: LexborNode | _Anchor | _End, page: _Reading) -> LexborNode | None:
    """Ends what an element began, and gives the node that follows it."""
    if isinstance(ending, LexborNode):
        return ending
    if ending is _BLOCK:
        page.pieces.append(" ")
    elif isinstance(ending, tuple):
        page.close_link(ending)
    else:
        page.muted -= 1
    return None


def _enter(node: LexborNode, tag: int, *, page: _Reading, stack: _Stack) -> LexborNode | None:
    """Reads an element that says something, and gives the child at which to go on."""
    if tag == _A:
        anchor = _open_link(page, node)
        if anchor is not None:
            stack.append(anchor)
    elif tag in _MUTED:
        page.muted += 1
        stack.append(_End.MUTED)
    elif tag == _TITLE:
        if not page.muted and not page.title:  # drawings have titles too
            page.title = cut(node.text(), MAX_TITLE_LENGTH)
    elif tag in _TAG_READERS:
        _TAG_READERS[tag](page, node.attributes)
    return None if tag in _SKIPPED else node.first_child
