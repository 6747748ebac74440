"""Results as a table, as CSV and as JSON."""

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.errors import QueryError
from sterna.query.engine import Result
from sterna.query.output import write
from sterna.query.terminal import TextFormat, fitted

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(columns: list[str], *rows: tuple[Any, ...], format: TextFormat = "table", **options: Any) -> str:
    out = options.pop("out", io.StringIO())
    write(Result(columns, iter(rows)), format=format, out=out, **options)
    return str(out.getvalue())


def is_safe(text: str) -> bool:
    """Whether a terminal shows it as it stands."""
    return all(character.isprintable() or character in "\n\u200c\u200d" for character in text)


def test_table_is_aligned_and_counts_its_rows() -> None:
    assert shown(["url", "size"], ("https://a/", 5), ("https://bb/", None), ("c", 1200)).splitlines() == [
        "url          size",
        "-----------  ----",
        "https://a/      5",
        "https://bb/",
        "c            1200",
        "(3 rows)",
    ]


def test_table_without_rows_still_has_its_columns() -> None:
    assert shown(["url", "n"]).splitlines() == ["url  n", "---  -", "(0 rows)"]


def test_one_row_is_not_called_rows() -> None:
    assert shown(["n"], (1,)).endswith("(1 row)\n")


def test_long_cells_are_cut_to_the_width() -> None:
    lines = shown(["url", "text"], ("https://a/", "word " * 1_000), width=40).splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[2] == "https://a/  " + ("word " * 6)[:27] + "…"


def test_cell_one_too_long_shows_that_it_is_cut() -> None:
    lines = shown(["text"], ("x" * 11,), width=10).splitlines()
    assert lines[2] == "x" * 9 + "…"


def test_wide_characters_keep_the_columns_aligned() -> None:
    lines = shown(["title", "n"], ("日本", 1), ("e\u0301a", 2)).splitlines()
    assert lines[2:4] == ["日本   1", "e\u0301a     2"]


def test_cut_falls_between_wide_characters() -> None:
    assert shown(["t"], ("日本語日本語",), width=8).splitlines()[2] == "日本語…"


def test_later_rows_keep_to_the_width_of_the_first() -> None:
    rows = [("x" * 10,)] * 300 + [("y" * 50,)]
    assert shown(["text"], *rows).splitlines()[-2] == "y" * 9 + "…"


@given(st.lists(st.integers(0, 500), min_size=1, max_size=8), st.integers(60, 200))
def test_columns_fit_and_none_is_cut_without_need(wanted: list[int], room: int) -> None:
    widths = fitted(wanted, room)
    assert sum(widths) <= room
    assert all(width <= want for width, want in zip(widths, wanted, strict=True))
    assert widths == wanted or sum(widths) > room - len(wanted)


HOSTILE = "a\x1b[31mred\x07\r\n\x9b2J\u202egpj.exe\x00\x7f"


def test_table_shows_control_characters_as_escapes() -> None:
    line = shown(["t\x1b[2J"], (HOSTILE,), width=200).splitlines()
    assert line[0] == "t\\x1b[2J"
    assert line[2] == r"a\x1b[31mred\x07\r\n\x9b2J\u202egpj.exe\x00\x7f"


@given(st.text(st.characters()), st.integers(4, 120))
def test_no_text_disturbs_the_terminal_of_a_table(text: str, width: int) -> None:
    assert is_safe(shown([text], (text,), ([text],), width=width))


@given(st.text(st.characters()))
def test_csv_on_a_terminal_is_harmless(text: str) -> None:
    assert is_safe(shown(["t"], (text,), format="csv", out=Terminal()))


def test_table_shows_other_scripts_as_they_are() -> None:
    persian, emoji = "می\u200cخواهم", "👩\u200d🔬"
    assert f"{persian} {emoji}" in shown(["t"], (f"{persian}\u00a0{emoji}",))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=4))
def test_csv_in_a_file_is_faithful(cells: list[str]) -> None:
    text = shown(cells, tuple(cells), format="csv")
    assert list(csv.reader(io.StringIO(text, newline=""))) == [cells, cells]


def test_csv_leaves_a_formula_as_it_is() -> None:
    assert shown(["t"], ("=1+1",), format="csv") == "t\n=1+1\n"


