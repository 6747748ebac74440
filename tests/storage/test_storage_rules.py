"""Rules on real databases: what crawlers bring is stored as the user's commands say, each row once."""

import threading
from collections.abc import Callable

import msgspec
import pytest
from tests.storage.places import Place, PostgresPlace
from tests.storage.stock import SITE, Stock, fact, page, pages

from sterna.model import Page

# The thesis's example (4.7.2): a page over two tables, one for its address and one for the rest.
SCHEMA = (
    "CREATE TABLE address (id INTEGER PRIMARY KEY, url VARCHAR(2000) NOT NULL UNIQUE)",
    "CREATE TABLE page (address_id INTEGER NOT NULL, title TEXT, size INTEGER)",
)
POSTGRES_SCHEMA = (SCHEMA[0].replace("INTEGER PRIMARY KEY", "SERIAL PRIMARY KEY"), SCHEMA[1])
ADD_ADDRESS = "INSERT INTO address (url) VALUES (:url) ON CONFLICT DO NOTHING"
ADD_PAGE = "INSERT INTO page (address_id, title, size) SELECT id, :title, :size FROM address WHERE url = :url"
QUERY = "SELECT url, title, size FROM page WHERE status = 200"
STORED = "SELECT url, title, size FROM page JOIN address ON address.id = address_id ORDER BY url"


def rules(place: Place, *sql: str, query: str = QUERY, crawler: str = "*") -> str:
    statements = ", ".join(f'"{each}"' for each in sql or (ADD_ADDRESS, ADD_PAGE))
    return f"""
[connections.main]
url = "{place.url}"
[commands.AddPage]
connection = "main"
sql = [{statements}]
[rules.pages]
crawler = "{crawler}"
[[rules.pages.store]]
query = '''{query}'''
commands = ["AddPage"]
"""


def make_tables(place: Place) -> None:
    place.run(*(POSTGRES_SCHEMA if isinstance(place, PostgresPlace) else SCHEMA))


def expected(found: list[Page]) -> list[tuple[str, str, int]]:
    return sorted((each.url, each.title, each.size) for each in found if each.status == 200)


def test_pages_go_into_two_tables(stock: Stock, place: Place) -> None:
    make_tables(place)
    stock.put([*pages(0, 5), page(99, status=404)])
    stock.put(pages(5, 5))
    stock.rules(rules(place))
    (standing,) = stock.store()
    assert (standing.error, standing.batch, standing.stored) == ("", 2, 10)
    assert place.run(STORED) == expected(pages(0, 10))


def test_what_is_stored_is_not_stored_again(stock: Stock, place: Place) -> None:
    make_tables(place)
    stock.put(pages(0, 3))
    stock.rules(rules(place))
    stock.store()
    stock.store()
    stock.put(pages(3, 3))
    stock.store()
    assert place.run(STORED) == expected(pages(0, 6))


def test_schema_changes_by_a_changed_command_while_it_runs(stock: Stock, place: Place) -> None:
    """A third column, then another table: rows from before and after are right."""
    make_tables(place)
    stock.rules(rules(place))
    with stock.manager() as manager:
        stock.put(pages(0, 3))
        stock.catch_up(manager)
        place.run("ALTER TABLE page ADD COLUMN language TEXT")
        with_language = ADD_PAGE.replace("size)", "size, language)").replace(":size", ":size, :language")
        query = QUERY.replace("size", "size, language")
        stock.rules(rules(place, ADD_ADDRESS, with_language, query=query))
        stock.put([page(3, language="en"), page(4, language="de")])
        stock.catch_up(manager)
        place.run("CREATE TABLE content (url TEXT, body TEXT)")
        add_content = "INSERT INTO content (url, body) VALUES (:url, :text)"
        query = query.replace("size", "size, text")
        stock.rules(rules(place, ADD_ADDRESS, with_language, add_content, query=query))
        stock.put([page(5, language="fr")])
        stock.catch_up(manager)
    assert place.run(STORED) == expected(pages(0, 6))
    languages = place.run("SELECT language FROM page ORDER BY size")
    assert [each for (each,) in languages] == [None, None, None, "en", "de", "fr"]
    assert place.run("SELECT url, body FROM content") == [(f"{SITE}/5", "text of page 5")]


def test_only_crawlers_of_the_pattern_count(stock: Stock, place: Place) -> None:
    make_tables(place)
    stock.put(pages(0, 2), crawler="health-a")
    stock.put(pages(2, 2), crawler="news")
    stock.put(pages(4, 2), crawler="health-b")
    stock.rules(rules(place, crawler="health-*"))
    (standing,) = stock.store()
    assert standing.batch == 3
    assert place.run(STORED) == expected([*pages(0, 2), *pages(4, 2)])


