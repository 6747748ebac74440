"""Home and database are killed at random between row and acknowledgement: each row is there exactly once."""

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.killing import Parent, kill, warm
from tests.servers.postgres import PostgresServer
from tests.storage.places import Place, PostgresPlace
from tests.storage.stock import Stock, pages

pytestmark = pytest.mark.servers

ROUNDS = 25
SECONDS = 2.5  # no round begins later
DATABASE_ROUNDS = 3
BATCH_ROWS = 40

# By three ways: COPY in PostgreSQL, one statement for each row, and two of them.
TABLES = (
    "CREATE TABLE plain (url TEXT, title TEXT, size INTEGER)",
    "CREATE TABLE single (url TEXT, title TEXT, size INTEGER)",
    "CREATE TABLE address (url TEXT PRIMARY KEY)",
    "CREATE TABLE pair (url TEXT, title TEXT, size INTEGER)",
)
COPIED = "INSERT INTO plain (url, title, size) VALUES (:url, :title, :size)"
SINGLE = "INSERT INTO single SELECT :url, :title, CAST(:size AS INTEGER)"
FIRST = "INSERT INTO address VALUES (:url) ON CONFLICT DO NOTHING"
SECOND = "INSERT INTO pair SELECT url, :title, CAST(:size AS INTEGER) FROM address WHERE url = :url"


@pytest.fixture(scope="module")
def parent() -> Iterator[Parent]:
    with warm("tests.storage.dying") as parent:
        yield parent


def rules(place: Place) -> str:
    commands = {"plain": [COPIED], "single": [SINGLE], "pair": [FIRST, SECOND]}
    text = f'[connections.main]\nurl = "{place.url}"\n'
    for name, sql in commands.items():
        text += f"""
[commands.{name}]
connection = "main"
sql = {sql!r}
[rules.{name}]
[[rules.{name}.store]]
query = "SELECT url, title, size FROM page WHERE status = 200"
commands = ["{name}"]
"""
    return text


def put_more(stock: Stock, round_number: int) -> None:
    for number in range(3):
        stock.put(pages((round_number * 3 + number) * BATCH_ROWS, BATCH_ROWS))


def stored(place: Place) -> int:
    """How many rows are there by all three ways."""
    tables = " + ".join(f"(SELECT count(*) FROM {table})" for table in ("plain", "single", "pair"))
    count: int = place.run(f"SELECT {tables}")[0][0]
    return count


def check(stock: Stock, place: Place) -> None:
    """After a last run the database has what the archive answers, no more and no less."""
    standings = stock.store()
    assert [each.error for each in standings] == [""] * 3
    archived = Counter(stock.ask("SELECT url, title, size FROM page_history WHERE status = 200"))
    assert len(archived) >= BATCH_ROWS
    for table in ("plain", "single", "pair"):
        assert Counter(place.run(f"SELECT url, title, size FROM {table}")) == archived, table


def test_home_killed_at_random_loses_and_doubles_nothing(stock: Stock, place: Place, parent: Parent) -> None:
    random.seed(7)
    place.run(*TABLES)
    stock.rules(rules(place))
    put_more(stock, 0)
    child = parent.start(stock.folder)
    began = time.monotonic()
    while not stored(place):
        time.sleep(0.02)
    typical = time.monotonic() - began
    kill(child)
    for number in range(1, ROUNDS):
        put_more(stock, number)
        child = parent.start(stock.folder)
        time.sleep(random.uniform(0.2, 2.0) * typical)
        kill(child)
        if time.monotonic() - began > SECONDS:
            break
    check(stock, place)


def test_postgres_killed_at_random_loses_and_doubles_nothing(
    stock: Stock, postgres: PostgresServer, parent: Parent
) -> None:
    random.seed(8)
    place = PostgresPlace(postgres)
    place.run(*TABLES)
    stock.rules(rules(place))
    child = parent.start(stock.folder)
    for number in range(DATABASE_ROUNDS):
        before = stored(place)
        put_more(stock, number)
        while stored(place) == before:  # until it is at work
            time.sleep(0.02)
        time.sleep(random.uniform(0.0, 0.1))
        postgres.kill(signal.SIGKILL if number % 2 else signal.SIGQUIT)
        postgres.start()
    kill(child)
    check(stock, place)


def test_home_and_postgres_killed_together_lose_and_double_nothing(
    stock: Stock, postgres: PostgresServer, parent: Parent
) -> None:
    random.seed(9)
    place = PostgresPlace(postgres)
    place.run(*TABLES)
    stock.rules(rules(place))
    for number in range(3):
        put_more(stock, number)
        child = parent.start(stock.folder)
        time.sleep(random.uniform(0.1, 0.5))
        kill(child)
        postgres.kill()
        postgres.start()
    check(stock, place)
