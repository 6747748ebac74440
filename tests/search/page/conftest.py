"""The real collection that the tests of the search page share."""

from collections.abc import Iterator

import pytest
from tests.crawl.running import crawl_here
from tests.search.page.real_pages import APACHE, PAGES, SQLITE, Crawled
from tests.servers.nginx import real_site, serve

from sterna.api.search import bring_up
from sterna.home.folder import CollectionFolder


@pytest.fixture(scope="session")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawled]:
    """Crawled once; its sites have names because nginx answers whoever takes it for a proxy."""
    folder = tmp_path_factory.mktemp("search-page")
    roots = {SQLITE: real_site("sqlite3-doc"), APACHE: real_site("apache2-doc")}
    named = {url.removeprefix("http://"): root for url, root in roots.items()}
    with serve({"/": roots[SQLITE], **named}, folder=folder / "nginx") as server:
        collection = folder / "manuals"
        seeds = (f"{SQLITE}/docs.html", f"{APACHE}/en/index.html")
        crawl_here(collection, *seeds, max_pages=PAGES, proxy=server.url, proxy_resolves=True)
        bring_up(CollectionFolder(collection))
        yield Crawled(collection, server.url)
