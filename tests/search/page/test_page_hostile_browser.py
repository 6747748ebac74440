"""Pages that strangers wrote do nothing in the browser of who searches, and no request leaves."""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser
from tests.crawl.running import crawl_here
from tests.search.page.fakes import FakeSearcher
from tests.search.page.hostile_hits import TEXTS, hostile_hits
from tests.search.page.page_requests import served
from tests.search.page.serving import address_in, serving
from tests.servers.browser import NARROW, is_within_the_window, open_browser, open_window, take_picture
from tests.servers.nginx import serve

from sterna.search.page.api import Bounds

pytestmark = pytest.mark.servers

_DOERS = "script, iframe, object, embed, style, main img, main form, base, [onerror], [onload], [onmouseover]"


@pytest.fixture(scope="module")
def crawled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection of hostile pages, without an index."""
    work = tmp_path_factory.mktemp("hostile")
    site, folder = work / "site", work / "collection"
    site.mkdir()
    texts = [text.encode("utf-8", "replace").decode().replace("\0", "") for text in TEXTS]
    names = [f"{number}.html" for number in range(len(texts))] + [
        "'onmouseover='alert(1).html",
        "a&b<i>.html",
    ]
    for name, text in zip(names, [*texts, "x", "y"], strict=True):
        shown = escape(text)
        (site / name).write_text(f"<title>word {shown}</title><h1>{shown}</h1><p>word {shown}</p>")
    (site / "index.html").write_text(
        "".join(f'<a href="{escape(name)}">{escape(name)}</a> ' for name in names)
    )
    with serve(site, folder=work / "nginx") as server:
        crawl_here(folder, f"{server.url}/")
    return folder


# A crawl needs an event loop, which cannot run while the browser is open.
@pytest.fixture(scope="module")
def browser(crawled_folder: Path) -> Iterator[Browser]:
    with open_browser() as running:
        yield running


def test_whatever_a_page_does_would_be_seen(browser: Browser) -> None:
    with open_window(browser) as (page, seen):
        page.set_content(
            "<img src='http://127.0.0.1:1/x'><script>alert(1); window.open('/'); nonsense()</script>"
        )
        page.wait_for_timeout(100)
    kinds = {line.partition(":")[0].partition(" ")[0] for line in seen.complaints}
    assert kinds == {"dialog", "window", "exception", "console"}
    assert "http://127.0.0.1:1" in seen.origins()


def test_hits_of_the_worst_kind_do_nothing(browser: Browser) -> None:
    hits = hostile_hits()
    with served(FakeSearcher(hits), bounds=Bounds(hits=100)) as url, open_window(browser) as (page, seen):
        page.goto(f"{url}/?q=word")
        assert page.locator("ol.hits > li").count() == len(hits)
        page.locator("summary").first.click()
        for each in page.locator("ol.hits h2").all()[:9]:
            each.hover()
        for _ in range(15):
            page.keyboard.press("Tab")
        assert page.locator(_DOERS).count() == 0
        assert is_within_the_window(page)
        take_picture(page, "hostile-wide")
        page.set_viewport_size(NARROW)
        assert is_within_the_window(page)
        page.locator("ol.hits > li").nth(14).scroll_into_view_if_needed()
        take_picture(page, "hostile-narrow")
        assert seen.complaints == []
        assert seen.origins() == {url}


def test_words_of_a_query_do_nothing(browser: Browser) -> None:
    with served(FakeSearcher([])) as url, open_window(browser) as (page, seen):
        for text in TEXTS[:5]:
            page.goto(f"{url}/?q={quote(text)}")
            assert page.locator(_DOERS).count() == 0
            assert page.locator("input").input_value() == text
        assert seen.complaints == []
        assert seen.origins() == {url}


def test_refusal_is_a_page_and_no_more(browser: Browser) -> None:
    with served(FakeSearcher([])) as url, open_window(browser) as (page, seen):
        answer = page.goto(f"{url}/{quote(TEXTS[1])}?q={quote(TEXTS[1])}")
        assert answer and answer.status == 404
        assert page.locator(_DOERS).count() == 0
        # The browser itself says in its console that the address was not found.
        assert [line for line in seen.complaints if "404" not in line] == []
        assert seen.origins() == {url}


def test_crawled_collection_of_hostile_pages_does_nothing(browser: Browser, crawled_folder: Path) -> None:
    with serving(crawled_folder, "--name", TEXTS[0]) as (_, line), open_window(browser) as (page, seen):
        url = address_in(line)
        page.goto(f"{url}/?q=word")
        assert page.locator("ol.hits > li").count() == 10
        take_picture(page, "hostile-collection", is_whole=True)
        while page.locator("nav a[rel=next]").count():
            page.click("nav a[rel=next]")
            assert page.locator(_DOERS).count() == 0
        page.goto(f"{url}/?q=script+alert")
        assert "<script>" in page.locator("ol.hits").inner_text()
        assert seen.complaints == []
        assert seen.origins() == {url}
