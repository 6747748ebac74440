"""What of a query is shipped, what runs at home, and what is refused."""

import subprocess
import sys

import pytest

from sterna.api import query as asking
from sterna.crawler.algebra import TRUE, prune_of
from sterna.crawler.sql.plan import QueryPlan, plan_condition, plan_query
from sterna.crawler.sql.reads import PAGE_COLUMNS, TABLES
from sterna.errors import UsageError
from sterna.home.ledger.records import SiteRow, VisitRow
from sterna.model import Predicate
from sterna.query.engine import Engine


def places(sql: str) -> dict[str, str]:
    return {step.text: step.stage for step in plan_query(sql).steps}


def test_the_query_of_the_readme_is_shipped_whole() -> None:
    plan = plan_query("SELECT url, title FROM page WHERE status = 200 AND text LIKE '%clinic%' AND depth < 4")
    assert plan.prune == Predicate("<", "depth", (4,))
    assert plan.select == Predicate(
        "and",
        parts=(
            Predicate("=", "status", (200,)),
            Predicate("like", "text", ("%clinic%",)),
            Predicate("<", "depth", (4,)),
        ),
    )
    assert (plan.columns, plan.fields) == (("url", "title"), ("title",))
    assert (plan.is_exact, plan.is_streamable) == (True, True)
    assert plan.home_sql == plan.stream_sql == "SELECT url, title FROM page"
    assert [step.stage for step in plan.steps] == ["at the site", "at the site", "before the fetch"]


def test_what_only_home_can_judge_stays_and_its_columns_travel() -> None:
    plan = plan_query("SELECT url FROM page WHERE trim(title) = 'x' AND status = 200 AND etag IS NULL")
    assert plan.select == Predicate("=", "status", (200,))
    assert plan.home_sql == "SELECT url FROM page WHERE (trim(title) = 'x') AND (etag IS NULL)"
    assert plan.columns == ("url", "title", "etag")
    assert not plan.is_exact
    assert [step.stage for step in plan.steps] == ["at home", "at the site", "at home"]


def test_a_weakened_condition_runs_again_at_home() -> None:
    sql = "SELECT url FROM page WHERE status = 200 OR trim(title) = 'x'"
    assert plan_query(sql).select is None
    sql = "SELECT url FROM page WHERE depth = 1 AND (status = 200 AND trim(title) = 'x' OR status = 404)"
    plan = plan_query(sql)
    assert plan.select == Predicate(
        "and",
        parts=(
            Predicate("=", "depth", (1,)),
            Predicate("or", parts=(Predicate("=", "status", (200,)), Predicate("=", "status", (404,)))),
        ),
    )
    assert plan.home_sql.endswith("WHERE ((status = 200 AND trim(title) = 'x' OR status = 404))")
    assert list(places(sql).values()) == ["before the fetch", "at the site, weakened, and again at home"]


def test_under_not_a_part_of_home_makes_no_page_fail() -> None:
    plan = plan_query("SELECT url FROM page WHERE NOT (status = 404 OR trim(title) = 'x')")
    assert plan.select == Predicate("<>", "status", (404,))
    plan = plan_query("SELECT url FROM page WHERE NOT (status = 404 AND trim(title) = 'x')")
    assert plan.select is None


def test_letters_of_unsure_case_may_be_any() -> None:
    plan = plan_query("SELECT url FROM page WHERE title ILIKE '%\u1f40dos%'")
    assert plan.select == Predicate("like", "lower(title)", ("%_dos%", "\\"))
    assert not plan.is_exact
    plan = plan_query("SELECT url FROM page WHERE NOT title ILIKE '%\u1f40dos%'")
    assert plan.select is None


