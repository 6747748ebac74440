"""A simple SELECT as a rule that an inference engine runs over facts (Fiedler-Hammer 4.6).

The limited SQL of 4.6.1 has the columns of one table and comparisons joined by AND. For each fact that
matches, the rule asserts a fact QUERY_RESULT of alternating names and values (4.6.2). An engine keeps no
duplicate facts, so duplicate rows come once.
"""

import re
from collections.abc import Mapping, Sequence

from sqlglot import exp

from sterna.crawler.sql.pushdown import COMPARISONS, FLIPPED, constant_of
from sterna.crawler.sql.query import conjuncts, has_more, read_query
from sterna.errors import UsageError

RESULT = "QUERY_RESULT"

_ALLOWED = "SELECT columns FROM one table WHERE comparisons by =, <>, <, >, <=, >= joined by AND"
_SYMBOL = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)


def query_rule(sql: str, template_slots: Mapping[str, Sequence[str]]) -> str:
    """The rule for a query over one template; `template_slots` has each one's single-value slots."""
    query = read_query(sql)
    table = _table(query)
    names = {"", table.alias_or_name.lower()}
    is_all = [type(each) for each in query.expressions] == [exp.Star]
    columns = [] if is_all else [_column(each, names) for each in query.expressions]
    where = query.args.get("where")
    comparisons = [_comparison(each, names) for each in conjuncts(where.this)] if where else []
    template = _template(table.name, template_slots)
    slots = template_slots[template]
    wanted = list(slots) if is_all else [_slot(column, slots) for column in columns]
    tests: dict[str, list[str]] = {}
    for column, op, value in comparisons:
        slot = _slot(column, slots)
        tests.setdefault(slot, []).append(_test(f"?{slot}", op, value))
    patterns = [
        f"({slot} {'&'.join([f'?{slot}', *tests.get(slot, ())])})"
        for slot in dict.fromkeys([*wanted, *tests])
    ]
    results = " ".join(f"{slot} ?{slot}" for slot in wanted)
    return f"(defrule Query\n  ({template} {' '.join(patterns)})\n  =>\n  (assert ({RESULT} {results})))"


def _template(name: str, known: Mapping[str, Sequence[str]]) -> str:
    for template, slots in known.items():
        if template.lower() == name.lower():
            for symbol in (template, *slots):
                if not _SYMBOL.fullmatch(symbol):
                    raise UsageError(
                        f"{symbol!r} is not a valid name in a rule: use letters, digits, '-' and '_'"
                    )
            return template
    raise UsageError(f"unknown template {name!r}: choose one of {', '.join(known)}")


def _slot(column: str, slots: Sequence[str]) -> str:
    """The slot for a column: content_type in SQL is content-type in CLIPS."""
    for slot in slots:
        if slot.lower().replace("-", "_") == column.lower().replace("-", "_"):
            return slot
    raise UsageError(f"unknown slot {column!r}: choose one of {', '.join(slots)}")


def _test(variable: str, op: str, value: str | int) -> str:
    """A constraint on a slot's variable; values of another type fail it, and so does nil."""
    if not isinstance(value, str):
        return f":(and (numberp {variable}) ({op} {variable} {value}))"
    if "\0" in value:
        raise UsageError("a text in a rule must not contain a NUL character")
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    text = f'(str-compare {variable} "{quoted}")'
    return f":(and (lexemep {variable}) (neq {variable} nil) ({op} {text} 0))"


# --- reading the limited SQL


def _table(query: exp.Expr) -> exp.Table:
    source = query.args.get("from_")
    table = source.this if source else None
    is_plain = isinstance(query, exp.Select) and not has_more(query, "expressions", "from_", "where")
    if not is_plain or not isinstance(table, exp.Table):
        raise _refusal("the query")
    if has_more(table, "this", "alias"):
        raise _refusal(table.sql())
    return table


def _column(node: exp.Expr, names: set[str]) -> str:
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier) and node.table.lower() in names:
        return node.name
    raise _refusal(node.sql())


def _comparison(node: exp.Expr, names: set[str]) -> tuple[str, str, str | int]:
    """A column, the operator, and the constant with which it is compared."""
    plain = node.unnest()
    op = COMPARISONS.get(type(plain), "")
    if op not in ("=", "<>", *FLIPPED):
        raise _refusal(node.sql())
    left, right = plain.this, plain.args["expression"]
    if not isinstance(left, exp.Column):
        op, left, right = FLIPPED.get(op, op), right, left
    constant = constant_of(right)
    value = constant.value if constant and constant.is_whole else None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _refusal(node.sql())
    return _column(left, names), op, value


def _refusal(what: str) -> UsageError:
    return UsageError(f"{what} does not fit into a rule; allowed: {_ALLOWED}")
