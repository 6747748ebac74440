"""A synthetic web of many sites: every page that can be reached, once, within bounded memory."""

import re
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests import making
from tests.crawl.running import sterna, sterna_process, stored_urls, summary_of
from tests.servers.synthetic import SyntheticServer, SyntheticWeb, path

from sterna.archive.manifest import Batch
from sterna.archive.segments import SegmentStore
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import Change
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.model import Links, Target

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]


def reachable(web: SyntheticWeb, sites: list[int]) -> set[tuple[int, int]]:
    """The (site, page) pairs that links lead to from page 0 of these sites."""
    seen = {(site, 0) for site in sites}
    todo = list(seen)
    while todo:
        for link in web.links(*todo.pop()):
            if link not in seen:
                seen.add(link)
                todo.append(link)
    return seen


def test_web_of_300_sites_with_a_power_law_of_sizes_is_crawled_whole(tmp_path: Path) -> None:
    web = SyntheticWeb(
        sites=300, pages_per_site=10, size_exponent=2.3, external_share=0.2, bytes_per_page=2_000, seed=3
    )
    starts = list(range(0, 300, 50))
    with SyntheticServer(web).run_in_thread() as server:
        seeds = [server.url(site) for site in starts]
        flags = ("--into", tmp_path / "c", "--stay", "any", "--allow-private", "--delay", "0", "--json")
        result = sterna_process("crawl", *seeds, *flags, timeout=250)
    expected = sorted(
        f"http://{web.host(site)}:{server.port}{path(page)}" for site, page in reachable(web, starts)
    )
    assert result.returncode == 0
    assert len(expected) > 2_000
    assert stored_urls(tmp_path / "c") == expected
    assert summary_of(result)["peak_memory_bytes"] < 600e6


def test_memory_does_not_grow_with_the_frontier(tmp_path: Path) -> None:
    small, large = (_peak_bytes(tmp_path / str(waiting), waiting) for waiting in (1_000, 120_000))
    # SQLite keeps up to 64 MiB of the ledger; a URL in Python's memory would take 500 bytes and more.
    assert large - small < 40e6


def test_memory_does_not_grow_with_links_that_a_wider_scope_admits(tmp_path: Path) -> None:
    small, large = (_peak_of_widening(tmp_path / str(links), links) for links in (1_000, 600_000))
    # SQLite keeps up to 64 MiB of the ledger; a link in Python's memory would take 500 bytes and more.
    assert large - small < 130e6


def _peak_of_widening(folder: Path, count: int) -> int:
    """What a run takes that follows so many links of a page that were left out before."""
    web = SyntheticWeb(sites=1, pages_per_site=60, bytes_per_page=2_000)
    with SyntheticServer(web).run_in_thread() as server:
        flags = ("--into", folder, "--delay", "0", "--json", "--max-pages")
        result = sterna("crawl", server.url(0), *flags, "1", "--include", "/nothing/")
        assert result.returncode == 0
        collection = CollectionFolder(folder)
        with collection.locked(), closing(SqliteLedger(collection.ledger_path)) as ledger:
            links = Links("\n".join(f"{server.url(0)}deep/{number}" for number in range(count)))
            site = server.url(0).rstrip("/")
            pages = [(site, making.page("/", site=site, links=links))]  # as another version of it
            number = ledger.batch() + 1
            batch = Batch(number=number, crawler="default", visits=("v",), again=(False,))
            written = SegmentStore(collection.segments_folder).write_pages(pages, batch=batch)
            ledger.commit(Change(parcels=(), batch=number, segments=tuple(written)), now=time.time())
        done = sterna_process("crawl", *flags, "40", "--include", "/", "--max-seconds", "5")
    followed = re.search(r"([\d,]+) links are followed that had been left out", done.stdout)
    assert followed
    assert int(followed[1].replace(",", "")) >= count
    return int(summary_of(done)["peak_memory_bytes"])


def _peak_bytes(folder: Path, waiting: int) -> int:
    """What a short run takes on a collection in whose frontier so many URLs wait."""
    web = SyntheticWeb(sites=1, pages_per_site=60, bytes_per_page=2_000)
    with SyntheticServer(web).run_in_thread() as server:
        flags = ("--into", folder, "--delay", "0", "--json", "--max-pages")
        assert sterna("crawl", server.url(0), *flags, "1").returncode == 0
        ledger = SqliteLedger(folder / "ledger.sqlite")
        ledger.seed([Target(f"{server.url(0)}deep/{n}", 50) for n in range(waiting)], now=time.time())
        ledger.close()
        summary = summary_of(sterna_process("crawl", *flags, "40"))
    assert summary["pages"] == 39
    assert summary["pending"] >= waiting
    return int(summary["peak_memory_bytes"])
