"""Markdown as text: paragraphs of pieces with a style and a link, blocks in lists and quotations, tables.

All text is escaped. A style is only decoration: where its marks could be misread because of their neighbours,
it is left out and the text stays.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from itertools import groupby, takewhile
from typing import NamedTuple

BREAK = "\\\n"

# A lone underscore within a word marks nothing, and names are full of them.
_MARK = re.compile(r"[\\`*\[\]<~]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w{1,40};)")
_LINE_START = re.compile(r"^(?:(?=[#+=>|-]|:-)|(\d{1,9})(?=[.)](?:\s|$)))", re.MULTILINE)
_LAST_HASH = re.compile(r"(?<!\\)((?:\\\\)*)#\Z")
_BACKTICKS = re.compile("`+")
_NOT_BESIDE_MARKS = "*_~`\\"
MAX_DEPTH = 12  # of nested lists and quotations: what nests deeper is not indented further


class Style(IntFlag):
    PLAIN = 0
    STRONG = 1
    EMPHASIS = 2
    STRUCK = 4
    CODE = 8


_MARKS = {Style.STRUCK: "~~", Style.STRONG: "**", Style.EMPHASIS: "*"}


class Piece(NamedTuple):
    """A part of a paragraph; `is_ready` where its text is Markdown already."""

    text: str
    style: Style = Style.PLAIN
    href: str = ""
    is_ready: bool = False


def paragraph(pieces: Sequence[Piece]) -> str:
    """The paragraph in Markdown, with a line for each break in it; "" where it is empty."""
    lines = [line.strip(" ") for line in _text(pieces).split(BREAK)]
    filled = [number for number, line in enumerate(lines) if line]
    text = BREAK.join(lines[filled[0] : filled[-1] + 1]) if filled else ""
    return _LINE_START.sub(lambda found: f"{found[1] or ''}\\", text)


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
    """Neighbours that look alike as one piece, without double spaces."""
    kept: list[Piece] = []
    for piece in pieces:
        text = piece.text
        if text[:1] == " " and not piece.is_ready and (not kept or kept[-1].text.endswith((" ", BREAK))):
            text = text[1:]
        if text:
            kept.append(piece._replace(text=text))
    runs = (list(run) for _, run in groupby(kept, key=lambda piece: piece[1:]))
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
    if (
        edge == " "
        or neighbour is None
        or piece is None
        or neighbour.isspace()
        or piece.text.startswith(BREAK)
    ):
        return True
    return not (piece.style or piece.is_ready or neighbour.isalnum() or neighbour in _NOT_BESIDE_MARKS)


def _marked(piece: Piece, *, may_mark: bool, in_cell: bool) -> str:
    core = piece.text.strip(" ")
    if not core:
        return " "
    if piece.style & Style.CODE:
        text, begin = core, _fence(core, least=1) + (" " if "`" in (core[0], core[-1]) else "")
    else:
        marks = [mark for style, mark in _MARKS.items() if piece.style & style and may_mark]
        text, begin = escaped(core), "".join(marks)
    if in_cell:
        text = text.replace("|", "\\|")
    return _spaced(f"{begin}{text}{begin[::-1]}", piece.text)


def _linked(text: str, href: str) -> str:
    core = text.strip(" ").removesuffix(BREAK).strip(" ")
    return _spaced(f"[{core}]({destination(href)})", text) if core else text


def _spaced(text: str, like: str) -> str:
    """The text with a space at either end where the other one has it."""
    return f"{' ' if like[0] == ' ' else ''}{text}{' ' if like[-1] == ' ' else ''}"


def _join(parts: list[str], more: str) -> None:
    """Adds a part; an exclamation mark before a link would make it an image."""
    if parts and parts[-1].endswith("!") and more.startswith("["):
        parts[-1] = f"{parts[-1][:-1]}\\!"
    parts.append(more)


# --- blocks: paragraphs one after the other, in lists and quotations; tables


@dataclass(slots=True)
class _Container:
    """A list's item, which is indented by spaces, or a quotation; `Blocks.add` changes it."""

    marker: str  # before its next line
    indent: str  # before those after its first one
    is_begun: bool = False


class Blocks:
    """Takes blocks and their containers, in document order."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._containers: list[_Container] = []
        self._too_deep = 0  # containers that are open beyond these
        self._ended_in_item = False  # the last block stood in a list

    def begin(self, marker: str, indent: str) -> None:
        """Begins an item of a list, or a quotation, of which marker and indent are the same."""
        if len(self._containers) < MAX_DEPTH:
            self._containers.append(_Container(marker, indent))
        else:
            self._too_deep += 1

    def end(self) -> None:
        if self._too_deep:
            self._too_deep -= 1
        else:
            self._containers.pop()

    def add(self, lines: Sequence[str]) -> None:
        """Adds a block, after an empty line unless both are items of a list."""
        containers = self._containers
        begins_item = any(each.marker != each.indent for each in containers)
        if self._lines and not (begins_item and self._ended_in_item):
            begun = takewhile(lambda each: each.is_begun, containers)
            self._lines.append("".join(each.indent for each in begun).rstrip())
        for line in lines:
            self._lines.append(("".join(each.marker for each in containers) + line).rstrip(" "))
            for each in containers:
                each.marker, each.is_begun = each.indent, True
        self._ended_in_item = any(each.indent.isspace() for each in containers)

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of cells that are Markdown already; its first row is the head: such a table has one."""
    filled = [row for row in rows if any(row)]
    width = max(map(len, filled), default=0)
    lines = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in filled]
    return [*lines[:1], f"| {' | '.join(['---'] * width)} |", *lines[1:]] if lines else []
