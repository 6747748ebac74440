"""Whole crawls over the real service of a host that grants little: by several visits, each page once."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.clocks import Wall
from tests.home.away.estates import (
    CALM,
    SITE_243,
    SMALL,
    SOON_SECONDS,
    ClockAhead,
    Tree,
    estate_at,
    once,
    tree,
)
from tests.host.knocking import SITE, limits_of, until

from sterna.crawler.facts import decode
from sterna.home.ledger.records import Out
from sterna.host.policy.policy import Caps, Policy, PriorityRules, SomeCaps
from sterna.host.visiting import overseer
from sterna.model import Crawler, Program, Source
from sterna.runtime.cell import seccomp
from sterna.runtime.link_router import Following
from sterna.transport.interface import Call
from sterna.web.clock import SystemClock
from sterna.wire.discovery import decode_offer

# -- some parts at a time --------------------------------------------------------------------------------


def test_site_has_as_many_pages_as_it_says() -> None:
    assert len(SITE_243) == 243


async def test_site_of_243_pages_is_taken_by_visits_of_50(tmp_path: Path) -> None:
    async with estate_at(tmp_path) as estate:
        assert await estate.crawl() == "finished"
        assert estate.paths == estate.site.asked == once(SITE_243)
        assert max(estate.rounds) <= 50
        assert (estate.faults, estate.here) == ([], [])
        first, *others = estate.orders
        assert first.within == ()  # nothing is known of the site yet
        assert any(order.within for order in others)

        before = len(estate.rounds)
        estate.refresh()
        assert await estate.crawl() == "finished"
        assert estate.paths == estate.site.asked == once(SITE_243)
        visits = estate.rounds[before:]
        assert 5 <= len(visits) <= 7
        assert sum(visits) == 243
        parts = [part for order in estate.orders for part in order.within]
        assert len(parts) == len(set(parts))  # each part in one visit
        assert all(order.within for order in estate.orders[:-1])
        assert "50 pages granted, 243 pending: this visit reads" in estate.told[1].reason


async def test_pages_that_are_new_since_then_are_found_wherever_they_lie(tmp_path: Path) -> None:
    pages = dict(SMALL)
    async with estate_at(tmp_path, pages, caps=Caps(pages=25)) as estate:
        await estate.crawl()
        # Only from other parts: whoever goes to /a/ alone must tell of what it leads to elsewhere.
        pages["/a/3"] = [*pages["/a/3"], "/new/one", "/c/hidden"]
        pages["/new/one"] = ["/new/two"]
        pages["/new/two"] = pages["/c/hidden"] = []
        estate.refresh()
        assert await estate.crawl() == "finished"
        assert estate.paths == once(pages)
        assert len(pages) == len(SMALL) + 3


async def test_part_that_is_larger_than_the_grant_is_continued(tmp_path: Path) -> None:
    pages = tree(huge=130, small=6)
    async with estate_at(tmp_path, pages) as estate:
        await estate.crawl()
        before = len(estate.rounds)
        estate.refresh()
        assert await estate.crawl() == "finished"
        assert estate.paths == once(pages)
        assert estate.faults == []
        assert estate.rounds[before:][:2] == [50, 50]
        assert len(estate.rounds[before:]) <= 4
        assert estate.orders[0].within == ("/huge/",)


async def test_flat_site_has_no_parts_and_is_continued_all_the_same(tmp_path: Path) -> None:
    pages: Tree = {"/": [f"/{number}" for number in range(120)]} | {f"/{number}": [] for number in range(120)}
    async with estate_at(tmp_path, pages) as estate:
        await estate.crawl()
        assert estate.paths == once(pages)
        assert estate.rounds == [50, 50, 21]
        assert all(order.within == () for order in estate.orders)


COUNTING = """
(deffacts start (count 0))
(defrule tell (page (url ?url)) ?old <- (count ?n) (not (told ?url))
  => (retract ?old) (assert (told ?url)) (assert (count (+ ?n 1))))
