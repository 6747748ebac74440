"""Visits to sites that ask for pauses, fail, or send elsewhere."""

import msgspec
import pytest
from tests.runtime.fakes import (
    BEGIN,
    SITE,
    FakeWeb,
    Script,
    Step,
    carry_out,
    linking,
    polite,
    reply,
    visit_of,
)
from tests.runtime.hubs import KNOWN_RULES, SOON, holds_of, hub

from sterna.errors import FetchError, ReadError
from sterna.model import (
    Crawler,
    Ended,
    Hold,
    Scope,
    Target,
)
from sterna.runtime.handler import (
    BUSY_SECONDS,
    FAILING_PAUSE_SECONDS,
    MAX_BUSY_TRIES,
    MAX_FAILURES_IN_A_ROW,
    MAX_REDIRECTS,
    MAX_TRIES,
)
from sterna.runtime.notices import Notices, Pause
from sterna.web.politeness import site_key

# Pauses that a site asks for


def test_short_pause_is_waited_for_within_the_visit() -> None:
    web = FakeWeb({**hub(3), "/1": [reply(429, retry_after="20"), linking()]})
    outcome = carry_out(visit_of(robots=KNOWN_RULES, etiquette=polite(delay_seconds=1.0)), web)
    assert [web.times(path) for path in ("/0", "/1", "/2")] == [[1.0], [2.0, 23.0], [22.0]]
    assert (outcome.page_count, outcome.last.ended, outcome.errors) == (4, Ended.FINISHED, {})


def test_pause_holds_all_connections_of_the_visit() -> None:
    web = FakeWeb({**hub(9), "/0": [reply(429, retry_after="20"), linking()]})
    outcome = carry_out(visit_of(robots=KNOWN_RULES, etiquette=polite(connections=3)), web)
    after = [sent.time - BEGIN for sent in web.log if sent.path not in ("/", "/0", "/1", "/2")]
    assert min(after) >= 20.0
    assert outcome.page_count == 10


@pytest.mark.parametrize(
    ("asked", "until"),
    [("31", 31.0), ("3600", 3600.0), ("Fri, 02 Jan 1970 00:00:00 GMT", None), ("9999999999", 86_400.0)],
)
def test_long_pause_ends_the_visit_with_a_hold(asked: str, until: float | None) -> None:
    web = FakeWeb({"/": linking("/a"), "/a": reply(429, retry_after=asked)})
    outcome = carry_out(visit_of(robots=KNOWN_RULES), web)
    if until is None:  # a date that is over asks for nothing
        assert outcome.last.ended is Ended.FINISHED
        return
    assert outcome.last.ended is Ended.BLOCKED
    assert outcome.seconds <= SOON
    assert holds_of(outcome) == {site_key(SITE): until}
    (again,) = outcome.last.checkpoint.again
    assert (again.url, again.attempts, again.not_before - BEGIN) == (f"{SITE}/a", 1, until)
    assert "/a" not in outcome.pages


def test_503_without_a_header_backs_off_ever_longer() -> None:
    web = FakeWeb({"/": [reply(503), reply(503)]})
    outcome = carry_out(visit_of(robots=KNOWN_RULES), web)
    assert web.times("/") == [0.0, BUSY_SECONDS]
    assert outcome.last.ended is Ended.BLOCKED
    assert holds_of(outcome) == {site_key(SITE): BUSY_SECONDS + 2 * BUSY_SECONDS}


def test_users_are_told_why_a_site_waits_and_until_when() -> None:
    notices = Notices()
    carry_out(visit_of(), FakeWeb({"/": [reply(503, retry_after="25"), linking()]}), notices=notices)
    assert notices.waiting(BEGIN) == {SITE: Pause("asked for a pause (HTTP 503)", BEGIN + 25.0)}
    assert notices.waiting(BEGIN + 25.0) == {}
    carry_out(visit_of(), FakeWeb({"/": FetchError("connect")}), notices=(failing := Notices()))
    proxied: Script = {"/robots.txt": FetchError("proxy", "Could not resolve proxy: foo"), "/": linking()}
    carry_out(visit_of(), FakeWeb(proxied), notices=failing)
    (pause,) = failing.pauses.values()
    assert pause.why == "could not be asked (proxy: Could not resolve proxy: foo)"


