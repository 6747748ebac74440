"""From a condition in SQL to the predicate that is shipped, with the parts that stay at home marked in it.

Only what means the same at the site as in DuckDB becomes a predicate. The rest is marked: `home` for a part
that only home can judge, `weak` for one of which the site can judge a weaker form.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from sqlglot import exp

from sterna.crawler.algebra import joined, negated, unknown, weakened
from sterna.crawler.grammar import COLUMNS, TERMS, check, term_of
from sterna.crawler.sql.query import has_more
from sterna.crawler.text_tests import LikeToken, Wild, affixed, is_stable, lowered, read_like
from sterna.errors import UsageError
from sterna.model import Predicate, Scalar

HOME, WEAK = "home", "weak"

_ESCAPE = "\\"
_LARGEST = 2**63

# Columns that are known only after a page is judged, or only at home, and why.
LATE = {
    "etag": "the reader of a page does not know its etag",
    "fetched": "the time of a fetch is noted after the page is judged",
    "modified": "Last-Modified is evaluated at home",
    "headers": "headers are judged at home",
    "extracts": "what selectors find is judged at home",
}


def translate(node: exp.Expr, page: str) -> Predicate:
    """The condition on a table called `page` as a predicate with marks; UsageError where types are unlike."""
    if isinstance(node, exp.Paren):
        return translate(node.this, page)
    if isinstance(node, exp.And | exp.Or):
        op = "and" if isinstance(node, exp.And) else "or"
        return joined(op, [translate(each, page) for each in node.flatten(unnest=False)])
    if isinstance(node, exp.Not):
        return negated(translate(node.this, page))
    read = _READERS.get(type(node))
    found = read(node, page) if read else None
    if found is None:
        return _home(_why(node, page))
    if next(marks_of(found), None) is None:
        try:
            check(found)
        except UsageError as error:  # it is too large, for instance
            return _home(str(error))
    return found


def marks_of(predicate: Predicate) -> Iterator[Predicate]:
    """The parts that are not shipped unchanged."""
    if predicate.op in (HOME, WEAK):
        yield predicate
    else:
        for part in predicate.parts:
            yield from marks_of(part)


def shipped(predicate: Predicate) -> Predicate:
    """The predicate without marks: equal to it or weaker, so that the site can judge it."""

    def leaf(part: Predicate, is_negated: bool) -> Predicate:
        if part.op == WEAK and not is_negated:
            return part.parts[0]
        return unknown(is_negated) if part.op in (HOME, WEAK) else part

    return weakened(predicate, leaf)


def _home(why: str) -> Predicate:
    return Predicate(HOME, values=(why,))


def _why(node: exp.Expr, page: str) -> str:
    if node.find(exp.Query):
        return "it contains a subquery"
    for column in node.find_all(exp.Column):
        if column.name.lower() in LATE:
            return LATE[column.name.lower()]
        if not is_page_column(column, page):
            return f"{column.sql()} is not a column of page"
    return "the site has no operator that means exactly the same"


# --- operands: columns of page, functions of them, and constants


class Constant(NamedTuple):
    """A literal value in a query."""

    value: Scalar
    is_whole: bool = True  # False for a number with a fraction or an exponent


def is_page_column(node: exp.Column, page: str) -> bool:
    """True if the name is a column of page; DuckDB refuses an unqualified one that is ambiguous."""
    is_name = isinstance(node.this, exp.Identifier) and not node.args.get("db")
    return is_name and node.table.lower() in ("", page)


def read_term(node: exp.Expr, page: str) -> str | None:
    """The term of a predicate that this column, or function of a column, is; None if there is none."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        name = node.name.lower()
        return name if name in COLUMNS and name not in LATE and is_page_column(node, page) else None
    if isinstance(node, exp.Anonymous) and len(node.expressions) == 1:
        name = f"{_FUNCTIONS.get(node.name.lower())}({read_term(node.expressions[0], page)})"
        return name if name in TERMS else None
    return None


_FUNCTIONS = {
    **dict.fromkeys(("lower", "lcase"), "lower"),
    **dict.fromkeys(("upper", "ucase"), "upper"),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), "length"),
}


def constant_of(node: exp.Expr | None) -> Constant | None:
    """The value of a literal, NULL, true or false; None for anything else."""
    node = None if node is None else node.unnest()
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
    """The value of a text literal; None for anything else."""
    constant = constant_of(node)
    return constant.value if constant and isinstance(constant.value, str) else None


