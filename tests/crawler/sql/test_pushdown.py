"""A query over what its crawler keeps gives what it gives over everything: DuckDB is the judge."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crawler.predicates import is_readable
from tests.crawler.rows import FIXED, POOLS, Pool, load, numbers, page_rows, quoted, texts, verdicts

from sterna.crawler.grammar import PageRow
from sterna.crawler.predicate import Judge
from sterna.crawler.sql.plan import plan_condition, plan_query
from sterna.crawler.sql.reads import PAGE_COLUMNS

Texts = st.SearchStrategy[str]
TEXT_COLUMNS = (
    "url",
    "title",
    "text",
    "description",
    "language",
    "content_type",
    "referrer",
    "digest",
    "html",
)


# --- random conditions, written as people write them


def written(form: str, **parts: Texts) -> Texts:
    """The form with its parts filled in."""
    return st.builds(form.format, **parts)


@cache
def literals(pool: Pool) -> Texts:
    return texts(pool).map(quoted)


def escaped(pool: Pool) -> Texts:
    pairs = st.tuples(texts(pool), st.sampled_from("!\\%")).filter(is_readable)
    return pairs.map(lambda pair: f"{quoted(pair[0])} ESCAPE {quoted(pair[1])}")


def exact_forms(pool: Pool) -> Iterator[Texts]:
    """Conditions that a site can judge; some of a pool's letters allow only less."""
    column = st.sampled_from([*TEXT_COLUMNS, "page.title", "TITLE", '"Text"', "(url)"])
    cased = st.sampled_from(["lower(title)", "UPPER(text)", "lcase(url)", "ucase(page.title)"])
    number = st.sampled_from(
        ["status", "depth", "size", "page.depth", "length(title)", "len(text)", "length(keywords)"]
    )
    values = st.sampled_from(["keywords", "headings"])
    whole = (numbers(64) | st.integers(-2, 5)).map(str)
    compare = st.sampled_from(
        ["=", "<>", "!=", "<", "<=", ">", ">=", "==", "IS DISTINCT FROM", "is not distinct from"]
    )
    text, some = literals(pool), literals(pool) | st.just("NULL")
    numeral = whole | st.just("NULL")
    negation = st.sampled_from(["", "NOT "])
    yield written("{a} {op} {b}", a=column, op=compare, b=some)
    yield written("{b} {op} {a}", a=column, op=compare, b=some)
    yield written("{a} {op} {b}", a=number, op=compare, b=numeral)
    yield written("{b} {op} {a}", a=number, op=compare, b=numeral)
    yield written("status {op} '{b}'", op=compare, b=st.integers(0, 400).map(str))
    yield written("{a} {op} {b}", a=cased, op=st.sampled_from(["=", "<>"]), b=some)
    yield written("{a} {n}BETWEEN {b} AND {c}", a=column, n=negation, b=some, c=some)
    yield written("{a} {n}between {b} and {c}", a=number, n=negation, b=numeral, c=numeral)
    yield written("{a} {n}IN ({b}, {c})", a=column | cased, n=negation, b=some, c=text)
    yield written("{a} {n}IN ({b}, {c}, 200)", a=number, n=negation, b=numeral, c=whole)
    yield written("{a} IS {n}NULL", a=column | number | values | cased, n=negation)
    yield written("{a} {n}LIKE {b}", a=column | cased, n=negation, b=text | escaped(pool))
    yield written("{a} {n}ILIKE {b}", a=column, n=negation, b=text)
    yield written(
        "{f}({a}, {b})",
        f=st.sampled_from(["starts_with", "prefix", "suffix", "ends_with", "contains"]),
        a=column | cased,
        b=text,
    )
    yield written("{a} ^@ {b}", a=column, b=text)
    yield written(
        "{f}({a}, {b})", f=st.sampled_from(["list_contains", "array_has", "contains"]), a=values, b=text
    )
    yield written("{b} IN {a}", a=values, b=text)
    yield written("list_has_any({a}, [{b}, {c}])", a=values, b=text, c=text)
    yield written("list_has_all({a}, [{b}, {c}])", a=values, b=text, c=text)
    yield written("{a} && [{b}]", a=values, b=text)
    yield written(
        "regexp_matches({a}, '{e}')",
        a=column,
        e=st.sampled_from(["^a", "[a-k]+", "(?i)K", "a|\u00e9", r"\bclinic\b"]),
    )
    yield written("regexp_matches({a}, 's.', '{o}')", a=column, o=st.sampled_from(["i", "s", "is"]))
    yield written("regexp_full_match({a}, '{e}')", a=column, e=st.sampled_from(["a", "[^a]*", ".*"]))
    yield st.sampled_from(["true", "FALSE", "NULL"])