def test_several_rules_and_steps_with_facts(stock: Stock, place: Place) -> None:
    place.run("CREATE TABLE clinic (name TEXT, beds INTEGER)", "CREATE TABLE link (a TEXT, b TEXT)")
    beds = '{"slots": {"name": "A", "beds": 7}}'
    stock.put(pages(0, 2), facts=[fact("clinic", beds)])
    stock.put(pages(2, 1))  # without such a fact
    stock.rules(f"""
[connections.main]
url = "{place.url}"
[commands.AddClinic]
connection = "main"
sql = "INSERT INTO clinic (name, beds) VALUES (:name, :beds)"
[commands.AddLink]
connection = "main"
sql = "INSERT INTO link (a, b) VALUES (:from_url, :to_url)"
[rules.clinics]
crawler = "health"
[[rules.clinics.store]]
query = "SELECT name, beds FROM clinic"
commands = ["AddClinic"]
[[rules.clinics.store]]
query = "SELECT from_url, to_url FROM link"
commands = ["AddLink"]
[rules.none]
crawler = "other"
[[rules.none.store]]
query = "SELECT from_url, to_url FROM link"
commands = ["AddLink"]
""")
    standings = {each.rule: each for each in stock.store()}
    assert [each.error for each in standings.values()] == ["", ""]
    assert (standings["clinics"].stored, standings["none"].stored) == (4, 0)
    assert place.run("SELECT * FROM clinic") == [("A", 7)]
    assert place.run("SELECT a, b FROM link ORDER BY a") == [(f"{SITE}/{n}", f"{SITE}/") for n in range(3)]


def test_query_over_many_rows_is_answered_once_for_each_batch(stock: Stock, place: Place) -> None:
    """As the thesis has it: for every crawler that comes home."""
    place.run("CREATE TABLE report (pages INTEGER, most INTEGER)")
    for first, count in ((0, 3), (10, 1), (20, 2)):
        stock.put(pages(first, count))
    insert = "INSERT INTO report (pages, most) VALUES (:n, :most)"
    stock.rules(rules(place, insert, query="SELECT count(*) AS n, max(size) AS most FROM page"))
    stock.store()
    assert sorted(place.run("SELECT pages, most FROM report")) == [(1, 10), (2, 21), (3, 2)]


def test_query_over_many_rows_is_not_answered_for_other_crawlers(stock: Stock, place: Place) -> None:
    place.run("CREATE TABLE report (pages INTEGER)")
    for number, crawler in enumerate(["news", "health", "news", "health-b"]):
        stock.put(pages(number, 1), crawler=crawler)
    insert = "INSERT INTO report (pages) VALUES (:n)"
    stock.rules(rules(place, insert, query="SELECT count(*) AS n FROM page", crawler="health*"))
    (standing,) = stock.store()
    assert (standing.batch, place.run("SELECT pages FROM report")) == (4, [(1,), (1,)])


def test_rule_of_two_databases_has_a_position_in_each(
    stock: Stock, place: Place, new_place: Callable[[], Place]
) -> None:
    other = new_place()
    for each in (place, other):
        each.run("CREATE TABLE t (url TEXT)")
    stock.put(pages(0, 3))
    stock.rules(f"""
[connections.a]
url = "{place.url}"
[connections.b]
url = "{other.url}"
[commands.A]
connection = "a"
sql = "INSERT INTO t VALUES (:url)"
[commands.B]
connection = "b"
sql = "INSERT INTO t (url) VALUES (upper(:url))"
[rules.both]
[[rules.both.store]]
query = "SELECT url FROM page"
commands = ["A", "B"]
""")
    assert [each.stored for each in stock.store()] == [3, 3]
    urls = [each.url for each in pages(0, 3)]
    assert sorted(url for (url,) in place.run("SELECT url FROM t")) == urls
    assert sorted(url for (url,) in other.run("SELECT url FROM t")) == [url.upper() for url in urls]


def test_new_database_is_filled_from_the_archive(
    stock: Stock, place: Place, new_place: Callable[[], Place]
) -> None:
    make_tables(place)
    stock.put(pages(0, 4))
    stock.put(pages(4, 4))
    stock.rules(rules(place))
    stock.store()
    new = new_place()
    make_tables(new)
    stock.rules(rules(new))
    stock.store()
    assert new.run(STORED) == place.run(STORED) == expected(pages(0, 8))


