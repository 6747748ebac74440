"""How surely a lying host is found out, beside the formula 1 - (1 - f)^k: production code, and many seeds.

`bench.detection` does the same with every page read anew, and with more kinds of lies.
"""

import asyncio
from collections.abc import Awaitable, Callable
from math import sqrt
from random import Random

import pytest
from msgspec.structs import replace
from tests import making
from tests.home.belief.lying_sites import OFFER, Tamper, detection, each_page, hiding, pages, web_of
from tests.runtime.fakes import SITE, Home, VirtualClock, make_kit, run, visit_of

from sterna.home.belief.check import Check, Report
from sterna.model import Ended, Links, Page, Parcel, Raw, Usage, Visit
from sterna.runtime.runtime import Runtime
from sterna.trust.sampling import MOST_SAMPLES, Witness
from sterna.web.signature import digest_of
from sterna.web.urls import fingerprint

PAGES = 1_000
TRIALS = 100


async def visited() -> list[Parcel]:
    home = Home()
    runtime = Runtime(make_kit(web_of(pages(PAGES - 1))))
    await runtime.carry_out(visit_of(), deliver=home.take, stop=asyncio.Event())
    return home.parcels


@pytest.fixture(scope="module")
def true() -> list[Parcel]:
    """What an honest host tells of the site."""
    return run(visited())


class Truth:
    """The site as it was read once: it is the same each time."""

    def __init__(self, true: list[Parcel]) -> None:
        self._pages = {page.url: page for parcel in true for page in parcel.pages}

    async def carry_out(
        self, visit: Visit, *, deliver: Callable[[Parcel], Awaitable[None]], stop: asyncio.Event
    ) -> None:
        seen = [self._pages.get(start.url) or gone(start.url) for start in visit.starts]
        usage = Usage(requests=len(seen))
        await deliver(making.parcel(visit, pages=tuple(seen), usage=usage, ended=Ended.FINISHED))

    async def digest(self, raw: Raw) -> bytes:
        raise AssertionError("no page has a raw response")


def gone(url: str) -> Page:
    return making.page(url, fetched=0.0, status=404)


def chosen(share: float, seed: int) -> set[str]:
    paths = [f"{SITE}/{n}" for n in range(PAGES - 1)]
    return set(Random(f"lies {seed}").sample(paths, round(share * PAGES)))


def altered(share: float, seed: int) -> Tamper:
    urls = chosen(share, seed)

    def alter(page: Page) -> Page:
        text = f"{page.text} pills"
        return replace(page, text=text, digest=digest_of(text.encode())) if page.url in urls else page

    return each_page(alter)


def hidden(share: float, seed: int) -> Tamper:
    urls = chosen(share, seed)

    def hide(page: Page) -> Page:
        return replace(gone(page.url), fetched=page.fetched) if page.url in urls else page

    return each_page(hide)


def added(share: float, seed: int) -> Tamper:
    def add(parcels: list[Parcel]) -> list[Parcel]:
        *first, last = parcels
        urls = (f"{SITE}/more{n}" for n in range(round(PAGES * share / (1 - share))))
        like = last.pages[0]
        more = (replace(like, url=url, fingerprint=fingerprint(url), links=Links()) for url in urls)
        return [*first, replace(last, pages=(*last.pages, *more))]

    return add


def failing(share: float, seed: int) -> Tamper:
    return hiding("timeout", chosen(share, seed))


def put_off(share: float, seed: int) -> Tamper:
    return hiding("again", chosen(share, seed))


async def check(told: list[Parcel], here: Truth, seed: int) -> Report:
    witness = Witness(Random(f"samples {seed}"))
    for parcel in told:
        witness.see(parcel)
    checking = Check(visit_of(), witness, OFFER, here=here, clock=VirtualClock())
    return await checking.run(MOST_SAMPLES, asyncio.Event())


@pytest.mark.parametrize(
    ("lie", "share"),
    [
        (altered, 0.01),
        (altered, 0.05),
        (altered, 0.2),
        (hidden, 0.05),
        (added, 0.05),
        (failing, 0.05),
        (put_off, 0.05),
    ],
)
def test_liar_is_found_out_as_surely_as_the_formula_says(
    true: list[Parcel], lie: Callable[[float, int], Tamper], share: float
) -> None:
    here = Truth(true)

    async def trials() -> int:
        return sum([bool((await check(lie(share, seed)(true), here, seed)).bad) for seed in range(TRIALS)])

    formula = detection(share, MOST_SAMPLES)
    error = 4 * sqrt(formula * (1 - formula) / TRIALS) + 0.01  # samples are drawn without putting back
    assert run(trials()) / TRIALS == pytest.approx(formula, abs=error)


def test_honest_host_is_never_accused(true: list[Parcel]) -> None:
    async def trials() -> int:
        return sum([len((await check(true, Truth(true), seed)).bad) for seed in range(20)])

    assert run(trials()) == 0
