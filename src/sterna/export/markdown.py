"""A page's HTML, or its text, as Markdown: headings, paragraphs, lists, tables, code, links and images.

The tree is walked without recursion: a page nests as deep as it likes. Nothing of the page stays HTML,
and links lead only to http and https URLs. It takes time in proportion to the page.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from selectolax.lexbor import LexborNode

from sterna.export.main_content import frames_of, root_of
from sterna.export.markdown_text import (
    BREAK,
    Blocks,
    Piece,
    Style,
    cell,
    fenced,
    heading,
    image,
    paragraph,
    table_lines,
)
from sterna.web.markup import MAX_HEADINGS
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
_MAX_SPAN, _MAX_COLUMNS = 20, 60  # of a table
_FAR_CHARS = 100_000  # between two headings of a text

_Element = Iterator[None]


def text_to_markdown(text: str, headings: Sequence[str]) -> str:
    """The text of a page with those headings set apart that are found in it, in order, not far apart."""
    blocks: list[str] = []
    start = 0
    for title in headings[:MAX_HEADINGS]:
        if found := _as_words(title).search(text, start, start + _FAR_CHARS) if title else None:
            blocks += [paragraph([Piece(text[start : found.start()])]), heading([Piece(title)], 2)]
            start = found.end()
    blocks.append(paragraph([Piece(text[start:])]))
    return "\n\n".join(filter(None, blocks)) + "\n" if any(blocks) else ""


def _as_words(title: str) -> re.Pattern[str]:
    """Finds a title where no letter or digit goes on before or after it."""
    return re.compile(rf"(?<![^\W_]){re.escape(title)}(?![^\W_])")


def to_markdown(html: str, url: str, *, is_main: bool = False) -> str:
    """The Markdown of a page, or of its main content; ReadError if the parser runs out of memory."""
    tree = parse(html)
    canonical = Canonical(drop_params=())
    stated = tree.css_first("head > base")
    base = stated.attributes.get("href") if stated else None
    writer = _Writer(canonical, base=canonical(base or ".", url) or url)
    root, body = tree.body, tree.body
    if is_main and body is not None:
        root = root_of(body)
        writer.left_out = frames_of(body, root=root)
    writer.walk(root, is_alone=root is not body)
    return writer.blocks.text()


class _Writer:
    """Walks a tree and writes Markdown.

    What an element does is a generator: it runs up to its `yield` where the element begins, and on from there
    when its children are done.
    """

    def __init__(self, canonical: Canonical, *, base: str) -> None:
        self._canonical = canonical
        self._base = base
        self.blocks = Blocks()
        self.left_out: frozenset[int] = frozenset()  # elements, by their `mem_id`
        self._pieces: list[Piece] = []  # of the paragraph that is open
        self._style = Style.PLAIN
        self._href = ""
        self._level = 0  # of the heading that is open
        self._lists: list[int] = []  # the next number of each open list, 0 where it has none
        self._code: list[str] | None = None  # the text of the block of code that is open
        self._rows: list[list[str]] = []  # of the table of data that is open; none where none is

    def walk(self, root: LexborNode | None, *, is_alone: bool = False) -> None:
        """Writes an element with what it contains; unless it is to be alone, what follows it too."""
        stack: list[LexborNode | _Element | None] = [root.first_child if is_alone and root else root]
        while stack:
            last = stack.pop()
            if isinstance(last, LexborNode):
                stack += (last.next, *self._enter(last))
            elif last is not None:
                next(last, None)
        self._flush()

    def _enter(self, node: LexborNode) -> tuple[_Element | None, LexborNode | None]:
        """Begins a node, and returns what it does at its end and the child to continue with."""
        if node.tag_id == TEXT:
            self._add(node.text_content or "")
        tag = node.tag or ""
        if not node.is_element_node or tag in _SKIPPED or (self.left_out and node.mem_id in self.left_out):
            return None, None
        element = None
        if self._code is None:
            if write := self._writer_of(tag, is_inline=node.tag_id in INLINE):
                element = write(self, node)
                next(element)
        elif tag == "br":
            self._code.append("\n")
        return element, node.first_child

    def _writer_of(self, tag: str, *, is_inline: bool) -> "_Write | None":
        if tag in _INLINE_ELEMENTS:
            return _INLINE_ELEMENTS[tag]
        if self._rows:
            return _TABLE_ELEMENTS.get(tag, None if is_inline else _Writer.write_gap)
        if is_inline:
            return None
        self._flush()
        return _BLOCK_ELEMENTS.get(tag, _Writer.write_block)

    def _address(self, href: str | None) -> str:
        """The absolute address of a link; "" where it is none of the web."""
        return (self._canonical(href.strip(), self._base) or "") if href and href[0] != "#" else ""

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
        if text := heading(pieces, self._level) if self._level else paragraph(pieces):
            self.blocks.add(text.split("\n"))

    # -- elements within a paragraph

    def write_style(self, node: LexborNode) -> _Element:
        before, self._style = self._style, self._style | _STYLES[node.tag or ""]
        yield
        self._style = before

    def write_link(self, node: LexborNode) -> _Element:
        before, self._href = self._href, self._address(node.attributes.get("href"))
        yield
        self._href = before

    def write_line_break(self, _node: LexborNode) -> _Element:
        self._pieces.append(Piece(BREAK, Style.PLAIN, self._href, True))
        yield

    def write_image(self, node: LexborNode) -> _Element:
        attributes = node.attributes
        alt = _CONTROLS.sub("", _SPACES.sub(" ", attributes.get("alt") or ""))
        self._pieces.append(image(alt, self._address(attributes.get("src")))._replace(href=self._href))
        yield

    # -- blocks: the paragraph before them is written already

    def write_block(self, _node: LexborNode) -> _Element:
        yield
        self._flush()

    def write_heading(self, node: LexborNode) -> _Element:
        self._level = int((node.tag or "h1")[1])
        yield
        self._flush()
        self._level = 0

    def write_list(self, node: LexborNode) -> _Element:
        self._lists.append(_first_number(node) if node.tag == "ol" else 0)
        yield
        self._flush()
        self._lists.pop()

    def write_item(self, _node: LexborNode) -> _Element:
        number = self._lists[-1] if self._lists else 0
        if number:
            self._lists[-1] = min(number + 1, _MAX_NUMBER)
        marker = f"{number}. " if number else "- "
        return self._container(marker, " " * len(marker))

    def write_quotation(self, _node: LexborNode) -> _Element:
        return self._container("> ", "> ")

    def _container(self, marker: str, indent: str) -> _Element:
        self.blocks.begin(marker, indent)
        yield
        self._flush()
        self.blocks.end()

    def write_term(self, _node: LexborNode) -> _Element:
        before, self._style = self._style, self._style | Style.STRONG
        yield
        self._flush()
        self._style = before

    def write_code(self, node: LexborNode) -> _Element:
        pieces: list[str] = []
        self._code = pieces
        yield
        self._code = None
        text = "".join(pieces).replace("\r\n", "\n").replace("\r", "\n")
        text = _CONTROLS.sub("", text).strip("\n")
        if text.strip():
            self.blocks.add(fenced(text.expandtabs(8), _language(node)))

    def write_rule(self, _node: LexborNode) -> _Element:
        self.blocks.add(["---"])
        yield

    # -- tables of data: they have cells, and all else is only text in them

    def write_table(self, node: LexborNode) -> _Element:
        # Nested tables are read ahead only once: each ends the look at the table around it.
        if any(inner.tag in _LAID_OUT for inner in islice(node.traverse(), 1, None)):
            yield
            self._flush()
            return
        self._rows = [[]]
        yield
        rows, self._rows, self._pieces = self._rows, [], []
        if lines := table_lines(rows):
            self.blocks.add(lines)

    def write_row(self, _node: LexborNode) -> _Element:
        yield
        self._rows.append([])

    def write_cell(self, node: LexborNode) -> _Element:
        self._pieces = []
        yield
        span, row = node.attributes.get("colspan") or "", self._rows[-1]
        columns = min(int(span), _MAX_SPAN) if span.isdecimal() and len(span) < 3 else 1
        # One that spans several columns is followed by empty ones.
        row += [cell(self._pieces), *[""] * (columns - 1)][: _MAX_COLUMNS - len(row)]

    def write_gap(self, _node: LexborNode) -> _Element:
        self._pieces.append(Piece(" "))
        yield


_Write = Callable[[_Writer, LexborNode], _Element]
_INLINE_ELEMENTS: dict[str, _Write] = {
    **dict.fromkeys(_STYLES, _Writer.write_style),
    "a": _Writer.write_link,
    "br": _Writer.write_line_break,
    "img": _Writer.write_image,
}
_BLOCK_ELEMENTS: dict[str, _Write] = {
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), _Writer.write_heading),
    **dict.fromkeys(("ul", "ol", "menu", "dl"), _Writer.write_list),
    **dict.fromkeys(("li", "dd"), _Writer.write_item),
    "blockquote": _Writer.write_quotation,
    "dt": _Writer.write_term,
    "pre": _Writer.write_code,
    "hr": _Writer.write_rule,
    "table": _Writer.write_table,
}
_TABLE_ELEMENTS: dict[str, _Write] = {
    "tr": _Writer.write_row,
    "td": _Writer.write_cell,
    "th": _Writer.write_cell,
}


def _first_number(node: LexborNode) -> int:
    stated = (node.attributes.get("start") or "").strip()
    return min(int(stated), _MAX_NUMBER) if stated.isdecimal() and len(stated) < 10 and int(stated) else 1


def _language(node: LexborNode) -> str:
    """The language of a block of code, as many pages name it in a class."""
    named = [each.attributes.get("class") or "" for each in (node, node.first_child) if each is not None]
    found = _LANGUAGE.search(" ".join(named))
    return found[1] if found else ""
