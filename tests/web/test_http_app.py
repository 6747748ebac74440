"""The app behind every page: what it refuses, to whom, and what every answer forbids the browser."""

import pytest
from tests.web.asgi import ask

from sterna.web.http_app import App, HttpError, HttpRequest, HttpResponse, Message

POLICY = "style-src 'self'"


async def show(request: HttpRequest) -> HttpResponse:
    return HttpResponse(body=f"<p>{request.query}".encode())


async def fail(request: HttpRequest) -> HttpResponse:
    raise ZeroDivisionError("/secret")


async def refuse(request: HttpRequest) -> HttpResponse:
    raise HttpError(503, "Later.", (("retry-after", "5"),))


def app(*, is_local: bool = True) -> App:
    return App({"/": show, "/fail": fail, "/refuse": refuse}, policy=POLICY, is_local=is_local)


@pytest.mark.parametrize("path", ["/nothing", "//", "/fail/", "", "http://localhost/"])
async def test_what_is_not_there_is_not_found(path: str) -> None:
    assert (await ask(app(), path)).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "NONSENSE"])
async def test_one_can_only_read(method: str) -> None:
    reply = await ask(app(), "/", method=method)
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


async def test_head_is_get_without_its_body() -> None:
    get, head = await ask(app(), "/?q=a"), await ask(app(), "/?q=a", method="HEAD")
    assert (head.status, head.headers, head.body) == (200, get.headers, b"")
    assert int(head.headers["content-length"]) == len(get.body)


async def test_of_a_parameter_that_comes_twice_the_last_counts() -> None:
    assert (await ask(app(), "/?q=a&q=%FFb&page=")).body == "<p>{'q': '\ufffdb', 'page': ''}".encode()


async def test_error_of_a_handler_is_shown_with_its_headers() -> None:
    reply = await ask(app(), "/refuse")
    assert (reply.status, reply.body, reply.headers["retry-after"]) == (503, b"Later.\n", "5")


async def test_exception_is_a_page_that_tells_nothing() -> None:
    sent: list[Message] = []
    with pytest.raises(ZeroDivisionError):  # for the server's log; the answer went out before
        await ask(app(), "/fail", sent=sent)
    assert sent[0]["status"] == 500
    assert "/secret" not in str(sent)


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8600", "LOCALHOST", "127.0.0.1:8600", "127.1.2.3", "[::1]:8600", "[::1]"]
)
async def test_own_names_are_answered(host: str) -> None:
    assert (await ask(app(), "/", hosts=(host,))).status == 200


@pytest.mark.parametrize(
    "hosts",
    [
        ("evil.test",),
        ("localhost.evil.test",),
        ("127.0.0.1.evil.test:80",),
        ("192.0.2.1",),
        ("",),
        (),
        ("[::2]",),
        ("localhost", "a.test"),
    ],
)
@pytest.mark.parametrize("path", ["/", "/nothing", "/fail"])
async def test_foreign_names_are_refused_on_loopback(hosts: tuple[str, ...], path: str) -> None:
    assert (await ask(app(), path, hosts=hosts)).status == 403


async def test_any_name_will_do_elsewhere() -> None:
    assert (await ask(app(is_local=False), "/", hosts=("search.example.org",))).status == 200


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
    assert (await ask(app(is_local=False), "/", more=more)).status == status


@pytest.mark.parametrize("target", ["/", "/nothing", "/refuse"])
@pytest.mark.parametrize("hosts", [("localhost",), ("evil.test",)])
async def test_every_answer_forbids_all_but_what_the_page_needs(target: str, hosts: tuple[str, ...]) -> None:
    headers = (await ask(app(), target, hosts=hosts)).headers
    assert headers["content-security-policy"] == (
        f"default-src 'none'; {POLICY}; base-uri 'none'; frame-ancestors 'none'"
    )
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