"""


async def test_crawler_that_runs_out_of_budget_goes_on_with_what_it_remembers(tmp_path: Path) -> None:
    pages = tree(a=70, b=60)
    crawler = Crawler(name="counter", program=Program(rules=(Source("count.clp", COUNTING),)))
    async with estate_at(tmp_path, pages, crawler=crawler) as estate:
        assert await estate.crawl() == "finished"
        assert estate.paths == once(pages)
        assert len(estate.rounds) >= 3
        assert [bool(order.state.facts) for order in estate.orders[:2]] == [False, True]
        facts = [decode(data) for _, data in estate.ledger.state(SITE).facts]
    assert [fact.values for fact in facts if fact.template == "count"] == [(131,)]
    assert sum(fact.template == "told" for fact in facts) == 131


@pytest.mark.parametrize(
    "caps",
    [Caps(requests=31), Caps(fetched_bytes=20_000), Caps(sent_bytes=20_000), Caps(depth=64, urls=5_000)],
)
async def test_other_limits_of_the_host_do_not_end_the_crawl_at_its_site(tmp_path: Path, caps: Caps) -> None:
    """They are not the crawler's own: it has others anywhere else, and is continued."""
    pages = tree(a=40, b=30)
    async with estate_at(tmp_path, pages, caps=caps) as estate:
        assert await estate.crawl() == "finished"
        assert estate.paths == once(pages)
        assert estate.faults == []


async def test_host_that_keeps_nothing_is_continued_too(tmp_path: Path) -> None:
    # Each visit takes a place until its process ends, and here all are in one.
    limits = limits_of(crawlers_at_once=20)
    caps = Caps(pages=25)
    async with estate_at(tmp_path, SMALL, caps=caps, is_live_only=True, limits=limits) as estate:
        assert await estate.crawl() == "finished"
        assert estate.paths == once(SMALL)


