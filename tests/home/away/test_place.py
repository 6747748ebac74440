"""Here or at the host: the choice, at its edges."""

import msgspec
import pytest
from tests.home.away.visits import target, visit

from sterna.home.away.place import (
    HANDSHAKE_BYTES,
    KNOWN_BYTES,
    PAGE_BYTES,
    RETURNED_BYTES,
    TYPICAL_PAGES,
    Prospect,
    choose,
    kept_bytes,
    prospect_of,
)
from sterna.model import Budget, Crawler, Keep, Program, Scope, Selector, State

ONE = Prospect(new=1, named=1, follows_links=False, crawler_bytes=300, kept_bytes=1_000)


def place(prospect: Prospect, **fields: object) -> str:
    return choose(msgspec.structs.replace(prospect, **fields)).place


def test_one_url_is_not_worth_a_trip_whatever_is_kept_of_it() -> None:
    assert place(ONE) == place(ONE, kept_bytes=0, crawler_bytes=0) == "here"


def test_url_from_which_links_are_followed_is() -> None:
    assert place(ONE, follows_links=True) == "host"


def test_it_is_worth_a_trip_exactly_when_more_is_saved_than_it_costs() -> None:
    saved = PAGE_BYTES - RETURNED_BYTES
    edge = Prospect(new=100, follows_links=False, crawler_bytes=100 * saved - HANDSHAKE_BYTES)
    choice = choose(edge)
    assert (choice.place, choice.saved_bytes, choice.order_bytes) == ("here", 100 * saved, 100 * saved)
    assert place(edge, crawler_bytes=edge.crawler_bytes - 1) == "host"


def test_crawler_that_is_larger_than_the_site_stays_here() -> None:
    assert place(ONE, follows_links=True, crawler_bytes=3_000_000) == "here"


def test_page_limit_bounds_what_can_be_saved() -> None:
    assert place(ONE, follows_links=True, pages=1) == "here"
    assert place(ONE, follows_links=True, pages=100) == "host"


def test_site_of_which_as_much_is_known_as_sites_have_is_worth_what_still_waits() -> None:
    assert place(ONE, follows_links=True, done=TYPICAL_PAGES) == "here"
    assert place(ONE, new=50, follows_links=True, done=TYPICAL_PAGES) == "host"


def test_what_is_known_must_travel_and_may_cost_too_much() -> None:
    known = 100 * PAGE_BYTES // KNOWN_BYTES
    assert place(ONE, new=100, done=known // 2) == "host"
    assert place(ONE, new=100, done=known) == "here"


def test_many_pages_to_visit_again_are_worth_a_trip_and_few_are_not() -> None:
    again = Prospect(new=0, named=1, follows_links=False, crawler_bytes=300)
    assert place(again, known_again=5) == "here"
    assert place(again, known_again=500) == "host"


def test_site_whose_pages_are_visited_again_is_known_and_need_not_have_more() -> None:
    again = Prospect(new=0, known_again=5, named=1, follows_links=True)
    assert (place(again), place(again, known_again=0, new=5)) == ("here", "host")


def test_pages_that_may_be_fetched_are_those_to_visit_again_first() -> None:
    choice = choose(Prospect(new=50, known_again=100, follows_links=False, pages=120))
    assert "about 120 pages" in choice.reason
    assert choice.saved_bytes < 100 * 600 + 20 * PAGE_BYTES


def test_who_keeps_whole_pages_saves_less_than_who_keeps_titles() -> None:
    whole, titles = Keep(fields=("html", "links")), Keep(fields=("title", "keywords"))
    assert PAGE_BYTES > kept_bytes(whole) > 10 * kept_bytes(titles)
    assert kept_bytes(whole, keeps_raw=True) > kept_bytes(whole)
    assert kept_bytes(msgspec.structs.replace(whole, share=0.1)) < kept_bytes(whole) // 2
    assert kept_bytes(Keep(fields=(), selectors=(Selector("a", "b"),))) > kept_bytes(Keep(fields=()))


def test_reason_is_in_words() -> None:
    assert choose(ONE).reason == "about 1 page expected: a trip saves 2.9 kB and costs 4.3 kB"


@pytest.mark.parametrize(
    ("fields", "follows"),
    [
        ({}, True),
        ({"budget": Budget(depth=1)}, True),
        ({"budget": Budget(depth=0)}, False),
        ({"crawler": Crawler(scope=Scope(max_depth=0))}, False),
    ],
)
def test_links_are_followed_where_the_depth_allows(fields: dict[str, object], follows: bool) -> None:
    trip = msgspec.structs.replace(visit(target("/"), target("/deep", 1)), **fields)
    made = prospect_of(trip, crawler_bytes=0, named=2)
    assert made.follows_links is follows


def test_numbers_of_a_visit() -> None:
    trip = visit(
        target("/"),
        target("/b", 1),
        target("/c", 1),
        validated=["/", "/b"],
        done=["/x", "/y", "/z"],
        budget=Budget(pages=40, requests=30),
        state=State(((1, b"12345"),)),
        crawler=Crawler(program=Program(keep=Keep(fields=("title",)))),
    )
    assert prospect_of(trip, crawler_bytes=100, named=2) == Prospect(
        new=1,
        known_again=2,
        done=3,
        named=2,
        follows_links=True,
        pages=30,
        crawler_bytes=105,
        kept_bytes=30,
    )
