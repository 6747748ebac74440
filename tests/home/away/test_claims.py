"""What a host leaves out of a visit is derived and bounded, and home decides what counts as a start site."""

import tracemalloc
from typing import Any

import pytest
from msgspec.structs import replace
from tests.home.away.lying import NOW, SITE, page, parcel, visit

from sterna.errors import WireError
from sterna.home.away.claims import Claims
from sterna.home.dispatch import Borders
from sterna.model import (
    Budget,
    Checkpoint,
    Crawler,
    Ended,
    Known,
    Link,
    Links,
    Parcel,
    Predicate,
    Program,
    Scope,
    Source,
    Target,
    Validator,
    Visit,
)
from sterna.web.urls import fingerprint
from sterna.wire.known import marks_of
from sterna.wire.parcels import Unpacker, pack_parcel

RULES = (Source("r.clp", "(defrule keep (page) => (keep))"),)
ASKING = (Source("r.clp", "(defrule no (request (url ?url)) => (refuse ?url))"),)


def crawler(scope: Scope | None = None, **program: Any) -> Crawler:
    return Crawler(scope=scope or Scope(), program=Program(**program))


def checked(sent: Parcel, of: Visit | None = None) -> Parcel:
    return Claims(of or visit()).checked(sent, now=NOW)


def done(*paths: str, found: tuple[Target, ...] = ()) -> Parcel:
    marks = tuple(fingerprint(SITE + path) for path in paths)
    return parcel(1, checkpoint=Checkpoint(found=found, done=marks))


# -- done without a page -----------------------------------------------------------------------------------


def test_page_that_is_done_in_silence_is_refused() -> None:
    with pytest.raises(WireError, match="without a page"):
        checked(done("/hidden", found=(Target(f"{SITE}/hidden", 1),)))


def test_start_url_that_is_done_in_silence_is_refused() -> None:
    with pytest.raises(WireError, match="without a page"):
        checked(done("/"))


def test_page_that_is_to_be_refreshed_is_not_done_in_silence() -> None:
    start = Target(f"{SITE}/a", 1)
    known = Known(validators=(Validator(fingerprint(start.url), '"1"', digest=b"0123456789abcdef"),))
    with pytest.raises(WireError, match="without a page"):
        checked(done("/a"), visit(starts=(start,), known=known))


@pytest.mark.parametrize(
    ("start", "crawling"),
    [
        (Target(f"{SITE}/map.xml", kind="sitemap"), crawler()),
        (Target(f"{SITE}/shop/1", 1), crawler(Scope(exclude=("/shop/",)))),
        (Target(f"{SITE}/deep", 3), crawler(prune=Predicate("<", "depth", (2,)))),
        (Target(f"{SITE}/any", 1), crawler(rules=ASKING)),
    ],
    ids=["sitemap", "scope", "prune", "request rule"],
)
def test_url_is_done_without_a_page_where_home_can_derive_it(start: Target, crawling: Crawler) -> None:
    sent = done(start.url.removeprefix(SITE))
    assert checked(sent, visit(starts=(start,), crawler=crawling)).checkpoint.done


def test_sitemap_that_was_found_is_done_once() -> None:
    claims = Claims(visit())
    claims.checked(done("/map.xml", found=(Target(f"{SITE}/map.xml", kind="sitemap"),)), now=NOW)
    with pytest.raises(WireError, match="without a page"):
        claims.checked(done("/map.xml"), now=NOW)


MAP = Target(f"{SITE}/map.xml", kind="sitemap")
FOUND = Target(f"{SITE}/found", 1)


@pytest.mark.parametrize(("program", "path"), [({}, "/map.xml"), ({"rules": ASKING}, "/found")])
def test_resumed_visit_may_be_done_with_what_an_earlier_run_found(program: dict[str, Any], path: str) -> None:
    claims = Claims(visit(crawler=crawler(**program)), waiting=(MAP, FOUND))
    claims.checked(done(path), now=NOW)
    with pytest.raises(WireError, match="without a page"):
        claims.checked(done(path), now=NOW)


@pytest.mark.parametrize("path", ["/found", "/never", "/"])
def test_resumed_visit_is_not_done_with_anything_else(path: str) -> None:
    with pytest.raises(WireError, match="without a page"):
        Claims(visit(), waiting=(MAP, FOUND)).checked(done(path), now=NOW)


