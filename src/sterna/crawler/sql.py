"""SQL as a spec: what of a query is shipped with the crawler, and what runs at home over what came back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

from sqlglot import exp

from sterna.crawler.algebra import TRUE, joined, or_none, prunable_of, prune_of
from sterna.crawler.clauses import (
    Part,
    Where,
    check_names,
    conjuncts,
    read_condition,
    read_query,
    trimmed,
    where_of,
    with_parts,
    without_limit,
)
from sterna.crawler.grammar import check
from sterna.crawler.operands import Names
from sterna.crawler.pushdown import marks_of, shipped, translate
from sterna.crawler.sources import PAGE_COLUMNS, TABLES, Source, read_source
from sterna.crawler.travel import bounds_of, columns_read, fields_read, has_others, is_streamable
from sterna.crawler.wording import describe
from sterna.errors import UsageError
from sterna.model import Field, Predicate, Record

Place = Literal[
    "before the fetch",
    "at the site",
    "at the site, and again at home",
    "at the site, weakened, and again at home",
    "at home",
]

_AT_HOME = {
    "joins": ("JOIN", "tables are joined at home"),
    "group": ("GROUP BY", "groups need all rows"),
    "having": ("HAVING", "groups need all rows"),
    "qualify": ("QUALIFY", "windows need all rows"),
    "distinct": ("DISTINCT", "rows are compared with each other at home"),
    "order": ("ORDER BY", "rows are sorted at home"),
    "with_": ("WITH", "queries within the query run at home"),
    "sample": ("SAMPLE", "rows are drawn at home"),
}


class Step(Record, frozen=True):
    """A piece of a query, where it runs, and why there."""

    text: str
    place: Place
    why: str


class QueryPlan(Record, frozen=True, kw_only=True):
    """What becomes of a query."""

    sql: str
    prune: Predicate | None  # who fails it is not fetched, and no page of the result is lost by that
    prunable: Predicate | None  # the same, for a crawl that passes only through URLs that match
    select: Predicate | None  # who fails it is not kept
    columns: tuple[str, ...]  # of page, that home needs
    fields: tuple[Field, ...]  # the same as what a crawler keeps
    is_exact: bool  # home repeats nothing of the WHERE
    is_streamable: bool  # each page gives its rows alone, as it comes
    home_sql: str  # over the pages that were kept, and no others
    stream_sql: str  # the same over some pages of them, without its LIMIT; empty if it is not streamable
    limit: int | None  # so many rows are enough, in any order, after `offset` ones that are not wanted
    offset: int
    steps: tuple[Step, ...]


class ConditionPlan(Record, frozen=True):
    """What becomes of a condition that is judged at the site alone."""

    prune: Predicate | None
    select: Predicate | None


class _Judged(NamedTuple):
    """A condition, what of it is shipped, whether home repeats it, and whether it is weaker at the site."""

    part: Part
    shipped: Predicate
    is_again: bool
    is_weaker: bool
    why: str

    @classmethod
    def only_at_home(cls, part: Part, why: str) -> "_Judged":
        return cls(part, TRUE, is_again=True, is_weaker=True, why=why)


def plan_query(sql: str) -> QueryPlan:
    """What is shipped of the query and what runs at home; UsageError, in one line, if it cannot be run."""
    with _no_deeper():
        return _plan(trimmed(sql))


def plan_condition(text: str) -> ConditionPlan:
    """A condition that is shipped whole; UsageError if the site cannot judge it exactly."""
    with _no_deeper():
        node = read_condition(text)
        check_names(node.root(), {"page": PAGE_COLUMNS})
        found = translate(node, frozenset({"page"}))
    for mark in marks_of(found):
        raise UsageError(f"{text!r} cannot be judged at the site: {mark.values[0]}")
    check(found)
    return ConditionPlan(prune_of(found), or_none(found))


@contextmanager
def _no_deeper() -> Iterator[None]:
    try:
        yield
    except RecursionError as error:
        raise UsageError("the query nests too deep: write it with fewer parentheses") from error


def _plan(sql: str) -> QueryPlan:
    query = read_query(sql)
    check_names(query, TABLES)
    source = read_source(query)
    where = where_of(sql, query) if isinstance(query, exp.Select) else None
    judged = _judged(query, source, where)
    select = joined("and", (each.shipped for each in judged))
    again = [each.part for each in judged if each.is_again]
    home_sql = with_parts(sql, where, again) if where and len(again) < len(judged) else sql
    columns = tuple(columns_read(query, {id(each.part.node) for each in judged if not each.is_again}))
    streams = is_streamable(query)
    limit, offset = bounds_of(query) if streams else (None, 0)
    return QueryPlan(
        sql=sql,
        prune=prune_of(select),
        prunable=prunable_of(select),
        select=or_none(select),
        columns=columns,
        fields=fields_read(query, columns),
        is_exact=not again,
        is_streamable=streams,
        home_sql=home_sql,
        stream_sql=without_limit(home_sql) if streams else "",
        limit=limit,
        offset=offset,
        steps=(*map(_step, judged), *_home_steps(query)),
    )


# --- the conditions


def _judged(query: exp.Expr, source: Source, where: Where | None) -> list[_Judged]:
    if source.select is None:
        return [_Judged.only_at_home(part, source.why) for part in _parts(query, where)]
    is_outer = source.select is query and where is not None
    parts = _parts(source.select, where if is_outer else None)
    found = [_judge(part, source.names, is_outer=is_outer) for part in parts]
    try:
        check(joined("and", (each.shipped for each in found)))
    except UsageError as error:
        return [_Judged.only_at_home(part, str(error)) for part in parts]
    return found


def _parts(select: exp.Expr, where: Where | None) -> Sequence[Part]:
    if where:
        return where.parts
    node = select.args.get("where")
    return [Part(each, each.sql(dialect="duckdb")) for each in conjuncts(node.this)] if node else []


def _judge(part: Part, names: Names, *, is_outer: bool) -> _Judged:
    found = translate(part.node, names)
    for mark in marks_of(found):
        return _Judged(part, shipped(found), is_again=True, is_weaker=True, why=str(mark.values[0]))
    why = "it means the same there as in DuckDB" if is_outer else "it stands in a query within the query"
    return _Judged(part, found, is_again=not is_outer, is_weaker=False, why=why)


def _step(judged: _Judged) -> Step:
    text, prune = judged.part.text, prune_of(judged.shipped)
    if judged.is_weaker:
        is_home = judged.shipped == TRUE
        return Step(text, "at home" if is_home else "at the site, weakened, and again at home", judged.why)
    if judged.is_again:
        return Step(text, "at the site, and again at home", judged.why)
    if prune == judged.shipped:
        return Step(
            text, "before the fetch", "no page that fails it, nor one found through it, is in the result"
        )
    if prune:
        why = f"only URLs are fetched of which {describe(prune)}; the rest is judged at the site"
        return Step(text, "before the fetch", why)
    return Step(text, "at the site", judged.why)


def _home_steps(query: exp.Expr) -> Iterator[Step]:
    for name, (text, why) in _AT_HOME.items():
        if query.args.get(name):
            yield Step(text, "at home", why)
    if isinstance(query, exp.SetOperation):
        yield Step(query.key.upper(), "at home", "the results of queries are put together at home")
    if (
        isinstance(query, exp.Select)
        and not query.args.get("group")
        and any(map(has_others, query.expressions))
    ):
        yield Step("functions of several rows", "at home", "they need all rows")