VALUES = [
    (None, None, ""),
    (True, True, "true"),
    (2**100, 2**100, str(2**100)),
    (1.5, 1.5, "1.5"),
    (float("nan"), None, ""),
    (Decimal("1.50"), 1.5, "1.5"),
    (Decimal(7), 7, "7"),
    (NOON, "2026-01-02T12:00:00Z", "2026-01-02T12:00:00Z"),
    (date(2026, 1, 2), "2026-01-02", "2026-01-02"),
    (timedelta(hours=1), "1:00:00", "1:00:00"),
    (b"\x00\xff", "00ff", "00ff"),
    (UUID(int=1), str(UUID(int=1)), str(UUID(int=1))),
    (["é", None], ["é", None], '["é", null]'),
    ({"a": {1: NOON}}, {"a": {"1": "2026-01-02T12:00:00Z"}}, '{"a": {"1": "2026-01-02T12:00:00Z"}}'),
]


@pytest.mark.parametrize(("value", "plain", "text"), VALUES)
def test_every_kind_of_value_has_its_form(value: Any, plain: Any, text: str) -> None:
    assert json.loads(shown(["v", "w"], (value, 1), format="json")) == [{"v": plain, "w": 1}]
    ((_, _), (cell, _)) = csv.reader(io.StringIO(shown(["v", "w"], (value, 1), format="csv")))
    assert cell == text


@given(st.lists(st.tuples(st.text(st.characters()), st.integers()), max_size=4))
def test_json_is_one_array_safe_and_faithful(rows: list[tuple[str, int]]) -> None:
    text = shown(["t", "n"], *rows, format="json")
    assert json.loads(text) == [{"t": text, "n": number} for text, number in rows]
    assert not any(character in text for character in "\x1b\x7f\x9b\u202e\u2028")
    text.encode()


def test_json_keeps_columns_of_one_name_apart() -> None:
    text = shown(["a", "a", "a_2", "a"], (1, 2, 3, 4), format="json")
    assert json.loads(text) == [{"a": 1, "a_2": 2, "a_2_2": 3, "a_3": 4}]


@pytest.mark.parametrize("format", ["csv", "json"])
def test_rows_are_written_as_they_come(format: TextFormat) -> None:
    out = io.StringIO()

    def rows() -> Iterator[tuple[int]]:
        yield (1,)
        assert "1" in out.getvalue()
        raise QueryError("stopped")

    with pytest.raises(QueryError):
        write(Result(["n"], rows()), format=format, out=out)
    if format == "json":
        with pytest.raises(json.JSONDecodeError):
            json.loads(out.getvalue())


FORMULAS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\tx",
    "\rx",
    "\nx",
    "\uff1d1",
    "\uff0b1",
    "\uff0d1",
    "\uff201",
    "\u22121",
    "  =1",
    "\u00a0=1",
    "\ufeff=1",
    "\u200b=1",
    "\x00=1",
    "'=1",
    '"=1',
    " '\" =cmd|' /C calc'!A0",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_safe_cell_is_no_formula(text: str) -> None:
    plain, safe = (
        list(csv.reader(io.StringIO(shown([text], (text,), format="csv", safe_cells=is_safe), newline="")))
        for is_safe in (False, True)
    )
    assert plain == [[text], [text]]
    assert safe == [[f"'{text}"], [f"'{text}"]]


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("\t=1", "'\t'=1"),
        ("x;@SUM(1)", "x;'@SUM(1)"),
        ("a\t =1+1", "a\t' =1+1"),
        ("a|-1", "a|'-1"),
        ("a\n=1", "a\n'=1"),
    ],
)
def test_safe_cell_is_no_formula_for_other_separators_than_commas(text: str, safe: str) -> None:
    out = shown(["n"], (text,), format="csv", safe_cells=True)
    assert list(csv.reader(io.StringIO(out, newline=""))) == [["n"], [safe]]


@pytest.mark.parametrize(
    "value",
    [
        -5,
        -1.5,
        Decimal("-2.50"),
        None,
        "",
        "a=b",
        "1-2",
        "https://a/?b=c",
        "me@example.org",
        [-1],
        True,
        NOON,
    ],
)
def test_safe_cells_leave_numbers_and_other_texts_alone(value: Any) -> None:
    assert shown(["n"], (value,), format="csv", safe_cells=True) == shown(["n"], (value,), format="csv")


@given(st.text(min_size=1))
def test_safe_cell_never_begins_like_a_formula(text: str) -> None:
    out = shown(["n"], (text,), format="csv", safe_cells=True)
    (_, (cell,)) = csv.reader(io.StringIO(out, newline=""))
    assert cell.replace("'", "") == text.replace("'", "")
    assert not any(piece.strip().startswith(("=", "+", "-", "@")) for piece in re.split("[;|\t\r\n]", cell))
