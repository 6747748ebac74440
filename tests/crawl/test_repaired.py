"""Crawls go on after a repair: to the same pages, links and responses as if nothing had been damaged."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.crawl.running import crawl_here, rows, sterna, stored_urls
from tests.crawl.test_crash import die, warc_urls
from tests.home.repair.wrecks import flip
from tests.servers.synthetic import SyntheticServer, SyntheticWeb

from sterna.archive.parquet import label_of
from sterna.errors import LedgerLost
from sterna.home.folder import CollectionFolder

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

PAGES = 120
LINKS = "SELECT DISTINCT from_url, to_url FROM t ORDER BY ALL"


@pytest.fixture(scope="module")
def server() -> Iterator[SyntheticServer]:
    web = SyntheticWeb(sites=1, pages_per_site=PAGES, mean_degree=6, bytes_per_page=20_000, seed=7)
    with SyntheticServer(web).run_in_thread() as running:
        yield running


@pytest.fixture(scope="module")
def links(server: SyntheticServer, tmp_path_factory: pytest.TempPathFactory) -> object:
    folder = tmp_path_factory.mktemp("undisturbed") / "c"
    crawl_here(folder, server.url(0), warc=True, concurrency=16)
    return rows(folder, LINKS, "link")


def lose_ledger(folder: Path) -> None:
    for path in folder.glob("ledger.sqlite*"):
        path.unlink()


def lose_log(folder: Path) -> None:
    (folder / "ledger.sqlite-wal").unlink()
    (folder / "ledger.sqlite-shm").unlink(missing_ok=True)


def damage_segments(folder: Path) -> None:
    for table in ("page", "link"):
        flip(next(folder.glob(f"segments/*.{table}.parquet")), 300, length=60)
    lose_ledger(folder)


@pytest.mark.parametrize("damage", [lose_ledger, lose_log, damage_segments])
def test_killed_damaged_and_repaired_a_crawl_comes_to_the_same_end(
    tmp_path: Path, server: SyntheticServer, links: object, damage: Callable[[Path], None]
) -> None:
    folder = tmp_path / "c"
    die(folder, server, "committed", 2)
    damage(folder)
    before = sorted(path.name for path in folder.glob("segments/*"))
    with pytest.raises(LedgerLost):
        crawl_here(folder, server.url(0), warc=True, concurrency=16)
    assert sorted(path.name for path in folder.glob("segments/*")) == before
    assert sterna("repair", folder).returncode == 0
    fetched = len(server.log)
    crawl_here(folder, server.url(0), warc=True, concurrency=16)
    assert sorted(set(stored_urls(folder))) == sorted(server.expected_urls(0))
    assert rows(folder, LINKS, "link") == links
    assert set(warc_urls(folder)) == set(server.expected_urls(0))
    if damage is not damage_segments:
        assert len(stored_urls(folder)) == PAGES  # none twice
        assert len(server.log) - fetched < PAGES


def test_segments_of_a_crawl_say_whose_they_are(tmp_path: Path, server: SyntheticServer) -> None:
    folder = tmp_path / "c"
    crawl_here(folder, server.url(0), max_pages=5, exclude=("/never/",))
    labels = [label_of(pq.read_metadata(path)) for path in sorted(folder.glob("segments/*"))]
    assert {label.collection for label in labels} == {CollectionFolder(folder).id()}
    assert all('"exclude":["/never/"]' in label.options for label in labels)
    assert {label.table for label in labels} == {"page", "link"}
