"""The manners of visits: robots.txt, private addresses, delays, and what is asked of a known page."""

from itertools import pairwise

from tests.runtime.fakes import (
    ADDRESS,
    BEGIN,
    SITE,
    FakeWeb,
    Home,
    Script,
    carry_out,
    linking,
    polite,
    reply,
    rules,
    visit_of,
)
from tests.runtime.hubs import KNOWN_RULES, hub

from sterna.model import (
    Budget,
    Crawler,
    Ended,
    Known,
    Program,
    Robots,
    RobotsState,
    RobotsTimes,
    Validator,
)
from sterna.web.politeness import Limits, Rate
from sterna.web.urls import fingerprint


def gaps(web: FakeWeb) -> list[float]:
    return [round(after.time - before.time, 3) for before, after in pairwise(web.log)]


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


def test_proxy_does_not_open_private_networks() -> None:
    web = FakeWeb({**hub(1), "/robots.txt": reply(301, location="http://inside.test/robots.txt")})
    inside, proxy = ("169.254.169.254",), "http://proxy.test"
    carry_out(visit_of(), web, names={"inside.test": inside}, proxy=proxy)
    assert {sent.request.url for sent in web.log} == {f"{SITE}/robots.txt"}
    outcome = carry_out(visit_of(), FakeWeb(hub(1)), names={"a.test": inside}, proxy=proxy)
    assert outcome.errors == {"private_address": 1}


def test_private_address_that_was_named_is_visited() -> None:
    web = FakeWeb(hub(1))
    outcome = carry_out(visit_of(may_be_private=True), web, names={"a.test": ("10.0.0.1",)})
    assert outcome.page_count == 2


def test_crawl_delay_is_kept_from_answer_to_request() -> None:
    script: Script = {**hub(4), "/robots.txt": rules("User-agent: *\nCrawl-delay: 7\n")}
    web = FakeWeb(script, seconds=0.5)
    carry_out(visit_of(), web)
    assert gaps(web) == [7.5] * 5  # the first of them between robots.txt and the first page


def test_crawl_delay_counts_from_robots_txt_whatever_home_takes_to_store_it() -> None:
    web = FakeWeb({**hub(1), "/robots.txt": rules("User-agent: *\nCrawl-delay: 7\n")}, seconds=0.5)
    carry_out(visit_of(), web, home=Home(seconds=5.0))
    assert web.times("/") == [7.5]


def test_crawl_delay_beyond_the_patience_of_a_host_does_not_end_its_visits_before_any_page() -> None:
    web = FakeWeb({**hub(3), "/robots.txt": rules("User-agent: *\nCrawl-delay: 90\n")})
    outcome = carry_out(visit_of(), web, shares_holds=False)
    assert (outcome.page_count, outcome.last.ended) == (1, Ended.BUDGET)


LONG = Budget(seconds=1e9, patience_seconds=1e9)
HOURS = 3600.0


def test_visit_that_lasts_beyond_a_day_asks_for_robots_txt_again() -> None:
    first, second = rules("User-agent: *\nDisallow: /0\n"), rules("User-agent: *\nDisallow: /4\n")
    web = FakeWeb({**hub(6), "/robots.txt": [first, second]})
    outcome = carry_out(visit_of(etiquette=polite(delay_seconds=10 * HOURS), budget=LONG), web)
    assert [sent.path for sent in web.log] == [
        *("/robots.txt", "/", "/1"),  # 20 hours
        *("/2", "/robots.txt", "/3", "/5"),
    ]
    assert outcome.pages["/0"] == outcome.pages["/4"] == (0, "robots")
    assert [each.robots.rules for each in outcome.parcels if each.robots] == [first.body, second.body]


def test_visit_ends_where_robots_txt_cannot_be_had_again() -> None:
    web = FakeWeb({**hub(6), "/robots.txt": [rules(""), reply(503)]})
    outcome = carry_out(visit_of(etiquette=polite(delay_seconds=10 * HOURS), budget=LONG), web)
    assert outcome.last.ended is Ended.DISQUALIFIED
    assert outcome.last.robots and outcome.last.robots.state is RobotsState.DISQUALIFIED
    assert web.paths() == ["/", "/0", "/1"]


def test_many_workers_ask_for_robots_txt_once_when_it_is_due() -> None:
    web = FakeWeb(hub(200), seconds=0.2 * HOURS)
    carry_out(visit_of(etiquette=polite(connections=5), budget=LONG), web)
    lasted = web.log[-1].time - BEGIN
    assert len(web.times("/robots.txt")) == 1 + lasted // (24 * HOURS)


def test_visit_asks_again_as_often_as_it_was_told() -> None:
    etiquette = polite(delay_seconds=1 * HOURS, robots_times=RobotsTimes(keep_seconds=2 * HOURS))
    web = FakeWeb(hub(4))
    carry_out(visit_of(etiquette=etiquette, budget=LONG), web)
    assert len(web.times("/robots.txt")) > 2


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
