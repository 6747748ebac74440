"""Markdown as text: paragraphs of pieces with a style and a link, blocks in lists and quotations, tables.

All text is escaped. A style is only decoration: where its marks could be misread because of their neighbours,
it is left out and the text stays.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from itertools import dropwhile, groupby
from operator import not_
from typing import NamedTuple

BREAK = "\\\n"

# A lone underscore within a word marks nothing, and names are full of them.
_MARK = re.compile(r"[\\`*\[\]<~]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w{1,40};)")
_LINE_START = re.compile(r"^(?:(?=[#+=>|-]|:-)|(\d{1,9})(?=[.)](?:\s|$)))", re.MULTILINE)
_LAST_HASH = re.compile(r"(?<!\\)((?:\\\\)*)#\Z")
_BACKTICKS = re.compile("`+")
_NOT_BESIDE_MARKS = "*_~`\\"
_MAX_SPAN, _MAX_COLUMNS = 20, 60  # of a table
MAX_DEPTH = 12  # of nested lists and quotations: what nests deeper is not indented further


class Style(IntFlag):
    PLAIN = 0
    STRONG = 1
    EMPHASIS = 2
    STRUCK = 4
    CODE = 8


class Piece(NamedTuple):
    """A part of a paragraph; `is_ready` where its text is Markdown already."""

    text: str
    style: Style = Style.PLAIN
    href: str = ""
    is_ready: bool = False


def paragraph(pieces: Sequence[Piece]) -> str:
    """The paragraph in Markdown, with a line for each break in it; "" where it is empty."""
    lines = [line.strip(" ") for line in _text(pieces).split(BREAK)]
    while lines and not lines[-1]:
        lines.pop()
    lines = list(dropwhile(not_, lines))
    return _LINE_START.sub(lambda found: f"{found[1] or ''}\\", BREAK.join(lines))


def cell(pieces: Sequence[Piece]) -> str:
    """The text of a table's cell, in one line."""
    return " ".join(_text(pieces, in_cell=True).replace(BREAK, " ").split())


def heading(pieces: Sequence[Piece], level: int) -> str:
    """A heading in Markdown; "" where it is empty."""
    text = " ".join(_text(pieces).replace(BREAK, " ").split())
    text = _LAST_HASH.sub(r"\1\\#", text)  # it would be taken for the end of the heading's mark
    return f"{'#' * level} {text}" if text else ""


def _text(pieces: Sequence[Piece], *, in_cell: bool = False) -> str:
    parts: list[str] = []
    for href, group in groupby(_merged(pieces), key=lambda piece: piece.href):
        part = _styled(list(group), in_cell=in_cell)
        _join(parts, _linked(part, href) if href else part)
    return "".join(parts)


def image(alt: str, href: str) -> Piece:
    """An image, or its alternative text if it has no address."""
    words = " ".join(alt.split())
    return Piece(f"![{escaped(words)}]({destination(href)})", is_ready=True) if href else Piece(words)


def escaped(text: str) -> str:
    """The text with Markdown's marks escaped."""
    return _MARK.sub(r"\\\g<0>", text)


def destination(url: str) -> str:
    """An absolute URL as a link names it."""
    safe = re.sub(r"[\s<>\\|]", lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), url)
    safe = re.sub(r"&(?=#?\w{1,40};)", "&amp;", safe)
    return f"<{safe}>" if "(" in safe or ")" in safe else safe


def fenced(text: str, language: str = "") -> list[str]:
    """The lines of a block of code."""
    fence = _fence(text, least=3)
    return [fence + language, *text.split("\n"), fence]


def _fence(text: str, *, least: int) -> str:
    """More backticks than the text has in a row."""
    longest = max(map(len, _BACKTICKS.findall(text)), default=0)
    return "`" * max(least, longest + 1)


def _merged(pieces: Sequence[Piece]) -> list[Piece]:
    """Neighbours of the same style and link as one piece, without double spaces."""
    runs: list[list[Piece]] = []  # of pieces that look alike
    for piece in pieces:
        last = runs[-1][-1] if runs else None
        text = piece.text
        if not piece.is_ready and text.startswith(" ") and (last is None or last.text.endswith((" ", BREAK))):
            text = text[1:]
        if not text:
            continue
        trimmed = piece._replace(text=text)
        if last and not piece.is_ready and not last.is_ready and last[1:3] == piece[1:3]:
            runs[-1].append(trimmed)
        else:
            runs.append([trimmed])
    return [run[0]._replace(text="".join(piece.text for piece in run)) for run in runs]


