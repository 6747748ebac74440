"""What a predicate may be: its operators, the columns they are about, their values; and how large."""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from sterna.crawler.like import Case, read_like, search_test
from sterna.crawler.words import check_words
from sterna.errors import UsageError
from sterna.model import Predicate, Scalar

Kind = Literal["number", "text", "list"]

COLUMNS: dict[str, Kind] = {
    "url": "text",
    "site": "text",
    "depth": "number",
    "referrer": "text",
    "status": "number",
    "error": "text",
    "content_type": "text",
    "title": "text",
    "description": "text",
    "text": "text",
    "language": "text",
    "digest": "text",
    "etag": "text",
    "size": "number",
    "html": "text",
    "keywords": "list",
    "headings": "list",
}
ANYWHERE = (
    "title",
    "description",
    "headings",
    "text",
)  # where words are looked for, unless a column is named

# A predicate comes from strangers: these bound what it costs to read and to judge.
MAX_DEPTH = 32
MAX_PARTS = 1_000
MAX_VALUES = 10_000
MAX_CHARACTERS = 200_000
MAX_PATTERN = 2_000
_LARGEST = 2**63


class Term(NamedTuple):
    """What is compared: a column, its text in another case, or its length."""

    column: str
    kind: Kind
    case: Case = ""
    is_length: bool = False


class _Form(NamedTuple):
    """What an operator takes: the kinds of its term, and how many values."""

    kinds: tuple[str, ...] = ()
    least: int = 0
    most: int = 0


_TERMS = {name: Term(name, kind) for name, kind in COLUMNS.items()}
_TERMS |= {f"lower({name})": Term(name, "text", "lower") for name, kind in COLUMNS.items() if kind == "text"}
_TERMS |= {f"upper({name})": Term(name, "text", "upper") for name, kind in COLUMNS.items() if kind == "text"}
_TERMS |= {
    f"length({name})": Term(name, "number", is_length=True)
    for name, kind in COLUMNS.items()
    if kind != "number"
}

_ANY = ("number", "text", "list")
_ORDER = _Form(("number", "text"), 1, 1)
_CASED = (
    "=",
    "<>",
    "in",
    "like",
    "starts_with",
    "ends_with",
    "contains",
)  # what another case may be asked for
_FORMS = {
    "true": _Form(),
    "false": _Form(),
    "null": _Form(),
    "and": _Form(),
    "or": _Form(),
    "not": _Form(),
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "is_distinct"), _ORDER),
    "between": _Form(("number", "text"), 2, 2),
    "in": _Form(("number", "text"), 1, MAX_VALUES),
    "is_null": _Form(_ANY),
    "like": _Form(("text",), 1, 2),
    "ilike": _Form(("text",), 1, 2),
    **dict.fromkeys(("starts_with", "ends_with", "contains"), _Form(("text",), 1, 1)),
    "regexp": _Form(("text", "anywhere"), 1, 2),
    "regexp_full": _Form(("text",), 1, 2),
    "list_contains": _Form(("list",), 1, 1),
    "words_any": _Form(("text", "list", "anywhere"), 1, MAX_VALUES),
    "words_all": _Form(("text", "list", "anywhere"), 1, MAX_VALUES),
    "phrase": _Form(("text", "list", "anywhere"), 1, MAX_VALUES),
    "score": _Form(("text", "list", "anywhere"), 3, MAX_VALUES),
    "language_in": _Form(("text",), 1, MAX_VALUES),
    "type_in": _Form(("text",), 1, MAX_VALUES),
}
_WORDS = ("words_any", "words_all", "phrase")
_PATTERNS = ("like", "ilike", "regexp", "regexp_full")
_CONNECTIVES = {"and": (1, MAX_PARTS), "or": (1, MAX_PARTS), "not": (1, 1)}
# Whose values may be NULL, as in a query.
_NULLABLE = ("=", "<>", "<", "<=", ">", ">=", "is_distinct", "between", "in")


def term_of(column: str) -> Term:
    """The term by its name: title, lower(title), length(title)."""
    if column not in _TERMS:
        raise UsageError(f"a page has no column {column!r} to choose by: there are {', '.join(COLUMNS)}")
    return _TERMS[column]


def is_term(name: str) -> bool:
    """True if predicates can be about this."""
    return name in _TERMS


