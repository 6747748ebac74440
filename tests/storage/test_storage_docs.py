"""The page on storage prints what it says, with a real PostgreSQL; its tables are those that Sterna makes."""

from pathlib import Path

import pytest
from tests.documents import Document, copy_examples, demo_site
from tests.servers.postgres import PostgresServer
from tests.storage.places import PostgresPlace
from tests.storage.stock import Stock, pages

DOCUMENT = "docs/storage.md"

pytestmark = pytest.mark.servers


def test_page_on_storage_prints_what_it_says(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in postgres.environment().items():
        monkeypatch.setenv(name, value)
    with demo_site(tmp_path) as ports:
        document = Document(DOCUMENT, ports)
        assert len(document.examples()) >= 20
        copy_examples(tmp_path, ports)
        document.check(tmp_path)


def test_tables_that_the_page_has_one_make_are_good(stock: Stock, postgres: PostgresServer) -> None:
    place = PostgresPlace(postgres)
    (tables,) = Document(DOCUMENT).blocks("sql")
    place.run(tables)
    place.run("CREATE TABLE t (url TEXT)")
    stock.put(pages(0, 2))
    stock.rules(f"""
[connections.main]
url = "{place.url}"
[commands.Add]
connection = "main"
sql = "INSERT INTO t VALUES (:url)"
[rules.pages]
[[rules.pages.store]]
query = "SELECT url FROM page"
commands = ["Add"]
""")
    (standing,) = stock.store()
    assert (standing.error, standing.stored) == ("", 2)
