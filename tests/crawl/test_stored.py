"""A crawl whose pages go into the user's own database as they come in."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crawl.running import sterna, stored_urls
from tests.servers.pages import PageServer, linking

pytestmark = pytest.mark.servers

A = "127.0.5.8"
PAGES = 30
RULES = """
[connections.main]
url = "sqlite:///{path}"

[commands.AddPage]
connection = "main"
sql = ["INSERT INTO page (url, title) VALUES (:url, :title)"]

[rules.pages]
[[rules.pages.store]]
query = "SELECT url, title FROM page WHERE status = 200"
commands = ["AddPage"]
"""


@pytest.fixture
def server() -> Iterator[PageServer]:
    pages = {f"/{n}": f"<title>Page {n}</title>" for n in range(1, PAGES)}
    sites = {A: {"/": linking(*pages, title="Start"), **pages}}
    with PageServer(sites).run_in_thread() as running:
        yield running


def test_rules_beside_the_collection_are_followed_also_without_an_index(
    server: PageServer, tmp_path: Path
) -> None:
    folder, path = tmp_path / "c", tmp_path / "mine.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE page (url TEXT, title TEXT)")
    folder.mkdir()
    (folder / "storage.toml").write_text(RULES.format(path=path))
    result = sterna("crawl", server.url(A), "--into", folder, "--delay", "0", "--quiet")
    assert (result.returncode, result.stderr) == (0, "")
    with sqlite3.connect(path) as database:
        rows = [url for (url,) in database.execute("SELECT url FROM page ORDER BY url")]
    assert rows == stored_urls(folder)
    assert len(rows) == PAGES
    assert not (folder / "index").exists()
    assert f"storage rules: sterna storage status {folder}" in sterna("status", folder).stdout
