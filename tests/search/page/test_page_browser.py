"""The search page in a real browser, over a real collection: as people use it."""

from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page
from tests.search.page.real_pages import SQLITE, Crawled
from tests.search.page.serving import address_in, serving
from tests.servers.browser import (
    NARROW,
    Seen,
    is_within_the_window,
    make_like_new,
    open_browser,
    open_window,
    take_picture,
)

pytestmark = pytest.mark.servers

_CONTRAST = """
() => {
  const parse = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
  const light = (c) => {
    const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = parse(c).map(v => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (parse(c).length === 3) return c;
    }
    return 'rgb(255, 255, 255)';
  };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const has_text = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!has_text && e.tagName !== 'INPUT') continue;
    if (e.closest('.skip') || e.closest('.unseen') || !e.getClientRects().length) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 20)]);
  }
  return found.sort((x, y) => x[0] - y[0])[0];
}
"""
_FOCUSED = """
() => {
  const e = document.activeElement, box = e.getBoundingClientRect(), style = getComputedStyle(e);
  return {tag: e.tagName, name: (e.getAttribute('aria-label') || e.innerText || e.id || '').trim(),
          seen: box.width > 1 && box.height > 1 && box.bottom > 0 && box.right > 0,
          outline: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2};
}
"""

Window = tuple[Page, Seen]
Scheme = Literal["light", "dark"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as running:
        yield running


@pytest.fixture(scope="module")
def address(crawled: Crawled) -> Iterator[str]:
    with serving(crawled.folder, "--name", "Free manuals") as (_, line):
        yield address_in(line)


@pytest.fixture(scope="module")
def wide(browser: Browser, crawled: Crawled) -> Iterator[Window]:
    """The window of all tests that need no other; by the proxy it finds the sites that were crawled."""
    with open_window(browser, proxy={"server": crawled.proxy, "bypass": "127.0.0.1"}) as opened:
        yield opened


@pytest.fixture
def window(wide: Window) -> Window:
    make_like_new(*wide)
    return wide


@pytest.fixture(scope="module")
def narrow(browser: Browser) -> Iterator[Window]:
    options = {"viewport": NARROW, "device_scale_factor": 2, "has_touch": True, "is_mobile": True}
    with open_window(browser, **options) as opened:
        yield opened


@pytest.fixture
def telephone(narrow: Window) -> Window:
    make_like_new(*narrow, viewport=NARROW)
    return narrow


def links_of(page: Page) -> list[str]:
    return [each.get_attribute("href") or "" for each in page.locator("ol.hits h2 a").all()]


def test_query_results_page_two_and_back(window: Window, address: str) -> None:
    page, seen = window
    page.goto(f"{address}/")
    take_picture(page, "start")
    page.get_by_role("searchbox", name="Words to search for").fill("create table")
    page.get_by_role("button", name="Search").click()
    assert page.url == f"{address}/?q=create+table"
    assert page.title() == "create table - Free manuals"
    first = links_of(page)
    assert len(first) == 10
    assert page.locator(".snippet mark").count() >= 10
    take_picture(page, "results", is_whole=True)

    page.get_by_role("link", name="Next page").click()
    assert page.url.endswith("&page=2")
    assert links_of(page)
    assert not set(first) & set(links_of(page))
    take_picture(page, "page-two")
    page.get_by_role("link", name="Previous page").click()
    assert links_of(page) == first
    page.go_back()
    assert page.url.endswith("&page=2")
    assert seen.complaints == []
    assert seen.origins() == {address}


def test_result_leads_to_the_page_and_does_not_tell_where_it_was_found(window: Window, address: str) -> None:
    page, seen = window
    page.goto(f"{address}/?q=vacuum")
    link = page.locator("ol.hits h2 a").first
    expected, title = link.get_attribute("href"), link.inner_text()
    with page.expect_request(lambda request: request.url == expected) as asked:
        link.click()
    page.wait_for_load_state()
    assert page.url == expected
    assert page.title() == title
    assert "referer" not in asked.value.all_headers()
    assert seen.origins() == {address, SQLITE}


def test_only_this_site_keeps_the_words(window: Window, address: str) -> None:
    page, seen = window
    page.goto(f"{address}/?q=log+files")
    page.locator("li", has_text="docs.sqlite.test").get_by_role("link", name="Only this site").first.click()
    assert page.get_by_role("searchbox").input_value() == "log files site:docs.sqlite.test"
    assert {link.startswith(SQLITE) for link in links_of(page)} == {True}
    assert seen.complaints == []


def test_keyboard_alone_is_enough(window: Window, address: str) -> None:
    page, seen = window
    page.goto(f"{address}/")
    assert page.evaluate(_FOCUSED)["name"] == "q"  # one can type at once
    page.keyboard.type("foreign key")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=foreign+key")
    stops = []
    for _ in range(7):
        page.keyboard.press("Tab")
        stop = page.evaluate(_FOCUSED)
        assert stop["seen"] and stop["outline"], stop
        stops.append((stop["tag"], stop["name"]))
    assert [name for _, name in stops[:4]] == [
        "Skip to the content",
        "Free manuals",
        "q",
        "Search",
    ]
    assert stops[4][0] == "A"
    take_picture(page, "keyboard")

    page.goto(page.url)
    page.keyboard.press("Tab")
    take_picture(page, "skip-link")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    wanted = page.locator("ol.hits h2 a").first.get_attribute("href")
    assert page.evaluate("document.activeElement.getAttribute('href')") == wanted
    page.keyboard.press("Enter")
    assert wanted
    page.wait_for_url(wanted)
    assert seen.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_window_needs_no_scrolling_sideways(telephone: Window, address: str, scheme: Scheme) -> None:
    page, seen = telephone
    page.emulate_media(color_scheme=scheme)
    for name, target in (
        ("start", "/"),
        ("results", "/?q=write+ahead+log"),
        ("nothing", "/?q=%22qwxz+zwxq%22+-x"),
    ):
        page.goto(f"{address}{target}")
        assert is_within_the_window(page)
        take_picture(page, f"narrow-{name}-{scheme}")
        for each in page.locator("input, button, nav a").all():
            box = each.bounding_box()
            assert box and box["height"] >= 40, each  # a finger's width
    assert seen.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_in_light_and_dark(window: Window, address: str, scheme: Scheme) -> None:
    page, _ = window
    page.emulate_media(color_scheme=scheme)
    for name, target in (
        ("results", "/?q=index"),
        ("nothing", "/?q=qwxz"),
        ("start", "/"),
        ("404", "/nowhere"),
    ):
        page.goto(f"{address}{target}")
        contrast, where = page.evaluate(_CONTRAST)
        assert contrast >= 4.5, (name, where)  # WCAG 2.2, 1.4.3
        take_picture(page, f"{name}-{scheme}")


def test_page_is_the_same_without_javascript(browser: Browser, address: str) -> None:
    with open_window(browser, java_script_enabled=False) as (page, seen):
        page.goto(f"{address}/")
        page.fill("input", "trigger")
        page.press("input", "Enter")
        page.wait_for_url("**/?q=trigger")
        assert page.locator("ol.hits > li").count() == 10
        page.click("nav a[rel=next]")
        assert page.url.endswith("page=2")
        take_picture(page, "without-javascript")
    assert seen.complaints == []


def test_screen_reader_finds_its_way(window: Window, address: str) -> None:
    page, _ = window
    page.goto(f"{address}/?q=index")
    for role in ("banner", "search", "main", "contentinfo"):
        assert page.get_by_role(role).count() == 1, role
    assert page.get_by_role("navigation", name="Pages of results").count() == 1
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.get_by_role("heading", level=2).count() == 10
    assert page.get_by_role("list").first.get_by_role("listitem").count() >= 10
    assert page.locator("html").get_attribute("lang") == "en"


def test_on_paper_there_are_results_and_their_addresses_only(window: Window, address: str) -> None:
    page, _ = window
    page.goto(f"{address}/?q=index")
    page.emulate_media(media="print")
    for css in ("form", "nav", "footer"):
        assert not page.locator(css).first.is_visible(), css
    assert page.locator("ol.hits h2").first.is_visible()
    take_picture(page, "paper", is_whole=True)


def test_picture_for_the_documentation_is_small(window: Window, address: str) -> None:
    page, _ = window
    page.set_viewport_size({"width": 880, "height": 660})
    page.goto(f"{address}/?q=log+files")
    take_picture(page, "search")
    assert len(page.screenshot()) < 120_000
