"""A predicate in plain words."""

from collections.abc import Sequence

from sterna.crawler.grammar import term_of
from sterna.model import Predicate, Scalar

_CONSTANTS = {"true": "any page", "false": "no page", "null": "no page"}
_NAMES = {
    "": "the page",
    "text": "its text",
    "html": "its html",
    "url": "its URL",
    "content_type": "its type",
}
_RELATIONS = {
    "=": "is {}",
    "<>": "is not {}",
    "<": "is less than {}",
    "<=": "is at most {}",
    ">": "is more than {}",
    ">=": "is at least {}",
    "is_distinct": "is other than {}",
    "like": "is like {}",
    "ilike": "is like {}, whatever the case",
    "starts_with": "begins with {}",
    "ends_with": "ends with {}",
    "contains": "contains {}",
    "list_contains": "have {} among them",
    "regexp": "matches {}",
    "regexp_full": "matches {} as a whole",
    "is_null": "is missing",
    "words_any": "has a word of {}",
    "words_all": "has the words {}",
    "phrase": "has the phrase {}",
    "in": "is one of {}",
    "language_in": "is one of {}",
    "type_in": "is one of {}",
}


def describe(predicate: Predicate) -> str:
    """The condition as one would say it."""
    if predicate.op in _CONSTANTS:
        return _CONSTANTS[predicate.op]
    if predicate.op == "not":
        return f"not ({describe(predicate.parts[0])})"
    if predicate.op in ("and", "or"):
        return f" {predicate.op} ".join(map(_inner, predicate.parts))
    return f"{_subject(predicate.column)} {_relation(predicate)}"


def _inner(part: Predicate) -> str:
    text = describe(part)
    return f"({text})" if part.op in ("and", "or") and len(part.parts) > 1 else text


def _subject(column: str) -> str:
    if not column:
        return _NAMES[""]
    term = term_of(column)
    name = _NAMES.get(term.column, f"its {term.column}")
    if term.is_length:
        return f"the length of {name}"
    return f"{name} in {term.case} case" if term.case else name


def _relation(part: Predicate) -> str:
    if part.op == "score":
        return _score(part.values)
    if part.op == "between":
        low, high = map(_value, part.values)
        return f"is from {low} to {high}"
    if part.op in ("like", "ilike", "regexp", "regexp_full"):
        return _RELATIONS[part.op].format(_value(part.values[0]))
    return _RELATIONS[part.op].format(", ".join(map(_value, part.values)))


def _score(values: Sequence[Scalar]) -> str:
    threshold, *weighed = values
    words = zip(weighed[::2], weighed[1::2], strict=True)
    listed = ", ".join(f"{_value(word)} ({weight:g})" for word, weight in words)
    return f"scores at least {threshold:g} by its words {listed}"


def _value(value: Scalar) -> str:
    return f'"{value}"' if isinstance(value, str) else "NULL" if value is None else str(value)
