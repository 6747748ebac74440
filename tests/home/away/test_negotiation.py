"""What is sent to a host that grants so much, on such a platform: budget, parts and crawler."""

import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.home.away.visits import SITE, target, visit

from sterna.errors import Refused
from sterna.home.away.luggage import luggage
from sterna.home.away.negotiation import (
    LIVE_PAGES,
    RENEWED,
    URL_BYTES,
    Facts,
    choose,
    is_hosts_own,
    narrowed_words,
    needs_of,
    room_for,
    shape,
)
from sterna.home.ledger.records import Estimate, Subtree
from sterna.model import Budget, Crawler, Ended, Program, Scope, Source, Target, Visit
from sterna.web.urls import fingerprint, part_of
from sterna.wire.orders import MAX_PARTS

PLAIN = Facts()
NOTHING = Estimate()


def site_of(**parts: int) -> list[str]:
    """Paths: so many pages in each part."""
    return [f"/{part}/{number}" for part, count in parts.items() for number in range(count)]


def refresh_of(paths: list[str], **fields: Any) -> Visit:
    """A visit to pages that were all read before."""
    return visit(*(target(path, 1) for path in paths), validated=paths, **fields)


def marks_in(known: bytes) -> set[int]:
    return set(memoryview(known).cast("q"))


def paths_of(starts: tuple[Target, ...]) -> list[str]:
    return [start.url.removeprefix(SITE) for start in starts]


# -- the budget ------------------------------------------------------------------------------------------


def test_lesser_of_two_budgets_takes_no_limit_for_no_number() -> None:
    one = Budget(pages=100, seconds=60.0, requests=0, cpu_seconds=5.0, facts=7)
    other = Budget(pages=50, seconds=90.0, requests=9, cpu_seconds=0.0, facts=8)
    both = one.lesser(other)
    assert (both.pages, both.seconds, both.requests, both.cpu_seconds, both.facts) == (50, 60.0, 9, 5.0, 7)
    assert other.lesser(one) == msgspec.structs.replace(both)


def test_visit_has_the_budget_that_holds_at_the_host() -> None:
    sent = shape(visit(target("/")), Budget(pages=50, cpu_seconds=9.0), PLAIN, NOTHING)
    assert (sent.budget.pages, sent.budget.cpu_seconds, sent.within) == (50, 9.0, ())


@pytest.mark.parametrize(
    ("budget", "estimate", "room"),
    [
        (Budget(pages=50), NOTHING, 50),
        (Budget(pages=50, requests=20), NOTHING, 20),
        (Budget(pages=50, fetched_bytes=40_000), Estimate(page_bytes=4_000.0), 10),
        (Budget(pages=50, seconds=10.0), Estimate(page_seconds=0.5), 20),
        (Budget(pages=50, cpu_seconds=1.0), Estimate(page_cpu_seconds=0.1), 10),
        (Budget(pages=50, fetched_bytes=40_000), NOTHING, 50),
        (Budget(pages=50, seconds=0.1), Estimate(page_seconds=0.5), 1),
    ],
)
def test_room_is_what_the_first_limit_leaves(budget: Budget, estimate: Estimate, room: int) -> None:
    assert room_for(budget, estimate, wanted=Budget()) == room


def test_limits_that_are_homes_own_leave_as_much_room_as_there_are_pages() -> None:
    own = Budget(pages=50, seconds=10.0, fetched_bytes=40_000)
    assert room_for(own, Estimate(page_seconds=0.5, page_bytes=4_000.0), wanted=own) == 50


@pytest.mark.parametrize("grants", [Budget(pages=0), Budget(seconds=0.0)])
def test_host_that_grants_nothing_gets_nothing(grants: Budget) -> None:
    with pytest.raises(Refused, match="it grants no page"):
        shape(visit(target("/")), grants, PLAIN, NOTHING)


def test_host_that_holds_fewer_urls_than_are_known_gets_nothing() -> None:
    known = refresh_of(site_of(a=30), budget=Budget(urls=100))
    with pytest.raises(Refused, match="it accepts 20 URLs"):
        shape(known, Budget(urls=20), PLAIN, NOTHING)
    # What home itself asks for says nothing of what the host could hold.
    assert shape(msgspec.structs.replace(known, budget=Budget(urls=20)), Budget(urls=20), PLAIN, NOTHING)


def test_what_lies_deeper_than_the_host_allows_stays_at_home() -> None:
    sent = shape(visit(target("/", 0), target("/deep", 9)), Budget(depth=3), PLAIN, NOTHING)
    assert paths_of(sent.starts) == ["/"]
    with pytest.raises(Refused, match="deeper than the 3 links"):
        shape(visit(target("/deep", 9)), Budget(depth=3), PLAIN, NOTHING)


