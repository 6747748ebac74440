"""A crawler goes on elsewhere: packed with its progress out of one collection, sent out into another."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crawl.running import rows, sterna, summary_of
from tests.servers.nginx import NginxServer, serve

from sterna.crawler.pack import read
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.sqlite.ledger import SqliteLedger

pytestmark = pytest.mark.servers

RULES = """
(deftemplate tally (slot pages))
(deffacts start (tally (pages 0)))
(defrule count ?old <- (tally (pages ?n)) ?page <- (page (status 200) (url ?url))
   (not (counted ?url))
   => (assert (counted ?url)) (modify ?old (pages (+ ?n 1))))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxServer]:
    root = tmp_path_factory.mktemp("site")
    for number in range(12):
        links = "".join(f"<a href={number * 2 + step}.html>on</a>" for step in (1, 2))
        (root / f"{number}.html").write_text(f"<title>{number}</title>{links}")
    with serve(root, folder=tmp_path_factory.mktemp("nginx")) as server:
        yield server


def crawl(*arguments: str | Path) -> dict[str, object]:
    result = sterna("crawl", *arguments, "--delay", "0", "--json", "--here")
    assert result.returncode == 0, result.stderr
    return summary_of(result)


def known(folder: Path, site: str) -> tuple[object, ...]:
    ledger = SqliteLedger(CollectionFolder(folder).ledger_path, is_reader=True)
    progress = ledger.progress(site)
    ledger.close()
    facts = sorted(data for _, data in progress.state.facts)
    return facts, sorted(target.url for target in progress.frontier), progress.seen


def test_crawler_goes_on_in_another_collection(tmp_path: Path, server: NginxServer) -> None:
    (tmp_path / "r.clp").write_text(RULES)
    spec = tmp_path / "tally.toml"
    spec.write_text(f'name = "tally"\nseeds = ["{server.url}/0.html"]\nrules = ["r.clp"]\n')
    whole, first, second = tmp_path / "whole", tmp_path / "first", tmp_path / "second"
    crawl(spec, "--into", whole)
    crawl(spec, "--into", first, "--max-pages", "5")

    packed = tmp_path / "tally.crawler"
    result = sterna("pack", first, "--into", packed)
    assert result.returncode == 0, result.stderr
    summary = crawl(packed, "--into", second, "--max-pages", "100")

    assert summary["pages"] == 7
    assert known(second, server.url) == known(whole, server.url)
    titles = {title for folder in (first, second) for (title,) in rows(folder, "SELECT title FROM t")}
    assert titles == {title for (title,) in rows(whole, "SELECT title FROM t")}


def test_file_tells_of_its_progress(tmp_path: Path, server: NginxServer) -> None:
    crawl(f"{server.url}/0.html", "--into", tmp_path / "c", "--max-pages", "3")

    result = sterna("pack", tmp_path / "c", "--into", tmp_path / "c.crawler")

    assert result.returncode == 0, result.stderr
    assert len(read(tmp_path / "c.crawler").progress.frontier) == 4
    assert "4" in sterna("inspect", tmp_path / "c.crawler").stdout


def test_one_of_several_sites_has_to_be_named(tmp_path: Path, server: NginxServer) -> None:
    other = server.url.replace("127.0.0.1", "localhost")
    crawl(f"{server.url}/0.html", f"{other}/0.html", "--into", tmp_path / "c", "--max-pages", "3")

    refused = sterna("pack", tmp_path / "c", "--into", tmp_path / "c.crawler")
    packed = sterna("pack", tmp_path / "c", "--into", tmp_path / "c.crawler", "--site", other)

    assert refused.returncode == 2
    assert "--site" in refused.stderr
    assert packed.returncode == 0, packed.stderr
    assert all(target.url.startswith(other) for target in read(tmp_path / "c.crawler").progress.frontier)
