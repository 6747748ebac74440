"""Visits in virtual time, on a web that answers by script."""

import asyncio
from array import array
from itertools import pairwise

import pytest
from tests.runtime.fakes import (
    ADDRESS,
    BEGIN,
    SITE,
    FakeWeb,
    Home,
    Outcome,
    Script,
    Step,
    carry_out,
    linking,
    make_kit,
    polite,
    reply,
    rules,
    run,
    visit_of,
)

from sterna.errors import FetchError, ReadError, StorageError
from sterna.model import (
    Budget,
    Crawler,
    Ended,
    Hold,
    Known,
    Program,
    Robots,
    RobotsState,
    Scope,
    Target,
    Validator,
)
from sterna.runtime import packer, visit
from sterna.runtime.handler import (
    BUSY_SECONDS,
    FAILING_PAUSE_SECONDS,
    MAX_BUSY_TRIES,
    MAX_FAILURES_IN_A_ROW,
    MAX_REDIRECTS,
    MAX_TRIES,
)
from sterna.runtime.runtime import Runtime
from sterna.runtime.visit import STOP_GRACE_SECONDS
from sterna.web.politeness import Limits, Rate, site_key
from sterna.web.urls import fingerprint

KNOWN_RULES = Robots(RobotsState.QUALIFIED, tried_at=BEGIN)  # so that robots.txt is not asked for
SOON = 1.0


def hub(count: int) -> Script:
    """A start page with so many links, and the pages they lead to."""
    paths = [f"/{n}" for n in range(count)]
    return {"/": linking(*paths), **{path: linking() for path in paths}}


def gaps(web: FakeWeb) -> list[float]:
    return [round(after.time - before.time, 3) for before, after in pairwise(web.log)]


def holds_of(outcome: Outcome) -> dict[str, float]:
    """The site's hold as the parcels tell it, in seconds from the beginning."""
    holds = [hold for parcel in outcome.parcels for hold in parcel.holds if hold.key == site_key(SITE)]
    return {hold.key: round(hold.until - BEGIN, 3) for hold in holds}


# Which URL next


def test_visit_goes_through_a_site_and_tells_what_it_found() -> None:
    web = FakeWeb({"/": linking("/a", "https://b.test/"), "/a": linking("/", "/b"), "/b": reply(404)})
    outcome = carry_out(visit_of(crawler=Crawler(scope=Scope(stay="any"))), web)
    assert outcome.pages == {"/": (200, ""), "/a": (200, ""), "/b": (404, "")}
    assert outcome.found == ["/a", "/b"]
    assert [link.url for parcel in outcome.parcels for link in parcel.outlinks] == ["https://b.test/"]
    assert (outcome.last.ended, outcome.errors) == (Ended.FINISHED, {"http_404": 1})
    assert sum(parcel.usage.requests for parcel in outcome.parcels) == len(web.log) == 4


@pytest.mark.parametrize("connections", [1, 3, 8])
def test_no_page_is_asked_for_before_all_those_above_it(connections: int) -> None:
    tree = {"/": linking("/a", "/b", "/c"), "/a": linking("/a/a"), "/b": linking("/b/a", "/b/b")}
    deeper = {"/b/a": linking("/b/a/a"), "/c": linking("/c/a")}
    seconds = {"/a": 9.0, "/b": 1.0, "/c": 5.0, "/b/a": 2.0, "/b/b": 7.0}
    web = FakeWeb({**tree, **deeper}, seconds=seconds)
    outcome = carry_out(visit_of(etiquette=polite(connections=connections)), web)
    depths = [0 if path == "/" else path.count("/") for path in web.paths()]
    assert depths == sorted(depths) == [0, 1, 1, 1, 2, 2, 2, 2, 3]
    pages = [page for parcel in outcome.parcels for page in parcel.pages]
    assert {page.url: page.depth for page in pages}[f"{SITE}/b/a/a"] == 3
    assert web.most_at_once == min(connections, 4)


def test_what_lies_too_deep_is_told_and_not_fetched() -> None:
    web = FakeWeb({"/": linking("/a"), "/a": linking("/b"), "/b": linking("/c")})
    outcome = carry_out(visit_of(budget=Budget(depth=1)), web)
    assert web.paths() == ["/", "/a"]
    assert outcome.found == ["/a", "/b"]