async def test_host_that_knows_no_parts_reads_each_page_once_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of earlier versions do, which pass the field over."""
    monkeypatch.setattr(Following, "_is_within", lambda following, target: True)
    async with estate_at(tmp_path, SMALL, caps=Caps(pages=25)) as estate:
        assert await estate.crawl() == "finished"
        estate.refresh()
        assert await estate.crawl() == "finished"
        assert estate.paths == estate.site.asked == once(SMALL)
        assert any(order.within for order in estate.orders)


# -- the platform ----------------------------------------------------------------------------------------


async def test_host_without_a_jail_gets_no_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "why_not", lambda: "this machine has no seccomp")
    crawler = Crawler(name="counter", program=Program(rules=(Source("count.clp", COUNTING),)))
    async with estate_at(tmp_path, crawler=crawler, is_required=False) as estate:
        await estate.crawl()
        assert estate.orders == []
        assert [fault.partition(":")[0] for fault in estate.faults] == ["no-jail"]
        assert len(estate.here) == 1
        assert estate.here[0].crawler.program.rules


async def test_host_says_what_its_platform_is(tmp_path: Path) -> None:
    async with estate_at(tmp_path) as estate:
        facts = (await estate.home.greet()).platform
        reply = await estate.home.service.answer(Call("discover"))
        assert isinstance(reply.body, bytes)
        assert decode_offer(reply.body, SITE).platform == facts
    assert (facts["engine"], facts["jail"], facts["level"]) == ("clips", "seccomp", "9")
    assert (facts["live-only"], facts["readers"], facts["sources"]) == ("no", "1", "root http")
    assert int(facts["memory_bytes"]) == Caps().memory_bytes


async def test_order_asks_for_no_higher_level_than_the_host_has(tmp_path: Path) -> None:
    async with estate_at(tmp_path, tree(a=5, b=5), limits=limits_of(level=1)) as estate:
        await estate.crawl()
        assert {order.level for order in estate.orders} == {1}


# -- priorities ------------------------------------------------------------------------------------------

BARGAIN = (PriorityRules(least=5, budget=SomeCaps(pages=1_000)),)


async def test_priority_buys_a_larger_budget_and_is_kept(tmp_path: Path) -> None:
    async with estate_at(tmp_path, rules=BARGAIN, priority=6) as estate:
        await estate.crawl()
        assert estate.rounds == [243]
        assert [order.budget.pages for order in estate.orders] == [1_000]
        row = estate.ledger.host_row(SITE)
        assert row
        assert row.priority == estate.orders[0].priority > 0


async def test_without_a_priority_the_grant_is_the_usual_one(tmp_path: Path) -> None:
    async with estate_at(tmp_path, rules=BARGAIN, priority=4) as estate:
        await estate.crawl()
        assert max(estate.rounds) == 50
        assert {order.priority for order in estate.orders} == {0}
        row = estate.ledger.host_row(SITE)
        assert row is None or row.priority == 0


# -- hours -----------------------------------------------------------------------------------------------


def clock_text(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%H:%M")


async def test_visit_that_is_kept_until_its_hours_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overseer, "LOOK_SECONDS", 0.02)
    wall = Wall(SystemClock().now())
    begin = (wall.time // 60 + 1) * 60
    hours = (f"daily {clock_text(begin)}-{clock_text(begin + 3_600)}",)
    policy = Policy(zone="UTC", load=CALM, hours=hours, outside_hours="keep")
    pages, clock = tree(a=5, b=5), ClockAhead()
    async with estate_at(tmp_path, pages, policy=policy, serving={"wall": wall}, clock=clock) as estate:
        running = asyncio.create_task(estate.crawl())
        await until(lambda: bool(estate.lines))
        assert [each.state for each in estate.home.service.status().visits] == ["waiting"]
        assert (estate.site.asked.total(), estate.lines[0].partition(":")[0]) == (0, "paused")
        clock.ahead_seconds = 10 * 3600.0
        wall.time = begin
        assert await running == "finished"
        assert estate.paths == once(pages)
        assert (estate.faults, estate.here) == ([], [])


async def test_host_that_is_closed_for_hours_is_left_alone_so_long(tmp_path: Path) -> None:
    wall = Wall(SystemClock().now())
    tomorrow = datetime.fromtimestamp(wall.time + 2 * 86_400, UTC).strftime("%a")
    policy = Policy(zone="UTC", load=CALM, hours=(f"{tomorrow} 00:00-04:00",))
    serving = {"wall": wall}
    async with estate_at(tmp_path, policy=policy, serving=serving, is_required=False) as estate:
        await estate.crawl()
        assert [fault.partition(":")[0] for fault in estate.faults] == ["closed-now"]
        assert 86_400 <= estate.alone_seconds <= 2 * 86_400
        assert (estate.orders, len(estate.here), estate.site.asked.total()) == ([], 1, 0)
        assert estate.warnings[0].startswith(f"the host of {SITE} is closed for about ")


# -- kill and resume -------------------------------------------------------------------------------------


async def test_home_that_is_killed_in_a_narrowed_visit_goes_on_with_it(tmp_path: Path) -> None:
    async with estate_at(tmp_path, SMALL, caps=Caps(pages=25)) as estate:
        await estate.crawl()
        estate.refresh()
        estate.site.gate_at = 30  # in the middle of the second visit
        running = asyncio.create_task(estate.crawl())
        async with asyncio.timeout(SOON_SECONDS):
            while estate.paths.total() < 27:  # noqa: ASYNC110 - parcels come by time
                await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        (away,) = estate.ledger.outbox(states=(Out.AWAY,))
        sent = len(estate.orders)
        estate.site.gate.set()
        assert await estate.crawl() == "finished"
        assert estate.paths == once(SMALL)
        assert estate.site.asked == once(SMALL)
        assert away.visit not in [order.visit for order in estate.orders[sent:]]
        assert estate.faults == []
        assert {row.state for row in estate.ledger.outbox()} == {Out.RETURNED}


async def test_run_that_is_stopped_in_a_narrowed_visit_is_gone_on_with_later(tmp_path: Path) -> None:
    async with estate_at(tmp_path, SMALL, caps=Caps(pages=25)) as estate:
        await estate.crawl()
        estate.refresh()
        estate.site.gate_at = 30
        running = asyncio.create_task(estate.crawl())
        async with asyncio.timeout(SOON_SECONDS):
            while estate.paths.total() < 27:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        estate.stop.set()
        estate.site.gate.set()
        assert await running == "stopped"
        estate.stop = asyncio.Event()
        assert await estate.crawl() == "finished"
        assert set(estate.paths) == set(SMALL)
        assert max(estate.paths.values()) == 1
