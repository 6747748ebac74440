"""The page on storage prints what it says, with a real PostgreSQL; its tables are those that Sterna makes."""

import re
import shutil
from pathlib import Path

import pytest
from tests.servers.postgres import PostgresServer
from tests.storage.places import PostgresPlace
from tests.storage.stock import Stock, pages
from tests.test_docs import ROOT, check, demo_site, examples

DOCUMENT = "docs/storage.md"

pytestmark = [pytest.mark.servers, pytest.mark.alone]  # the port of the demo site is the same for all


def test_page_on_storage_prints_what_it_says(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in postgres.environment().items():
        monkeypatch.setenv(name, value)
    assert len(examples(DOCUMENT)) >= 20
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with demo_site():
        check(DOCUMENT, tmp_path)


def test_tables_that_the_page_has_one_make_are_good(stock: Stock, postgres: PostgresServer) -> None:
    place = PostgresPlace(postgres)
    (tables,) = re.findall(r"```sql\n(.*?)```", (ROOT / DOCUMENT).read_text(), re.DOTALL)
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
