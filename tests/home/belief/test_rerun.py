"""What rules made of a visit's pages is made again here, by real engines, and compared."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace
from tests import making
from tests.home.belief.lying_sites import OFFER, Checking, Tamper, pages, taken, web_of
from tests.runtime.fakes import FakeWeb, Home, VirtualClock, make_kit, polite, visit_of

from sterna.crawler.facts import Fact, encode
from sterna.crawler.rules import remember
from sterna.home.belief.check import Check, Report
from sterna.model import Crawler, Page, Parcel, Program, Scope, Source, StateChange, Visit
from sterna.runtime.engine.client import Engines
from sterna.runtime.runtime import Runtime
from sterna.trust.judgement import Judgement
from sterna.trust.runs import RunWitness
from sterna.trust.sampling import Witness

FORGETFUL = "(defrule tell (page (url ?url) (title ?title)) => (emit row ?url ?title))"
COUNTING = """
(defglobal ?*pages* = 0)
(defrule begin => (emit began))
(defrule tell (page (url ?url)) =>
  (bind ?*pages* (+ 1 ?*pages*)) (assert (seen ?url ?*pages*)) (emit row ?*pages*))
"""
CHOOSING = '(defrule choose (page (url ?url)) => (if (like ?url "%7%") then (drop) else (keep)))'


def visit_with(rules: str) -> Visit:
    program = Program(rules=(Source("r.clp", rules),))
    crawler = Crawler(scope=Scope(use_sitemaps=False), program=program)
    return visit_of(crawler=crawler, etiquette=polite(connections=4))


async def told(visit: Visit, engines: Engines) -> list[Parcel]:
    home = Home()
    runtime = Runtime(make_kit(web_of(pages(40)), engines=engines))
    await runtime.carry_out(visit, deliver=home.take, stop=asyncio.Event())
    return home.parcels


async def checked(
    rules: str, tamper: Tamper = lambda parcels: parcels, *, web: FakeWeb | None = None, seed: int = 1
) -> Report:
    visit = visit_with(rules)
    async with Engines(is_jailed=False) as engines:
        parcels = taken(tamper(await told(visit, engines)), visit)
        runs = RunWitness(Random(seed), visit.state, has_memory=remember(visit.crawler.program.rules))
        witness = Witness(Random(seed), runs=runs)
        for parcel in parcels:
            witness.see(parcel)
        here = Runtime(make_kit(web or web_of(pages(40)), engines=engines))
        check = Check(visit, witness, OFFER, here=here, clock=VirtualClock())
        return await check.run(59, asyncio.Event())


def on_rows(change: Callable[[bytes], bytes]) -> Tamper:
    return lambda parcels: [replace(parcel, rows=tuple(map(change, parcel.rows))) for parcel in parcels]


@pytest.mark.parametrize("rules", [FORGETFUL, COUNTING, CHOOSING])
async def test_honest_host_made_the_same_of_its_pages(rules: str) -> None:
    report = await checked(rules)
    assert not report.bad
    assert not any("rules" in each.detail for each in report.findings)


@pytest.mark.parametrize("rules", [FORGETFUL, COUNTING])
async def test_facts_that_rules_do_not_send_here_are_a_lie(rules: str) -> None:
    lie = encode(Fact("row", ("pills",)))
    report = await checked(rules, on_rows(lambda row: row if b"began" in row else lie))
    assert [(each.verdict, each.detail) for each in report.bad] == [
        (Judgement.ALTERED, "its rules send other facts here")
    ]


async def test_facts_of_no_page_are_a_lie() -> None:
    def add(parcels: list[Parcel]) -> list[Parcel]:
        more = encode(Fact("row", ("pills",)))
        return [replace(parcel, rows=(more, *parcel.rows)) for parcel in parcels]

    report = await checked(COUNTING, add)
    assert "before it, its rules send other facts" in report.bad[0].detail


async def test_facts_that_are_kept_back_are_a_lie() -> None:
    def drop(parcels: list[Parcel]) -> list[Parcel]:
        return [replace(parcel, rows=(), row_counts=()) for parcel in parcels]

    report = await checked(FORGETFUL, drop)
    assert "send other facts" in report.bad[0].detail


async def test_state_that_rules_do_not_leave_here_is_a_lie() -> None:
    lie = encode(Fact("seen", ("pills", 1)))

    def forge(parcels: list[Parcel]) -> list[Parcel]:
        return [
            replace(
                parcel,
                state=replace(parcel.state, added=tuple((number, lie) for number, _ in parcel.state.added)),
            )
            for parcel in parcels
        ]

    report = await checked(COUNTING, forge)
    assert "leave other facts" in report.bad[0].detail


async def test_page_that_rules_keep_and_a_host_drops_is_found() -> None:
    def drop(page: Page) -> Page:
        return replace(page, is_kept=False)

    def tamper(parcels: list[Parcel]) -> list[Parcel]:
        return [replace(parcel, pages=tuple(map(drop, parcel.pages))) for parcel in parcels]

    report = await checked(CHOOSING, tamper)
    assert any("whether to keep it" in each.detail for each in report.bad)


async def test_many_pages_on_which_rules_fail_only_at_the_host_are_a_lie() -> None:
    def fail(page: Page) -> Page:
        is_one = page.url.endswith(("3", "4"))
        given = {
            "url": page.url,
            "fingerprint": page.fingerprint,
            "depth": page.depth,
            "fetched": page.fetched,
        }
        return Page(error="rules", **given) if is_one else page  # type: ignore[arg-type]

    def tamper(parcels: list[Parcel]) -> list[Parcel]:
        return [
            replace(parcel, pages=tuple(map(fail, parcel.pages)), rows=(), row_counts=())
            for parcel in parcels
        ]

    report = await checked("(defrule nothing (page) => (keep))", tamper)
    assert [each.verdict for each in report.bad] == [Judgement.MISSING]
    assert "do not fail here" in report.bad[0].detail


async def test_page_that_changed_since_ends_the_comparison() -> None:
    now = Checking(web_of({path: f"<title>new</title>{text}" for path, text in pages(40).items()}))
    report = await checked(COUNTING, web=now.site)
    assert not any("rules" in each.detail for each in report.findings)


def test_rules_that_keep_nothing_of_a_page_have_no_memory() -> None:
    assert not remember((Source("r.clp", FORGETFUL),))
    assert not remember((Source("r.clp", CHOOSING),))
    assert remember((Source("r.clp", COUNTING),))
    assert remember((Source("r.clp", "(defrule a (page) => (store x 1))"),))


def test_run_is_of_one_parcel_and_begins_with_the_state_before_it() -> None:
    made = [
        making.parcel(
            number=number,
            pages=(making.page(f"/{number}-a"), making.page(f"/{number}-b")),
            rows=(b"%d" % number, b"b", b"c"),
            row_counts=(1, 2),
            state=StateChange(added=((number, b"%d" % number),)),
        )
        for number in range(1, 30)
    ]
    firsts = set()
    for seed in range(60):
        witness = RunWitness(Random(seed), visit_of().state, has_memory=True)
        for parcel in made:
            witness.see(parcel)
        assert witness.run
        number = int(witness.run.pages[0].page.url.rpartition("/")[2].partition("-")[0])
        assert [rows for each in witness.run.pages for rows in each.rows] == list(made[number - 1].rows)
        assert witness.run.state.facts == tuple((n, b"%d" % n) for n in range(1, number))
        firsts.add(number)
    assert len(firsts) > 20