def _styled(pieces: Sequence[Piece], *, in_cell: bool) -> str:
    parts: list[str] = []
    for place, piece in enumerate(pieces):
        if piece.is_ready:
            _join(parts, piece.text)
            continue
        before = pieces[place - 1] if place else None
        after = pieces[place + 1] if place + 1 < len(pieces) else None
        may_mark = _is_apart(piece.text[0], before and before.text[-1], before) and _is_apart(
            piece.text[-1], after and after.text[0], after
        )
        parts.append(_marked(piece, may_mark=may_mark, in_cell=in_cell))
    return "".join(parts)


def _is_apart(edge: str, neighbour: str | None, piece: Piece | None) -> bool:
    """Whether marks can stand between a piece's edge and its neighbour."""
    if edge == " " or neighbour is None or piece is None or neighbour.isspace() or piece.text == BREAK:
        return True
    return not (piece.style or piece.is_ready or neighbour.isalnum() or neighbour in _NOT_BESIDE_MARKS)


def _marked(piece: Piece, *, may_mark: bool, in_cell: bool) -> str:
    core = piece.text.strip(" ")
    if not core:
        return " "
    left = " " if piece.text[0] == " " else ""
    right = " " if piece.text[-1] == " " else ""
    if piece.style & Style.CODE:
        fence, gap = _fence(core, least=1), " " if "`" in (core[0], core[-1]) else ""
        text = core.replace("|", "\\|") if in_cell else core
        return f"{left}{fence}{gap}{text}{gap}{fence}{right}"
    marks = ("~~" if piece.style & Style.STRUCK else "") + (
        "*" * ((2 if piece.style & Style.STRONG else 0) + (1 if piece.style & Style.EMPHASIS else 0))
    )
    text = escaped(core).replace("|", "\\|") if in_cell else escaped(core)
    return f"{left}{marks}{text}{marks[::-1]}{right}" if marks and may_mark else left + text + right


def _linked(text: str, href: str) -> str:
    core = text.strip(" ").removesuffix(BREAK).strip(" ")
    if not core:
        return text
    left = " " if text[0] == " " else ""
    right = " " if text[-1] == " " else ""
    return f"{left}[{core}]({destination(href)}){right}"


def _join(parts: list[str], more: str) -> None:
    """Adds a part; an exclamation mark before a link would make it an image."""
    if parts and parts[-1].endswith("!") and more.startswith("["):
        parts[-1] = f"{parts[-1][:-1]}\\!"
    parts.append(more)


# --- blocks: paragraphs one after the other, in lists and quotations; tables


@dataclass(slots=True)
class _Container:
    """A list's item or a quotation, and what its lines begin with."""

    marker: str
    indent: str
    is_begun: bool = False  # set by the first block in it

    @property
    def is_item(self) -> bool:
        return self.marker != self.indent


class Blocks:
    """Takes blocks and their containers, in document order."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._containers: list[_Container] = []
        self._ended_in_item = False  # the last block stood in a list

    def begin(self, marker: str, indent: str) -> None:
        """Begins an item of a list, or a quotation, of which marker and indent are the same."""
        is_too_deep = len(self._containers) >= MAX_DEPTH
        self._containers.append(_Container("", "") if is_too_deep else _Container(marker, indent))

    def end(self) -> None:
        """Ends the item or quotation that began last."""
        self._containers.pop()

    def add(self, lines: Sequence[str]) -> None:
        """Adds a block, after an empty line unless both are items of a list."""
        begins_item = any(each.is_item and not each.is_begun for each in self._containers)
        if self._lines and not (begins_item and self._ended_in_item):
            self._lines.append(self._prefix(only_begun=True).rstrip())
        for line in lines:
            self._lines.append((self._prefix() + line).rstrip(" "))
            for container in self._containers:
                container.is_begun = True
        self._ended_in_item = any(each.is_item for each in self._containers)

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def _prefix(self, *, only_begun: bool = False) -> str:
        parts = []
        for container in self._containers:
            if only_begun and not container.is_begun:
                break
            parts.append(container.indent if container.is_begun else container.marker)
        return "".join(parts)


class Table:
    """Rows of cells, which are Markdown already."""

    def __init__(self) -> None:
        self._rows: list[list[str]] = []
        self._row: list[str] = []

    def add_cell(self, text: str, *, span: str = "") -> None:
        """Adds a cell; one that spans several columns is followed by empty ones."""
        columns = int(span) if span.isdecimal() and len(span) < 3 else 1
        self._row += [text, *[""] * (min(columns, _MAX_SPAN) - 1)][: _MAX_COLUMNS - len(self._row)]

    def end_row(self) -> None:
        if any(self._row):
            self._rows.append(self._row)
        self._row = []

    def lines(self) -> list[str]:
        """The first row is the head: such a table has one."""
        self.end_row()
        width = max(map(len, self._rows), default=0)
        lines = [_line([*row, *[""] * (width - len(row))]) for row in self._rows]
        return [*lines[:1], _line(["---"] * width), *lines[1:]] if lines else []


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