def columns_of(predicate: Predicate) -> frozenset[str]:
    """The columns that must be known to judge it."""
    found: set[str] = set()
    for part, _ in _walk(predicate):
        if part.column:
            found.add(term_of(part.column).column)
        elif "anywhere" in _FORMS.get(part.op, _Form()).kinds:
            found.update(ANYWHERE)
    return frozenset(found)


def check(predicate: Predicate) -> None:
    """UsageError, in one line, unless the predicate can be judged, at a bounded cost."""
    values = characters = 0
    for parts, (part, depth) in enumerate(_walk(predicate), start=1):
        values += len(part.values)
        characters += sum(len(value) for value in part.values if isinstance(value, str))
        if depth > MAX_DEPTH:
            raise UsageError(f"a condition may nest {MAX_DEPTH} levels, this one nests deeper: split it")
        if parts > MAX_PARTS or values > MAX_VALUES or characters > MAX_CHARACTERS:
            raise UsageError(
                f"a condition may have {MAX_PARTS} parts, {MAX_VALUES} values, {MAX_CHARACTERS} characters,"
                " and this one has more: shorten it"
            )
        _check_part(part)


def _walk(predicate: Predicate) -> Iterator[tuple[Predicate, int]]:
    waiting = [(predicate, 1)]
    while waiting:
        part, depth = waiting.pop()
        yield part, depth
        waiting += [(each, depth + 1) for each in part.parts]


def _check_part(part: Predicate) -> None:
    form = _FORMS.get(part.op)
    if form is None:
        raise UsageError(f"there is no operator {part.op!r}: there are {', '.join(_FORMS)}")
    least, most = _CONNECTIVES.get(part.op, (0, 0))
    if not least <= len(part.parts) <= most:
        raise UsageError(f"{part.op} takes {_count(least, most)} conditions, not {len(part.parts)}")
    if not form.least <= len(part.values) <= form.most:
        raise UsageError(f"{part.op} takes {_count(form.least, form.most)} values, not {len(part.values)}")
    kind = _kind(part, form)
    if part.op == "score":
        _check_score(part.values)
    else:
        for value in part.values:
            _check_value(part, value, kind)
    if part.op in _PATTERNS:
        _check_pattern(part)
    if part.op in _WORDS:
        check_words([str(word) for word in part.values])


def _count(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def _kind(part: Predicate, form: _Form) -> str:
    if not form.kinds:
        if part.column:
            raise UsageError(f"{part.op} is about no column, not about {part.column!r}")
        return ""
    if not part.column and "anywhere" in form.kinds:
        return "anywhere"
    term = term_of(part.column)
    if term.kind not in form.kinds or (term.case and part.op not in _CASED):
        raise UsageError(f"{part.op} cannot be asked of {part.column}")
    return term.kind


def _check_value(part: Predicate, value: Scalar, kind: str) -> None:
    if value is None and part.op in _NULLABLE:
        return
    if kind == "number":
        if type(value) is not int or not -_LARGEST <= value < _LARGEST:
            raise UsageError(f"{part.column} is a whole number, and {value!r} is not one")
    elif not isinstance(value, str):
        raise UsageError(f"{part.column or part.op} is about texts, and {value!r} is not one")


def _check_score(values: tuple[Scalar, ...]) -> None:
    threshold, *weighed = values
    words, weights = weighed[::2], weighed[1::2]
    if len(words) != len(weights) or not all(isinstance(word, str) for word in words):
        raise UsageError("score takes a threshold, then words with a weight after each")
    for number in (threshold, *weights):
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not math.isfinite(float(number or 0)):
            raise UsageError(f"score takes numbers for its weights, not {number!r}")
    check_words([str(word) for word in words])


def _check_pattern(part: Predicate) -> None:
    pattern, extra = (*map(str, part.values), "")[:2]
    if len(pattern) > MAX_PATTERN:
        raise UsageError(f"a pattern may have {MAX_PATTERN} characters, and {pattern[:40]!r}... has more")
    if part.op in ("like", "ilike"):
        if len(extra) > 1:
            raise UsageError(f"{extra!r} cannot be the escape of a pattern: it is one character")
        read_like(pattern, extra)
    elif set(extra) - {"i", "s"}:
        raise UsageError(f"{extra!r} cannot be the options of an expression: they are i and s")
    else:
        search_test(pattern, extra)
