"""What stands on the sides of an operator: columns of page and what is made of them, and constants."""

import re
from typing import NamedTuple

from sqlglot import exp

from sterna.crawler.grammar import COLUMNS, is_term, term_of
from sterna.errors import UsageError
from sterna.model import Scalar

Names = frozenset[str]  # by which a query calls the table `page`

# What is known of a page only when its reader is done with it, or only at home.
LATE = {
    "etag": "who reads a page is not told its etag",
    "fetched": "the time of a fetch is noted after the page was judged",
    "modified": "what Last-Modified says is weighed at home",
    "headers": "headers are judged at home",
    "extracts": "what selectors find is judged at home",
}
_LARGEST = 2**63


class Constant(NamedTuple):
    """A value that stands in a query."""

    value: Scalar
    is_whole: bool = True  # False for a number with a fraction or an exponent


def is_page_column(node: exp.Column, names: Names) -> bool:
    """True if the name stands for a column of page; DuckDB refuses a bare one that another table has too."""
    is_name = isinstance(node.this, exp.Identifier) and not node.args.get("db")
    return is_name and (not node.table or node.table.lower() in names)


def read_term(node: exp.Expr, names: Names) -> str | None:
    """The term that a column, or a function of one, is to a predicate."""
    if isinstance(node, exp.Paren):
        return read_term(node.this, names)
    if isinstance(node, exp.Column):
        name = node.name.lower()
        return name if name in COLUMNS and name not in LATE and is_page_column(node, names) else None
    if isinstance(node, exp.Anonymous) and len(node.expressions) == 1:
        name = f"{_FUNCTIONS.get(node.name.lower())}({read_term(node.expressions[0], names)})"
        return name if is_term(name) else None
    return None


_FUNCTIONS = {
    **dict.fromkeys(("lower", "lcase"), "lower"),
    **dict.fromkeys(("upper", "ucase"), "upper"),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), "length"),
}


def constant_of(node: exp.Expr | None) -> Constant | None:
    """The value of a literal, NULL, true or false; None if it is something else."""
    if isinstance(node, exp.Paren):
        return constant_of(node.this)
    if isinstance(node, exp.Null):
        return Constant(None)
    if isinstance(node, exp.Boolean):
        return Constant(bool(node.this))
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return _number(f"-{node.this.this}")
    if isinstance(node, exp.Literal):
        return Constant(str(node.this)) if node.is_string else _number(str(node.this))
    return None


def _number(written: str) -> Constant:
    is_whole = bool(re.fullmatch(r"-?\d{1,19}", written)) and -_LARGEST <= int(written) < _LARGEST
    return Constant(int(written) if is_whole else 0, is_whole)


def text_of(node: exp.Expr | None) -> str | None:
    """The text that stands there in quotes, if one does."""
    constant = constant_of(node)
    return constant.value if constant and isinstance(constant.value, str) else None


def value_for(term: str, constant: Constant) -> Constant | None:
    """The constant as the term is compared with it; None if only DuckDB knows, UsageError if it cannot be."""
    kind, value = term_of(term).kind, constant.value
    if value is None:
        return constant
    if kind == "list":
        raise UsageError(f"{term} is a list: write list_contains({term}, 'word')")
    if kind == "text" and not isinstance(value, str):
        raise UsageError(f"{term} is a text, and what it is compared with is not: put it in single quotes")
    if kind == "number" and isinstance(value, bool):
        raise UsageError(f"{term} is a number, and cannot be compared with true or false")
    if kind == "number" and isinstance(value, str):
        constant = _number(value)
        if not constant.is_whole:
            raise UsageError(f"{term} is a number, and {value!r} is not a whole one: write a number")
    return constant if constant.is_whole else None