@pytest.mark.parametrize(
    "condition",
    [
        *(
            "status = 200",
            "200 <= status",
            "status <> -1",
            "status = '200'",
            "(depth) < 4",
            "size BETWEEN 1 AND 9",
        ),
        *("status IN (200, NULL)", "status NOT IN (404)", "title IS NOT NULL", "status IS DISTINCT FROM 200"),
        *(
            "title = 'a'",
            "title > 'a'",
            "title LIKE 'a!%' ESCAPE '!'",
            "text NOT LIKE '%a_b%'",
            "title ILIKE 'Müller%'",
        ),
        *("lower(title) LIKE '%a%'", "upper(title) = 'A'", "lower(url) IN ('a', 'b')", "length(text) > 500"),
        *("len(keywords) = 3", "starts_with(url, 'https')", "url ^@ 'https'", "contains(text, 'clinic')"),
        *(
            "list_contains(keywords, 'a')",
            "'a' IN headings",
            "list_has_any(keywords, ['a', 'b'])",
            "site = 'https://a.org'",
        ),
        *(
            "regexp_matches(text, 'clin(ic|ique)')",
            "regexp_full_match(url, '.*/docs/.*', 's')",
            "true",
            "NULL",
        ),
        *(
            "NOT (status = 200 OR title = 'a')",
            "(status = 200 AND title = 'a') OR depth = 1",
            "description IS NULL",
        ),
        *(
            "html LIKE '%jquery%'",
            "language IN ('en', 'de')",
            "digest = 'ab'",
            "error IS NULL",
            "content_type = 'text/html'",
        ),
    ],
)
def test_is_shipped_exactly(condition: str) -> None:
    plan = plan_query(f"SELECT url FROM page WHERE {condition}")
    assert plan.is_exact
    assert plan.home_sql == "SELECT url FROM page"
    assert plan.columns == ("url",)


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("fetched > '2026-01-01'", "noted after"),
        ("modified IS NULL", "Last-Modified"),
        ("etag = 'x'", "etag"),
        ("headers['server'] = 'nginx'", "headers"),
        ("extracts IS NULL", "selectors"),
        ("title = description", "means exactly the same"),
        ("title COLLATE NOCASE = 'a'", "means exactly the same"),
        ("status = 200.0", "means exactly the same"),
        ("status IN ('200', '301')", "means exactly the same"),
        ("lower(title) < 'm'", "means exactly the same"),
        ("title ~ 'a'", "means exactly the same"),
        ("title SIMILAR TO 'a'", "means exactly the same"),
        ("regexp_matches(title, '\\pL')", "means exactly the same"),
        ("regexp_matches(title, 'é', 'i')", "means exactly the same"),
        ("regexp_matches(title, 'a', 'l')", "means exactly the same"),
        ("contains(keywords, '')", "means exactly the same"),
        ("(status = 200) IS TRUE", "means exactly the same"),
        ("strlen(title) > 4", "means exactly the same"),
        ("title ILIKE 'xa%' ESCAPE 'x'", "means exactly the same"),
        ("size = 9223372036854775808", "means exactly the same"),
        ("regexp_matches(title, '.{900}')", "too large"),
        ("url IN (SELECT 'a')", "a subquery"),
    ],
)
def test_is_left_to_home(condition: str, why: str) -> None:
    plan = plan_query(f"SELECT url FROM page WHERE {condition}")
    assert plan.select is None
    assert [step.stage for step in plan.steps] == ["at home"]
    assert why in plan.steps[0].why
    assert plan.home_sql == plan.sql


# --- pruning


@pytest.mark.parametrize(
    ("condition", "prune", "prunable"),
    [
        ("depth <= 3", Predicate("<=", "depth", (3,)), Predicate("<=", "depth", (3,))),
        ("depth > 3", None, None),
        ("depth BETWEEN 2 AND 3", Predicate("<=", "depth", (3,)), Predicate("<=", "depth", (3,))),
        (
            "site = 'https://a.org'",
            Predicate("=", "site", ("https://a.org",)),
            Predicate("=", "site", ("https://a.org",)),
        ),
        (
            "url LIKE '%/docs/%'",
            None,
            Predicate("or", parts=(Predicate("=", "depth", (0,)), Predicate("like", "url", ("%/docs/%",)))),
        ),
        ("depth < 3 OR trim(title) = 'x'", None, None),
    ],
)
def test_what_is_known_before_the_fetch_prunes(
    condition: str, prune: Predicate | None, prunable: Predicate | None
) -> None:
    plan = plan_query(f"SELECT url FROM page WHERE {condition}")
    assert (plan.prune, plan.prunable) == (prune, prunable)