# -- the platform ----------------------------------------------------------------------------------------

RULES = Crawler(program=Program(rules=(Source("a.clp", "(defrule a => )"),)))


@pytest.mark.parametrize("platform", [{"jail": "none"}, {"engine": "none", "jail": "seccomp"}])
def test_rules_stay_at_home_where_nothing_jails_them(platform: dict[str, str]) -> None:
    facts = Facts.of(platform)
    with pytest.raises(Refused, match="no-jail"):
        shape(visit(target("/"), crawler=RULES), Budget(), facts, NOTHING)
    assert shape(visit(target("/")), Budget(), facts, NOTHING).starts


def test_facts_that_a_host_does_not_tell_hinder_nothing() -> None:
    assert Facts.of({}) == Facts()
    assert shape(visit(target("/"), crawler=RULES), Budget(), Facts.of({}), NOTHING).crawler == RULES


@pytest.mark.parametrize("text", ["", "0", "-5", "9.5", "many", "٣", " 7"])
def test_number_that_cannot_be_read_counts_as_not_said(text: str) -> None:
    assert Facts.of({"level": text, "memory_bytes": text}) == Facts()


def test_host_with_little_memory_holds_few_urls() -> None:
    facts = Facts.of({"memory_bytes": str(10 * URL_BYTES)})
    assert shape(refresh_of(site_of(a=30)), Budget(), facts, NOTHING).budget.urls == 10


@pytest.mark.parametrize("facts", [Facts.of({"live-only": "yes"}), Facts.of({}, is_live_only=True)])
def test_host_that_keeps_nothing_gets_smaller_visits(facts: Facts) -> None:
    wide = visit(target("/"), budget=Budget(pages=20_000))
    assert shape(wide, Budget(pages=20_000), facts, NOTHING).budget.pages == LIVE_PAGES


# -- the parts -------------------------------------------------------------------------------------------


def test_all_parts_are_chosen_if_they_fit() -> None:
    assert choose({"/a/": 20, "/b/": 30}, 50) == ("/a/", "/b/")


def test_largest_that_fits_comes_first_and_then_what_fits_beside_it() -> None:
    assert choose({"/a/": 40, "/b/": 45, "/c/": 5, "/d/": 3}, 50) == ("/b/", "/c/")


def test_part_that_is_too_large_is_gone_to_alone_when_little_else_is_left() -> None:
    assert choose({"/a/": 400, "/b/": 45, "/c/": 30}, 50) == ("/b/",)
    assert choose({"/a/": 400, "/b/": 4, "/c/": 3}, 50) == ("/a/",)
    assert choose({"/a/": 400}, 50) == ("/a/",)


def test_no_more_parts_are_chosen_than_an_order_may_name() -> None:
    chosen = choose({f"/{number}/": 1 for number in range(1_000)}, 600)
    assert len(chosen) == MAX_PARTS


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.sampled_from([f"/{n}/" for n in range(30)]), st.integers(1, 200), min_size=1),
    st.integers(1, 100),
)
def test_few_visits_take_all_parts(needs: dict[str, int], room: int) -> None:
    """Each takes something, and each but the last, or the end of a part, fills half of what was granted."""
    total, visits = sum(needs.values()), 0
    left = dict(needs)
    while left:
        chosen = choose(left, room)
        assert chosen
        assert set(chosen) <= set(left)
        budget, visits = room, visits + 1
        for path in chosen:
            read = min(budget, left[path])
            left[path] -= read
            budget -= read
        left = {path: need for path, need in left.items() if need}
    assert visits <= 2 * total / room + 1


def test_pages_by_part_are_those_that_wait_and_those_that_the_ledger_knows() -> None:
    starts = tuple(map(target, ["/", "/a/1", "/a/2", "/b/1"]))
    known = Estimate(subtrees=(Subtree("/a/", 9, 1), Subtree("/b/", 0, 70), Subtree("/c/", 5, 5)))
    assert needs_of(starts, known) == {"/": 1, "/a/": 2, "/b/": 70}
    sitemap = msgspec.structs.replace(target("/maps/1.xml"), kind="sitemap")
    assert needs_of((sitemap,), NOTHING) == {}


# -- narrowing -------------------------------------------------------------------------------------------


def test_visit_that_fits_is_sent_whole() -> None:
    whole = refresh_of(site_of(a=20, b=20))
    sent = shape(whole, Budget(pages=50), PLAIN, NOTHING)
    assert (sent.starts, sent.known, sent.within) == (whole.starts, whole.known, ())