def test_what_home_knows_is_not_fetched() -> None:
    known = array("q", sorted(fingerprint(f"{SITE}/{n}") for n in range(3))).tobytes()
    web = FakeWeb(hub(5))
    outcome = carry_out(visit_of(known=Known(known)), web)
    assert web.paths() == ["/", "/3", "/4"]
    assert outcome.found == ["/3", "/4"]


def test_pages_of_a_sitemap_are_found() -> None:
    web = FakeWeb(
        {
            "/robots.txt": rules(f"Sitemap: {SITE}/map.xml\n"),
            "/map.xml": reply(body=f"<urlset><url><loc>{SITE}/only</loc></url></urlset>"),
            "/": linking(),
            "/only": linking(),
        }
    )
    outcome = carry_out(visit_of(), web)
    assert outcome.pages == {"/": (200, ""), "/only": (200, "")}
    done = [mark for parcel in outcome.parcels for mark in parcel.checkpoint.done]
    assert done == [fingerprint(f"{SITE}/map.xml")]


# Budgets


@pytest.mark.parametrize("connections", [1, 4, 50])
def test_page_budget_is_exact_and_nothing_is_fetched_in_vain(connections: int) -> None:
    web = FakeWeb(hub(30), seconds=1.0)
    outcome = carry_out(visit_of(budget=Budget(pages=7), etiquette=polite(connections=connections)), web)
    assert outcome.page_count == len(web.paths()) == 7
    assert outcome.last.ended is Ended.BUDGET
    assert len(outcome.found) == 30


def test_page_budget_counts_good_pages_only() -> None:
    script = hub(30) | {f"/{n}": reply(404) for n in range(0, 30, 2)} | {"/1": reply(302, location="/3")}
    web = FakeWeb(script)
    outcome = carry_out(visit_of(budget=Budget(pages=5), etiquette=polite(connections=4)), web)
    assert (outcome.page_count, outcome.last.ended) == (5, Ended.BUDGET)
    assert outcome.errors["http_404"] >= 3


def test_page_budget_of_a_whole_site_is_enough() -> None:
    outcome = carry_out(visit_of(budget=Budget(pages=11)), FakeWeb(hub(10)))
    assert outcome.page_count == 11
    assert outcome.last.ended in (Ended.BUDGET, Ended.FINISHED)


def test_time_budget_ends_a_visit_between_two_pages() -> None:
    web = FakeWeb(hub(30), seconds=10.0)
    outcome = carry_out(visit_of(budget=Budget(seconds=35.0), robots=KNOWN_RULES), web)
    assert (outcome.page_count, outcome.last.ended) == (4, Ended.BUDGET)
    assert 35.0 <= outcome.seconds <= 40.0 + SOON


def test_time_budget_ends_a_visit_that_waits_for_a_rate() -> None:
    web = FakeWeb({"/": reply(body=b"x" * 10_000), "/b": linking()})
    limits = Limits(address=Rate(bytes=1.0), domain=Rate())
    visit = visit_of("/", "/b", budget=Budget(seconds=100.0), robots=KNOWN_RULES)
    outcome = carry_out(visit, web, limits=limits)
    assert (web.paths(), outcome.last.ended) == (["/"], Ended.BUDGET)
    assert 100.0 <= outcome.seconds <= 100.0 + SOON


def test_visit_does_not_wait_for_a_delay_beyond_its_patience() -> None:
    web = FakeWeb({**hub(3), "/robots.txt": rules("User-agent: *\nCrawl-delay: 50\n")})
    outcome = carry_out(visit_of(budget=Budget(patience_seconds=49.0)), web)
    assert (outcome.page_count, outcome.last.ended) == (1, Ended.BUDGET)
    assert outcome.seconds <= SOON
    assert holds_of(outcome) == {site_key(SITE): 50.0}
    patient = carry_out(visit_of(budget=Budget(patience_seconds=50.0)), web)
    assert (patient.page_count, patient.last.ended) == (4, Ended.FINISHED)


def test_time_budget_ends_a_visit_that_waits_to_try_again() -> None:
    web = FakeWeb({"/": reply(503, retry_after="30")})
    outcome = carry_out(visit_of(budget=Budget(seconds=10.0)), web)
    assert outcome.last.ended is Ended.BUDGET
    assert 10.0 <= outcome.seconds <= 10.0 + SOON
    assert [target.url for target in outcome.last.checkpoint.again] == [f"{SITE}/"]