def other_forms(pool: Pool) -> Iterator[Texts]:
    """Conditions that only home can judge."""
    text = literals(pool)
    yield written("trim(title) = {b}", b=text)
    yield written("title = description")
    yield written("title || 'x' = {b}", b=text)
    yield written("coalesce(title, '') = {b}", b=text)
    yield written("title COLLATE NOCASE = {b}", b=text)
    yield written("reverse(url) LIKE {b}", b=text)
    yield st.sampled_from(
        [
            *(
                "status = 200.0",
                "depth + 1 = 3",
                "(status = 200) IS TRUE",
                "size % 2 = 0",
                "status IN ('200', '301')",
            ),
            *(
                "modified IS NULL",
                "etag IS NOT NULL",
                "title ~ 'a.*'",
                "CASE WHEN depth = 1 THEN true ELSE false END",
            ),
            *("title SIMILAR TO 'a%'", "depth IN (SELECT 1)", "headings[1] = 'a'"),
            "regexp_matches(title, '\\pL')",
        ]
    )


def grown(parts: Texts) -> Texts:
    several = st.lists(parts, min_size=2, max_size=3)
    return (
        several.map(lambda each: "(" + " AND ".join(each) + ")")
        | several.map(lambda each: "(" + "\n or ".join(each) + ")")
        | parts.map(lambda each: f"NOT {each}")
        | parts.map(lambda each: f"(not ({each}))")
    )


@cache
def exact_conditions(pool: Pool) -> Texts:
    leaves = st.one_of(*exact_forms(pool))
    return leaves | st.recursive(leaves, grown, max_leaves=4)


@cache
def conditions(pool: Pool) -> Texts:
    leaves = st.one_of(*exact_forms(pool)) | st.one_of(*other_forms(pool))
    mixed = st.recursive(leaves, grown, max_leaves=5)
    return mixed | st.lists(mixed, min_size=2, max_size=3).map(" AND ".join)


Case = tuple[list[PageRow], list[str]]


def cases(conditions_of: Callable[[Pool], Texts], most: int) -> st.SearchStrategy[Case]:
    return st.sampled_from(POOLS).flatmap(
        lambda pool: st.tuples(
            st.lists(page_rows(pool), min_size=1, max_size=8),
            st.lists(conditions_of(pool), min_size=1, max_size=most),
        )
    )


@settings(FIXED, max_examples=60)
@given(case=cases(exact_conditions, 6))
def test_what_is_shipped_means_what_duckdb_means(duck: duckdb.DuckDBPyConnection, case: Case) -> None:
    rows, several = case
    load(duck, rows)
    for condition, expected in zip(several, verdicts(duck, several), strict=True):
        plan = plan_query(f"SELECT url FROM page WHERE {condition}")
        if plan.is_exact:
            judge = Judge(plan_condition(condition)).judge
            assert [judge(row) for row in rows] == expected, condition
        found = [Judge(plan.select).judge(row) if plan.select else True for row in rows]
        assert all(each for each, wanted in zip(found, expected, strict=True) if wanted), condition


def kept(rows: Sequence[PageRow], sql: str) -> list[PageRow]:
    """What comes home of the pages: those that are wanted, with the columns that are needed."""
    plan = plan_query(sql)
    judge = Judge(plan.select).judge if plan.select else lambda row: True
    gone = {name: None for name in PageRow._fields if name not in plan.columns}
    return [row._replace(**gone) for row in rows if judge(row) is True]


def answer(duck: duckdb.DuckDBPyConnection, rows: Sequence[PageRow], sql: str) -> list[tuple[object, ...]]:
    load(duck, rows)
    return sorted(duck.execute(sql).fetchall(), key=repr)