def test_visit_that_does_not_fit_goes_to_some_parts_and_knows_the_rest() -> None:
    whole = refresh_of(site_of(a=40, b=45, c=5))
    sent = shape(whole, Budget(pages=50), PLAIN, NOTHING)
    assert sent.within == ("/b/", "/c/")
    assert Counter(part_of(start.url) for start in sent.starts) == {"/b/": 45, "/c/": 5}
    left = {fingerprint(f"{SITE}{path}") for path in site_of(a=40)}
    assert marks_in(sent.known.fingerprints) == left
    assert {each.fingerprint for each in sent.known.validators}.isdisjoint(left)
    assert len(sent.known.validators) == 50


def test_what_is_known_stays_known_and_sorted() -> None:
    whole = refresh_of(site_of(a=40, b=45))
    done = visit(done=site_of(z=20)).known.fingerprints
    whole = msgspec.structs.replace(whole, known=msgspec.structs.replace(whole.known, fingerprints=done))
    known = list(memoryview(shape(whole, Budget(pages=50), PLAIN, NOTHING).known.fingerprints).cast("q"))
    assert known == sorted(set(known))
    assert len(known) == 20 + 40


def test_starts_of_a_narrowed_visit_all_go_by_name() -> None:
    paths = site_of(a=40, b=45)
    deep = visit(
        *(target(path, number % 3) for number, path in enumerate(paths)), validated=paths, budget=Budget()
    )
    sent = shape(deep, Budget(pages=50), PLAIN, NOTHING)
    assert sent.within == ("/b/",)
    assert len(luggage(sent)[0]) == 45
    assert len(luggage(deep)[0]) < 45


def test_one_part_that_is_too_large_is_sent_whole() -> None:
    flat = visit(*(target(f"/{number}", 1) for number in range(100)))
    sent = shape(flat, Budget(pages=50), PLAIN, NOTHING)
    assert (sent.within, sent.starts) == ((), flat.starts)


def test_part_that_is_too_large_is_divided_into_its_folders() -> None:
    paths = [f"/docs/{folder}/{number}" for folder in ("api", "guide") for number in range(40)]
    sent = shape(refresh_of([*paths, "/docs/index", "/docs/list"]), Budget(pages=50), PLAIN, NOTHING)
    assert sent.within == ("/docs/.", "/docs/api/")
    assert sorted(paths_of(sent.starts)) == sorted(
        ["/docs/index", "/docs/list", *(path for path in paths if "/api/" in path)]
    )


def test_folders_are_divided_until_they_fit() -> None:
    paths = [f"/a/b/{folder}/{number}" for folder in "cd" for number in range(30)]
    starts = tuple(target(path, 1) for path in paths)
    assert needs_of(starts, NOTHING, room=40) == {"/a/b/c/": 30, "/a/b/d/": 30}
    assert needs_of(starts, NOTHING, room=20) == {"/a/b/c/": 30, "/a/b/d/": 30}
    assert needs_of(starts, NOTHING, room=60) == needs_of(starts, NOTHING) == {"/a/": 60}


def test_folders_hold_their_share_of_what_the_ledger_knows_of_a_part() -> None:
    starts = tuple(target(f"/a/{folder}/{number}", 1) for folder in "bc" for number in range(10))
    known = Estimate(subtrees=(Subtree("/a/", 0, 400),))
    assert needs_of(starts, known, room=250) == {"/a/b/": 200, "/a/c/": 200}
    assert needs_of(starts, known, room=500) == {"/a/": 400}
    whole = refresh_of([start.url.removeprefix(SITE) for start in starts])
    assert shape(whole, Budget(pages=250), PLAIN, known).within == ("/a/b/",)


def test_estimate_from_earlier_visits_narrows_where_time_is_short() -> None:
    whole = refresh_of(site_of(a=40, b=45))
    assert shape(whole, Budget(seconds=25.0), PLAIN, NOTHING).within == ()
    assert shape(whole, Budget(seconds=25.0), PLAIN, Estimate(page_seconds=0.5)).within == ("/b/",)


def test_part_of_which_more_waits_than_starts_now_counts_whole() -> None:
    whole = refresh_of(site_of(a=10, b=45))
    estimate = Estimate(subtrees=(Subtree("/b/", 0, 900),))
    assert shape(whole, Budget(pages=12), PLAIN, estimate).within == ("/a/",)


