"""Reads a page by the tree that a parser makes of it, as the standard says, of any text at all."""

import re
from collections.abc import Collection

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from sterna.errors import ReadError
from sterna.model import DEFAULT_FIELDS, Field
from sterna.web.markup import Findings
from sterna.web.taming import tame
from sterna.web.walk import BLOCK, INLINE, TEXT, CloseReading, Reading, Stack

_CLOSE: frozenset[Field] = frozenset({"description", "headings", "keywords"})

# Tags that say nothing and part no words, plainly written: half of all tags, and without them both the parser
# and the walk have half as much to do.
_SILENT = re.compile(
    r"</?(?:a(?:bbr|cronym)|b(?:d[io]|ig)?|c(?:ite|ode)|d(?:ata|el|fn)|em|font|i(?:ns)?|kbd|label|mark|nobr|q"
    r"|s(?:amp|mall|pan|trike|trong|u[bp])?|t(?:ime|t)|u|var|wbr)"
    r"""(?:[ \t\n\r\f/][^<>"']*+(?:"[^"<>]*+"[^<>"']*+)*+)?+>"""
)


def read_tree(text: str, *, agent: str, wants: Collection[Field] = DEFAULT_FIELDS) -> Findings:
    """Gives what is wanted of a page, and always its links: a crawl follows them."""
    page = Reading(agent) if _CLOSE.isdisjoint(wants) else CloseReading(agent)
    tree = parse(_slimmed(text))
    _walk(tree.root, page)
    page.finish(wants)
    return page


def parse(text: str) -> LexborHTMLParser:
    """Gives the tree of any text."""
    try:
        return LexborHTMLParser(tame(text))
    except SelectolaxError as error:
        raise ReadError("parser", "the page needs more memory than there is") from error


def _slimmed(text: str) -> str:
    body = max(text.find("<body"), text.find("</title"), 0)  # what looks like a tag in a title is its text
    return text[:body] + _SILENT.sub("", text[body:])


def _walk(root: LexborNode | None, page: Reading) -> None:
    """Reads a tree once, in document order and without recursion: a page nests as deep as it likes."""
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
            stack.append(BLOCK)
        node = page.enter(node, tag, stack) if tag in special else child
