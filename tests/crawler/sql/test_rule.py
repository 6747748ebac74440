"""A simple SELECT becomes a query rule, which CLIPS runs over facts (Fiedler-Hammer 4.6)."""

import re

import clips
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crawler.rows import FIXED, POOLS, quoted, texts

from sterna.crawler.sql.rule import query_rule
from sterna.errors import UsageError

Row = dict[str, object]
SLOTS = {"Page": ("url", "content", "fulltext", "status", "content-type")}
PAGES: tuple[Row, ...] = (
    {
        "url": "https://a.org/",
        "content": "<p>Hello</p>",
        "fulltext": "Hello",
        "status": 200,
        "content-type": "text/html",
    },
    {"url": "https://a.org/b", "content": "x", "fulltext": "x", "status": 200, "content-type": "text/plain"},
    {"url": "https://a.org/gone", "content": "", "fulltext": "", "status": 401, "content-type": "text/html"},
)


def answer(sql: str, pages: tuple[Row, ...] = PAGES) -> list[Row]:
    """The rows of the result: the facts that came after those which were there before (4.6.3)."""
    environment = clips.Environment()
    slots = " ".join(f"(slot {name})" for name in SLOTS["Page"])
    environment.build(f"(deftemplate Page {slots})")
    template = environment.find_template("Page")
    for page in pages:
        template.assert_fact(**page)
    before = max(fact.index for fact in environment.facts())
    environment.build(query_rule(sql, SLOTS))
    environment.run()
    results = [list(fact) for fact in environment.facts() if fact.index > before]
    rows = [dict(zip(map(str, values[::2]), values[1::2], strict=True)) for values in results]
    return sorted(rows, key=lambda row: str(row["url"]))  # the newest fact fires first; SQL promises no order


def test_table_4_becomes_its_rule() -> None:
    rule = """
        (defrule Query
          (Page (url ?url) (fulltext ?fulltext))
          =>
          (assert (QUERY_RESULT url ?url fulltext ?fulltext)))
    """
    assert query_rule("SELECT url,fulltext FROM Page", SLOTS).split() == rule.split()


def test_table_4_gives_the_two_attributes_of_every_page() -> None:
    assert answer("SELECT url,fulltext FROM Page") == [
        {"url": page["url"], "fulltext": page["fulltext"]} for page in PAGES
    ]


def test_table_3_finds_loaded_pages_and_dead_links() -> None:
    assert answer("SELECT url, content FROM Page p WHERE p.status = 200") == [
        {"url": "https://a.org/", "content": "<p>Hello</p>"},
        {"url": "https://a.org/b", "content": "x"},
    ]
    assert answer("SELECT url FROM Page p WHERE p.status = 401") == [{"url": "https://a.org/gone"}]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("status <> 200", ["https://a.org/gone"]),
        ("status > 200", ["https://a.org/gone"]),
        ("400 > status", ["https://a.org/", "https://a.org/b"]),
        ("status >= 200 AND (status <= 400 AND content_type = 'text/plain')", ["https://a.org/b"]),
        ("status > 100 AND status < 300 AND url <> 'https://a.org/'", ["https://a.org/b"]),
        ("url > 'https://a.org/a'", ["https://a.org/b", "https://a.org/gone"]),
        ("status = '200'", []),
    ],
)
def test_conditions_choose_facts(condition: str, expected: list[str]) -> None:
    assert [row["url"] for row in answer(f"SELECT url FROM Page WHERE {condition}")] == expected


def test_star_stands_for_all_slots() -> None:
    assert answer("SELECT * FROM page WHERE status = 401") == [PAGES[2]]


def test_what_has_no_value_matches_nothing() -> None:
    page: Row = {**PAGES[0], "content": clips.Symbol("nil"), "status": clips.Symbol("nil")}
    assert answer("SELECT url FROM Page WHERE content <> 'x'", (page,)) == []
    assert answer("SELECT url FROM Page WHERE status <> 200", (page,)) == []


@settings(FIXED, max_examples=40)
@given(st.sampled_from(POOLS).flatmap(lambda pool: st.tuples(texts(pool), texts(pool))))
def test_texts_in_a_query_are_only_texts(pair: tuple[str, str]) -> None:
    asked, found = pair
    page = {**PAGES[0], "fulltext": found}
    assert bool(answer(f"SELECT url FROM Page WHERE fulltext = {quoted(asked)}", (page,))) == (asked == found)
    assert bool(answer(f"SELECT url FROM Page WHERE fulltext < {quoted(asked)}", (page,))) == (found < asked)


def test_a_text_cannot_leave_its_quotes() -> None:
    rule = query_rule("""SELECT url FROM Page WHERE url = 'a" ) (assert (evil)) "\\'""", SLOTS)
    assert re.search(r'"a\\" \) \(assert \(evil\)\) \\"\\\\"', rule)
    assert answer("""SELECT url FROM Page WHERE url = '")) => (assert (evil)) ("'""") == []


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT url FROM Site", "unknown template 'Site': choose one of Page"),
        ("SELECT colour FROM Page", "unknown slot 'colour'"),
        ("SELECT url FROM Page WHERE colour = 1", "unknown slot 'colour'"),
        ("SELECT count(*) FROM Page", "COUNT(*) does not fit into a rule"),
        ("SELECT url FROM Page ORDER BY url", "the query does not fit"),
        ("SELECT url FROM Page p JOIN Page q ON true", "the query does not fit"),
        ("SELECT url FROM Page WHERE url LIKE 'a%'", "does not fit"),
        ("SELECT url FROM Page WHERE status = 1 OR status = 2", "does not fit"),
        ("SELECT url FROM Page WHERE status = content", "does not fit"),
        ("SELECT url FROM Page WHERE q.status = 1", "q.status does not fit"),
        ("SELECT url FROM Page WHERE status = 1.5", "does not fit"),
        ("SELECT url FROM Page WHERE status = NULL", "does not fit"),
        ("SELECT url FROM (SELECT 1) AS Page", "the query does not fit"),
        ("DELETE FROM Page", "only SELECT"),
    ],
)
def test_more_than_the_limited_sql_is_refused(sql: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        query_rule(sql, SLOTS)
    assert said in str(caught.value)


def test_names_that_are_no_symbols_are_refused() -> None:
    with pytest.raises(UsageError, match="not a valid name in a rule"):
        query_rule("SELECT * FROM Page", {"Page": ("url) (evil",)})