def test_list_of_done_urls_is_bounded_by_the_budget_and_costs_little_memory() -> None:
    sent = parcel(1, checkpoint=Checkpoint(done=tuple(range(900_000))))
    packed = pack_parcel(sent, marks_of(Known()))
    reading = Unpacker(visit(budget=Budget(pages=1000, urls=200_000)), marks_of(Known()), began=NOW)
    del sent
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="too-large"):
            reading.unpack(packed, now=NOW)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(packed)
    finally:
        tracemalloc.stop()


# -- pages -------------------------------------------------------------------------------------------------


def test_page_is_not_dropped_where_the_crawler_drops_none() -> None:
    with pytest.raises(WireError, match="keeps every page"):
        checked(parcel(1, page("/a", is_kept=False)))


@pytest.mark.parametrize("program", [{"select": Predicate("contains", "text", ("x",))}, {"rules": RULES}])
def test_page_is_dropped_where_the_crawler_selects(program: dict[str, Any]) -> None:
    sent = parcel(1, page("/a", is_kept=False))
    assert checked(sent, visit(crawler=crawler(**program))).pages == sent.pages


def test_page_does_not_fail_by_rules_without_rules() -> None:
    with pytest.raises(WireError, match="has none"):
        checked(parcel(1, page("/a", status=0, error="rules")))


def test_page_is_not_fetched_later_than_now() -> None:
    (got,) = checked(parcel(1, page("/a", fetched=NOW + 100))).pages
    assert got.fetched == NOW


# -- again -------------------------------------------------------------------------------------------------


def test_finished_visit_puts_nothing_off() -> None:
    sent = parcel(1, checkpoint=Checkpoint(again=(Target(f"{SITE}/a"),)), ended=Ended.FINISHED)
    with pytest.raises(WireError, match="finished"):
        checked(sent)


def test_home_counts_itself_how_often_a_url_was_put_off() -> None:
    start = Target(f"{SITE}/a", attempts=4)
    late = replace(start, attempts=0, not_before=NOW + 9)
    sent = parcel(1, checkpoint=Checkpoint(again=(late, Target(f"{SITE}/b", not_before=NOW - 9))))
    first, second = checked(sent, visit(starts=(start,))).checkpoint.again
    assert (first.attempts, first.not_before) == (5, NOW + 9)
    assert (second.attempts, second.not_before) == (1, 0.0)


def test_url_is_put_off_for_a_day_at_most() -> None:
    late = Target(f"{SITE}/a", not_before=NOW + 2 * 24 * 3600)
    packed = pack_parcel(parcel(1, checkpoint=Checkpoint(again=(late,))), marks_of(Known()))
    with pytest.raises(WireError, match="another try"):
        Unpacker(visit(), marks_of(Known()), began=NOW).unpack(packed, now=NOW)


# -- borders -----------------------------------------------------------------------------------------------

FOREIGN = tuple(Target(f"https://s{n}.example/", 0, f"{SITE}/") for n in range(600))


@pytest.mark.parametrize("program", [{}, {"rules": RULES}])
def test_host_steers_a_crawl_to_no_other_site(program: dict[str, Any]) -> None:
    borders = Borders("site", seed_sites=[SITE], blocked=())
    taken = checked(parcel(1, outlinks=FOREIGN), visit(crawler=crawler(**program)))
    assert len(taken.outlinks) == 600
    assert [link for link in taken.outlinks if borders.admits(link)] == []
    assert not borders.may_visit("https://s7.example")


def test_start_page_that_moved_is_followed_and_others_are_not() -> None:
    moved = page("/", depth=0, status=301, links=Links.of(Link(FOREIGN[3].url, rel="redirect")))
    taken = checked(parcel(1, moved, outlinks=FOREIGN))
    borders = Borders("site", seed_sites=[SITE], blocked=())
    assert [link.url for link in taken.outlinks if borders.admits(link)] == [FOREIGN[3].url]


def test_no_more_start_pages_move_than_home_sent() -> None:
    moves = [
        page(f"/{n}", depth=0, status=301, links=Links.of(Link(f"https://s{n}.example/"))) for n in range(600)
    ]
    links = tuple(Target(each.links.urls, 0, each.url) for each in moves)
    taken = checked(parcel(1, *moves, outlinks=links))
    assert sum(link.depth == 0 for link in taken.outlinks) == 1
