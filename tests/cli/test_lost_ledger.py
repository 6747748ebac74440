"""A collection that has lost its ledger: whatever reads it says so, names the repair and changes nothing."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.crawl.running import crawl_here, sterna
from tests.servers.pages import PageServer, linking

from sterna import Collection, Collections
from sterna.errors import LedgerLost

A = "127.0.5.17"

COMMANDS: dict[str, tuple[str, ...]] = {
    "search": ("search", "DIR", "tern"),
    "search in several": ("search", "WHOLE", "DIR", "tern"),
    "index": ("index", "DIR"),
    "index anew": ("index", "DIR", "--anew"),
    "serve": ("serve", "DIR", "--listen", "127.0.0.1:0"),
    "query": ("query", "DIR", "SELECT 1 FROM page"),
    "status": ("status", "DIR"),
    "export": ("export", "DIR", "--to", "jsonl", "--out", "OUT"),
    "export of WARC files": ("export", "DIR", "--to", "warc", "--out", "OUT"),
    "crawlers": ("crawlers", "DIR"),
    "trust": ("trust", "show", "DIR", "http://www.example.org"),
    "storage": ("storage", "run", "DIR"),
    "state of storage": ("storage", "status", "DIR"),
    "explain": ("explain", "DIR"),
    "crawl": ("crawl", f"http://{A}/", "--into", "DIR"),
}

RULES = """
[connections.main]
url = "sqlite:///${HOME}/rows.sqlite"
[commands.A]
connection = "main"
sql = ["INSERT INTO page VALUES (:url)"]
[rules.pages]
crawler = "*"
[[rules.pages.store]]
query = "SELECT url FROM page"
commands = ["A"]
"""


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lost") / "whole"
    pages = {"/": linking("/1", title="Start"), "/1": "<title>One</title><p>A tern flies."}
    with PageServer({A: pages}).run_in_thread() as server:
        crawl_here(folder, server.url(A), warc=True)
    return folder


@pytest.fixture(params=["with an index", "without an index"])
def lost(crawled: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    folder = Path(shutil.copytree(crawled, tmp_path / "c"))
    if request.param == "with an index":
        assert Collection(folder).search("tern").total == 1
    (folder / "storage.toml").write_text(RULES)
    for path in folder.glob("ledger.sqlite*"):
        path.unlink()
    return folder


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


@pytest.mark.parametrize("what", COMMANDS)
def test_every_command_names_the_repair(lost: Path, crawled: Path, tmp_path: Path, what: str) -> None:
    stands = {"DIR": lost, "OUT": tmp_path / "out", "WHOLE": crawled}
    before = files_of(lost)
    result = sterna(*(stands.get(word, word) for word in COMMANDS[what]))
    assert (result.returncode, result.stdout) == (5, ""), result
    assert "its ledger is missing, but not its archive; nothing was changed: run '" in result.stderr
    assert f"sterna repair {lost}'" in result.stderr
    assert files_of(lost) == before


def test_the_list_names_the_repair(lost: Path, tmp_path: Path) -> None:
    result = sterna("list", tmp_path)
    assert result.returncode == 0
    assert f"sterna repair {lost}'" in result.stdout


CALLS: dict[str, Callable[[Collection, Path], object]] = {
    "query": lambda collection, _: list(collection.query("SELECT 1 FROM page")),
    "events": lambda collection, _: list(collection.events()),
    "search": lambda collection, _: collection.search("tern"),
    "search in several": lambda collection, whole: Collections(whole, collection.folder).search("tern"),
    "status": lambda collection, _: collection.status(),
    "export": lambda collection, _: collection.export("jsonl", collection.folder.parent / "out"),
}


@pytest.mark.parametrize("what", CALLS)
def test_every_call_names_the_repair(lost: Path, crawled: Path, what: str) -> None:
    before = files_of(lost)
    with pytest.raises(LedgerLost, match=f"nothing was changed: run 'sterna repair {lost}'"):
        CALLS[what](Collection(lost), crawled)
    assert files_of(lost) == before
