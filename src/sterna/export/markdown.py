"""A page's HTML as Markdown: headings, paragraphs, lists, tables, code, links and images.

The tree is walked without recursion: a page nests as deep as it likes. Nothing of the page stays HTML,
and links lead only to http and https URLs.
"""

import re
from collections.abc import Callable
from functools import partial

from selectolax.lexbor import LexborHTMLParser, LexborNode

from sterna.export.markdown_text import (
    BREAK,
    Blocks,
    Piece,
    Style,
    Table,
    cell,
    fenced,
    heading,
    image,
    paragraph,
)
from sterna.web.tree import parse
from sterna.web.urls import Canonical
from sterna.web.walk import INLINE, TEXT

_SKIPPED = frozenset({
    "audio", "canvas", "frameset", "head", "iframe", "input", "noembed", "noframes", "noscript", "object",
    "script", "select", "style", "svg", "template", "textarea", "title", "video",
})  # fmt: skip
_STYLES = {
    **dict.fromkeys(("b", "strong"), Style.STRONG),
    **dict.fromkeys(("cite", "dfn", "em", "i", "var"), Style.EMPHASIS),
    **dict.fromkeys(("del", "s", "strike"), Style.STRUCK),
    **dict.fromkeys(("code", "kbd", "samp", "tt"), Style.CODE),
}
_SPACES = re.compile(r"[ \t\n\r\f]+")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight)-([A-Za-z0-9_+#-]{1,20})(?:\s|$)")
# A table with one of these is for layout, as in old pages, and not for data.
_LAID_OUT = frozenset({
    "blockquote", "dl", "form", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "menu", "ol", "pre", "table", "ul",
})  # fmt: skip
_MAX_NUMBER = 999_999_999

_Ending = Callable[[], None]


def to_markdown(html: str, url: str) -> str:
    """The Markdown of a page from `url`; ReadError if the parser runs out of memory."""
    tree = parse(html)
    writer = _Writer(_Links(tree, url))
    writer.walk(tree.body or tree.root)
    return writer.text()


class _Links:
    """The addresses of a page's links."""

    def __init__(self, tree: LexborHTMLParser, url: str) -> None:
        self._canonical = Canonical(drop_params=())
        self._base = self._canonical(_stated_base(tree), url) or url

    def __call__(self, href: str | None) -> str:
        """The absolute address; "" where it is none of the web."""
        return (self._canonical(href.strip(), self._base) or "") if href and href[0] != "#" else ""


def _stated_base(tree: LexborHTMLParser) -> str:
    node = tree.head.first_child if tree.head else None
    while node is not None:
        if node.tag == "base":
            return node.attributes.get("href") or "."
        node = node.next
    return "."


class _Writer:
    """Walks a tree and writes Markdown; the end of each element is kept until its children are done."""

    def __init__(self, links: _Links) -> None:
        self._links = links
        self._blocks = Blocks()
        self._pieces: list[Piece] = []  # of the paragraph that is open
        self._style = Style.PLAIN
        self._href = ""
        self._level = 0  # of the heading that is open
        self._lists: list[int] = []  # the next number of each open list, 0 where it has none
        self._code: list[str] | None = None  # the text of the block of code that is open
        self._table: Table | None = None  # the table of data that is open
        self._patience = 200_000  # elements that may be read ahead to classify tables

    def walk(self, root: LexborNode | None) -> None:
        stack: list[LexborNode | _Ending] = []
        node = root
        while node is not None or stack:
            if node is None:
                last = stack.pop()
                if isinstance(last, LexborNode):
                    node = last
                else:
                    last()
                continue
            if node is not root and node.next is not None:
                stack.append(node.next)
            node = self._enter(node, stack)
        self._flush()

    def text(self) -> str:
        return self._blocks.text()

    def _enter(self, node: LexborNode, stack: list[LexborNode | _Ending]) -> LexborNode | None:
        """Begins a node, and returns the child to continue with."""
        if node.tag_id == TEXT:
            self._add(node.text_content or "")
            return None
        if not node.is_element_node:
            return node.first_child if node.is_document_node else None
        tag = node.tag or ""
        if tag in _SKIPPED:
            return None
        if self._code is None:
            ending = self._begin(tag, node)
        else:
            ending = None
            if tag == "br":
                self._code.append("\n")
        if ending:
            stack.append(ending)
        return node.first_child

    def _begin(self, tag: str, node: LexborNode) -> _Ending | None:
        if begin := _INLINE_ELEMENTS.get(tag):
            return begin(self, node)
        if self._table is not None:
            return self._begin_in_table(tag, node)
        if node.tag_id in INLINE:
            return None
        self._flush()
        begin = _BLOCK_ELEMENTS.get(tag)
        return (begin(self, node) if begin else None) or self._flush

    def begin_style(self, node: LexborNode) -> _Ending:
        before, self._style = self._style, self._style | _STYLES[node.tag or ""]
        return partial(self._restore_style, before)

    def begin_link(self, node: LexborNode) -> _Ending:
        before, self._href = self._href, self._links(node.attributes.get("href"))
        return partial(self._restore_href, before)

    def add_break(self, _node: LexborNode) -> None:
        self._pieces.append(Piece(BREAK, Style.PLAIN, self._href, True))

    def add_image(self, node: LexborNode) -> None:
        attributes = node.attributes
        alt = _CONTROLS.sub("", _SPACES.sub(" ", attributes.get("alt") or ""))
        self._pieces.append(image(alt, self._links(attributes.get("src")))._replace(href=self._href))

    def begin_heading(self, node: LexborNode) -> _Ending:
        self._level = int((node.tag or "h1")[1])
        return self._end_heading

    def begin_list(self, node: LexborNode) -> _Ending:
        self._lists.append(_first_number(node) if node.tag == "ol" else 0)
        return self._end_list

    def begin_item(self, _node: LexborNode) -> _Ending:
        self._blocks.begin_item(self._next_marker())
        return self._end_container

    def begin_quotation(self, _node: LexborNode) -> _Ending:
        self._blocks.begin_quotation()
        return self._end_container

    def begin_term(self, _node: LexborNode) -> _Ending:
        before, self._style = self._style, self._style | Style.STRONG
        return partial(self._end_term, before)

    def begin_code(self, node: LexborNode) -> _Ending:
        self._code = []
        return partial(self._end_code, _language(node))

    def add_rule(self, _node: LexborNode) -> None:
        self._blocks.add(["---"])

    def begin_table(self, node: LexborNode) -> _Ending | None:
        if not self._is_data_table(node):
            return None
        self._table = Table()
        return self._end_table

    def _begin_in_table(self, tag: str, node: LexborNode) -> _Ending | None:
        """A data table has cells; all else is only text in them."""
        if tag == "tr":
            return self._end_row
        if tag in ("td", "th"):
            self._pieces = []
            return partial(self._end_cell, node.attributes.get("colspan") or "")
        if node.tag_id not in INLINE:
            self._pieces.append(Piece(" "))
        return None

    def _is_data_table(self, node: LexborNode) -> bool:
        answer, looked_at = _is_of_data(node, most=self._patience)
        self._patience -= looked_at
        return answer

    def _next_marker(self) -> str:
        number = self._lists[-1] if self._lists else 0
        if not number:
            return "- "
        self._lists[-1] = min(number + 1, _MAX_NUMBER)
        return f"{number}. "

    def _add(self, text: str) -> None:
        if self._code is not None:
            self._code.append(text)
            return
        words = _CONTROLS.sub("", _SPACES.sub(" ", text))
        if words:
            self._pieces.append(Piece(words, self._style, self._href))

    def _flush(self) -> None:
        """Writes the open paragraph, if it has a text."""
        pieces, self._pieces = self._pieces, []
        if not pieces:
            return
        text = heading(pieces, self._level) if self._level else paragraph(pieces)
        if text:
            self._blocks.add(text.split("\n"))

    def _restore_style(self, style: Style) -> None:
        self._style = style

    def _restore_href(self, href: str) -> None:
        self._href = href

    def _end_heading(self) -> None:
        self._flush()
        self._level = 0

    def _end_list(self) -> None:
        self._flush()
        self._lists.pop()

    def _end_container(self) -> None:
        self._flush()
        self._blocks.end()

    def _end_term(self, style: Style) -> None:
        self._flush()
        self._style = style

    def _end_code(self, language: str) -> None:
        text = "".join(self._code or [])
        self._code = None
        text = _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).strip("\n")
        if text.strip():
            self._blocks.add(fenced(text.expandtabs(8), language))

    def _end_cell(self, span: str) -> None:
        if self._table is not None:
            self._table.add_cell(cell(self._pieces), span=span)
        self._pieces = []

    def _end_row(self) -> None:
        if self._table is not None:
            self._table.end_row()
        self._pieces = []

    def _end_table(self) -> None:
        lines = self._table.lines() if self._table is not None else []
        self._table, self._pieces = None, []
        if lines:
            self._blocks.add(lines)


_Begin = Callable[[_Writer, LexborNode], _Ending | None]
_INLINE_ELEMENTS: dict[str, _Begin] = {
    **dict.fromkeys(_STYLES, _Writer.begin_style),
    "a": _Writer.begin_link,
    "br": _Writer.add_break,
    "img": _Writer.add_image,
}
_BLOCK_ELEMENTS: dict[str, _Begin] = {
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), _Writer.begin_heading),
    **dict.fromkeys(("ul", "ol", "menu", "dl"), _Writer.begin_list),
    **dict.fromkeys(("li", "dd"), _Writer.begin_item),
    "blockquote": _Writer.begin_quotation,
    "dt": _Writer.begin_term,
    "pre": _Writer.begin_code,
    "hr": _Writer.add_rule,
    "table": _Writer.begin_table,
}


def _first_number(node: LexborNode) -> int:
    stated = (node.attributes.get("start") or "").strip()
    return min(int(stated), _MAX_NUMBER) if stated.isdecimal() and len(stated) < 10 and int(stated) else 1


def _language(node: LexborNode) -> str:
    """The language of a block of code, as many pages name it in a class."""
    for each in (node, node.first_child):
        if each is not None and each.is_element_node:
            found = _LANGUAGE.search(each.attributes.get("class") or "")
            if found:
                return found[1]
    return ""


def _is_of_data(table: LexborNode, *, most: int) -> tuple[bool, int]:
    """Whether the table has only text in its cells, and how many nodes were read (at most `most`)."""
    stack: list[LexborNode] = []
    node = table.first_child
    looked_at = 0
    while node is not None:
        looked_at += 1
        if looked_at >= most or (node.tag or "") in _LAID_OUT:
            return False, looked_at
        if node.next is not None:
            stack.append(node.next)
        node = node.first_child or (stack.pop() if stack else None)
    return True, looked_at