def test_links_that_the_scope_leaves_out_are_counted_once_each() -> None:
    web = FakeWeb({"/": linking("/a", "/b", "/c", "https://b.test/x"), "/a": linking("/b", "/d")})
    crawler = Crawler(scope=Scope(include=("/a$",)))
    carry_out(visit_of(crawler=crawler), web, notices=(notices := Notices()))
    assert notices.left_out == 3  # /b, /c and /d


def test_503_that_passes_is_a_page() -> None:
    web = FakeWeb({"/": [reply(503), linking()]})
    outcome = carry_out(visit_of(robots=KNOWN_RULES), web)
    assert web.times("/") == [0.0, BUSY_SECONDS]
    assert outcome.pages == {"/": (200, "")}


def test_site_that_is_busy_for_ever_loses_the_page_at_last() -> None:
    web = FakeWeb({"/": reply(429, retry_after="1"), "/b": linking()})
    outcome = carry_out(visit_of("/", "/b", robots=KNOWN_RULES), web)
    assert len(web.times("/")) == MAX_BUSY_TRIES
    assert outcome.pages == {"/": (0, "http_429"), "/b": (200, "")}


def test_hold_of_an_earlier_visit_is_waited_for() -> None:
    web = FakeWeb({"/": linking()})
    holds = (Hold(site_key(SITE), BEGIN + 17.0),)
    carry_out(visit_of(robots=KNOWN_RULES, holds=holds), web)
    assert web.times("/") == [17.0]


# Failures


def test_server_error_is_tried_again_and_then_told() -> None:
    web = FakeWeb({"/": reply(500), "/b": [reply(502), linking()]})
    outcome = carry_out(visit_of("/", "/b", robots=KNOWN_RULES), web)
    assert len(web.times("/")) == MAX_TRIES == 3
    assert web.times("/") == [0.0, 2.0, 6.0]
    assert outcome.pages == {"/": (500, ""), "/b": (200, "")}
    assert outcome.errors == {"http_500": 1}


@pytest.mark.parametrize("kind", ["connect", "timeout", "network", "empty", "truncated", "dns", "proxy"])
def test_failure_that_may_pass_is_tried_again_and_then_told_with_its_kind(kind: str) -> None:
    web = FakeWeb({"/": FetchError(kind), "/b": [FetchError(kind), linking()]})
    outcome = carry_out(visit_of("/", "/b", robots=KNOWN_RULES), web)
    assert web.times("/") == [0.0, 2.0, 6.0]
    assert outcome.pages == {"/": (0, kind), "/b": (200, "")}
    assert outcome.errors == {kind: 1}


@pytest.mark.parametrize("kind", ["tls", "too_large"])
def test_failure_that_stays_is_told_at_once(kind: str) -> None:
    web = FakeWeb({"/": FetchError(kind), "/b": linking()})
    outcome = carry_out(visit_of("/", "/b", robots=KNOWN_RULES), web)
    assert web.paths() == ["/", "/b"]
    assert outcome.pages == {"/": (0, kind), "/b": (200, "")}


def test_answer_that_is_malformed_is_asked_for_once_more_and_read_tolerantly() -> None:
    refused = FetchError("protocol")
    web = FakeWeb({"/": [refused, linking()], "/b": linking(), "/c": refused})
    outcome = carry_out(visit_of("/", "/b", "/c", robots=KNOWN_RULES), web)
    asked = [(sent.path, sent.request.is_tolerant) for sent in web.log]
    # The site's other answers are likely to be so too.
    assert asked == [("/", False), ("/", True), ("/b", True), ("/c", True)]
    assert outcome.pages == {"/": (200, ""), "/b": (200, ""), "/c": (0, "protocol")}


