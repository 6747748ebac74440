"""What the page refuses: too much and too slow; and what every answer forbids the browser."""

import asyncio
from urllib.parse import quote

import pytest
from tests.search.page.fakes import BrokenSearcher, FakeSearcher, StuckSearcher, many_pages
from tests.search.page.page_requests import PageReply, app_of, ask

from sterna.search.page.api import Bounds
from sterna.web.http_app import Message

PAGES = many_pages(3)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("q=" + "x" * 501, "The query has 501 letters; the limit is 500."),
        ("q=" + quote("é" * 501), "the limit is 500"),
        ("q=a&page=0", "page must be a number from 1 to 100."),
        ("q=a&page=101", "page must be a number from 1 to 100."),
        ("q=a&page=-1", "page must be"),
        ("q=a&page=two", "page must be"),
        ("q=a&page=", "page must be"),
        ("q=a&page=%D9%A1", "page must be"),
        ("q=a&page=1e1", "page must be"),
        ("q=a&page=" + "9" * 5000, "page must be"),
    ],
    ids=lambda text: text[:16],
)
async def test_page_out_of_bounds_is_one_clear_sentence(asked: str, said: str) -> None:
    answer = await ask(app_of(FakeSearcher(PAGES)), f"/?{asked}")
    assert answer.status == 400
    assert answer.html.text("h1") == "Bad Request"
    assert said in answer.html.text("main")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("", "q is missing: say what to search for, such as q=tern"),
        ("q=", "q is missing"),
        ("q=" + "x" * 501, "the limit is 500"),
        ("q=a&limit=0", "limit must be a number from 1 to 100."),
        ("q=a&limit=101", "limit must be"),
        ("q=a&offset=1001", "offset must be a number from 0 to 1,000."),
        ("q=a&offset=-1", "offset must be"),
        ("q=a&limit=+5", "limit must be"),
    ],
    ids=lambda text: text[:16],
)
async def test_api_out_of_bounds_is_a_problem(asked: str, said: str) -> None:
    answer = await ask(app_of(FakeSearcher(PAGES)), f"/api/search?{asked}")
    assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")
    assert (answer.json["status"], answer.json["title"], answer.json["type"]) == (
        400,
        "Bad Request",
        "about:blank",
    )
    assert said in answer.json["detail"]


@pytest.mark.parametrize("path", ["/nothing", "/api/", "/api/search/", "//", "/style.css", "/openapi.json/x"])
async def test_what_is_not_there_is_not_found(path: str) -> None:
    answer = await ask(app_of(FakeSearcher(PAGES)), path)
    assert answer.status == 404
    told = answer.json["detail"] if path.startswith(("/api", "/openapi")) else answer.html.text("main")
    assert "There is nothing at this address." in told


# -- slow and many -----------------------------------------------------------------------------------------


async def test_slow_search_is_given_up_with_a_clear_page() -> None:
    stuck = StuckSearcher(PAGES)
    app = app_of(stuck, bounds=Bounds(seconds=0.1))
    try:
        page, api = await ask(app, "/?q=select"), await ask(app, "/api/search?q=select")
    finally:
        stuck.go.set()
    assert (page.status, page.headers["retry-after"]) == (503, "5")
    assert "timed out after 0.1 seconds" in page.html.text("main")
    assert page.html.value("input", "value") == "select"
    assert (api.status, api.headers["content-type"]) == (503, "application/problem+json")


async def test_searches_at_once_are_bounded_and_so_are_those_who_wait() -> None:
    stuck = StuckSearcher(PAGES)
    app = app_of(stuck, bounds=Bounds(searches=2, waiting=3, seconds=20))
    tasks = [asyncio.create_task(ask(app, "/api/search?q=select")) for _ in range(5)]
    for _ in range(2):
        assert await asyncio.to_thread(stuck.begun.acquire, timeout=20)
    refused = await ask(app, "/?q=select")
    assert refused.status == 503
    assert "Too many searches are waiting" in refused.html.text("main")
    assert not stuck.begun.acquire(blocking=False)  # two work, three wait
    stuck.go.set()
    answers: list[PageReply] = await asyncio.gather(*tasks)
    assert [answer.status for answer in answers] == [200] * 5
    assert (await ask(app, "/?q=select")).status == 200


async def test_place_of_a_search_that_was_given_up_stays_taken_until_it_ends() -> None:
    stuck = StuckSearcher(PAGES)
    app = app_of(stuck, bounds=Bounds(searches=1, waiting=5, seconds=0.1))
    assert [(await ask(app, "/?q=select")).status for _ in range(2)] == [503, 503]
    assert stuck.begun.acquire(blocking=False)
    assert not stuck.begun.acquire(blocking=False)  # the second one never began
    stuck.go.set()
    async with asyncio.timeout(20):
        while (await ask(app, "/?q=select")).status != 200:
            continue


async def test_broken_index_is_said_without_the_names_of_files(caplog: pytest.LogCaptureFixture) -> None:
    answer = await ask(app_of(BrokenSearcher(PAGES)), "/?q=select")
    assert answer.status == 503
    assert "cannot be searched now" in answer.html.text("main")
    assert b"/secret" not in answer.body
    assert "/secret/index is broken" in caplog.text


async def test_mistake_of_ours_is_a_page_that_tells_nothing() -> None:
    app = app_of(BrokenSearcher(PAGES, error=ZeroDivisionError("/secret")))
    sent: list[Message] = []
    with pytest.raises(ZeroDivisionError):  # for the server's log; the answer went out before
        await ask(app, "/?q=a", sent=sent)
    assert sent[0]["status"] == 500
    assert "/secret" not in str(sent)


# -- what the browser is told ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target", ["/", "/?q=select", "/?q=a&page=x", "/api/search?q=a", "/nothing", "/healthz"]
)
@pytest.mark.parametrize("hosts", [("localhost",), ("evil.test",)])
async def test_every_answer_forbids_all_but_its_own_style_picture_and_form(
    target: str, hosts: tuple[str, ...]
) -> None:
    headers = (await ask(app_of(FakeSearcher(PAGES)), target, hosts=hosts)).headers
    assert headers["content-security-policy"] == (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none';"
        " frame-ancestors 'none'"
    )