QUERIES = (
    "SELECT url, depth FROM page WHERE {}",
    "select p.title t, length(text) from page AS p where\n{} -- no more",
    "SELECT * EXCLUDE (html) FROM page WHERE {};",
    "FROM page WHERE {}",
    "SELECT site, count(*) AS n, max(size) FROM page WHERE {} GROUP BY site HAVING count(*) > 1 ORDER BY n",
    "SELECT DISTINCT language FROM page WHERE {} ORDER BY language",
    "WITH chosen AS (SELECT * FROM page WHERE {}) SELECT url, status FROM chosen",
    "SELECT url FROM (SELECT url, depth FROM page WHERE {}) AS inside WHERE depth > 0",
    "SELECT p.url, o.n FROM page p JOIN (SELECT 1 AS n) AS o ON true WHERE {}",
    "SELECT url FROM page WHERE {} UNION ALL SELECT title FROM page WHERE depth = 1",
    "SELECT url, row_number() OVER (ORDER BY url, size) FROM page WHERE {} QUALIFY count(*) OVER () > 1",
    "SELECT (SELECT count(*) FROM page WHERE {}) AS n",
)


@settings(FIXED, max_examples=60)
@given(case=cases(conditions, 1), query=st.sampled_from(QUERIES))
def test_home_and_site_together_give_what_the_query_gives(
    duck: duckdb.DuckDBPyConnection, case: Case, query: str
) -> None:
    rows, (condition,) = case
    sql = query.format(condition.replace("page.", "p." if "page p" in query or "AS p " in query else "page."))
    expected = answer(duck, rows, sql)
    plan = plan_query(sql)
    assert answer(duck, kept(rows, sql), plan.home_sql) == expected
    if plan.is_streamable:
        batches = [answer(duck, kept(some, sql), plan.stream_sql) for some in (rows[:2], rows[2:])]
        assert sorted(batches[0] + batches[1], key=repr) == expected


def test_what_is_not_asked_for_does_not_travel(duck: duckdb.DuckDBPyConnection) -> None:
    plan = plan_query("SELECT url FROM page WHERE text LIKE '%clinic%' AND trim(title) = 'x'")
    assert plan.columns == ("url", "title")
    assert set(PAGE_COLUMNS) > set(plan.columns)
    rows = [PageRow(url="/a", text="a clinic", title=" x"), PageRow(url="/b", text="none", title="x")]
    assert answer(duck, kept(rows, plan.sql), plan.home_sql) == [("/a",)]


LINKED = [
    PageRow(url="/a", status=200, depth=0, site="https://a.org"),
    PageRow(url="/b", status=404, depth=1, site="https://a.org"),
    PageRow(url="/c", status=200, depth=1, site="https://b.org"),
    PageRow(url="/d", status=200, depth=2, site="https://c.org"),
]
LINKS = [("/a", "/b"), ("/a", "/c"), ("/b", "/c"), ("/b", "/d"), ("/c", "/a")]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT url, to_url FROM page JOIN link ON from_url = url WHERE status = 200",
        "SELECT p.url, l.to_url FROM page p LEFT JOIN link l ON l.from_url = p.url WHERE p.status = 200",
        "SELECT p.url, count(*) FROM link l JOIN page p ON l.to_url = p.url WHERE p.status = 200 GROUP BY 1",
        "SELECT url FROM page p LEFT JOIN link l ON to_url = url WHERE status = 200 AND to_url IS NULL",
        "SELECT url FROM page WHERE status = 200 AND url IN (SELECT to_url FROM link)",
        "SELECT s.site, p.url FROM site s LEFT JOIN page p ON s.site = p.site WHERE p.status IS NULL",
        "SELECT s.site, url FROM page p RIGHT JOIN site s ON s.site = p.site WHERE p.status = 200",
        "SELECT url, pages FROM page p JOIN site s ON s.site = p.site WHERE status = 404 AND pages > 1",
        "SELECT p.url, s.pages FROM page p LEFT JOIN site s USING (site) WHERE p.depth > 0",
    ],
)
def test_joins_give_what_they_give_over_all_pages(duck: duckdb.DuckDBPyConnection, sql: str) -> None:
    sites = "VALUES ('https://a.org', 2), ('https://b.org', 1)"
    duck.execute(f"CREATE OR REPLACE TABLE site AS FROM ({sites}) AS t(site, pages)")

    def linked_answer(rows: list[PageRow], query: str) -> list[tuple[object, ...]]:
        own = [link for link in LINKS if link[0] in {row.url for row in rows}]
        duck.execute("CREATE OR REPLACE TABLE link (from_url VARCHAR, to_url VARCHAR)")
        if own:
            duck.executemany("INSERT INTO link VALUES (?, ?)", own)
        return answer(duck, rows, query)

    judge = Judge(select).judge if (select := plan_query(sql).select) else lambda row: True
    home = [row for row in LINKED if judge(row) is True]
    assert linked_answer(home, plan_query(sql).home_sql) == linked_answer(LINKED, sql)
