"""Databases that are down or refuse, and functions that fail: one clear line each, nothing lost or twice."""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.servers.postgres import PostgresServer
from tests.storage.places import Place, PostgresPlace, SqlitePlace
from tests.storage.single import INSERT, QUERY, rules, sizes, wait_until
from tests.storage.stock import SITE, Stock, page, pages

from sterna.errors import JailError
from sterna.storage import confined, manager, sink


@pytest.mark.parametrize("count", [5, 50], ids=["few", "many"])
def test_refused_row_waits_and_the_others_are_stored(stock: Stock, place: Place, count: int) -> None:
    place.run("CREATE TABLE t (url TEXT, size INTEGER CHECK (size <> 3))")
    stock.put(pages(0, count))
    stock.put(pages(count, count))
    stock.rules(rules(place.url))
    (standing,) = stock.store()
    assert (standing.state, standing.batch, standing.waiting) == ("ok", 2, 1)
    assert sizes(place) == [each for each in range(2 * count) if each != 3]
    ((batch, row, error, attempts, later),) = place.run(
        "SELECT batch, row_json, error, attempts, next_try FROM sterna_waiting"
    )
    assert (batch in (1, 2), attempts, later > time.time()) == (True, 1, True)
    assert f"{SITE}/3" in row
    assert "constraint" in error.lower()
    assert "\n" not in error


def test_refused_row_is_stored_once_what_refused_it_is_gone(stock: Stock, place: Place) -> None:
    place.run("CREATE TABLE t (url TEXT, size INTEGER)", "CREATE UNIQUE INDEX one ON t (size)")
    stock.put([page(1), page(2), page(2), page(3)])
    stock.rules(rules(place.url))
    with stock.manager() as manager:
        stock.catch_up(manager)
        assert sizes(place) == [1, 2, 3]
        # A changed command makes it due at once.
        stock.rules(rules(place.url, INSERT.replace(":size)", ":size + 100)")))
        stock.catch_up(manager)
    assert sizes(place) == [1, 2, 3, 102]
    assert place.run("SELECT count(*) FROM sterna_waiting") == [(0,)]


