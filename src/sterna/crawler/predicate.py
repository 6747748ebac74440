"""Judges pages by predicates, with the three truth values of SQL: true, false, and None for unknown.

A predicate gives the same result as the same condition in DuckDB at home, where an empty value is NULL. Of
the operators that only a spec uses (words, phrases, score, language, type), those on language and type give
None if the page has none.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

from sterna.crawler.grammar import ANYWHERE, PageRow, Term, check, columns_of, term_of
from sterna.crawler.text_tests import (
    SEAM,
    TextTest,
    affixed,
    any_test,
    finder,
    like_test,
    lowered,
    read_like,
    search_test,
)
from sterna.model import Page, Predicate, Target
from sterna.web.urls import site_of

Truth = bool | None

_Test = Callable[[PageRow], Truth]
_ValueTest = Callable[[Any], Truth]


class Judge:
    """A predicate, compiled to judge pages; UsageError if it is invalid."""

    def __init__(self, predicate: Predicate) -> None:
        check(predicate)
        self.judge = _compile(predicate)  # the page is wanted only if it is True

    def admits(self, target: Target) -> bool:
        """Judges a URL by what is known before it is fetched."""
        row = PageRow(url=target.url, site=site_of(target.url), depth=target.depth, referrer=target.referrer)
        return self.judge(row) is True


def row_of(page: Page, site: str) -> PageRow:
    shared = {name: getattr(page, name) for name in PageRow._fields if name not in ("site", "digest")}
    return PageRow(site=site, digest=page.digest.hex(), **shared)


def _compile(part: Predicate) -> _Test:
    if part.op in _CONSTANTS:
        return lambda row: _CONSTANTS[part.op]
    if part.op == "not":
        return _not(_compile(part.parts[0]))
    if part.op in ("and", "or"):
        # Cheap tests first: one of them may decide.
        tests = [_compile(each) for each in sorted(part.parts, key=_cost)]
        return _joined(tests, decisive=part.op == "or")
    if part.op in _WORD_TESTS:
        return _on_words(part)
    if part.op == "regexp" and not part.column:
        test = search_test(*map(str, part.values))
        return lambda row: any(
            test(text) for text in (row.title, row.description, row.text, *(row.headings or ())) if text
        )
    return _on_term(part, term_of(part.column))


_CONSTANTS: dict[str, Truth] = {"true": True, "false": False, "null": None}
_CHEAP = frozenset(
    {"url", "site", "depth", "referrer", "status", "content_type", "size", "language", "error"}
)


def _cost(part: Predicate) -> int:
    columns = columns_of(part)
    if columns <= _CHEAP:
        return 0
    return 2 if {"text", "html"} & columns else 1


def _not(test: _ValueTest) -> _ValueTest:
    return lambda found: None if (truth := test(found)) is None else not truth


def _joined(tests: Sequence[_ValueTest], *, decisive: bool) -> _ValueTest:
    """AND, which a False decides, or OR, which a True decides."""

    def joined(found: object) -> Truth:
        truth: Truth = not decisive
        for test in tests:
            each = test(found)
            if each is decisive:
                return decisive
            if each is None:
                truth = None
        return truth

    return joined


def _on_term(part: Predicate, term: Term) -> _Test:
    read = _reader(term)
    if part.op == "is_null":
        return lambda row: read(row) is None
    if part.op == "is_distinct":
        return lambda row: bool(read(row) != part.values[0])
    test = _value_test(part, term)
    return lambda row: None if (value := read(row)) is None else test(value)


def _reader(term: Term) -> Callable[[PageRow], Any]:
    """Reads the value of a page, None for NULL."""
    read = operator.attrgetter(term.column)
    if term.is_length:
        return lambda row: len(value) if (value := read(row)) else None
    # Of a depth or a size 0 is a value, not NULL.
    return read if term.column in ("depth", "size") else lambda row: read(row) or None


def _value_test(part: Predicate, term: Term) -> _ValueTest:
    if part.op in _COMPARISONS and not term.case:
        return _comparison(_COMPARISONS[part.op], part.values[0])
    make = _TESTS.get(part.op)
    if make:
        return make(part, term)
    if part.values[0] is None:
        return lambda found: None
    return _text_test(part.op, [str(value) for value in part.values], term)


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _comparison(compare: Callable[[Any, Any], bool], value: object) -> _ValueTest:
    return (lambda found: None) if value is None else lambda found: compare(found, value)


def _between(part: Predicate, term: Term) -> _ValueTest:
    low, high = part.values
    return _joined([_comparison(operator.ge, low), _comparison(operator.le, high)], decisive=False)


def _among(part: Predicate, term: Term) -> _ValueTest:
    known = frozenset(value for value in part.values if value is not None)
    other = None if None in part.values else False
    if not term.case:
        return lambda found: found in known or other
    tests = [_value_test(Predicate("=", part.column, (value,)), term) for value in known]
    return lambda found: any(test(found) for test in tests) or other


def _text_test(op: str, values: Sequence[str], term: Term) -> TextTest:
    if op in ("regexp", "regexp_full"):
        return search_test(*values, is_full=op == "regexp_full")
    if op == "ilike":
        return like_test(read_like(lowered(values[0]), *values[1:]), "lower")
    return like_test(read_like(*values) if op == "like" else affixed(op, values[0]), term.case)


def _named(part: Predicate, term: Term) -> _ValueTest:
    """For languages, which may go on as "en-GB" does, and for types, which may be "image/*"."""
    names = frozenset(str(name).lower() for name in part.values)
    starts = tuple(name[:-1] for name in names if name.endswith("/*"))
    if part.op == "language_in":
        starts = tuple(f"{name}-" for name in names)
    return lambda found: found.lower() in names or found.lower().startswith(starts)


_TESTS: dict[str, Callable[[Predicate, Term], _ValueTest]] = {
    "<>": lambda part, term: _not(_value_test(Predicate("=", part.column, part.values), term)),
    "between": _between,
    "in": _among,
    "list_contains": lambda part, _: lambda found: part.values[0] in found,
    "language_in": _named,
    "type_in": _named,
}


def _on_words(part: Predicate) -> _Test:
    test = _WORD_TESTS[part.op](part.values)
    if part.column:
        read = operator.attrgetter(part.column)
        return lambda row: test(_as_text(read(row)))
    return lambda row: test(SEAM.join(filter(None, (_as_text(getattr(row, name)) for name in ANYWHERE))))


def _as_text(value: str | Sequence[str] | None) -> str:
    return value if isinstance(value, str) else SEAM.join(value or ())


def _all_of(words: Sequence[Any]) -> TextTest:
    distinct = list(dict.fromkeys(words))
    find = finder(distinct)
    return lambda text: len(find(text)) == len(distinct)


def _scored(values: Sequence[Any]) -> TextTest:
    threshold, *weighed = values
    words, weights = weighed[::2], weighed[1::2]
    find = finder(words)
    return lambda text: sum(weights[index] for index in find(text)) >= threshold


_WORD_TESTS: dict[str, Callable[[Sequence[Any]], TextTest]] = {
    "words_any": any_test,
    "phrase": any_test,
    "words_all": _all_of,
    "score": _scored,
}