def test_sitemaps_go_along_wherever_they_lie() -> None:
    sitemap = msgspec.structs.replace(target("/maps/1.xml", 1), kind="sitemap")
    whole = refresh_of(site_of(a=40, b=45))
    sent = shape(
        msgspec.structs.replace(whole, starts=(*whole.starts, sitemap)), Budget(pages=50), PLAIN, NOTHING
    )
    assert sitemap in sent.starts
    assert "/maps/" not in sent.within


@pytest.mark.parametrize("program", [Program(is_best_first=True), Program(drives_loading=True)])
def test_crawler_whose_rules_say_what_comes_first_is_not_narrowed(program: Program) -> None:
    whole = refresh_of(site_of(a=40, b=45), crawler=Crawler(program=program))
    assert shape(whole, Budget(pages=50), PLAIN, NOTHING).within == ()


# -- depths ----------------------------------------------------------------------------------------------


def test_pages_that_were_never_read_are_taken_level_by_level() -> None:
    starts = [*(target(f"/a/{n}", 4) for n in range(40)), *(target(f"/b/{n}", 2) for n in range(30))]
    starts += [target(f"/c/{n}", 3) for n in range(30)]
    sent = shape(visit(*starts), Budget(pages=50), PLAIN, NOTHING)
    assert sent.within == ("/b/",)  # or "/c/", but nothing of "/a/": shorter ways to it may lead from "/b/"
    assert sent.budget.depth == 3


def test_pages_that_were_read_before_have_their_depth() -> None:
    paths = site_of(a=40, b=45)
    deep = visit(*(target(path, 2 + len(path) % 5) for path in paths), validated=paths)
    sent = shape(deep, Budget(pages=50), PLAIN, NOTHING)
    assert len(sent.starts) == 45
    assert sent.budget.depth == 64


def test_where_the_scope_ends_at_a_depth_levels_stay_in_order() -> None:
    near, far = site_of(a=40, b=30), site_of(c=45)
    starts = [*(target(path, 1) for path in near), *(target(path, 5) for path in far)]
    bounded = Crawler(scope=Scope(max_depth=6))
    sent = shape(visit(*starts, validated=near + far, crawler=bounded), Budget(pages=50), PLAIN, NOTHING)
    assert (sent.within, sent.budget.depth) == (("/a/",), 2)


def test_folders_without_an_end_are_divided_no_further() -> None:
    inside = "".join(f"/{number}" for number in range(600))
    sent = shape(refresh_of([f"{inside}/{page}" for page in range(30)]), Budget(pages=10), PLAIN, NOTHING)
    assert sent.budget.pages == 10
    assert len(sent.starts) == 30


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 60))
def test_every_start_is_sent_in_the_end_each_in_one_visit(seed: int, room: int) -> None:
    chance = random.Random(seed)
    folders = ["a", "b", "c", "d/e", "d/e/f", "d/g", "h"]
    paths = [f"/{chance.choice(folders)}/{number}" for number in range(chance.randrange(1, 100))]
    left, visits = list(paths), 0
    while left:
        sent = shape(refresh_of(left), Budget(pages=room), PLAIN, NOTHING)
        read = paths_of(sent.starts)[:room]  # the host reads so many, and those that are left wait
        assert read
        left = [path for path in left if path not in set(read)]
        visits += 1
    assert visits <= 2 * len(paths) / room + 2


# -- what ended it ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ended", "own", "granted", "expected"),
    [
        (Ended.CPU_SECONDS, Budget(), Budget(cpu_seconds=5.0), True),
        (Ended.CPU_SECONDS, Budget(cpu_seconds=9.0), Budget(cpu_seconds=5.0), True),
        (Ended.CPU_SECONDS, Budget(cpu_seconds=5.0), Budget(cpu_seconds=5.0), False),
        (Ended.REQUESTS, Budget(requests=5), Budget(requests=5), False),
        (Ended.CRASH, Budget(), Budget(), False),
        (Ended.FINISHED, Budget(), Budget(cpu_seconds=5.0), False),
    ],
)
def test_limit_is_the_hosts_own_if_the_crawler_has_it_nowhere_else(
    ended: Ended, own: Budget, granted: Budget, expected: bool
) -> None:
    assert is_hosts_own(ended, own=own, granted=granted) is expected


def test_memory_is_not_renewed_by_another_visit() -> None:
    assert [ended for ended in (Ended.REQUESTS, Ended.MEMORY_BYTES, Ended.FACTS) if ended in RENEWED] == [
        Ended.REQUESTS
    ]


def test_narrowed_visit_in_words() -> None:
    whole = refresh_of(site_of(a=40, b=45))
    sent = shape(whole, Budget(pages=50), PLAIN, NOTHING)
    assert narrowed_words(whole, sent) == "50 pages granted, 85 pending: this visit reads 45 of them, in /b/"
