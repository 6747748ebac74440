"""Random pages, and DuckDB's opinion of them."""

from collections.abc import Sequence
from functools import cache

import duckdb
import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from sterna.archive.rows import PAGE_SCHEMA
from sterna.crawler.grammar import PageRow

FIXED = settings(derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))

Pool = tuple[str, ...]
# Texts that are alike in one way and not in another: in case, in width, in order, in what they mean to SQL.
POOLS: tuple[Pool, ...] = (
    ("k", "K", "\u212a", "a"),
    ("i", "I", "\u0130", "\u0131", "i\u0307"),
    ("s", "S", "\u017f", "\u00df", "\u1e9e", "ss"),
    ("\u03a3", "\u03c3", "\u03c2", " ", "\u00b5", "\u03bc"),
    ("\u00e9", "\u00c9", "e\u0301", "e"),
    ("\u00e5", "\u00c5", "\u212b", "A\u030a"),
    ("\u01c6", "\u01c5", "\u01c4", "\u1fb3", "\ufb01"),
    ("\u044f", "\u042f", "\u00ff", "\u0178", "\U00010400", "\U00010428"),
    ("%", "_", "\\", "a", "!"),
    ("'", '"', "\\", "--", "/*"),
    ("\n", "\r", "\t", " ", "\u00a0", "\u2028", "a"),
    ("\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff", "\x01", "\x7f", "\x80"),
    ("\U0001f600", "\U0001f469\u200d\U0001f680", "\u4e2d", "\u30a2", "\u0e01"),
    (".", "*", "^", "$", "[", "(", "|", "a"),
    ("clinic", "Clinic", "CLINIC", "health", "care", " ", "-"),
    ("https://a.org", "/docs/", "https://", "true", "NULL", "200", "-1"),
)


def numbers(bits: int) -> st.SearchStrategy[int]:
    """Whole numbers of a type, many of them small or at its bounds."""
    top = 2 ** (bits - 1)
    return st.sampled_from([-top, -1, 0, 1, 2, 3, 4, 199, 200, 301, top - 1]) | st.integers(-top, top - 1)


@cache
def texts(pool: Pool) -> st.SearchStrategy[str]:
    """Texts made of the pieces of a pool, and sometimes of anything."""
    anything = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
    return st.lists(st.sampled_from(pool), max_size=3).map("".join) | anything


@cache
def page_rows(pool: Pool) -> st.SearchStrategy[PageRow]:
    """Pages with texts of the pool; what is empty is NULL."""
    some = st.none() | texts(pool).map(lambda text: text or None)
    long = st.builds(lambda start, middle, end: start + middle * 300 + end, *[texts(pool)] * 3)
    lists = st.none() | st.lists(texts(pool), min_size=1, max_size=3)
    others = (
        "error",
        "content_type",
        "language",
        "digest",
        "etag",
        "html",
        "referrer",
        "title",
        "description",
    )
    return st.builds(
        PageRow,
        url=texts(pool).map(lambda text: text or "/"),
        site=st.sampled_from(["https://a.org", "https://b.org"]),
        depth=numbers(32),
        status=st.none() | numbers(16).map(lambda number: number or None),
        size=numbers(64),
        text=some | long.map(lambda text: text or None),
        keywords=lists,
        headings=lists,
        **dict.fromkeys(others, some),
    )


def load(connection: duckdb.DuckDBPyConnection, rows: Sequence[PageRow]) -> None:
    """Makes the rows the table `page`; of the columns that no row has all values are NULL."""
    columns = [
        pa.array([getattr(row, field.name, None) for row in rows], field.type)
        if field.name in PageRow._fields
        else pa.nulls(len(rows), field.type)
        for field in PAGE_SCHEMA
    ]
    connection.register("incoming", pa.table(columns, schema=PAGE_SCHEMA))
    connection.execute("CREATE OR REPLACE TABLE page AS FROM incoming")
    connection.unregister("incoming")


def verdicts(connection: duckdb.DuckDBPyConnection, conditions: Sequence[str]) -> list[list[bool | None]]:
    """For each condition, what DuckDB says of each row of `page`, in their order."""
    columns = ", ".join(f"({condition})" for condition in conditions)
    return [
        list(column)
        for column in zip(*connection.execute(f"SELECT {columns} FROM page").fetchall(), strict=True)
    ]


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