def value_for(term: str, constant: Constant) -> Constant | None:
    """The constant in the term's type; None if only DuckDB can convert it, UsageError if it does not fit."""
    type_, value = term_of(term).type, constant.value
    if value is None:
        return constant
    if type_ == "list":
        raise UsageError(f"{term} is a list: write list_contains({term}, 'word')")
    if type_ == "text" and not isinstance(value, str):
        raise UsageError(f"{term} is a text and its value is not: put the value in single quotes")
    if type_ == "number" and isinstance(value, bool):
        raise UsageError(f"{term} is a number and is compared with true or false: write a number")
    if type_ == "number" and isinstance(value, str):
        constant = _number(value)
        if not constant.is_whole:
            raise UsageError(f"{term} is a number, and {value!r} is not a whole number: write a number")
    return constant if constant.is_whole else None


# --- operators


def _comparison(node: exp.Expr, page: str) -> Predicate | None:
    if has_more(node, "this", "expression"):
        return None
    op, left, right = COMPARISONS[type(node)], node.this, node.args["expression"]
    if read_term(left, page) is None:
        op, left, right = FLIPPED.get(op, op), right, left
    term, constant = read_term(left, page), constant_of(right)
    value = value_for(term, constant) if term and constant else None
    return _compared(op, term, value.value) if term and value else None


COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "is_same",
    exp.NullSafeNEQ: "is_distinct",
}
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _compared(op: str, term: str, value: Scalar) -> Predicate | None:
    if op in ("<>", "is_same"):
        inner = _compared("=" if op == "<>" else "is_distinct", term, value)
        return negated(inner) if inner else None
    if not term_of(term).case:
        return Predicate(op, term, (value,))
    if op != "=":
        return None
    return Predicate("=", term, (value,)) if value is None else _cased(term, str(value), list(str(value)))


def _cased(term: str, written: str, tokens: Sequence[LikeToken]) -> Predicate:
    """A LIKE in lower or upper case; letters whose case depends on the version of Unicode match any."""
    is_exact = is_stable(written)
    pattern = ""
    for char in tokens:
        if isinstance(char, Wild):
            pattern += char.value
        elif is_exact or is_stable(char):
            pattern += _ESCAPE + char if char in "%_\\" else char
        else:
            pattern += Wild.ONE.value
    part = Predicate("like", term, (pattern, _ESCAPE))
    why = "the case of some letters differs between versions of Unicode"
    return part if is_exact else Predicate(WEAK, values=(why,), parts=(part,))


def _between(node: exp.Expr, page: str) -> Predicate | None:
    term = read_term(node.this, page)
    ends = _alike(term, [node.args["low"], node.args["high"]])
    if has_more(node, "this", "low", "high") or term is None or ends is None:
        return None
    return _all("and", [_compared(op, term, end) for op, end in zip((">=", "<="), ends, strict=True)])


def _in(node: exp.Expr, page: str) -> Predicate | None:
    if field := node.args.get("field"):
        found = None if has_more(node, "this", "field") else _contains([field, node.this], page)
        return found if found and found.op == "list_contains" else None
    term = read_term(node.this, page)
    values = _alike(term, node.expressions)
    if has_more(node, "this", "expressions") or term is None or not values:
        return None
    if not term_of(term).case:
        return Predicate("in", term, tuple(values))
    return _all("or", [_compared("=", term, value) for value in values])


def _alike(term: str | None, nodes: Sequence[exp.Expr]) -> list[Scalar] | None:
    """The constants if all have the term's type; DuckDB converts mixed ones to a type of its choice."""
    constants = [constant_of(node) for node in nodes]
    if term is None or not all(constants):
        return None
    checked = [value_for(term, constant) for constant in constants if constant]
    return [each.value for each in checked if each] if checked == constants else None


def _all(op: str, parts: Sequence[Predicate | None]) -> Predicate | None:
    """The parts joined; None if one is missing or there are none."""
    found = [part for part in parts if part]
    return joined(op, found) if found and len(found) == len(parts) else None


def _is(node: exp.Expr, page: str) -> Predicate | None:
    term = read_term(node.this, page)
    is_null = isinstance(node.args["expression"], exp.Null) and not has_more(node, "this", "expression")
    return Predicate("is_null", term_of(term).column) if term and is_null else None


def _like(node: exp.Expr, page: str, escape: str = "") -> Predicate | None:
    term, pattern = read_term(node.this, page), text_of(node.args["expression"])
    if term is None or term_of(term).type != "text" or pattern is None:
        return None
    if has_more(node, "this", "expression", "negate"):
        return None
    tokens = read_like(pattern, escape)
    if isinstance(node, exp.ILike):
        # DuckDB lower-cases the pattern before it looks for the escape.
        if term_of(term).case or escape.isalpha() or not escape.isascii():
            return None
        small = [token if isinstance(token, Wild) else lowered(token) for token in tokens]
        found = _cased(f"lower({term})", pattern, small)
    elif term_of(term).case:
        found = _cased(term, pattern, tokens)
    else:
        found = Predicate("like", term, (pattern, escape) if escape else (pattern,))
    return negated(found) if node.args.get("negate") else found


