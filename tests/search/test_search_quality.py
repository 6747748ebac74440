"""Whether the words of a page's title find it, on a real site."""

from pathlib import Path

import pytest
from bench.search_parts.quality import title_words_find
from tests.crawl.running import crawl_here, rows
from tests.servers.nginx import real_site, serve

from sterna.api.search import bring_up
from sterna.home.folder import CollectionFolder
from sterna.search.searcher import Searcher

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]


def test_the_words_of_a_title_find_the_page(tmp_path: Path) -> None:
    with serve(real_site("sqlite3-doc"), folder=tmp_path / "nginx") as server:
        crawl_here(tmp_path / "c", f"{server.url}/index.html", max_pages=400)
    assert bring_up(CollectionFolder(tmp_path / "c"))[0]
    titled = rows(tmp_path / "c", "SELECT url, title FROM t WHERE status = 200 AND title IS NOT NULL")
    with Searcher(tmp_path / "c" / "index") as searcher:
        quality = title_words_find(searcher, titled, count=150)
    assert quality.asked == 150
    assert quality.share >= 0.95, quality.missed[:10]
