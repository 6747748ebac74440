"""Visits whose engine dies, with real engines in real processes: pages and facts come home together."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from tests.runtime.continuing import changed
from tests.runtime.fakes import SITE, FakeWeb, Home, linking, make_kit, polite, reply, visit_of

from sterna.crawler.facts import decode
from sterna.model import Budget, Crawler, Ended, Parcel, Program, Scope, Source, State, Visit
from sterna.runtime import rulings
from sterna.runtime.cell.jail import JailLimits
from sterna.runtime.cell.pool import Cell, Forker
from sterna.runtime.engine.client import ENTRY, MAX_STARTS, Engines
from sterna.runtime.runtime import Runtime
from sterna.web.http import Request, Response

PAGES = 60
RULES = """
(defrule first => (emit began))
(defrule ask (request (url ?url)) => (assert (asked ?url)))
(defrule note (page (url ?url)) => (assert (seen ?url)) (emit row ?url))
"""
POISON = "(deffunction sink (?n) (+ 1 (sink ?n)))"


@dataclass
class Starts:
    """Starts real engines, and knows the last one."""

    forker: Forker = field(default_factory=lambda: Forker(ENTRY, wrapper=()))
    cells: list[Cell] = field(default_factory=list)

    async def start(self, *, limits: JailLimits, is_jailed: bool | None) -> Cell:
        cell = await self.forker.start(limits=limits, is_jailed=is_jailed)
        self.cells.append(cell)
        return cell

    def kill(self) -> None:
        os.kill(self.cells[-1].pid, signal.SIGKILL)


class Web(FakeWeb):
    """A front page that leads to all others; something happens at some of the requests."""

    def __init__(self, at: Callable[[int], None] = lambda number: None) -> None:
        script = {f"/{n}": reply(body=f"<title>{n}</title>") for n in range(PAGES)}
        super().__init__(script | {"/": linking(*(f"/{n}" for n in range(PAGES)))})
        self._at = at

    async def fetch(self, request: Request) -> Response:
        response = await super().fetch(request)
        self._at(len(self.log))
        return response


def visit_with(rules: str, **fields: object) -> Visit:
    crawler = Crawler(scope=Scope(use_sitemaps=False), program=Program(rules=(Source("r.clp", rules),)))
    return visit_of(crawler=crawler, etiquette=polite(connections=8), **fields)


async def crawled(
    rules: str, *, at: Callable[[Starts, int], None] = lambda starts, number: None, **fields: object
) -> tuple[list[Parcel], Starts]:
    starts, home = Starts(), Home()
    async with starts.forker, Engines(is_jailed=False, starter=starts) as engines:
        kit = make_kit(Web(lambda number: at(starts, number)), engines=engines)
        await Runtime(kit).carry_out(visit_with(rules, **fields), deliver=home.take, stop=asyncio.Event())
    return home.parcels, starts


def results(parcels: list[Parcel]) -> tuple[Counter[str], ...]:
    """Pages, rows, facts and found URLs, each with how often it came."""
    state = State()
    for parcel in parcels:
        state = changed(state, parcel.state)
    return (
        Counter(page.url for parcel in parcels for page in parcel.pages if not page.error),
        Counter(str(decode(row)) for parcel in parcels for row in parcel.rows),
        Counter(str(decode(fact)) for _, fact in state.facts),
        Counter(target.url for parcel in parcels for target in parcel.checkpoint.found),
    )


def carries_facts_of_its_pages(parcel: Parcel) -> bool:
    """The facts that a parcel adds are those of the pages that are in it."""
    seen = {decode(fact).values[0] for _, fact in parcel.state.added if decode(fact).template == "seen"}
    return seen == {page.url for page in parcel.pages if not page.error}


@pytest.mark.parametrize("seed", [1, 2])
async def test_killed_engines_cost_neither_pages_nor_facts(seed: int) -> None:
    undisturbed, _ = await crawled(RULES)
    moments = set(Random(seed).sample(range(2, PAGES), 5))

    def at(starts: Starts, number: int) -> None:
        if number in moments:
            starts.kill()

    parcels, starts = await crawled(RULES, at=at)
    assert len(starts.cells) > 2
    assert results(parcels) == results(undisturbed)
    assert all(map(carries_facts_of_its_pages, parcels))
    assert parcels[-1].ended is Ended.FINISHED


async def test_engine_that_is_killed_as_it_begins_is_started_again() -> None:
    class Killing(Starts):
        async def start(self, *, limits: JailLimits, is_jailed: bool | None) -> Cell:
            cell = await super().start(limits=limits, is_jailed=is_jailed)
            if len(self.cells) < MAX_STARTS:
                self.kill()
            return cell

    starts = Killing()
    async with starts.forker, Engines(is_jailed=False, starter=starts) as engines:
        engine = await engines.open(Program(rules=(Source("r.clp", RULES),)))
        assert [str(decode(row).template) for row in engine.first.rows] == ["began"]
    assert len(starts.cells) == MAX_STARTS


async def test_page_that_kills_every_engine_is_an_error_and_the_others_go_on() -> None:
    rules = f'{RULES}{POISON}(defrule fall (page (url "{SITE}/7")) => (sink 1))'
    parcels, _ = await crawled(rules)
    pages = {page.url: page.error for parcel in parcels for page in parcel.pages}
    assert pages == {f"{SITE}/": "", **{f"{SITE}/{n}": "rules" if n == 7 else "" for n in range(PAGES)}}
    assert all(map(carries_facts_of_its_pages, parcels))
    assert parcels[-1].ended is Ended.FINISHED


async def test_request_that_kills_every_engine_is_an_error_of_its_page() -> None:
    rules = f'{RULES}{POISON}(defrule fall (request (url "{SITE}/7")) => (sink 1))'
    parcels, _ = await crawled(rules)
    errors = [(page.url, page.error) for parcel in parcels for page in parcel.pages if page.error]
    assert errors == [(f"{SITE}/7", "rules")]


async def test_rules_that_kill_at_every_page_end_the_visit_after_some_deaths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rulings, "MAX_DEATHS", 5)
    parcels, starts = await crawled(f"{POISON}(defrule fall (page (depth 1)) => (sink 1))")
    assert parcels[-1].ended is Ended.CRASH
    assert len(starts.cells) == 6
    errors = Counter(page.error for parcel in parcels for page in parcel.pages)
    assert errors["rules"] >= 2


async def test_death_with_more_facts_than_are_kept_ends_the_visit_and_no_page_is_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rulings, "MAX_STATE_BYTES", 1)

    def at(starts: Starts, number: int) -> None:
        if number == 40:
            starts.kill()

    parcels, _ = await crawled(RULES, at=at, budget=Budget(seconds=60.0))
    assert all(map(carries_facts_of_its_pages, parcels))
