"""Rules that are added while a crawl runs: its pages are in the user's database when it is over."""

from pathlib import Path

import pytest
from tests.crawl.running import rows, start
from tests.servers.pages import PageServer, linking
from tests.storage.places import SqlitePlace
from tests.storage.single import wait_until

from sterna.api.storage import add_rules
from sterna.home.folder import CollectionFolder

pytestmark = pytest.mark.servers

ADDRESS = "127.0.5.9"
PAGES = 20


def test_rule_added_while_a_crawl_runs_is_followed(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path / "pages.db")
    place.run("CREATE TABLE t (url TEXT, title TEXT)")
    rules = tmp_path / "rules.toml"
    rules.write_text(f"""
[connections.main]
url = "{place.url}"
[commands.Add]
connection = "main"
sql = "INSERT INTO t (url, title) VALUES (:url, :title)"
[rules.pages]
[[rules.pages.store]]
query = "SELECT url, title FROM page WHERE status = 200"
commands = ["Add"]
""")
    pages = {f"/{n}": f"<title>'); DROP TABLE t; -- {n}</title><p>tern" for n in range(1, PAGES)}
    sites = {ADDRESS: {"/": linking(*pages, title="Start"), **pages}}
    folder = tmp_path / "c"
    with PageServer(sites).run_in_thread() as server:
        crawl = start("crawl", server.url(ADDRESS), "--into", folder, "--delay", "0.2", "--quiet")
        wait_until(lambda: list(folder.glob("segments/*.page.parquet")))
        add_rules(CollectionFolder(folder), rules)
        assert crawl.poll() is None, "the crawl was over too early"
        _, errors = crawl.communicate(timeout=60)
    assert (crawl.returncode, errors) == (0, "")
    archived = sorted(rows(folder, "SELECT url, title FROM t WHERE status = 200"))
    assert len(archived) == PAGES
    assert sorted(place.run("SELECT url, title FROM t")) == archived
