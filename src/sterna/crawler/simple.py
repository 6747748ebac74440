"""Reads the limited SQL of Fiedler-Hammer 4.6.1: columns of one table, and comparisons joined by AND."""

from sqlglot import exp

from sterna.crawler.clauses import conjuncts, read_query
from sterna.crawler.operands import constant_of
from sterna.crawler.pushdown import COMPARISONS, FLIPPED
from sterna.errors import UsageError
from sterna.model import Record

_ALLOWED = "SELECT columns FROM one table WHERE comparisons by =, <>, <, >, <=, >= joined by AND"


class Comparison(Record, frozen=True):
    """A column beside a constant."""

    column: str
    op: str
    value: str | int


class SimpleSelect(Record, frozen=True):
    """The whole of a simple query; no columns stand for all."""

    columns: tuple[str, ...]
    table: str
    comparisons: tuple[Comparison, ...]


def read_simple(sql: str) -> SimpleSelect:
    """The query, read; UsageError if it is more than the limited SQL has."""
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
    return UsageError(f"{what} is more than a query rule can say: {_ALLOWED}")