# --- more than one table, more than one row


@pytest.mark.parametrize(
    ("sql", "is_shipped"),
    [
        ("SELECT p.url, l.to_url FROM page p JOIN link l ON l.from_url = p.url WHERE p.status = 200", True),
        (
            "SELECT url, to_url FROM page LEFT JOIN link ON url = from_url AND rel = 'x' WHERE status = 200",
            True,
        ),
        ("SELECT p.url FROM page p JOIN site s ON s.site = p.site WHERE p.status = 200", True),
        ("SELECT p.url FROM page p, visit v WHERE v.site = p.site AND p.status = 200", True),
        ("SELECT p.url FROM page p JOIN link l ON l.to_url = p.url WHERE p.status = 200", False),
        ("SELECT url FROM page WHERE status = 200 AND url IN (SELECT to_url FROM link)", False),
        ("SELECT url FROM page WHERE status = 200 UNION SELECT url FROM page", False),
        ("SELECT s.site FROM site s LEFT JOIN page p ON s.site = p.site WHERE p.status IS NULL", False),
        ("SELECT p.url FROM page p RIGHT JOIN site s ON s.site = p.site WHERE p.status = 200", False),
        ("SELECT p.url FROM page p FULL JOIN site s ON s.site = p.site WHERE p.status = 200", False),
        ("SELECT p.url FROM page p ANTI JOIN site s ON s.site = p.site WHERE p.status = 200", False),
        ("SELECT p.url FROM page p POSITIONAL JOIN site s WHERE p.status = 200", False),
        ("SELECT url FROM page_history WHERE status = 200", False),
        ("SELECT url FROM page TABLESAMPLE 10% WHERE status = 200", False),
        ("SELECT url FROM page, unnest(keywords) AS k(word) WHERE status = 200", True),
        ("FROM page, unnest(keywords) AS k(word) WHERE status = 200", False),
        ("WITH a AS (SELECT url FROM page WHERE status = 200) SELECT count(*) FROM a, a AS b", True),
    ],
)
def test_pages_are_dropped_only_where_no_row_can_miss_them(sql: str, is_shipped: bool) -> None:
    assert (plan_query(sql).select is not None) == is_shipped


def test_a_condition_on_another_table_is_not_taken_for_one_on_page() -> None:
    plan = plan_query(
        "SELECT p.url FROM page p JOIN link l ON l.from_url = p.url WHERE l.text = 'x' AND p.text = 'y'"
    )
    assert plan.select == Predicate("=", "text", ("y",))
    assert plan.home_sql.endswith("WHERE (l.text = 'x')")
    plan = plan_query(
        "SELECT p.url FROM page p JOIN site s ON s.site = p.site WHERE pages > 3 AND status = 200"
    )
    assert plan.select == Predicate("=", "status", (200,))


def test_an_alias_is_not_taken_for_a_column() -> None:
    plan = plan_query("SELECT lower(title) AS small FROM page WHERE small = 'x'")
    assert plan.select is None


def test_joins_aggregates_and_order_run_at_home() -> None:
    sql = (
        "WITH s AS (SELECT 1 AS n) SELECT DISTINCT language, count(*) FROM page JOIN s ON true"
        " WHERE status = 200 GROUP BY language HAVING count(*) > 1 ORDER BY 2"
    )
    found = places(sql)
    assert found.pop("status = 200") == "at the site"
    assert set(found) == {"JOIN", "GROUP BY", "HAVING", "DISTINCT", "ORDER BY", "WITH"}
    assert set(found.values()) == {"at home"}