def test_crawled_text_is_never_a_statement(stock: Stock, place: Place) -> None:
    """By each way into the database: COPY for many rows, one statement, several statements."""
    evil = [
        "'); DROP TABLE page; --", '"; DROP TABLE page; --', "$$; DROP TABLE page; --", "%s %(url)s :url ?",
        "\\'); DELETE FROM page; --", "{}", "a\\tb\\N\\.", "\\.", "\ttab\nline\r\n", "'' OR 1=1", "\u202e",
    ]  # fmt: skip
    found = [page(number, title=title) for number, title in enumerate([*evil, *map(str, range(20))])]
    place.run("CREATE TABLE page (url TEXT, title TEXT, size INTEGER)", "CREATE TABLE log (title TEXT)")
    insert = "INSERT INTO page (url, title, size) VALUES (:url, :title, :size)"
    log = "INSERT INTO log (title) VALUES (:title)"
    stock.put(found)
    for number, sql in enumerate([(insert,), (f"{insert} ON CONFLICT DO NOTHING",), (insert, log)]):
        stock.rules(rules(place, *sql).replace("rules.pages", f"rules.pages{number}"))
        (standing,) = stock.store()
        assert (standing.error, standing.waiting) == ("", 0)
        rows = place.run("SELECT url, title, size FROM page ORDER BY size")
        place.run("DELETE FROM page")
        assert rows == [(each.url, each.title, each.size) for each in found]


def test_values_of_all_kinds_arrive(stock: Stock, place: Place) -> None:
    place.run("CREATE TABLE t (url TEXT, keywords TEXT, headers TEXT, fetched TEXT, n TEXT)")
    found = page(1, keywords=("a", "b"), headers=(("server", "x"),))
    stock.put([found])
    query = "SELECT url, to_json(keywords) AS k, headers, fetched::VARCHAR AS f, size / 2 AS n FROM page"
    stock.rules(rules(place, "INSERT INTO t VALUES (:url, :k, :headers, :f, CAST(:n AS TEXT))", query=query))
    (standing,) = stock.store()
    assert standing.error == ""
    (row,) = place.run("SELECT keywords, headers, fetched, n FROM t")
    assert msgspec.json.decode(row[0]) == ["a", "b"]
    assert msgspec.json.decode(row[1]) == {"server": "x"}
    assert row[2].startswith("2023-11-14 22:13:21")
    assert row[3] == "0.5"


def test_rule_that_is_added_while_it_runs_is_taken_up(stock: Stock, place: Place) -> None:
    make_tables(place)
    place.run("CREATE TABLE urls (url TEXT)")
    stock.put(pages(0, 3))
    stock.rules(rules(place))
    with stock.manager() as manager:
        stock.catch_up(manager)
        stock.rules(
            rules(place)
            + '[commands.Url]\nconnection = "main"\nsql = "INSERT INTO urls VALUES (:url)"\n'
            + '[rules.urls]\n[[rules.urls.store]]\nquery = "SELECT url FROM page"\ncommands = ["Url"]\n'
        )
        stock.catch_up(manager)
        assert place.run("SELECT count(*) FROM urls") == [(3,)]
        assert place.run("SELECT count(*) FROM page") == [(3,)]


def test_two_runners_at_the_same_time_store_each_row_once(stock: Stock, place: Place) -> None:
    make_tables(place)
    for first in range(0, 30, 3):
        stock.put(pages(first, 3))
    stock.rules(rules(place))
    with stock.manager() as one, stock.manager() as other:
        threads = [threading.Thread(target=stock.catch_up, args=(each,)) for each in (one, other)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert [each.error for each in (*one.standings(), *other.standings())] == ["", ""]
    assert place.run(STORED) == expected(pages(0, 30))


def test_merged_segments_change_nothing(stock: Stock, place: Place) -> None:
    make_tables(place)
    stock.put(pages(0, 2))
    stock.rules(rules(place))
    stock.store()
    stock.put(pages(2, 2))
    old = [each for each in stock.ledger.segments() if each.table == "page"]
    stock.ledger.replace_segments(old, stock.segments.merge(old), now=1.0)
    for each in old:
        stock.segments.remove(each.name)
    stock.store()
    assert place.run(STORED) == expected(pages(0, 4))


@pytest.mark.parametrize("count", [3, 40], ids=["few", "many"])
def test_first_statement_sees_what_an_earlier_row_left(stock: Stock, place: Place, count: int) -> None:
    """Row after row, not statement after statement: the newest version stays."""
    place.run("CREATE TABLE newest (title TEXT)")
    stock.put(pages(0, count))
    delete, insert = "DELETE FROM newest", "INSERT INTO newest VALUES (:title)"
    stock.rules(rules(place, delete, insert, query="SELECT title FROM page"))
    stock.store()
    assert place.run("SELECT title FROM newest") == [(f"Title {count - 1}",)]
