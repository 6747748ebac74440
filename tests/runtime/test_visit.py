"""Visits in virtual time, on a web that answers by script: which URL is next, budgets, the end."""

import asyncio
from array import array

import pytest
from tests.runtime.fakes import (
    SITE,
    FakeWeb,
    Home,
    Script,
    carry_out,
    linking,
    make_kit,
    polite,
    reply,
    rules,
    run,
    visit_of,
)
from tests.runtime.hubs import KNOWN_RULES, SOON, holds_of, hub

from sterna.model import (
    Budget,
    Crawler,
    Ended,
    Known,
    Scope,
)
from sterna.runtime.runtime import Runtime
from sterna.runtime.visit import STOP_GRACE_SECONDS
from sterna.web.politeness import Limits, Rate, site_key
from sterna.web.urls import fingerprint

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


def test_what_is_lost_of_a_malformed_sitemap_is_counted() -> None:
    entries = "".join(f"<url><loc>{SITE}/{name}</loc></url>" for name in ("only", "&tern;", "http://"))
    web = FakeWeb(
        {
            "/robots.txt": rules(f"Sitemap: {SITE}/map.xml\n"),
            "/map.xml": reply(body=f"<urlset>{entries}<url><loc>mailto:a@b.test</loc></url></urlset>"),
            "/": linking(),
            "/only": linking(),
        }
    )
    outcome = carry_out(visit_of(), web)
    assert outcome.pages["/only"] == (200, "")
    assert outcome.errors["sitemap_entries"] == 2


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
    assert (outcome.page_count, outcome.last.ended) == (0, Ended.BUDGET)
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


# The end


def test_stop_ends_a_visit_that_waits_for_a_long_delay_within_moments() -> None:
    web = FakeWeb({**hub(5), "/robots.txt": rules("User-agent: *\nCrawl-delay: 500\n")})
    patient = Budget(seconds=1e4, patience_seconds=1e4)
    outcome = carry_out(visit_of(etiquette=polite(connections=3), budget=patient), web, stop_after=600.0)
    assert outcome.last.ended is Ended.STOPPED
    assert 600.0 <= outcome.seconds <= 600.0 + SOON
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