def test_answer_that_is_cut_is_kept_at_the_last_try_and_has_no_validators() -> None:
    cut = msgspec.structs.replace(reply(body="<title>Half</title>half", etag='"x"'), is_cut=True)
    web = FakeWeb({"/": [FetchError("truncated"), FetchError("truncated"), cut]})
    outcome = carry_out(visit_of("/", robots=KNOWN_RULES), web)
    assert [sent.request.is_tolerant for sent in web.log] == [False, False, True]
    (page,) = [page for parcel in outcome.parcels for page in parcel.pages]
    assert (page.title, page.error, page.note, page.etag) == ("Half", "", "cut", "")


def test_site_that_cuts_all_its_answers_is_not_down() -> None:
    paths = [f"/{n}" for n in range(2 * MAX_FAILURES_IN_A_ROW)]
    cut = msgspec.structs.replace(reply(body="half"), is_cut=True)
    web = FakeWeb({path: [FetchError("truncated"), FetchError("truncated"), cut] for path in paths})
    outcome = carry_out(visit_of(*paths, robots=KNOWN_RULES), web)
    assert outcome.pages == dict.fromkeys(paths, (200, ""))


def test_cookie_goes_back_to_its_site_alone_and_into_no_archive() -> None:
    setting = reply(302, location="/", set_cookie="tern=1; Path=/")
    web = FakeWeb({"/": [setting, linking("/b")], "/b": linking()})
    outcome = carry_out(visit_of(robots=KNOWN_RULES, crawler=Crawler(keeps_raw=True)), web)
    assert [(sent.path, dict(sent.request.private).get("Cookie")) for sent in web.log] == [
        ("/", None),
        ("/", "tern=1"),
        ("/b", "tern=1"),
    ]
    assert outcome.pages == {"/": (200, ""), "/b": (200, "")}
    raws = [page.raw for parcel in outcome.parcels for page in parcel.pages if page.raw]
    assert len(raws) == 2 and not any(b"Cookie" in raw.request_head for raw in raws)


def test_refresh_header_leads_on_as_in_browsers() -> None:
    web = FakeWeb({"/": reply(refresh="0; url=/new"), "/new": reply(refresh="30")})
    assert carry_out(visit_of(robots=KNOWN_RULES), web).pages == {"/": (200, ""), "/new": (200, "")}


def test_other_address_is_asked_where_one_takes_no_connection() -> None:
    first, second = "198.41.0.4", "199.9.14.201"
    web = FakeWeb({f"{first} /": FetchError("connect"), f"{second} /": linking()})
    outcome = carry_out(visit_of(robots=KNOWN_RULES), web, names={"a.test": (first, second)})
    assert [sent.request.address for sent in web.log] == [first, second]
    assert outcome.pages == {"/": (200, "")}


@pytest.mark.parametrize("connections", [1, 4])
def test_ten_failures_in_a_row_end_the_visit_and_nothing_is_lost(connections: int) -> None:
    starts = [f"/{n}" for n in range(40)]
    web = FakeWeb(dict.fromkeys(starts, FetchError("timeout")))
    outcome = carry_out(visit_of(*starts, robots=KNOWN_RULES, etiquette=polite(connections=connections)), web)
    assert outcome.last.ended is Ended.FAILING
    assert MAX_FAILURES_IN_A_ROW <= len(web.log) < MAX_FAILURES_IN_A_ROW + connections
    assert holds_of(outcome) == {site_key(SITE): FAILING_PAUSE_SECONDS}
    # All are still in home's frontier: none has a page or is done, and those that were tried are to be again.
    assert (outcome.pages, outcome.last.checkpoint.done) == ({}, ())
    again = {target.url.removeprefix(SITE) for target in outcome.last.checkpoint.again}
    assert again == set(web.paths())


def test_answer_between_failures_starts_the_count_anew() -> None:
    bad = [f"/bad{n}" for n in range(18)]
    starts = [path for n, path in enumerate(bad) for path in ((path, f"/good{n}") if n % 3 == 2 else (path,))]
    web = FakeWeb(
        {**dict.fromkeys(bad, FetchError("timeout")), **{f"/good{n}": linking() for n in range(18)}}
    )
    outcome = carry_out(visit_of(*starts, robots=KNOWN_RULES), web)
    assert {f"/good{n}" for n in range(2, 18, 3)} <= set(outcome.pages)
    assert len(web.log) > MAX_FAILURES_IN_A_ROW


