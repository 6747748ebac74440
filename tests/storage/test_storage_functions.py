"""Functions that store rows: loaded at run time, again when they change, never trusted with the commit."""

import pytest
from tests.storage.places import Place
from tests.storage.single import rules, sizes, wait_until
from tests.storage.stock import Stock, pages

FUNCTION = """
from sqlalchemy import text

def add(connection, rows):
    for row in rows:
        if row["size"] == 3:
            raise ValueError("three cannot be\\nat all")
        connection.execute(text("INSERT INTO t VALUES (:url, :size)"), row)

def commit(connection, rows):
    add(connection, rows[:1])
    connection.commit()

def undo(connection, rows):
    connection.rollback()

def wrong(connection, rows):
    connection.execute(text("INSERT INTO none VALUES (1)"))
"""


def test_function_stores_rows_and_those_that_it_refuses_wait(stock: Stock, place: Place) -> None:
    place.run("CREATE TABLE t (url TEXT, size INTEGER)")
    (stock.folder / "mine.py").write_text(FUNCTION)
    stock.put(pages(0, 10))
    stock.rules(rules(place.url, "mine:add"))
    with stock.manager() as manager:
        stock.catch_up(manager)
        assert sizes(place) == [0, 1, 2, *range(4, 10)]
        assert place.run("SELECT error FROM sterna_waiting") == [
            ("command 'Add' raised ValueError: three cannot be",)
        ]
        # A changed file is loaded again, and what waits is due at once.
        (stock.folder / "mine.py").write_text(FUNCTION.replace("== 3", "== 33"))
        wait_until(lambda: sizes(place) == list(range(10)))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("mine:commit", "a function must neither commit nor roll back"),
        ("mine:undo", "a function must neither commit nor roll back"),
        ("mine:wrong", "none"),
        ("mine:nothing", "module 'mine' has no function 'nothing'"),
        ("nowhere:add", "there is no module 'nowhere'"),
        ("broken:add", "cannot load module 'broken': SyntaxError"),
    ],
)
def test_function_that_cannot_be_used_is_one_line_and_nothing_moves(
    filled: Stock, place: Place, call: str, said: str
) -> None:
    place.run("CREATE TABLE t (url TEXT, size INTEGER)")
    (filled.folder / "mine.py").write_text(FUNCTION)
    (filled.folder / "broken.py").write_text("def")
    filled.rules(rules(place.url, call))
    (standing,) = filled.store()
    assert said in standing.error
    assert (standing.state, standing.batch, sizes(place)) == ("broken", -1, [])
    filled.rules(rules(place.url))
    filled.store()
    assert sizes(place) == list(range(12))
