"""What the page refuses: too much, too slow, from elsewhere; and what every answer forbids the browser."""

import asyncio
from urllib.parse import quote

import pytest
from tests.search.page.fakes import BrokenSearcher, FakeSearcher, StuckSearcher, many_pages
from tests.search.page.page_requests import Answer, app_of, ask

from sterna.search.page.api import Bounds

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


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "NONSENSE"])
@pytest.mark.parametrize("path", ["/", "/api/search"])
async def test_one_can_only_read(method: str, path: str) -> None:
    answer = await ask(app_of(FakeSearcher(PAGES)), path, method=method)
    assert answer.status == 405
    assert {each.strip() for each in answer.headers["allow"].split(",")} == {"GET", "HEAD"}


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
    answers: list[Answer] = await asyncio.gather(*tasks)
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
    sent: list[dict[str, object]] = []
    with pytest.raises(ZeroDivisionError):  # for the server's log; the answer went out before
        await ask_into(app, sent)
    assert sent[0]["status"] == 500
    assert b"/secret" not in bytes(str(sent), "utf-8")


async def ask_into(app: object, sent: list[dict[str, object]]) -> None:
    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": b"q=a",
        "headers": [(b"host", b"localhost")],
    }
    await app(scope, receive, send)  # type: ignore[operator]


# -- who may ask, and what the browser is told -------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8600", "LOCALHOST", "127.0.0.1:8600", "127.1.2.3", "[::1]:8600", "[::1]"]
)
async def test_own_names_are_answered(host: str) -> None:
    assert (await ask(app_of(FakeSearcher(PAGES)), "/", hosts=(host,))).status == 200


@pytest.mark.parametrize(
    "hosts",
    [
        ("evil.test",),
        ("localhost.evil.test",),
        ("192.0.2.1",),
        ("",),
        (),
        ("[::2]",),
        ("localhost", "a.test"),
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/search?q=a", "/healthz"])
async def test_foreign_names_are_refused_on_loopback(hosts: tuple[str, ...], path: str) -> None:
    assert (await ask(app_of(FakeSearcher(PAGES)), path, hosts=hosts)).status == 403


async def test_any_name_will_do_elsewhere() -> None:
    app = app_of(FakeSearcher(PAGES), is_local=False)
    assert (await ask(app, "/", hosts=("search.example.org",))).status == 200


@pytest.mark.parametrize(
    ("site", "mode", "dest", "status"),
    [
        ("none", "navigate", "document", 200),  # typed in
        ("same-origin", "no-cors", "style", 200),
        ("cross-site", "navigate", "document", 200),  # a link
        ("cross-site", "navigate", "iframe", 403),
        ("cross-site", "no-cors", "image", 403),
        ("cross-site", "cors", "empty", 403),
        ("same-site", "no-cors", "script", 403),  # another port of this machine
    ],
)
async def test_pages_of_others_may_link_here_and_no_more(
    site: str, mode: str, dest: str, status: int
) -> None:
    more = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
    app = app_of(FakeSearcher(PAGES), is_local=False)
    assert (await ask(app, "/?q=select", more=more)).status == status


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
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