def test_time_budget_leaves_a_transfer_its_own_time_and_no_more() -> None:
    web = FakeWeb({"/": linking("/a"), "/a": linking()}, seconds={"/a": 1e6})
    outcome = carry_out(visit_of(budget=Budget(seconds=10.0)), web)
    assert (outcome.page_count, outcome.last.ended) == (1, Ended.BUDGET)
    assert outcome.seconds <= 10.0 + 60.0 + SOON


def test_url_budget_ends_a_visit_and_all_that_was_found_is_told() -> None:
    web = FakeWeb(hub(100))
    outcome = carry_out(visit_of(budget=Budget(urls=50)), web)
    assert (web.paths(), outcome.last.ended) == (["/"], Ended.BUDGET)
    assert len(outcome.found) == 100


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


@pytest.mark.parametrize("kind", ["tls", "protocol", "too_large"])
def test_failure_that_stays_is_told_at_once(kind: str) -> None:
    web = FakeWeb({"/": FetchError(kind), "/b": linking()})
    outcome = carry_out(visit_of("/", "/b", robots=KNOWN_RULES), web)
    assert web.paths() == ["/", "/b"]
    assert outcome.pages == {"/": (0, kind), "/b": (200, "")}


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


# Manners


def test_disallowed_pages_are_counted_and_never_asked_for() -> None:
    web = FakeWeb({**hub(3), "/robots.txt": rules("User-agent: *\nDisallow: /1\nDisallow: /start\n")})
    outcome = carry_out(visit_of("/", "/start"), web)
    assert sorted(web.paths()) == ["/", "/0", "/2"]
    assert outcome.errors == {"robots": 2}
    assert {path for path, page in outcome.pages.items() if page == (0, "robots")} == {"/1", "/start"}


def test_rules_are_home_before_any_page_is_asked_for() -> None:
    web = FakeWeb({**hub(1), "/robots.txt": rules("User-agent: *\nCrawl-delay: 2\n")})
    home = Home(seconds=5.0)
    outcome = carry_out(visit_of(), web, home=home)
    first = outcome.parcels[0]
    assert first.robots and first.robots.state is RobotsState.QUALIFIED
    assert first.delay_seconds == 2.0
    assert web.times("/") == [5.0]


def test_robots_txt_that_is_known_is_not_asked_for_again() -> None:
    web = FakeWeb(hub(3))
    known = Robots(RobotsState.QUALIFIED, tried_at=BEGIN - 3600, rules=b"User-agent: *\nDisallow: /1\n")
    outcome = carry_out(visit_of(robots=known), web)
    assert [sent.path for sent in web.log] == ["/", "/0", "/2"]
    assert outcome.last.robots is None


def test_robots_txt_is_not_asked_for_by_who_may_ignore_it() -> None:
    web = FakeWeb({**hub(1), "/robots.txt": rules("User-agent: *\nDisallow: /\n")})
    outcome = carry_out(visit_of(etiquette=polite(obey_robots=False)), web)
    assert [sent.path for sent in web.log] == ["/", "/0"]
    assert outcome.page_count == 2


def test_site_without_a_readable_robots_txt_is_left_alone() -> None:
    web = FakeWeb({**hub(1), "/robots.txt": reply(503)})
    outcome = carry_out(visit_of(), web)
    assert {sent.path for sent in web.log} == {"/robots.txt"}
    assert outcome.last.ended is Ended.DISQUALIFIED
    assert outcome.last.robots and outcome.last.robots.failures == 1


def test_private_address_is_refused_and_never_asked() -> None:
    web = FakeWeb(hub(1))
    outcome = carry_out(visit_of(), web, names={"a.test": ("10.0.0.1", "fe80::1")})
    assert (web.log, outcome.last.ended) == ([], Ended.REFUSED)
    assert outcome.errors == {"private_address": 1}


def test_private_address_among_public_ones_is_left_out() -> None:
    web = FakeWeb(hub(1))
    carry_out(visit_of(), web, names={"a.test": ("10.0.0.1", ADDRESS)})
    assert {sent.request.address for sent in web.log} == {ADDRESS}


def test_private_address_that_was_named_is_visited() -> None:
    web = FakeWeb(hub(1))
    outcome = carry_out(visit_of(may_be_private=True), web, names={"a.test": ("10.0.0.1",)})
    assert outcome.page_count == 2


