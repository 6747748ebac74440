"""A query sees what a running crawl has brought, seconds after it came."""

import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from tests.crawl.running import start
from tests.servers.pages import PageServer, linking

from sterna import Collection
from sterna.errors import CollectionError

pytestmark = pytest.mark.servers

A = "127.0.5.9"
PAGES = 60
FRESH_SECONDS = 10.0


def seen(opened: Callable[[Path], Collection], folder: Path) -> set[str]:
    """The URLs that a query finds now."""
    try:
        return {row["url"] for row in opened(folder).query("SELECT url FROM page WHERE status = 200")}
    except CollectionError:
        return set()  # nothing is committed yet


def test_page_is_found_within_seconds_while_the_crawl_runs(tmp_path: Path) -> None:
    pages = {f"/{number}": f"<title>{number}</title><p>{number}" for number in range(PAGES)}
    sites = {A: {"/": linking(*pages), **pages}}
    opened = cache(Collection)  # once there is one
    with PageServer(sites).run_in_thread() as server:
        wanted = {server.url(A, path) for path in pages}
        crawl = start("crawl", server.url(A), "--into", tmp_path / "c", "--delay", "0.1", "--quiet")
        try:
            waited: list[float] = []
            deadline = time.monotonic() + 40
            while len(waited) < 4 and time.monotonic() < deadline:
                found = seen(opened, tmp_path / "c")
                now = time.time()
                served = {server.url(A, hit.path): hit.ended for hit in list(server.log)}
                late = [now - ended for url, ended in served.items() if url in wanted - found]
                assert max(late, default=0.0) < FRESH_SECONDS
                waited += [now - max(served[url] for url in found)] if found else []
                time.sleep(0.5)
            assert crawl.poll() is None, "the crawl ended before it was asked"
        finally:
            crawl.send_signal(signal.SIGINT)
            crawl.communicate(timeout=20)
        assert len(waited) == 4
        assert len(seen(opened, tmp_path / "c")) > 4