def test_rows_are_tried_again_by_themselves_when_their_time_comes(
    stock: Stock, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sterna.storage.position.delay", lambda attempts: 0.2)
    place.run("CREATE TABLE t (url TEXT, size INTEGER)", "CREATE UNIQUE INDEX one ON t (size)")
    stock.put([page(1), page(1)])
    stock.rules(rules(place.url))
    with stock.manager() as manager:
        stock.catch_up(manager)
        assert sizes(place) == [1]
        place.run("DROP INDEX one")
        wait_until(lambda: sizes(place) == [1, 1])


def test_row_that_waits_for_a_year_because_the_clock_was_ahead_is_tried_again(
    stock: Stock, place: Place
) -> None:
    place.run("CREATE TABLE t (url TEXT, size INTEGER)", "CREATE UNIQUE INDEX one ON t (size)")
    stock.put([page(1), page(1)])
    stock.rules(rules(place.url))
    stock.store()
    place.run("DROP INDEX one", f"UPDATE sterna_waiting SET next_try = {time.time() + 365 * 86400}")
    stock.store()
    assert sizes(place) == [1, 1]


def test_database_that_refuses_all_rows_has_them_wait(stock: Stock, place: Place) -> None:
    place.run("CREATE TABLE t (url TEXT, size INTEGER CHECK (size < 0))")
    stock.put(pages(0, 30))
    stock.rules(rules(place.url))
    (standing,) = stock.store()
    assert (standing.batch, standing.stored, standing.waiting) == (1, 0, 30)
    assert sizes(place) == []


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_rule_stands_still_at_a_damaged_segment_and_names_it(tmp_path: Path, damage: str) -> None:
    place = SqlitePlace(tmp_path / "t.db")
    place.run("CREATE TABLE t (url TEXT, size INTEGER)")
    with Stock(tmp_path / "c") as stock:
        stock.put(pages(0, 5))
        stock.rules(rules(place.url))
        stock.store()
        stock.put(pages(5, 5))
        bad = stock.collection.snapshot().tables["page"][-1]
        data = bad.read_bytes()
        bad.unlink()
        if damage == "cut":
            bad.write_bytes(data[:-20])
        (standing,) = stock.store()
        assert (standing.state, standing.batch) == ("broken", 1)
        assert bad.name in standing.error
        bad.write_bytes(data)
        (standing,) = stock.store()
        assert (standing.state, standing.batch) == ("ok", 2)
    assert sizes(place) == list(range(10))


def test_rule_stands_still_when_too_many_rows_wait(
    stock: Stock, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "MAX_REFUSED", 20)
    monkeypatch.setattr(sink, "_FIRST_BATCHES", 1)
    place.run("CREATE TABLE t (url TEXT, size INTEGER CHECK (size >= 100))")
    for first in (0, 10, 20, 30):
        stock.put(pages(first, 10))
    stock.rules(rules(place.url))
    (standing,) = stock.store()
    assert (standing.state, standing.waiting) == ("broken", standing.batch * 10)
    assert 20 <= standing.waiting <= 40
    assert standing.error.startswith(f"the database refused {standing.waiting} rows, the last one: ")
    stock.rules(rules(place.url, INSERT.replace(":size)", ":size + 100)")))
    (standing,) = stock.store()
    assert (standing.state, standing.batch, standing.waiting) == ("ok", 4, 0)
    assert sizes(place) == list(range(100, 140))


@pytest.mark.parametrize(
    ("sql", "query", "said"),
    [
        pytest.param("INSERT INTO none VALUES (:url)", None, "none", id="table"),
        pytest.param("INSERT INTO t (wrong) VALUES (:url)", None, "wrong", id="column"),
        pytest.param("INSERT INTO t (url VALUES (:url)", None, "syntax", id="sql"),
        pytest.param("INSERT INTO t (url) VALUES (:nothing)", None, "needs :nothing", id="parameter"),
        pytest.param(None, "SELECT url FROM nothing", 'no table "nothing"', id="query-table"),
        pytest.param(None, "SELECT * FROM read_csv('/etc/passwd')", "no files", id="query-files"),
        pytest.param(None, "DROP TABLE page", "only", id="query-drop"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_moves(
    filled: Stock, place: Place, sql: str | None, query: str | None, said: str
) -> None:
    check_wrong(filled, place, rules(place.url, sql or INSERT, query=query or QUERY), said)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        pytest.param("nothing://x", "nothing", id="driver"),
        pytest.param("no url at all", "is malformed", id="url"),
        pytest.param("sqlite:///:memory:", "has no file", id="memory"),
        pytest.param("sqlite:////no/such/folder/x.db", "unable to open", id="folder"),
    ],
)
def test_wrong_address_is_one_line_and_nothing_moves(
    filled: Stock, tmp_path: Path, url: str, said: str
) -> None:
    check_wrong(filled, SqlitePlace(tmp_path / "x.db"), rules(url), said)


def check_wrong(filled: Stock, place: Place, wrong: str, said: str) -> None:
    """Runs these rules and then good ones."""
    place.run("CREATE TABLE t (url TEXT, size INTEGER)")
    filled.rules(wrong)
    (standing,) = filled.store()
    assert said in standing.error
    assert "\n" not in standing.error
    assert (standing.state == "ok", standing.batch, standing.waiting) == (False, -1, 0)
    assert sizes(place) == []
    filled.rules(rules(place.url))
    filled.store()
    assert sizes(place) == list(range(12))


def test_database_that_is_down_delays_no_other(stock: Stock, place: Place, tmp_path: Path) -> None:
    place.run("CREATE TABLE t (url TEXT, size INTEGER)")
    more = f"""
[connections.away]
url = "postgresql+psycopg://nobody@/none?host={tmp_path}/nowhere"
[commands.Away]
connection = "away"
sql = "INSERT INTO t VALUES (:url)"
[rules.away]
[[rules.away.store]]
query = "SELECT url FROM page"
commands = ["Away"]
"""
    stock.rules(rules(place.url, more=more))
    with stock.manager() as manager:
        for number in range(5):
            stock.put(pages(number, 1))
            stock.catch_up(manager)
            assert sizes(place) == list(range(number + 1))
        away, here = manager.standings()
        assert (here.state, here.error) == ("ok", "")
        assert (away.state, away.batch, away.next_try > time.time() - 5) == ("down", -1, True)
        assert (manager.batch, manager.is_left(5)) == (
            5,
            True,
        )  # nobody waits for it, but it is told at the end


@pytest.mark.servers
def test_postgres_that_comes_back_gets_what_waited(stock: Stock, postgres: PostgresServer) -> None:
    place = PostgresPlace(postgres)
    place.run("CREATE TABLE t (url TEXT, size INTEGER)")
    stock.rules(rules(place.url))
    stock.put(pages(0, 3))
    with stock.manager() as manager:
        stock.catch_up(manager)
        postgres.kill(signal.SIGQUIT)
        stock.put(pages(3, 3))
        stock.catch_up(manager)
        (standing,) = manager.standings()
        postgres.start()
        assert standing.state == "down"
        wait_until(lambda: manager.standings()[0].batch == 2)
    assert sizes(place) == list(range(6))


@pytest.mark.servers
def test_wrong_password_is_never_shown(
    stock: Stock, postgres: PostgresServer, capfd: pytest.CaptureFixture[str]
) -> None:
    postgres.run(
        "postgres", "CREATE USER locked PASSWORD 'p@ss/w:rd%41'", "GRANT ALL ON DATABASE postgres TO locked"
    )
    database = postgres.new_database()
    postgres.run("postgres", f"ALTER DATABASE {database} OWNER TO locked")
    url = postgres.url(database, user="locked", password="${PASSWORD}")
    stock.put(pages(0, 2))
    stock.rules(rules(url))
    for environ, said in (
        ({"PASSWORD": "secr3t@wr/ong"}, "password authentication failed"),
        ({}, "connection 'main' needs the environment variable PASSWORD: set it"),
    ):
        (standing,) = stock.store(environ=environ)
        assert said in standing.error
        status = (stock.folder / "storage.status.json").read_text()
        shown = "".join((standing.error, status, *capfd.readouterr()))
        assert "secr3t" not in shown
    postgres.run(database, "CREATE TABLE t (url TEXT, size INTEGER)", "ALTER TABLE t OWNER TO locked")
    (standing,) = stock.store(environ={"PASSWORD": "p@ss/w:rd%41"})
    assert (standing.error, standing.stored) == ("", 2)


@pytest.mark.servers
def test_deferred_constraint_sets_aside_only_its_row(stock: Stock, postgres: PostgresServer) -> None:
    place = PostgresPlace(postgres)
    place.run("CREATE TABLE t (url TEXT, size INTEGER UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    stock.put([page(1), page(2), page(2), page(3)])
    stock.rules(rules(place.url))
    (standing,) = stock.store()
    assert (standing.state, standing.batch, standing.waiting) == ("ok", 1, 1)
    assert sizes(place) == [1, 2, 3]


def test_archive_that_is_older_than_the_database_is_told(stock: Stock, place: Place) -> None:
    place.run("CREATE TABLE t (url TEXT, size INTEGER)")
    stock.put(pages(0, 1))
    stock.rules(rules(place.url))
    stock.store()
    place.run("UPDATE sterna_storage SET batch = 7")
    (standing,) = stock.store()
    assert "restored from an older copy" in standing.error
    assert sizes(place) == [0]


def test_broken_file_changes_nothing_while_it_runs(stock: Stock, tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path / "x.db")
    place.run("CREATE TABLE t (url TEXT, size INTEGER)")
    stock.rules(rules(place.url))
    with stock.manager() as manager:
        stock.put(pages(0, 1))
        stock.catch_up(manager)
        stock.rules("[rules.x]\nstore = 7\n")
        stock.put(pages(1, 1))
        stock.catch_up(manager)
        assert sizes(place) == [0, 1]


def test_stop_returns_at_once_and_leaves_the_rest(stock: Stock, tmp_path: Path) -> None:
    stock.rules(rules(f"sqlite:///{tmp_path}/x.db"))
    stock.put(pages(0, 1))
    stop = threading.Event()
    stop.set()
    with stock.manager() as manager:
        manager.catch_up(stock.collection.snapshot(), stop=stop)
        assert manager.standings() == []


@pytest.mark.servers
def test_locked_table_is_told_once_and_its_rows_are_stored_when_it_is_free(
    stock: Stock, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = PostgresPlace(postgres)
    place.run("CREATE TABLE t (url TEXT, size INTEGER)")
    stock.put(pages(0, 5))
    stock.rules(rules(place.url))
    warnings: list[str] = []
    with stock.manager() as manager_, place.locked("t"), monkeypatch.context() as patch:
        patch.setattr(manager, "HANGS_SECONDS", 0.5)
        manager_.warn = warnings.append
        stock.catch_up(manager_)
        stock.catch_up(manager_)
        (standing,) = manager_.standings()
        assert (standing.state, standing.batch < standing.of) == ("down", True)
        assert "does another session hold a lock" in standing.error
        assert manager_.batch < 1  # so the process that runs it knows that something is left
    assert [text.partition(": no progress")[0] for text in warnings] == ["storage: connection 'main'"]
    (standing,) = stock.store()
    assert (standing.state, standing.batch, sizes(place)) == ("ok", 1, [0, 1, 2, 3, 4])


@pytest.mark.parametrize("deaths", [1, 3])
def test_rows_whose_reader_dies_are_read_again_at_once(
    stock: Stock, place: Place, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    left = iter(range(deaths))
    read_chunks = confined.read_chunks

    def dying(*given: Any, **named: Any) -> Iterator[Any]:
        for chunk in read_chunks(*given, **named):
            yield chunk  # its rows are in the transaction by then
            if next(left, None) is not None:
                raise JailError("cannot read: its confined process was ended by SIGKILL")

    monkeypatch.setattr(sink, "read_chunks", dying)
    place.run("CREATE TABLE t (url TEXT, size INTEGER)")
    stock.put(pages(0, 5))
    stock.put(pages(5, 5))
    stock.rules(rules(place.url))
    (standing,) = stock.store()
    assert (standing.state, standing.batch, standing.error) == ("ok", 2, "")
    assert sizes(place) == list(range(10))
