"""The grammar of predicates: columns of a page, operators with their values and words, and limits on size."""

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_type_hints

from sterna.crawler.text_tests import Case, check_words, read_like, search_test
from sterna.errors import UsageError
from sterna.model import Predicate, Scalar

TermType = Literal["number", "text", "list"]


class PageRow(NamedTuple):
    """A page as the archive would store it; an empty text or list and status 0 count as NULL too."""

    url: str | None = None
    site: str | None = None
    depth: int | None = None
    referrer: str | None = None
    status: int | None = None
    error: str | None = None
    content_type: str | None = None
    title: str | None = None
    description: str | None = None
    text: str | None = None
    language: str | None = None
    digest: str | None = None
    etag: str | None = None
    size: int | None = None
    html: str | None = None
    keywords: Sequence[str] | None = None
    headings: Sequence[str] | None = None


_TYPES: dict[object, TermType] = {str | None: "text", int | None: "number", Sequence[str] | None: "list"}
COLUMNS = {name: _TYPES[hint] for name, hint in get_type_hints(PageRow).items()}
ANYWHERE = ("title", "description", "headings", "text")  # searched for words if no column is named

# Predicates come from strangers: these bound the cost of reading and judging one.
MAX_DEPTH = 32
MAX_PARTS = 1_000
MAX_VALUES = 10_000
MAX_CHARACTERS = 200_000
MAX_PATTERN = 2_000
_LARGEST = 2**63


class Term(NamedTuple):
    """What is compared: a column, its text in lower or upper case, or its length."""

    column: str
    type: TermType
    case: Case = ""
    is_length: bool = False


TERMS = {name: Term(name, type_) for name, type_ in COLUMNS.items()}
for _name, _type in COLUMNS.items():
    if _type == "text":
        TERMS[f"lower({_name})"] = Term(_name, "text", "lower")
        TERMS[f"upper({_name})"] = Term(_name, "text", "upper")
    if _type != "number":
        TERMS[f"length({_name})"] = Term(_name, "number", is_length=True)


class _Operator(NamedTuple):
    """How an operator reads in words, and what it takes."""

    words: str  # {first}, {last} and {all} stand for its values
    subjects: tuple[str, ...] = ()  # types of its term; "anywhere" if it may go without one
    values: tuple[int, int] = (0, 0)  # least and most
    parts: tuple[int, int] = (0, 0)
    may_be_cased: bool = False  # its term may be lower(...) or upper(...)
    may_be_null: bool = False  # its values may be NULL, as in a query


_SCALAR = ("number", "text")
_SEARCHED = ("text", "list", "anywhere")
_MANY = (1, MAX_VALUES)
_OPERATORS = {
    "true": _Operator("any page"),
    "false": _Operator("no page"),
    "null": _Operator("no page"),
    "and": _Operator("and", parts=(1, MAX_PARTS)),
    "or": _Operator("or", parts=(1, MAX_PARTS)),
    "not": _Operator("not", parts=(1, 1)),
    "=": _Operator("is {all}", _SCALAR, (1, 1), may_be_cased=True, may_be_null=True),
    "<>": _Operator("is not {all}", _SCALAR, (1, 1), may_be_cased=True, may_be_null=True),
    "<": _Operator("is less than {all}", _SCALAR, (1, 1), may_be_null=True),
    "<=": _Operator("is at most {all}", _SCALAR, (1, 1), may_be_null=True),
    ">": _Operator("is more than {all}", _SCALAR, (1, 1), may_be_null=True),
    ">=": _Operator("is at least {all}", _SCALAR, (1, 1), may_be_null=True),
    "is_distinct": _Operator("is other than {all}", _SCALAR, (1, 1), may_be_null=True),
    "between": _Operator("is from {first} to {last}", _SCALAR, (2, 2), may_be_null=True),
    "in": _Operator("is one of {all}", _SCALAR, _MANY, may_be_cased=True, may_be_null=True),
    "is_null": _Operator("is missing", ("number", "text", "list")),
    "like": _Operator("is like {first}", ("text",), (1, 2), may_be_cased=True),
    "ilike": _Operator("is like {first}, in any case", ("text",), (1, 2)),
    "starts_with": _Operator("begins with {all}", ("text",), (1, 1), may_be_cased=True),
    "ends_with": _Operator("ends with {all}", ("text",), (1, 1), may_be_cased=True),
    "contains": _Operator("contains {all}", ("text",), (1, 1), may_be_cased=True),
    "regexp": _Operator("matches {first}", ("text", "anywhere"), (1, 2)),
    "regexp_full": _Operator("matches {first} as a whole", ("text",), (1, 2)),
    "list_contains": _Operator("include {all}", ("list",), (1, 1)),
    "words_any": _Operator("has a word of {all}", _SEARCHED, _MANY),
    "words_all": _Operator("has the words {all}", _SEARCHED, _MANY),
    "phrase": _Operator("has the phrase {all}", _SEARCHED, _MANY),
    "score": _Operator("scores at least {first} by its words {all}", _SEARCHED, (3, MAX_VALUES)),
    "language_in": _Operator("is one of {all}", ("text",), _MANY),
    "type_in": _Operator("is one of {all}", ("text",), _MANY),
}
_WORDS = ("words_any", "words_all", "phrase")
_PATTERNS = ("like", "ilike", "regexp", "regexp_full")