@pytest.mark.parametrize(
    ("sql", "is_streamable"),
    [
        ("SELECT url FROM page", True),
        ("SELECT * FROM page p WHERE p.status = 200", True),
        ("SELECT upper(trim(title)), depth + 1, CASE WHEN depth = 0 THEN 'start' END FROM page", True),
        ("SELECT url, unnest(keywords) FROM page LIMIT 3", True),
        ("SELECT count(*) FROM page", False),
        ("SELECT max(depth) FROM page", False),
        ("SELECT histogram(depth) FROM page", False),
        ("SELECT string_agg(url, ',') FROM page", False),
        ("SELECT url, row_number() OVER () FROM page", False),
        ("SELECT DISTINCT site FROM page", False),
        ("SELECT url FROM page ORDER BY url", False),
        ("SELECT url FROM page GROUP BY url", False),
        ("SELECT url FROM page WHERE depth = (SELECT max(depth) FROM page)", False),
        ("SELECT url FROM page JOIN site USING (site)", False),
        ("SELECT url FROM page LIMIT 10%", False),
        ("SELECT url FROM page LIMIT (SELECT 3)", False),
        ("SELECT site FROM site", False),
        ("SELECT url FROM page USING SAMPLE 3", False),
    ],
)
def test_rows_come_as_pages_do_where_each_is_its_own(sql: str, is_streamable: bool) -> None:
    plan = plan_query(sql)
    assert plan.is_streamable == is_streamable
    assert bool(plan.stream_sql) == is_streamable


def test_a_plain_limit_can_end_the_crawl() -> None:
    plan = plan_query("SELECT url FROM page WHERE depth < 3 LIMIT 1_0 OFFSET 5 -- enough")
    assert (plan.limit, plan.offset) == (10, 5)
    assert plan.stream_sql == "SELECT url FROM page"
    assert plan.home_sql == "SELECT url FROM page LIMIT 1_0 OFFSET 5"
    assert plan_query("SELECT url FROM page ORDER BY url LIMIT 10").limit is None
    assert plan_query("SELECT count(*) FROM page LIMIT 10").limit is None


# --- what travels


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT count(*) FROM page WHERE text = 'x'", ()),
        ("SELECT title FROM page WHERE length(trim(text)) > 3", ("title", "text")),
        ("SELECT p FROM page p", PAGE_COLUMNS),
        ("SELECT * FROM page", PAGE_COLUMNS),
        ("SELECT p.* FROM page p", PAGE_COLUMNS),
        ("SELECT COLUMNS('t.*') FROM page", PAGE_COLUMNS),
        (
            "SELECT * EXCLUDE (html, headers) FROM page",
            tuple(c for c in PAGE_COLUMNS if c not in ("html", "headers")),
        ),
        ("SELECT s.* FROM page p JOIN site s USING (site)", ("site",)),
        ("SELECT site FROM page GROUP BY ALL ORDER BY max(size)", ("site", "size")),
        ("SELECT site FROM site", ()),
    ],
)
def test_only_columns_that_home_reads_travel(sql: str, columns: tuple[str, ...]) -> None:
    assert plan_query(sql).columns == columns


def test_links_travel_where_they_are_read() -> None:
    assert plan_query("SELECT to_url FROM link").fields == ("links",)
    assert plan_query("SELECT url, text FROM page").fields == ("text",)


def test_home_has_the_tables_that_are_planned_for() -> None:
    with Engine({}) as engine:
        for table in ("page", "page_history", "link", "fact"):
            assert engine.run(f"SELECT * FROM {table} LIMIT 0").columns == list(TABLES[table])
    assert tuple(asking._COLUMNS[SiteRow]) == TABLES["site"]
    assert tuple(asking._COLUMNS[VisitRow]) == TABLES["visit"]