def test_crawl_delay_is_kept_from_answer_to_request() -> None:
    script: Script = {**hub(4), "/robots.txt": rules("User-agent: *\nCrawl-delay: 7\n")}
    web = FakeWeb(script, seconds=0.5)
    carry_out(visit_of(), web)
    assert gaps(web)[1:] == [7.5] * 4


def test_delay_is_kept_whatever_the_number_of_connections() -> None:
    web = FakeWeb(hub(6), seconds=0.5)
    carry_out(visit_of(etiquette=polite(delay_seconds=3.0, connections=4)), web)
    assert min(gaps(web)) >= 3.0


def test_slow_answer_is_followed_by_a_multiple_of_its_time() -> None:
    slow = reply(body="<a href=/a>")
    slow = type(slow)(**{name: getattr(slow, name) for name in slow.__struct_fields__} | {"seconds": 2.0})
    web = FakeWeb({"/": slow, "/a": linking()}, seconds={"/": 2.0})
    etiquette = polite(delay_seconds=1.0, response_factor=5.0)
    carry_out(visit_of(robots=KNOWN_RULES, etiquette=etiquette), web)
    assert web.times("/a") == [12.0]


def test_rate_of_an_address_holds_for_all_connections() -> None:
    web = FakeWeb(hub(10))
    limits = Limits(address=Rate(requests=2.0), domain=Rate())
    carry_out(visit_of(etiquette=polite(connections=5)), web, limits=limits)
    assert min(gaps(web)) >= 0.5


def test_no_more_connections_are_open_than_the_runtime_has() -> None:
    web = FakeWeb(hub(20), seconds=1.0)
    carry_out(visit_of(etiquette=polite(connections=8)), web, connections=3)
    assert web.most_at_once == 3


def test_headers_name_the_crawler_and_its_sender() -> None:
    web = FakeWeb(hub(0))
    carry_out(visit_of(etiquette=polite(user_agent="Sterna/1", sender="me@a.test")), web)
    for sent in web.log:
        headers = dict(sent.request.headers)
        assert (headers["User-Agent"], headers["From"]) == ("Sterna/1", "me@a.test")


def test_known_page_is_asked_for_only_if_it_changed() -> None:
    marks = {path: fingerprint(SITE + path) for path in ("/etag", "/date", "/both", "/new")}
    validators = (
        Validator(marks["/etag"], etag='"e"', digest=b"d"),
        Validator(marks["/date"], modified="Thu, 01 Jan 1970 00:00:00 GMT"),
        Validator(marks["/both"], etag='"b"', modified="Thu, 01 Jan 1970 00:00:00 GMT"),
    )
    web = FakeWeb({**dict.fromkeys(marks, reply(304)), "/both": linking(), "/new": linking()})
    outcome = carry_out(visit_of(*marks, known=Known(validators=validators), robots=KNOWN_RULES), web)
    conditions = {
        sent.path: {name for name, _ in sent.request.headers if name.startswith("If-")} for sent in web.log
    }
    assert conditions == {
        "/etag": {"If-None-Match"},
        "/date": {"If-Modified-Since"},
        "/both": {"If-None-Match", "If-Modified-Since"},
        "/new": set(),
    }
    pages = {page.url.removeprefix(SITE): page for page in outcome.last.pages}
    assert {path for path, page in pages.items() if page.is_unchanged} == {"/etag", "/date"}
    assert pages["/etag"].digest == b"d"
    assert (outcome.last.usage.unchanged, outcome.page_count) == (2, 4)


def texts(changed: int) -> str:
    return " ".join(f"new{n}" if n < changed else f"word{n}" for n in range(500))


def test_known_page_that_changed_by_less_than_matters_counts_as_unchanged() -> None:
    crawler = Crawler(program=Program(least_change=0.3))
    web = FakeWeb({"/a": reply(body=texts(0)), "/b": reply(body=texts(0))})
    first = carry_out(visit_of("/a", "/b", robots=KNOWN_RULES, crawler=crawler), web)
    before = {page.url: page for page in first.last.pages}
    validators = tuple(
        Validator(page.fingerprint, digest=page.digest[:5], likeness=page.likeness)
        for page in before.values()
    )
    web = FakeWeb({"/a": reply(body=texts(20)), "/b": reply(body=texts(400))})
    known = Known(validators=validators)
    second = carry_out(visit_of("/a", "/b", robots=KNOWN_RULES, crawler=crawler, known=known), web)
    after = {page.url.removeprefix(SITE): page for page in second.last.pages}
    assert {path for path, page in after.items() if page.is_unchanged} == {"/a"}
    assert second.last.usage.unchanged == 1
    assert after["/b"].likeness != before[f"{SITE}/b"].likeness