def term_of(column: str) -> Term:
    """The term of this name: title, lower(title), length(title)."""
    if column not in TERMS:
        raise UsageError(f"a page has no column {column!r}: choose one of {', '.join(COLUMNS)}")
    return TERMS[column]


def columns_of(predicate: Predicate) -> frozenset[str]:
    """The columns that must be known to judge it."""
    found: set[str] = set()
    for part, _ in _walk(predicate):
        if part.column:
            found.add(term_of(part.column).column)
        elif part.op in _OPERATORS and "anywhere" in _OPERATORS[part.op].subjects:
            found.update(ANYWHERE)
    return frozenset(found)


# --- checks


def check(predicate: Predicate) -> None:
    """Raises UsageError unless the predicate is valid and cheap enough to judge."""
    values = characters = 0
    for parts, (part, depth) in enumerate(_walk(predicate), start=1):
        values += len(part.values)
        characters += sum(len(value) for value in part.values if isinstance(value, str))
        if depth > MAX_DEPTH:
            raise UsageError(f"the condition nests more than {MAX_DEPTH} levels deep: split it")
        if parts > MAX_PARTS or values > MAX_VALUES or characters > MAX_CHARACTERS:
            raise UsageError(
                f"the condition is too large (limits: {MAX_PARTS} parts, {MAX_VALUES} values,"
                f" {MAX_CHARACTERS} characters): shorten it"
            )
        _check_part(part)


def _walk(predicate: Predicate) -> Iterator[tuple[Predicate, int]]:
    waiting = [(predicate, 1)]
    while waiting:
        part, depth = waiting.pop()
        yield part, depth
        waiting += [(each, depth + 1) for each in part.parts]


def _check_part(part: Predicate) -> None:
    operator = _OPERATORS.get(part.op)
    if operator is None:
        raise UsageError(f"unknown operator {part.op!r}: choose one of {', '.join(_OPERATORS)}")
    counts = (("conditions", part.parts, operator.parts), ("values", part.values, operator.values))
    for what, found, (least, most) in counts:
        if not least <= len(found) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise UsageError(f"{part.op} takes {wanted} {what}, not {len(found)}")
    subject = _subject(part, operator)
    if part.op == "score":
        _check_score(part.values)
    else:
        for value in part.values:
            if value is not None or not operator.may_be_null:
                _check_value(part, value, subject)
    if part.op in _PATTERNS:
        _check_pattern(part)
    if part.op in _WORDS:
        check_words([str(word) for word in part.values])


def _subject(part: Predicate, operator: _Operator) -> str:
    if not operator.subjects:
        if part.column:
            raise UsageError(f"{part.op} takes no column, but has {part.column!r}")
        return ""
    if not part.column and "anywhere" in operator.subjects:
        return "anywhere"
    term = term_of(part.column)
    if term.type not in operator.subjects or (term.case and not operator.may_be_cased):
        raise UsageError(f"{part.op} does not apply to {part.column}")
    return term.type


def _check_value(part: Predicate, value: Scalar, subject: str) -> None:
    if subject == "number":
        if type(value) is not int or not -_LARGEST <= value < _LARGEST:
            raise UsageError(f"{part.column} is compared with {value!r}, which is not a 64-bit whole number")
    elif not isinstance(value, str):
        raise UsageError(f"{part.column or part.op} is compared with {value!r}, which is not a text")


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
        raise UsageError(f"the pattern {pattern[:40]!r}... is longer than {MAX_PATTERN} characters")
    if part.op in ("like", "ilike"):
        if len(extra) > 1:
            raise UsageError(f"the escape {extra!r} of a pattern is not a single character")
        read_like(pattern, extra)
    elif set(extra) - {"i", "s"}:
        raise UsageError(f"the options {extra!r} of a regular expression are unknown: only i and s exist")
    else:
        search_test(pattern, extra)


# --- in words

_NAMES = {"text": "its text", "html": "its html", "url": "its URL", "content_type": "its type"}


def describe(predicate: Predicate) -> str:
    words = _OPERATORS[predicate.op].words
    if predicate.op == "not":
        return f"not ({describe(predicate.parts[0])})"
    if predicate.op in ("and", "or"):
        parts = (
            f"({describe(part)})" if part.op in ("and", "or") and len(part.parts) > 1 else describe(part)
            for part in predicate.parts
        )
        return f" {words} ".join(parts)
    if predicate.op in ("true", "false", "null"):
        return words
    values = list(map(_value, predicate.values)) or [""]
    listed = ", ".join(values)
    if predicate.op == "score":
        weighed = zip(values[1::2], values[2::2], strict=True)
        listed = ", ".join(f"{word} ({weight})" for word, weight in weighed)
    return f"{_subject_of(predicate)} {words.format(first=values[0], last=values[-1], all=listed)}"


def _subject_of(predicate: Predicate) -> str:
    if not predicate.column:
        return "the page"
    term = term_of(predicate.column)
    name = _NAMES.get(term.column, f"its {term.column}")
    if term.is_length:
        return f"the length of {name}"
    return f"{name} in {term.case} case" if term.case else name


def _value(value: Scalar) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return f'"{value}"' if isinstance(value, str) else "NULL" if value is None else str(value)