# --- what is refused


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("", "the query is empty"),
        (" ; ", "the query is empty"),
        ("SELECT url FROM page; SELECT 1", "the query has 2 statements: write one"),
        ("DELETE FROM page", "only SELECT is allowed, and the query begins with 'DELETE'"),
        ("EXPLAIN SELECT 1", "only SELECT is allowed"),
        ("WITH x AS (DELETE FROM page RETURNING *) SELECT * FROM x", "changes nothing"),
        ("SELECT url INTO x FROM page", "changes nothing"),
        ("SELECT url FROM pages", "unknown table pages: did you mean page?"),
        ("SELECT url FROM main.page", "unknown table main.page"),
        ("SELECT url FROM 'x.csv'", "unknown table"),
        ("SELECT titel FROM page", "unknown column 'titel': did you mean title?"),
        ("SELECT p.titel FROM page p", "unknown column 'titel'"),
        ("SELECT url FROM page WHERE clour = 1", "unknown column 'clour'"),
        ("WITH page AS (SELECT 1) SELECT * FROM page", "WITH defines page"),
        ("SELECT url FORM page", "line 1, column 20 near 'page'"),
        ("SELECT url\nFROM page\nWHERE", "line 3"),
        ("SELECT url FROM page WHERE title = 'x", "a quote or a comment is not closed"),
        ("SELECT url FROM page WHERE title = 5", "title is a text"),
        ("SELECT url FROM page WHERE status = 'ok'", "status is a number, and 'ok' is not a whole number"),
        ("SELECT url FROM page WHERE status = true", "is compared with true or false"),
        ("SELECT url FROM page WHERE keywords = 'x'", "write list_contains(keywords, 'word')"),
        ("SELECT url FROM page WHERE title LIKE 'a!' ESCAPE '!'", "ends with its escape"),
        ("SELECT url FROM page WHERE title LIKE 'a' ESCAPE '!!'", "not a single ASCII character"),
        ("SELECT url FROM page WHERE title = 'a\0'", "characters of text"),
        (f"SELECT url FROM page WHERE {'(' * 5000}true{')' * 5000}", "nests too deep"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(sql: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_query(sql)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_very_long_condition_is_left_to_home() -> None:
    several = " OR ".join(f"title = '{number}'" for number in range(1_500))
    plan = plan_query(f"SELECT url FROM page WHERE {several}")
    assert plan.select is None
    assert "1 to 1000 conditions" in plan.steps[0].why


# --- a condition of a spec


def test_a_condition_of_a_spec_is_shipped_whole() -> None:
    condition = plan_condition("status = 200 AND depth < 3")
    assert prune_of(condition) == Predicate("<", "depth", (3,))
    assert condition == Predicate(
        "and", parts=(Predicate("=", "status", (200,)), Predicate("<", "depth", (3,)))
    )
    assert plan_condition("true") == TRUE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trim(title) = 'x'", "the site cannot judge"),
        ("title ILIKE '%\u1f40dos%'", "case of some letters differs"),
        ("status = 200 LIMIT 3", "is not a condition"),
        ("status = 200) OR (true", "syntax error"),
        ("status = 200; DROP TABLE page", "2 statements"),
        ("", "syntax error"),
        ("colour = 'red'", "unknown column 'colour'"),
        ("status = 200 UNION SELECT 1", "is not a condition"),
        (f"{'(' * 5000}true{')' * 5000}", "nests too deep"),
        (" AND ".join(f"title <> '{number}'" for number in range(1_500)), "1 to 1000 conditions"),
    ],
)
def test_a_condition_that_is_more_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_condition(text)
    assert said in str(caught.value)


def test_judging_does_not_need_sqlglot() -> None:
    code = "import sys, sterna.crawler.predicate, sterna.crawler.algebra; print('sqlglot' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_plan_is_the_same_every_time() -> None:
    sql = "SELECT url FROM page WHERE status IN (200, 301) AND lower(title) LIKE '%a%'"
    plan: QueryPlan = plan_query(sql)
    assert plan == plan_query(sql)
