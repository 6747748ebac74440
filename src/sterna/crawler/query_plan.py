"""What becomes of a query, in plain words: what is decided where, and what is left for home."""

import textwrap
from collections.abc import Iterator

from sterna.crawler.sql import QueryPlan, plan_query

WIDTH = 100


def explain_query(sql: str) -> str:
    """The plan of a query, one step below the other."""
    return "\n".join(_lines(plan_query(sql)))


def _lines(plan: QueryPlan) -> Iterator[str]:
    yield "What becomes of the query:"
    for number, step in enumerate(plan.steps, start=1):
        yield f"{number:2}. {step.text}"
        yield from _wrapped(f"{step.place}: {step.why}" if step.why else step.place)
    if not plan.steps:
        yield from _wrapped("it has no conditions: every page is wanted")
    yield ""
    yield from _wrapped(f"Columns that travel home: {', '.join(plan.columns) or 'none'}.", "")
    yield from _wrapped(_of_rows(plan), "")
    if plan.home_sql:
        yield ""
        yield "At home, over the pages that were kept:"
        yield f"    {plan.home_sql}"


def _of_rows(plan: QueryPlan) -> str:
    if not plan.is_streamable:
        return "Rows are printed when the crawl is over: they need all pages."
    if plan.limit is None:
        return "Rows are printed as pages come."
    return f"Rows are printed as pages come; after {plan.limit + plan.offset} of them the crawl ends."


def _wrapped(text: str, indent: str = "      ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
