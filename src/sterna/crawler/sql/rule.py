"""A simple SELECT as a rule that an inference engine runs over facts (Fiedler-Hammer 4.6).

The limited SQL of 4.6.1 has the columns of one table and comparisons joined by AND. For each fact that
matches, the rule asserts a fact QUERY_RESULT of alternating names and values (4.6.2). An engine keeps no
duplicate facts, so duplicate rows come once.
"""

import re
from collections.abc import Mapping, Sequence

from sqlglot import exp

from sterna.crawler.sql.pushdown import COMPARISONS, FLIPPED, constant_of
from sterna.crawler.sql.query import conjuncts, read_query
from sterna.errors import UsageError
from sterna.model import Record

RESULT = "QUERY_RESULT"

_ALLOWED = "SELECT columns FROM one table WHERE comparisons by =, <>, <, >, <=, >= joined by AND"
_SYMBOL = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)


class Comparison(Record, frozen=True):
    """A column compared with a constant."""

    column: str
    op: str
    value: str | int


class SimpleSelect(Record, frozen=True):
    """A simple query; an empty list of columns means all."""

    columns: tuple[str, ...]
    table: str
    comparisons: tuple[Comparison, ...]


def query_rule(sql: str, template_slots: Mapping[str, Sequence[str]]) -> str:
    """The rule for a query over one template; `template_slots` has each one's single-value slots."""
    query = _read_simple(sql)
    template, slots = _template(query.table, template_slots)
    wanted = [_slot(column, slots) for column in query.columns] if query.columns else list(slots)
    tests: dict[str, list[str]] = {}
    for each in query.comparisons:
        slot = _slot(each.column, slots)
        tests.setdefault(slot, []).append(_test(slot, each))
    patterns = [
        f"({slot} {'&'.join([f'?{slot}', *tests.get(slot, ())])})"
        for slot in dict.fromkeys([*wanted, *tests])
    ]
    results = " ".join(f"{slot} ?{slot}" for slot in wanted)
    return f"(defrule Query\n  ({template} {' '.join(patterns)})\n  =>\n  (assert ({RESULT} {results})))"


def _template(name: str, known: Mapping[str, Sequence[str]]) -> tuple[str, Sequence[str]]:
    for template, slots in known.items():
        if template.lower() == name.lower():
            for symbol in (template, *slots):
                if not _SYMBOL.fullmatch(symbol):
                    raise UsageError(
                        f"{symbol!r} is not a valid name in a rule: use letters, digits, '-' and '_'"
                    )
            return template, slots
    raise UsageError(f"unknown template {name!r}: choose one of {', '.join(known)}")


def _slot(column: str, slots: Sequence[str]) -> str:
    """The slot for a column: content_type in SQL is content-type in CLIPS."""
    for slot in slots:
        if slot.lower().replace("-", "_") == column.lower().replace("-", "_"):
            return slot
    raise UsageError(f"unknown slot {column!r}: choose one of {', '.join(slots)}")


def _test(slot: str, comparison: Comparison) -> str:
    """A constraint on the slot's variable; values of another type fail it, and so does nil."""
    variable, op, value = f"?{slot}", comparison.op, comparison.value
    if isinstance(value, str):
        text = f"(str-compare {variable} {_quoted(value)})"
        return f":(and (lexemep {variable}) (neq {variable} nil) ({op} {text} 0))"
    return f":(and (numberp {variable}) ({op} {variable} {value}))"


def _quoted(text: str) -> str:
    if "\0" in text:
        raise UsageError("a text in a rule must not contain a NUL character")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# --- reading the limited SQL


def _read_simple(sql: str) -> SimpleSelect:
    """The parsed query; UsageError if it exceeds the limited SQL."""
    query = read_query(sql)
    table = _table(query)
    names = {"", table.alias_or_name.lower()}
    where = query.args.get("where")
    return SimpleSelect(
        columns=_columns(query, names),
        table=table.name,
        comparisons=tuple(_comparison(each, names) for each in conjuncts(where.this)) if where else (),
    )


def _table(query: exp.Expr) -> exp.Table:
    source = query.args.get("from_")
    extra = [
        name for name, value in query.args.items() if value and name not in ("expressions", "from_", "where")
    ]
    if not isinstance(query, exp.Select) or extra or source is None or not isinstance(source.this, exp.Table):
        raise _refusal("the query")
    table: exp.Table = source.this
    if any(value for name, value in table.args.items() if name not in ("this", "alias")):
        raise _refusal(table.sql())
    return table


def _columns(query: exp.Expr, names: set[str]) -> tuple[str, ...]:
    if [type(each) for each in query.expressions] == [exp.Star]:
        return ()
    return tuple(_column(each, names) for each in query.expressions)


def _column(node: exp.Expr, names: set[str]) -> str:
    if (
        not isinstance(node, exp.Column)
        or node.table.lower() not in names
        or not isinstance(node.this, exp.Identifier)
    ):
        raise _refusal(node.sql())
    return node.name


def _comparison(node: exp.Expr, names: set[str]) -> Comparison:
    plain = node.unnest()
    op = COMPARISONS.get(type(plain), "")
    if not op or op not in ("=", "<>", "<", ">", "<=", ">="):
        raise _refusal(node.sql())
    left, right = plain.this, plain.args["expression"]
    if not isinstance(left, exp.Column):
        op, left, right = FLIPPED.get(op, op), right, left
    constant = constant_of(right)
    value = constant.value if constant and constant.is_whole else None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _refusal(node.sql())
    return Comparison(_column(left, names), op, value)


def _refusal(what: str) -> UsageError:
    return UsageError(f"{what} does not fit into a rule; allowed: {_ALLOWED}")