def test_response_of_a_page_that_is_only_alike_is_not_archived_as_the_same() -> None:
    crawler = Crawler(program=Program(least_change=0.3), keeps_raw=True)
    first = carry_out(visit_of("/a", crawler=crawler), FakeWeb({"/a": reply(body=texts(0))})).last.pages[0]
    known = Validator(first.fingerprint, digest=first.digest, has_raw=True, likeness=first.likeness)
    visit = visit_of("/a", crawler=crawler, known=Known(validators=(known,)))
    same = carry_out(visit, FakeWeb({"/a": reply(body=texts(0))})).last.pages[0]
    alike = carry_out(visit, FakeWeb({"/a": reply(body=texts(20))})).last.pages[0]
    assert (same.is_unchanged, same.raw is not None) == (True, True)
    assert (alike.is_unchanged, alike.raw) == (True, None)


# Parcels


def numbers(outcome: Outcome) -> list[int]:
    return [parcel.number for parcel in outcome.parcels]


def check_parcels(outcome: Outcome) -> None:
    assert numbers(outcome) == list(range(1, len(outcome.parcels) + 1))
    assert [parcel.ended is not None for parcel in outcome.parcels] == [
        *([False] * (len(outcome.parcels) - 1)),
        True,
    ]


def test_parcels_come_as_they_fill_numbered_without_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packer, "FULL_PAGES", 7)
    outcome = carry_out(visit_of(etiquette=polite(connections=5)), FakeWeb(hub(60), seconds=0.1))
    check_parcels(outcome)
    assert len(outcome.parcels) >= 6
    assert max(len(parcel.pages) for parcel in outcome.parcels) < 7 + 5
    urls = [page.url for parcel in outcome.parcels for page in parcel.pages]
    assert len(urls) == len(set(urls)) == 61


@pytest.mark.parametrize("take_seconds", [0.0, 3.0, 13.0])
@pytest.mark.parametrize("page_seconds", [0.5, 2.5])
def test_no_parcel_is_lost_however_slowly_home_takes_them(take_seconds: float, page_seconds: float) -> None:
    """Parcels are also sent every few seconds; the visit may end while one of those is on its way."""
    home = Home(seconds=take_seconds)
    web = FakeWeb(hub(12), seconds=page_seconds)
    outcome = carry_out(visit_of(etiquette=polite(connections=2)), web, home=home)
    check_parcels(outcome)
    assert outcome.page_count == 13
    assert len(outcome.found) == 12


@pytest.mark.parametrize("stop_after", [10.0, 34.0, 65.0])
def test_parcel_on_its_way_survives_the_stop(monkeypatch: pytest.MonkeyPatch, stop_after: float) -> None:
    """The first one has the rules, the others have pages; each takes half a minute."""
    monkeypatch.setattr(packer, "FULL_PAGES", 3)
    web = FakeWeb(hub(20), seconds=1.0)
    outcome = carry_out(visit_of(), web, home=Home(seconds=30.0), stop_after=stop_after)
    check_parcels(outcome)
    assert outcome.last.ended is Ended.STOPPED
    assert len(outcome.pages) == len(web.paths())


def test_what_is_found_is_told_every_few_seconds() -> None:
    web = FakeWeb(hub(20), seconds=2.0)
    outcome = carry_out(visit_of(robots=KNOWN_RULES), web)
    pages = [len(parcel.pages) for parcel in outcome.parcels]
    assert max(pages) <= visit.FLUSH_SECONDS / 2.0 + 1
    check_parcels(outcome)


def test_holds_reach_home_although_no_page_comes() -> None:
    web = FakeWeb({"/": [reply(503, retry_after="25"), linking()]})
    outcome = carry_out(visit_of(robots=KNOWN_RULES), web)
    first = outcome.parcels[0]
    assert (first.pages, first.ended) == ((), None)
    assert Hold(site_key(SITE), BEGIN + 25.0) in first.holds
    assert [target.attempts for target in first.checkpoint.again] == [1]