def test_body_that_cannot_be_read_is_told_and_the_visit_goes_on() -> None:
    web = FakeWeb(hub(3))
    outcome = carry_out(visit_of(), web, read_failures={"/1": ReadError("bomb", "too much")})
    assert outcome.pages == {"/": (200, ""), "/0": (200, ""), "/1": (200, "bomb"), "/2": (200, "")}
    assert (outcome.errors, outcome.page_count) == ({"bomb": 1}, 3)


def test_mistake_of_ours_costs_one_page(caplog: pytest.LogCaptureFixture) -> None:
    web = FakeWeb(hub(3))
    outcome = carry_out(visit_of(), web, read_failures={"/1": RuntimeError("a bug")})
    assert outcome.pages == {"/": (200, ""), "/0": (200, ""), "/1": (0, "internal"), "/2": (200, "")}
    assert outcome.last.ended is Ended.FINISHED
    assert f"{SITE}/1" in caplog.text


# Redirects


def test_redirect_is_told_and_followed() -> None:
    web = FakeWeb({"/": reply(301, location="/new"), "/new": linking()})
    outcome = carry_out(visit_of(), web)
    assert outcome.pages == {"/": (301, ""), "/new": (200, "")}
    (page,) = [page for parcel in outcome.parcels for page in parcel.pages if page.status == 301]
    assert [(link.url, link.rel) for link in page.links] == [(f"{SITE}/new", "redirect")]
    assert outcome.last.usage.redirects == 1


def test_chain_of_redirects_ends_at_its_limit() -> None:
    web = FakeWeb({f"/{n}": reply(302, location=f"/{n + 1}") for n in range(30)})
    outcome = carry_out(visit_of("/0"), web)
    assert web.paths() == [f"/{n}" for n in range(MAX_REDIRECTS + 1)]
    assert outcome.pages[f"/{MAX_REDIRECTS}"] == (302, "redirect")
    assert (outcome.errors, outcome.last.ended) == ({"redirect": 1}, Ended.FINISHED)


@pytest.mark.parametrize(
    "script",
    [
        {"/": reply(302, location="/")},
        {"/": reply(302, location="/a"), "/a": reply(302, location="/")},
        {"/": reply(302, location="/a"), "/a": reply(302, location="/b"), "/b": reply(302, location="/a")},
    ],
    ids=["itself", "two", "three"],
)
def test_loop_of_redirects_is_gone_round_once(script: Script) -> None:
    web = FakeWeb(script)
    outcome = carry_out(visit_of(), web)
    assert sorted(web.paths()) == sorted(script)
    assert (outcome.page_count, outcome.last.ended) == (0, Ended.FINISHED)
    assert outcome.errors == {"redirect_loop": 1}


@pytest.mark.parametrize(
    "step",
    [reply(302), reply(302, location=""), reply(302, location="mailto:a@b.test"), reply(300), reply(304)],
    ids=["none", "empty", "mail", "300", "304"],
)
def test_redirect_that_leads_nowhere_is_an_error(step: Step) -> None:
    web = FakeWeb({"/": step})
    outcome = carry_out(visit_of(), web)
    assert outcome.errors == {"redirect": 1}
    assert (len(web.paths()), outcome.page_count) == (1, 0)


def test_location_in_utf_8_is_understood() -> None:
    raw = "/grüße".encode().decode("latin-1")  # as a head is read
    web = FakeWeb({"/": reply(302, location=raw), "/gr%C3%BC%C3%9Fe": linking()})
    assert carry_out(visit_of(), web).pages["/gr%C3%BC%C3%9Fe"] == (200, "")


def test_start_page_that_moved_to_another_site_is_told_to_home() -> None:
    web = FakeWeb({"/": reply(301, location="https://b.test/"), "/a": reply(301, location="https://c.test/")})
    outcome = carry_out(visit_of("/", Target(f"{SITE}/a", depth=1)), web)
    told = [target for parcel in outcome.parcels for target in parcel.outlinks]
    assert [(target.url, target.depth) for target in told] == [("https://b.test/", 0)]
    assert {sent.request.url.split("/")[2] for sent in web.log} == {"a.test"}
