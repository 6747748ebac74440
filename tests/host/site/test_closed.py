"""Pages for the machine itself stay closed in every spelling, and pages of the site stay open."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.host.site.closed import LOCAL_PAGES, LOCAL_WORDS, Closed

SITE = "https://www.example.org"
CLOSED = Closed(("/internal/", "/drafts", "/Übersicht"))


@pytest.mark.parametrize(
    "path",
    [
        *LOCAL_PAGES,
        *LOCAL_WORDS,
        "/server-status?auto",
        "/server-status?refresh=5#top",
        "/server-status/",
        "/server-status/path/info",
        "/server-statusx",  # a `location` of nginx is a prefix
        "/SERVER-STATUS",
        "/Server-Status",
        "/%73erver-status",
        "/server%2dstatus",
        "/server%2Dstatus",
        "/%2573erver-status",
        "//server-status",
        "///server-status//",
        "/%2fserver-status",
        "/%2F%2Fserver-status",
        "/./server-status",
        "/a/../server-status",
        "/a/%2e%2e/server-status",
        "/a%2f..%2fserver-status",
        "/a//../server-status",
        "/a/b/..//../server-status",
        "/../server-status",
        "/a;b/../server-status",
        "/..;/server-status",
        "/server-status;jsessionid=1",
        "/\\server-status",
        "/a\\..\\server-status",
        "/a%5c..%5cserver-status",
        "/a%3Fb%2f..%2fserver-status",
        "/server-status%3Fauto",
        "/server-status%00",
        "/server-status%20",
        "/status/",
        "/status?full&json",
        "//status",
        "/s%74atus",
        "/haproxy?stats",
    ],
)
def test_local_page_is_closed(path: str) -> None:
    assert SITE + path in CLOSED


@pytest.mark.parametrize(
    "path",
    [
        "/", "", "/index.html", "/server", "/docs/server-status.html", "/status/2026", "/statuses",
        "/ping-pong", "/manager/", "/munich",
        "/rails/", "/a?x=/server-status", "/a?../server-status", "/a#/server-status",
        "/internals", "/draft", "/a/internal/x", "/%zz", "/%", "/a%2Fserver-status",
    ],
)  # fmt: skip
def test_page_of_the_site_is_open(path: str) -> None:
    assert SITE + path not in CLOSED


@pytest.mark.parametrize(
    "path",
    [
        "/internal", "/internal/", "/internal/x.html", "/INTERNAL/x", "//internal/x", "/%69nternal/x",
        "/x/../internal/", "/drafts", "/drafts/1", "/drafts.html", "/%C3%9Cbersicht/x", "/%c3%9cbersicht",
    ],
)  # fmt: skip
def test_owner_closes_more(path: str) -> None:
    assert SITE + path in CLOSED
    assert SITE + path not in Closed()


def test_owner_may_close_all() -> None:
    assert f"{SITE}/" in Closed(("/",))
    assert f"{SITE}/any/page.html" in Closed(("/",))


@st.composite
def spellings(draw: st.DrawFn) -> str:
    """A local page, written in a way that some server takes for it."""
    path = ""
    for letter in draw(st.sampled_from(LOCAL_PAGES)).removeprefix("/"):
        ways = [letter, letter.upper(), f"%{ord(letter):02x}", f"%{ord(letter):02X}", f"%25{ord(letter):02x}"]
        if letter == "/":
            ways = ["/", "//", "/./", "/x/../", "%2f"]
        path += draw(st.sampled_from(ways))
    before = draw(st.sampled_from(["/", "//", "/./", "/a/../", "/a/b/../../", "/%2e/", "/a/%2E%2e/"]))
    behind = draw(st.sampled_from(["", "/", "//", "/info", "?auto", ";a=b", "/;a", "%00", "%3f"]))
    return before + path + behind


@given(spellings())
def test_any_spelling_is_closed(path: str) -> None:
    assert SITE + path in Closed()


@given(st.text())
def test_any_text_is_judged(path: str) -> None:
    assert isinstance(f"{SITE}/{path}" in CLOSED, bool)
