"""The plan of a query: what is shipped with the crawler, what runs at home, and why."""

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

from sqlglot import exp

from sterna.crawler.algebra import TRUE, joined, or_none, prunable_of, prune_of
from sterna.crawler.grammar import check, describe
from sterna.crawler.sql import reads
from sterna.crawler.sql.pushdown import marks_of, shipped, translate
from sterna.crawler.sql.query import (
    Conjunct,
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
from sterna.errors import UsageError
from sterna.model import Field, Predicate, Record

WIDTH = 100

Stage = Literal[
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
    "with_": ("WITH", "common table expressions run at home"),
    "sample": ("SAMPLE", "rows are drawn at home"),
}


class Step(Record, frozen=True):
    """A part of a query, the stage at which it runs, and why."""

    text: str
    stage: Stage
    why: str


class QueryPlan(Record, frozen=True, kw_only=True):
    """How a query is carried out."""

    sql: str
    prune: Predicate | None  # URLs that fail it are not fetched; no page of the result is lost
    prunable: Predicate | None  # the same for a crawl that follows only URLs that match
    select: Predicate | None  # pages that fail it are not kept
    columns: tuple[str, ...]  # of page, that home reads
    fields: tuple[Field, ...]  # the same as fields that a crawler keeps
    is_exact: bool  # home repeats nothing of the WHERE
    is_streamable: bool  # each page yields its rows independently
    home_sql: str  # runs over the kept pages alone
    stream_sql: str  # the same for a batch of pages, without LIMIT; empty if not streamable
    limit: int | None  # rows wanted, in any order, after skipping `offset`
    offset: int
    steps: tuple[Step, ...]


class _Judged(NamedTuple):
    """A condition, its shipped form, whether home repeats it, and how this is told."""

    part: Conjunct
    shipped: Predicate
    is_again: bool
    step: Step


def plan_query(sql: str) -> QueryPlan:
    """The plan of a query; UsageError, in one line, if it is invalid."""
    with _bounded_depth():
        return _plan(trimmed(sql))


def plan_condition(text: str) -> Predicate:
    """The condition as it is shipped, whole; UsageError if the site cannot judge it exactly."""
    with _bounded_depth():
        node = read_condition(text)
        check_names(node.root(), {"page": reads.PAGE_COLUMNS})
        found = translate(node, "page")
    for mark in marks_of(found):
        raise UsageError(f"the site cannot judge {text!r}: {mark.values[0]}")
    check(found)
    return found


@contextmanager
def _bounded_depth() -> Iterator[None]:
    try:
        yield
    except RecursionError as error:
        raise UsageError("the query nests too deep: use fewer parentheses") from error


def _plan(sql: str) -> QueryPlan:
    query = read_query(sql)
    check_names(query, reads.TABLES)
    reader = reads.find_reader(query)
    where = where_of(sql, query) if isinstance(query, exp.Select) else None
    judged = _judged(query, reader, where)
    select = joined("and", (each.shipped for each in judged))
    again = [each.part for each in judged if each.is_again]
    home_sql = with_parts(sql, where, again) if where and len(again) < len(judged) else sql
    columns = tuple(reads.columns_read(query, {id(each.part.node) for each in judged if not each.is_again}))
    streams = reads.is_streamable(query)
    limit, offset = reads.bounds_of(query) if streams else (None, 0)
    return QueryPlan(
        sql=sql,
        prune=prune_of(select),
        prunable=prunable_of(select),
        select=or_none(select),
        columns=columns,
        fields=reads.fields_read(query, columns),
        is_exact=not again,
        is_streamable=streams,
        home_sql=home_sql,
        stream_sql=without_limit(home_sql) if streams else "",
        limit=limit,
        offset=offset,
        steps=(*(each.step for each in judged), *_home_steps(query)),
    )


# --- the conditions


def _judged(query: exp.Expr, reader: reads.PageReader, where: Where | None) -> list[_Judged]:
    select = reader.select or query
    parts: Sequence[Conjunct] = ()
    if where and select is query:
        parts = where.parts
    elif node := select.args.get("where"):
        parts = [Conjunct(each, each.sql(dialect="duckdb")) for each in conjuncts(node.this)]
    why = reader.why
    if reader.select:
        is_outer = select is query and where is not None
        found = [_judge(part, reader.name, is_outer=is_outer) for part in parts]
        try:
            check(joined("and", (each.shipped for each in found)))
            return found
        except UsageError as error:
            why = str(error)
    return [_Judged(part, TRUE, is_again=True, step=Step(part.text, "at home", why)) for part in parts]


def _judge(part: Conjunct, page: str, *, is_outer: bool) -> _Judged:
    found = translate(part.node, page)
    stage: Stage = "at the site"
    why = "it means the same there as in DuckDB"
    mark = next(marks_of(found), None)
    if mark is not None:
        found, why = shipped(found), str(mark.values[0])
        stage = "at home" if found == TRUE else "at the site, weakened, and again at home"
    elif not is_outer:
        stage, why = "at the site, and again at home", "it is part of a subquery"
    elif prune := prune_of(found):
        stage = "before the fetch"
        why = "a page that fails it, or is found through one, is not in the result"
        if prune != found:
            why = f"a URL is fetched only if {describe(prune)}; the rest is judged at the site"
    is_again = mark is not None or not is_outer
    return _Judged(part, found, is_again, Step(part.text, stage, why))


def _home_steps(query: exp.Expr) -> Iterator[Step]:
    for name, (text, why) in _AT_HOME.items():
        if query.args.get(name):
            yield Step(text, "at home", why)
    if isinstance(query, exp.SetOperation):
        yield Step(query.key.upper(), "at home", "the results of its queries are combined at home")
    is_grouped = not isinstance(query, exp.Select) or query.args.get("group")
    if not is_grouped and any(map(reads.needs_other_rows, query.expressions)):
        yield Step("functions of several rows", "at home", "they need all rows")


# --- in words


def explain_query(sql: str) -> str:
    plan = plan_query(sql)
    lines = ["How the query is carried out:"]
    for number, step in enumerate(plan.steps, start=1):
        lines.append(f"{number:2}. {step.text}")
        lines += _wrapped(f"{step.stage}: {step.why}")
    if not plan.steps:
        lines += _wrapped("no conditions: every page is wanted")
    rows = "Rows are printed at the end of the crawl: they need all pages."
    if plan.is_streamable:
        end = f"; the crawl ends after {plan.limit + plan.offset} rows" if plan.limit is not None else ""
        rows = f"Rows are printed as pages arrive{end}."
    lines += ["", *_wrapped(f"Columns that travel home: {', '.join(plan.columns) or 'none'}.", "")]
    lines += [*_wrapped(rows, ""), "", "At home, over the pages kept:", f"    {plan.home_sql}"]
    return "\n".join(lines)


def _wrapped(text: str, indent: str = "      ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
