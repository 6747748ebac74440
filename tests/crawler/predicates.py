"""Random predicates, and the same in SQL."""

from collections.abc import Iterator
from functools import cache

from hypothesis import strategies as st
from tests.crawler.rows import POOLS, Pool, numbers, page_rows, quoted, texts

from sterna.crawler.grammar import COLUMNS, PageRow
from sterna.crawler.text_tests import is_stable, read_like
from sterna.errors import UsageError
from sterna.model import Predicate, Scalar

TEXT_COLUMNS = [name for name, kind in COLUMNS.items() if kind == "text"]
NUMBER_TERMS = [name for name, kind in COLUMNS.items() if kind == "number"] + [
    f"length({name})" for name, kind in COLUMNS.items() if kind != "number"
]
CASED = [f"{case}({name})" for name in TEXT_COLUMNS for case in ("lower", "upper")]
EXPRESSIONS = [
    *(
        "clinic",
        "^a",
        "[a-k]+",
        "(?i)K",
        "(?i)s",
        "a|\u00e9",
        ".",
        "^.$",
        r"\bclinic\b",
        r"^\S+$",
        "[^a]",
        "\u03a3",
        "^$",
    ),
    "k{2,3}",
]
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "is_distinct")


def leaf(op: str, columns: list[str], *values: st.SearchStrategy[Scalar]) -> st.SearchStrategy[Predicate]:
    return st.builds(Predicate, st.just(op), st.sampled_from(columns), st.tuples(*values))


def listed(columns: list[str], values: st.SearchStrategy[Scalar]) -> st.SearchStrategy[Predicate]:
    many = st.lists(values, min_size=1, max_size=4).map(tuple)
    return st.builds(Predicate, st.just("in"), st.sampled_from(columns), many)


def is_readable(values: tuple[str, ...]) -> bool:
    try:
        read_like(*values)
    except UsageError:
        return False
    return True


def text_leaves(pool: Pool) -> Iterator[st.SearchStrategy[Predicate]]:
    some, stable = st.none() | texts(pool), texts(pool).filter(is_stable)
    escaped = st.tuples(texts(pool), st.sampled_from("!\\%_a")).filter(is_readable)
    for op in COMPARISONS:
        yield leaf(op, TEXT_COLUMNS, some)
    for op in ("starts_with", "ends_with", "contains"):
        yield leaf(op, TEXT_COLUMNS, texts(pool))
    for op in ("=", "<>", "starts_with", "ends_with", "contains", "like"):
        yield leaf(op, CASED, stable)
    yield leaf("between", TEXT_COLUMNS, some, some)
    yield listed(TEXT_COLUMNS, some)
    yield listed(CASED, st.none() | stable)
    yield st.builds(
        Predicate, st.just("like"), st.sampled_from(TEXT_COLUMNS), st.tuples(texts(pool)) | escaped
    )
    yield leaf("ilike", TEXT_COLUMNS, stable)
    yield leaf("list_contains", ["keywords", "headings"], texts(pool))


def other_leaves() -> Iterator[st.SearchStrategy[Predicate]]:
    some = st.none() | numbers(64)
    yield st.sampled_from([Predicate("true"), Predicate("false"), Predicate("null")])
    for op in COMPARISONS:
        yield leaf(op, NUMBER_TERMS, some)
    yield leaf("between", NUMBER_TERMS, some, some)
    yield listed(NUMBER_TERMS, some)
    yield leaf("is_null", list(COLUMNS))
    yield leaf("regexp", TEXT_COLUMNS, st.sampled_from(EXPRESSIONS))
    yield leaf(
        "regexp",
        TEXT_COLUMNS,
        st.sampled_from(["clinic", "s", "k.", "a.b"]),
        st.sampled_from(["i", "s", "is"]),
    )
    yield leaf("regexp_full", TEXT_COLUMNS, st.sampled_from(EXPRESSIONS))


def grown(parts: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
    several = st.lists(parts, min_size=1, max_size=3).map(tuple)
    joined = st.builds(lambda op, each: Predicate(op, parts=each), st.sampled_from(["and", "or"]), several)
    return joined | st.builds(lambda part: Predicate("not", parts=(part,)), parts)


@cache
def predicates(pool: Pool) -> st.SearchStrategy[Predicate]:
    leaves = st.one_of(*text_leaves(pool), *other_leaves())
    return leaves | st.recursive(leaves, grown, max_leaves=6)


def cases(predicates_each: int) -> st.SearchStrategy[tuple[list[PageRow], list[Predicate]]]:
    """Some pages, and some predicates that have much to do with them."""
    return st.sampled_from(POOLS).flatmap(
        lambda pool: st.tuples(
            st.lists(page_rows(pool), min_size=1, max_size=8),
            st.lists(predicates(pool), min_size=1, max_size=predicates_each),
        )
    )


def literal(value: Scalar) -> str:
    return "NULL" if value is None else quoted(value) if isinstance(value, str) else str(value)


SQL = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), "{column} {op} {values[0]}"),
    **dict.fromkeys(("starts_with", "ends_with", "contains", "list_contains"), "{op}({column}, {values[0]})"),
    "between": "{column} BETWEEN {values[0]} AND {values[1]}",
    "in": "{column} IN ({listed})",
    "is_null": "{column} IS NULL",
    "is_distinct": "{column} IS DISTINCT FROM {values[0]}",
    "regexp": "regexp_matches({column}, {listed})",
    "regexp_full": "regexp_full_match({column}, {listed})",
    **dict.fromkeys(("true", "false"), "{op}"),
    "null": "NULL::BOOLEAN",
}


def as_sql(part: Predicate) -> str:
    """The predicate as DuckDB reads it."""
    values = list(map(literal, part.values))
    if part.op in ("and", "or"):
        return f" {part.op} ".join(f"({as_sql(each)})" for each in part.parts)
    if part.op == "not":
        return f"NOT ({as_sql(part.parts[0])})"
    if part.op in ("like", "ilike"):
        return f"{part.column} {part.op} {' ESCAPE '.join(values)}"
    return SQL[part.op].format(op=part.op, column=part.column, values=values, listed=", ".join(values))
