"""Results as text: values, harmless for a terminal, aligned in a table; loads neither Arrow nor DuckDB."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain, islice
from typing import Any, Literal
from unicodedata import category, east_asian_width

TextFormat = Literal["table", "csv", "json", "jsonl"]
Format = Literal["table", "csv", "json", "jsonl", "parquet"]
Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]

# Invisible, but needed for Persian, Hindi and many emoji, and harmless on the screen.
_JOINERS = "\u200c\u200d"
_SUSPECT = re.compile(r"[^\x20-\x7e]")

_SAMPLE_ROWS = 200  # the widths come from these; the rest streams through them
_GAP = "  "
_LEAST_WIDTH = 4
_CUT = "…"


def harmless(text: str) -> str:
    """The text with escapes for what could colour, move or reverse a terminal's content or make it answer."""
    if text.isprintable():
        return text
    return _SUSPECT.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable() or character in _JOINERS:
        return character
    return " " if category(character) == "Zs" else ascii(character)[1:-1]


# --- values


def as_plain(value: Any) -> Plain:  # noqa: PLR0911 - one line for each kind of value
    """The value as JSON can hold it: times in ISO 8601, bytes in hex, no NaN."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime() | date() | time():
            return value.isoformat().replace("+00:00", "Z")
        case bytes():
            return value.hex()
        case list() | tuple():
            return [as_plain(each) for each in value]
        case dict():
            return {as_text(key): as_plain(each) for key, each in value.items()}
        case _:
            return str(value)


def as_text(value: Any) -> str:
    """The value in one cell: empty for NULL, JSON for nested values."""
    plain = as_plain(value)
    if isinstance(plain, str):
        return plain
    return "" if plain is None else json.dumps(plain, ensure_ascii=False)


# --- tables


def table_lines(
    columns: Sequence[str], rows: Iterable[tuple[Any, ...]], *, width: int, is_live: bool = False
) -> Iterator[str]:
    """The lines of the table, last the number of rows; if live, each row is returned at once."""
    waiting = iter(rows)
    sample = [] if is_live else list(islice(waiting, _SAMPLE_ROWS))
    heads = [_cell(name, width) for name in columns]
    if is_live:  # the rows are not known yet: equal widths
        wanted = [width] * len(heads)
    else:
        cells = [[_cell(value, width) for value in row] for row in sample]
        wanted = [max(map(columns_of, column)) for column in zip(heads, *cells, strict=True)]
    widths = fitted(wanted, width - len(_GAP) * (len(heads) - 1))
    is_number = [_is_number(values) for values in zip(*sample, strict=True)] or [False] * len(columns)
    yield _line(heads, widths, is_number=is_number)
    yield _GAP.join("-" * each for each in widths)
    count = 0
    for row in chain(sample, waiting):
        yield _line([_cell(value, width) for value in row], widths, is_number=is_number)
        count += 1
    yield f"({count} row{'' if count == 1 else 's'})"


def fitted(wanted: Sequence[int], room: int) -> list[int]:
    """Widths that fit into the room: narrow columns in full, wide ones equal."""
    widths = list(wanted)
    for position, column in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        share = room // (len(wanted) - position)
        widths[column] = min(wanted[column], max(share, _LEAST_WIDTH))
        room -= widths[column]
    return widths


def _cell(value: Any, width: int) -> str:
    """Its text, cut to the width of the terminal first."""
    return harmless(as_text(value)[: width + 1])


def _line(cells: Sequence[str], widths: Sequence[int], *, is_number: Sequence[bool]) -> str:
    placed = []
    for cell, width, is_right in zip(cells, widths, is_number, strict=True):
        shown = _cut(cell, width)
        padding = " " * (width - columns_of(shown))
        placed.append(padding + shown if is_right else shown + padding)
    return _GAP.join(placed).rstrip()


def _cut(cell: str, width: int) -> str:
    if columns_of(cell) <= width:
        return cell
    room = width - len(_CUT)
    for position, character in enumerate(cell):
        room -= columns_of(character)
        if room < 0:
            return cell[:position] + _CUT
    return cell


def columns_of(text: str) -> int:
    """How many columns of the terminal the text takes."""
    if text.isascii():
        return len(text)
    seen = (character for character in text if category(character) not in ("Mn", "Me", "Cf"))
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in seen)


def _is_number(values: Sequence[Any]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(
        isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in present
    )
