"""Predicates judge pages as DuckDB does."""

import sys
from itertools import product

import duckdb
import pytest
from hypothesis import given, settings
from tests.crawler.predicates import as_sql, cases, is_readable
from tests.crawler.rows import FIXED, load, quoted, verdicts

from sterna.crawler.grammar import PageRow, describe
from sterna.crawler.predicate import Judge
from sterna.crawler.text_tests import is_stable, lowered
from sterna.model import Predicate


@settings(FIXED, max_examples=80)
@given(case=cases(8))
def test_judges_as_duckdb_does_and_has_words_for_every_predicate(
    duck: duckdb.DuckDBPyConnection, case: tuple[list[PageRow], list[Predicate]]
) -> None:
    rows, several = case
    load(duck, rows)
    conditions = list(map(as_sql, several))
    for predicate, condition, expected in zip(several, conditions, verdicts(duck, conditions), strict=True):
        judge = Judge(predicate)
        assert [judge.judge(row) for row in rows] == expected, condition
        assert describe(predicate)


def words_over(alphabet: str, longest: int) -> list[str]:
    """All texts of these characters, up to this length."""
    return ["".join(each) for length in range(longest + 1) for each in product(alphabet, repeat=length)]


@pytest.mark.parametrize(
    ("form", "op", "pattern_alphabet", "text_alphabet"),
    [
        ("title LIKE {}", "like", "ab%_", "ab"),
        ("title LIKE {}", "like", "a\n%_", "a\n"),
        ("title LIKE {}", "like", "\u00e9\U0001f600%_", "\u00e9\U0001f600e"),
        ("title ILIKE {}", "ilike", "aA%_", "aAb"),
        ("title ILIKE {}", "ilike", "kI%_", "K\u212ai\u0130"),
        ("lower(title) LIKE {}", "like", "aA%_", "aAb"),
        ("upper(title) LIKE {}", "like", "sI%S", "s\u017fi\u0131"),
        ("title LIKE {} ESCAPE '!'", "like", "a!%_", "a!%_"),
        ("title LIKE {} ESCAPE '%'", "like", "ab%_", "ab%_"),
    ],
)
def test_every_short_pattern_is_like_in_duckdb(
    duck: duckdb.DuckDBPyConnection, form: str, op: str, pattern_alphabet: str, text_alphabet: str
) -> None:
    escape = (form[-2],) if "ESCAPE" in form else ()
    values = [(each, *escape) for each in words_over(pattern_alphabet, 4) if is_readable((each, *escape))]
    rows = [
        PageRow(title=text) for text in words_over(text_alphabet, 3 if len(text_alphabet) > 2 else 5) if text
    ]
    load(duck, rows)
    column = form.partition(" ")[0]
    expected = verdicts(duck, [form.format(quoted(each[0])) for each in values])
    for each, wanted in zip(values, expected, strict=True):
        judge = Judge(Predicate(op, column, each))
        assert [judge.judge(row) for row in rows] == wanted, each


@pytest.mark.parametrize("options", ["", "i", "s", "is"])
@pytest.mark.parametrize("form", ["regexp_matches", "regexp_full_match"])
def test_expressions_find_what_they_find_in_duckdb(
    duck: duckdb.DuckDBPyConnection, form: str, options: str
) -> None:
    expressions = [
        *(
            ".",
            "^.$",
            "a.a",
            "^a",
            "a$",
            "^$",
            "(?s).",
            "(?i)k",
            "[a-k]",
            "[^a]",
            r"\bk\b",
            r"\w",
            r"\s",
            r"\d",
        ),
        *(
            "(?m)^k$",
            "a|\u00e9",
            "a*?",
            "(a)(k)?",
            r"\x61",
            r"\Qa.\E",
            "[[:alpha:]]",
            "s",
            "\u00df",
            r"\.",
            r"\Aa\z",
        ),
    ]
    rows = [
        PageRow(title=text)
        for text in (*words_over("aKk\n\u212a\u00e9 ", 3), "\u017f", "a.", "3", "\u00df")
        if text
    ]
    load(duck, rows)
    values = [(each, options) if options else (each,) for each in expressions]
    expected = verdicts(duck, [f"{form}(title, {', '.join(map(quoted, each))})" for each in values])
    op = "regexp" if form == "regexp_matches" else "regexp_full"
    for each, wanted in zip(values, expected, strict=True):
        judge = Judge(Predicate(op, "title", each))
        assert [judge.judge(row) for row in rows] == wanted, each


def test_case_of_stable_characters_is_that_of_duckdb(duck: duckdb.DuckDBPyConnection) -> None:
    every = [chr(code) for code in range(1, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    changing = duck.execute(
        "SELECT s, lower(s), upper(s) FROM (SELECT unnest($1) AS s) WHERE lower(s) <> s OR upper(s) <> s",
        [every],
    ).fetchall()
    stable = {char for char in every[:0x20000] if is_stable(char)}
    assert len(stable) > 40_000
    sources: dict[str, dict[str, set[str]]] = {"lower": {}, "upper": {}}
    for char, small, capital in changing:
        sources["lower"].setdefault(small, set()).add(char)
        sources["upper"].setdefault(capital, set()).add(char)
        assert char not in stable or (lowered(char), is_stable(small)) == (small, True)
    changed = {char for char, *_ in changing}
    for case, by_char in sources.items():
        for char in stable & {*changed, *by_char}:
            wanted = by_char.get(char, set() if char in changed else {char})
            judge = Judge(Predicate("=", f"{case}(title)", (char,)))
            tried = {*wanted, char, char.lower()[0], char.upper()[0]}
            assert {each for each in tried if judge.judge(PageRow(title=each))} == wanted, (case, char)