def _escape(node: exp.Expr, page: str) -> Predicate | None:
    escape = text_of(node.args["expression"])
    is_like = isinstance(node.this, exp.Like | exp.ILike)
    if not is_like or escape is None or has_more(node, "this", "expression"):
        return None
    if len(escape) > 1 or not escape.isascii():
        raise UsageError(f"ESCAPE {escape!r} is not a single ASCII character")
    return _like(node.this, page, escape)


def _affix(op: str, sides: Sequence[exp.Expr], page: str) -> Predicate | None:
    term, text = read_term(sides[0], page), text_of(sides[1])
    if term is None or text is None or term_of(term).type != "text":
        return None
    if not term_of(term).case:
        return Predicate(op, term, (text,))
    return _cased(term, text, affixed(op, text))


def _contains(sides: Sequence[exp.Expr], page: str) -> Predicate | None:
    # In DuckDB contains() finds the empty text in every list, unlike list_contains().
    found = _list_contains(sides, page) if text_of(sides[1]) else None
    return found or _affix("contains", sides, page)


def _list_contains(sides: Sequence[exp.Expr], page: str) -> Predicate | None:
    term, text = read_term(sides[0], page), text_of(sides[1])
    is_list = term in COLUMNS and COLUMNS[term] == "list"
    return Predicate("list_contains", term, (text,)) if term and is_list and text is not None else None


def _has_several(op: str, sides: Sequence[exp.Expr], page: str) -> Predicate | None:
    items = sides[1].expressions if isinstance(sides[1], exp.Array) else []
    return _all(op, [_list_contains([sides[0], item], page) for item in items])


# Versions of RE2 differ in Unicode classes, in the case of letters beyond ASCII and in the syntax of named
# groups; \C may split a character.
_UNLIKE = re.compile(r"\\[pPC]|\(\?<")
_IGNORES_CASE = re.compile(r"\(\?[a-zA-Z]*i")


def _regexp(op: str, sides: Sequence[exp.Expr], page: str) -> Predicate | None:
    term, pattern = read_term(sides[0], page), text_of(sides[1])
    options = text_of(sides[2]) if len(sides) > 2 else ""
    if term not in COLUMNS or COLUMNS[term] != "text" or pattern is None or _UNLIKE.search(pattern):
        return None
    if options not in ("", "i", "s", "is", "si"):
        return None
    ignores_case = "i" in options or _IGNORES_CASE.search(pattern)
    if ignores_case and not (pattern.isascii() and "\\x" not in pattern):
        return None
    return Predicate(op, term, (pattern, options) if options else (pattern,))


def _function(node: exp.Expr, page: str) -> Predicate | None:
    least, most, read = _FUNCTION_READERS.get(node.name.lower(), (0, 0, None))
    sides = node.expressions
    if read is None or not least <= len(sides) <= most or has_more(node, "this", "expressions"):
        return None
    return read(sides, page)


_Reader = Callable[[exp.Expr, str], Predicate | None]
_FunctionReader = Callable[[Sequence[exp.Expr], str], Predicate | None]


_FUNCTION_READERS: dict[str, tuple[int, int, _FunctionReader]] = {
    "contains": (2, 2, _contains),
    **dict.fromkeys(("starts_with", "prefix"), (2, 2, partial(_affix, "starts_with"))),
    **dict.fromkeys(("ends_with", "suffix"), (2, 2, partial(_affix, "ends_with"))),
    **dict.fromkeys(("list_contains", "list_has", "array_contains", "array_has"), (2, 2, _list_contains)),
    **dict.fromkeys(("list_has_any", "array_has_any"), (2, 2, partial(_has_several, "or"))),
    **dict.fromkeys(("list_has_all", "array_has_all"), (2, 2, partial(_has_several, "and"))),
    "regexp_matches": (2, 3, partial(_regexp, "regexp")),
    "regexp_full_match": (2, 3, partial(_regexp, "regexp_full")),
}
_READERS: dict[type[exp.Expr], _Reader] = {
    exp.Boolean: lambda node, _: Predicate("true" if node.this else "false"),
    exp.Null: lambda *_: Predicate("null"),
    **dict.fromkeys(COMPARISONS, _comparison),
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    # sqlglot has nodes of its own for these two functions.
    exp.StartsWith: lambda node, page: _affix("starts_with", [node.this, node.expression], page),
    exp.ArrayOverlaps: lambda node, page: _has_several("or", [node.this, node.expression], page),
    exp.Anonymous: _function,
}