@pytest.mark.parametrize("pages_in_parcel", [1, 500])
@pytest.mark.parametrize("page_seconds", [0.0, 1.0])
def test_home_that_cannot_store_ends_the_visit_with_its_error(
    monkeypatch: pytest.MonkeyPatch, pages_in_parcel: int, page_seconds: float
) -> None:
    monkeypatch.setattr(packer, "FULL_PAGES", pages_in_parcel)
    home = Home(failure=StorageError("the disk is full"))
    web = FakeWeb(hub(20), seconds=page_seconds)
    with pytest.raises(StorageError, match="the disk is full"):
        carry_out(visit_of(robots=KNOWN_RULES, etiquette=polite(connections=3)), web, home=home)


# The end


def test_stop_ends_a_visit_that_waits_for_a_long_delay_within_moments() -> None:
    web = FakeWeb({**hub(5), "/robots.txt": rules("User-agent: *\nCrawl-delay: 500\n")})
    patient = Budget(patience_seconds=1000.0)
    outcome = carry_out(visit_of(etiquette=polite(connections=3), budget=patient), web, stop_after=100.0)
    assert outcome.last.ended is Ended.STOPPED
    assert 100.0 <= outcome.seconds <= 100.0 + SOON
    assert outcome.page_count == 1


def test_stop_ends_a_visit_that_waits_to_try_again_within_moments() -> None:
    web = FakeWeb({"/": reply(503, retry_after="30")})
    outcome = carry_out(visit_of(), web, stop_after=10.0)
    assert (outcome.last.ended, outcome.seconds <= 10.0 + SOON) == (Ended.STOPPED, True)
    assert [target.url for target in outcome.last.checkpoint.again] == [f"{SITE}/"]


def test_stop_lets_a_transfer_end_that_ends_soon() -> None:
    web = FakeWeb(hub(5), seconds=2.0)
    outcome = carry_out(visit_of(robots=KNOWN_RULES), web, stop_after=3.0)
    assert (outcome.page_count, outcome.last.ended) == (2, Ended.STOPPED)


def test_stop_does_not_wait_for_a_transfer_that_takes_long() -> None:
    web = FakeWeb(hub(5), seconds={"/0": 50.0})
    outcome = carry_out(visit_of(robots=KNOWN_RULES), web, stop_after=3.0)
    assert outcome.last.ended is Ended.STOPPED
    assert outcome.seconds <= 3.0 + STOP_GRACE_SECONDS + SOON
    assert "/0" not in outcome.pages


def test_stop_ends_a_visit_that_asks_for_robots_txt() -> None:
    web = FakeWeb({"/robots.txt": rules("")}, seconds=50.0)
    outcome = carry_out(visit_of(), web, stop_after=3.0)
    assert (outcome.last.ended, outcome.seconds) == (Ended.STOPPED, 3.0)
    assert outcome.last.robots is None


def test_stop_that_came_before_the_visit_ends_it_at_once() -> None:
    web = FakeWeb(hub(5), seconds=1.0)
    outcome = carry_out(visit_of(robots=KNOWN_RULES), web, stop_after=0.0)
    assert (outcome.last.ended, outcome.seconds <= 1.0 + SOON) == (Ended.STOPPED, True)


@pytest.mark.parametrize("after", [0.5, 3.5, 7.5])
def test_cancelled_visit_leaves_nothing_under_way(after: float) -> None:
    """In turn while it asks for robots.txt, while it hands over the rules, while it fetches pages."""
    web = FakeWeb({**hub(9), "/robots.txt": rules("")}, seconds=3.0)

    async def main() -> None:
        kit = make_kit(web)
        carrying = asyncio.create_task(
            Runtime(kit).carry_out(
                visit_of(etiquette=polite(connections=3)),
                deliver=Home(seconds=1.0).take,
                stop=asyncio.Event(),
            )
        )
        await asyncio.sleep(after)
        carrying.cancel()
        await asyncio.wait({carrying})
        assert carrying.cancelled()

    run(main())  # fails if a task is left


def test_visit_does_not_poll_while_it_may_take_nothing() -> None:
    """A page that is due again and one that lies deeper wait for the slow one of the level above."""
    script: Script = {
        "/": linking("/slow", "/again", "/b"),
        "/slow": linking(),
        "/again": [reply(500), linking()],
        "/b": linking("/b/deeper"),
        "/b/deeper": linking(),
    }
    web = FakeWeb(script, seconds={"/slow": 50.0})
    outcome = carry_out(visit_of(robots=KNOWN_RULES, etiquette=polite(connections=4)), web)
    assert outcome.page_count == 5
    assert outcome.turns < 500
