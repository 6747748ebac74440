"""What the page and its API answer, by a searcher that is made up and by the real one alike."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from tests.search.page.fakes import FakeSearcher, many_pages
from tests.search.page.page_requests import app_of, ask

from sterna.search.page.html import ICON, STYLE
from sterna.search.results import Searches

WORD = "select"  # found by both on more than two pages of results


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.servers)])
def searcher(request: pytest.FixtureRequest) -> Iterator[Searches]:
    if request.param == "fake":
        yield FakeSearcher(many_pages(25))
        return
    from sterna.search.searcher import Searcher  # noqa: PLC0415 - the fake does without it

    with Searcher(request.getfixturevalue("crawled").folder / "index") as found:
        yield found


async def test_start_page_counts_the_pages(searcher: Searches) -> None:
    answer = await ask(app_of(searcher), "/")
    assert answer.status == 200
    assert answer.html.text(".count") == f"{searcher.page_count():,} pages to search"
    assert searcher.page_count() > 20


@pytest.mark.parametrize("target", ["/?q=", "/?q=+%20", "/?page=2", "/?other=1"])
async def test_who_asks_nothing_sees_the_start_page(searcher: Searches, target: str) -> None:
    answer = await ask(app_of(searcher), target)
    assert (answer.status, answer.html.text("h1")) == (200, "Terns")


async def test_results_are_linked_and_marked(searcher: Searches) -> None:
    page = (await ask(app_of(searcher), f"/?q={WORD}")).html
    links = page.values("h2 a", "href")
    assert len(links) == len(set(links)) == 10
    assert all(link.startswith("http://") for link in links)
    assert WORD in map(str.lower, page.texts(".snippet mark"))
    assert all(text.strip() for text in page.texts("h2, .snippet"))


async def test_second_page_goes_on_where_the_first_ends(searcher: Searches) -> None:
    app = app_of(searcher)
    first = (await ask(app, f"/?q={WORD}")).html
    following = first.value('nav a[rel="next"]', "href")
    assert following
    second = (await ask(app, following)).html
    links = [set(page.values("h2 a", "href")) for page in (first, second)]
    assert len(links[1]) == 10
    assert not links[0] & links[1]
    assert second.value('nav a[rel="prev"]', "href") == f"/?q={WORD}"
    assert second.value("ol.hits", "start") == "11"


async def test_api_gives_what_the_page_shows(searcher: Searches) -> None:
    app = app_of(searcher)
    page = (await ask(app, f"/?q={WORD}&page=2")).html
    answer = await ask(app, f"/api/search?q={WORD}&offset=10")
    assert answer.status == 200
    assert [hit["url"] for hit in answer.json["hits"]] == page.values("h2 a", "href")
    assert (answer.json["words"], answer.json["offset"], answer.json["limit"]) == (WORD, 10, 10)


async def test_api_keeps_to_its_limit(searcher: Searches) -> None:
    app = app_of(searcher)
    few = (await ask(app, f"/api/search?q={WORD}&limit=3")).json
    more = (await ask(app, f"/api/search?q={WORD}&limit=20")).json
    assert (len(few["hits"]), len(more["hits"])) == (3, 20)
    assert [hit["url"] for hit in few["hits"]] == [hit["url"] for hit in more["hits"][:3]]


async def test_nothing_found_is_a_page_with_hints(searcher: Searches) -> None:
    answer = await ask(app_of(searcher), "/?q=qwxzqwxz")
    assert answer.status == 200
    assert answer.html.text("h1") == "Nothing found for qwxzqwxz"
    assert answer.html.texts("main ul li")


async def test_page_behind_the_end_says_so(searcher: Searches) -> None:
    answer = await ask(app_of(searcher), f"/?q={WORD}&page=100")
    assert (answer.status, answer.html.text("h1")) == (200, f"No more pages for {WORD}")


@pytest.mark.parametrize(
    "words",
    ['"', '""', '"open', "((", ")", "site:", "title:", "-", "- -", "*", "a AND OR NOT", ":", "\\", "a^", "~",
     "[a TO", "' OR 1=1 --", "<script>alert(1)</script>", "\x00", "a\x00b", "\u202e", "😀", "日本語", "%",
     "+", "/a/", "{", "!", "x" * 500, "a " * 250, "-a -b", "site:nowhere.test", "x:y", "a\nb\tc"],
    ids=lambda words: ascii(words)[:20],
)  # fmt: skip
async def test_no_words_break_it(searcher: Searches, words: str) -> None:
    app = app_of(searcher)
    page = await ask(app, f"/?q={quote(words)}")
    assert page.status == 200
    assert not page.html.texts("script")
    assert (await ask(app, f"/api/search?q={quote(words)}")).status in ({200} if words.strip("\0") else {400})


async def test_bytes_that_are_no_letters_are_searched_as_such(searcher: Searches) -> None:
    assert (await ask(app_of(searcher), "/?q=%ff%fe%ed%a0%80")).status == 200


async def test_health_tells_how_much_there_is(searcher: Searches) -> None:
    answer = await ask(app_of(searcher), "/healthz")
    assert (answer.status, answer.json) == (200, {"status": "ok", "pages": searcher.page_count()})


async def test_files_of_the_page_keep_for_ever(searcher: Searches) -> None:
    app = app_of(searcher)
    page = (await ask(app, "/")).html
    assert page.value('link[rel="stylesheet"]', "href") == STYLE.path
    for asset in (STYLE, ICON):
        answer = await ask(app, asset.path)
        assert (answer.status, answer.body) == (200, asset.content)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["content-type"] == asset.media_type


async def test_crawlers_are_asked_to_stay_away(searcher: Searches) -> None:
    assert (await ask(app_of(searcher), "/robots.txt")).body == b"User-agent: *\nDisallow: /\n"
