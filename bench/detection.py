"""How surely a lying host is found out, beside the formula 1 - (1 - f)^k, and an honest one never.

python -m bench.detection [--trials 400] [--pages 2000] [--real]. A host visits a site in memory and lies
about a share f of its pages, other ones in each trial; then the check of `sterna crawl` samples k claims,
reads them through the real runtime, and judges them. Nothing is simulated but network and clock. Found out
is who has one page or more against it, or sends what home refuses: then nothing that it brought is used. With
`--real`, an honest host
of a real site (Apache's manual, read from the disk) is checked as often.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from random import Random

from msgspec.structs import replace as changed
from tests.home.belief.lying_sites import (
    ASKING,
    HIDING,
    OFFER,
    Changing,
    Cloaking,
    body,
    detection,
    each_page,
    hiding,
    pages,
    ruled_visit,
    taken,
    web_of,
)
from tests.runtime.fakes import SITE, FakeWeb, Home, VirtualClock, make_kit, reply, run, visit_of
from tests.servers.nginx import real_site

from sterna.errors import WireError
from sterna.home.belief.check import Check, Report
from sterna.home.belief.inquiry import witness_of
from sterna.model import Links, Page, Parcel, Visit
from sterna.runtime.engine.client import Engines
from sterna.runtime.runtime import Runtime
from sterna.trust.judgement import Finding, Judgement
from sterna.trust.sampling import MOST_SAMPLES
from sterna.web.http import Fetcher, Request, Response
from sterna.web.root_fetcher import RootFetcher
from sterna.web.signature import digest_of
from sterna.web.urls import fingerprint

Lie = Callable[[list[Parcel], float, Random], list[Parcel]]


@dataclass(frozen=True)
class Case:
    """A kind of host."""

    name: str
    share: float
    lie: Lie
    samples: int = MOST_SAMPLES
    is_strict: bool = False
    web: Callable[[dict[str, str], float, Random], FakeWeb] = lambda site, share, random: web_of(site)
    rules: str = ""  # of the crawler, which need real time
    at_host: str = "true"  # or "same": the host visits the site that is seen from here


@dataclass
class Result:
    """What the trials of a case came to."""

    trials: int = 0
    found: int = 0
    samples: int = 0
    requests: int = 0

    def add(self, report: Report, samples: int) -> None:
        self.trials += 1
        self.found += bool(report.bad)
        self.samples += samples
        self.requests += report.usage.requests


# -- lies ------------------------------------------------------------------------------------------------


def chosen(parcels: list[Parcel], share: float, random: Random) -> set[str]:
    """The URLs that are lied about."""
    urls = sorted(page.url for parcel in parcels for page in parcel.pages)
    return set(random.sample(urls, round(share * len(urls))))


def altered(page: Page) -> Page:
    text = f"{page.text} pills"
    return changed(page, text=text, digest=digest_of(text.encode()))


def falsified(page: Page) -> Page:
    return changed(page, text=f"{page.text} pills")


def hidden(page: Page) -> Page:
    return changed(page, status=404, text="", title="", links=Links(), digest=digest_of(b"not here"))


def on_some(change: Callable[[Page], Page | None]) -> Lie:
    def lie(parcels: list[Parcel], share: float, random: Random) -> list[Parcel]:
        urls = chosen(parcels, share, random)
        return each_page(lambda page: change(page) if page.url in urls else page)(parcels)

    return lie


def without_links(parcels: list[Parcel], share: float, random: Random) -> list[Parcel]:
    """Pages are left out, and so are all links to them: who follows the host's pages never hears of them."""
    urls = chosen(parcels, share, random)

    def drop(page: Page) -> Page | None:
        if page.url in urls:
            return None
        return changed(page, links=Links.of(*(link for link in page.links if link.url not in urls)))

    return each_page(drop)(parcels)


def hides(way: str) -> Lie:
    """Pages are not brought, for a reason: done with, not kept, an error, or put off by a day."""

    def lie(parcels: list[Parcel], share: float, random: Random) -> list[Parcel]:
        return hiding(way, chosen(parcels, share, random) - {f"{SITE}/"})(parcels)

    return lie


def with_more(parcels: list[Parcel], share: float, random: Random) -> list[Parcel]:
    """So many more pages that they are this share of all."""
    *first, last = parcels
    count = sum(len(parcel.pages) for parcel in parcels)
    more = tuple(
        invented(f"{SITE}/more{n}", last.pages[0]) for n in range(round(count * share / (1 - share)))
    )
    return [*first, changed(last, pages=(*last.pages, *more))]


def invented(url: str, like: Page) -> Page:
    return changed(like, url=url, fingerprint=fingerprint(url), title="Pills")


def honest(parcels: list[Parcel], share: float, random: Random) -> list[Parcel]:
    return parcels


def cloaking(site: dict[str, str], share: float, random: Random) -> FakeWeb:
    casino = random.sample(sorted(site), round(share * len(site)))
    return Cloaking(site, site | {path: body(f"casino{n}x") for n, path in enumerate(casino)})


class Troubled(FakeWeb):
    """A third of all requests fail, so that a page in thirty is given up."""

    def __init__(self, site: dict[str, str], random: Random) -> None:
        super().__init__({path: reply(body=text) for path, text in site.items()})
        self._random = random

    async def fetch(self, request: Request) -> Response:
        response = await super().fetch(request)
        is_robots = request.url.endswith("/robots.txt")
        return reply(500) if not is_robots and self._random.random() < 1 / 3 else response


def broken(site: dict[str, str], share: float, random: Random) -> FakeWeb:
    """6 % of the pages always answer 500, the same ones in each trial."""
    failing = Random(0).sample(sorted(set(site) - {"/"}), round(0.06 * len(site)))
    return FakeWeb(
        {path: reply(500) if path in set(failing) else reply(body=text) for path, text in site.items()}
    )


# Rules that judge requests: by the URL alone, and by what they remember of pages and requests.
RULES = {
    "rules refuse a tenth": ASKING,
    "rules that remember": """
(defglobal ?*pages* = 0)
(defrule count (page) => (bind ?*pages* (+ 1 ?*pages*)) (if (= ?*pages* 500) then (assert (enough))))
(defrule no (request (url ?url)) (enough) => (refuse ?url))
""",
    "rules refuse every second": """
(defglobal ?*asked* = 0)
(defrule no (request (url ?url)) =>
  (bind ?*asked* (+ 1 ?*asked*)) (if (= 0 (mod ?*asked* 2)) then (refuse ?url)))
""",
}

CASES = (
    *(Case("alters pages", share, on_some(altered)) for share in (0.01, 0.05, 0.2)),
    *(Case("alters 5 %", 0.05, on_some(altered), samples=k) for k in (7, 13, 28)),
    Case("alters text, digest right", 0.05, on_some(falsified)),
    Case("says pages are not there", 0.05, on_some(hidden)),
    Case("drops pages", 0.05, on_some(lambda page: None)),
    Case("drops pages and links", 0.05, without_links),
    Case("adds pages", 0.05, with_more),
    Case("shows browsers others", 0.05, honest, is_strict=True, web=cloaking),
    *(Case(f"hides pages: {way}", 0.05, hides(way)) for way in HIDING),
    Case("hides pages: refused by rules", 0.05, hides("done"), rules=ASKING),
    Case("6 % fail at both ends, hides more", 0.4, hides("timeout"), web=broken, at_host="same"),
    Case("6 % fail at both ends, hides more", 0.4, hides("timeout"), samples=13, web=broken, at_host="same"),
    Case("6 % fail from here only, hides more", 0.4, hides("timeout"), web=broken),
    Case("honest", 0.0, honest, is_strict=True),
    *(
        Case(
            "honest, site in trouble",
            0.0,
            honest,
            samples=k,
            web=lambda site, share, random: Troubled(site, random),
            at_host="same",
        )
        for k in (13, MOST_SAMPLES)
    ),
    Case("honest, 6 % fail", 0.0, honest, web=broken, at_host="same"),
    Case(
        "honest, pages change",
        0.0,
        honest,
        web=lambda site, share, random: Changing(site, new=3),
        at_host="same",
    ),
    *(Case(f"honest, {name}", 0.0, honest, rules=rules) for name, rules in RULES.items()),
)


# -- trials ----------------------------------------------------------------------------------------------


async def visited(web: Fetcher, visit: Visit, engines: Engines | None = None) -> list[Parcel]:
    home = Home()
    kit = replace(make_kit(FakeWeb({}), engines=engines), fetcher=web)
    await Runtime(kit).carry_out(visit, deliver=home.take, stop=asyncio.Event())
    return home.parcels


async def checked(
    case: Case, told: list[Parcel], web: Fetcher, visit: Visit, seed: int, engines: Engines | None = None
) -> tuple[Report, int]:
    witness = witness_of(visit, visit.state, Random(f"samples {seed}"))
    try:
        parcels = taken(told, visit)
    except WireError as error:
        return Report(findings=(Finding(SITE, Judgement.MISSING, str(error)),)), 0
    for parcel in parcels:
        witness.see(parcel)
    kit = replace(make_kit(FakeWeb({}), engines=engines), fetcher=web)
    check = Check(visit, witness, OFFER, here=Runtime(kit), clock=VirtualClock(), is_strict=case.is_strict)
    return await check.run(case.samples, asyncio.Event()), min(case.samples, witness.checkable)


async def tried(case: Case, site: dict[str, str], true: list[Parcel], trials: int) -> Result:
    if not case.rules:
        return await tried_by(case, site, true, trials, visit_of())
    visit = ruled_visit(case.rules)
    async with Engines(is_jailed=False) as engines:
        told = await visited(web_of(site), visit, engines)
        return await tried_by(case, site, told, trials, visit, engines)


async def tried_by(
    case: Case,
    site: dict[str, str],
    true: list[Parcel],
    trials: int,
    visit: Visit,
    engines: Engines | None = None,
) -> Result:
    result = Result()
    told = true if case.at_host == "true" else await visited(case.web(site, case.share, Random(0)), visit)
    for seed in range(trials):
        random = Random(f"{case.name} {case.share} {seed}")
        web = case.web(site, case.share, random)
        lie = case.lie(told, case.share, random)
        report, samples = await checked(case, lie, web, visit, seed, engines)
        result.add(report, samples)
    return result


async def tried_for_real(trials: int) -> Result:
    """An honest host of a real site."""
    visit, web = visit_of("/en/"), RootFetcher(real_site("apache2-doc"))
    scope = changed(visit.crawler.scope, include=("/en/",))
    visit = changed(visit, crawler=changed(visit.crawler, scope=scope))
    told, result = await visited(web, visit), Result()
    for seed in range(trials):
        report, samples = await checked(CASES[0], told, web, visit, seed)
        result.add(report, samples)
    return result


# -- the table -------------------------------------------------------------------------------------------


def row(case: Case, result: Result) -> str:
    measured, samples = result.found / result.trials, result.samples // result.trials
    formula = detection(case.share, samples)
    error = 2 * sqrt(max(formula * (1 - formula), 1 / result.trials) / result.trials)
    return (
        f"| {case.name} | {case.share:.0%} | {samples} | {measured:.1%} | {formula:.1%} | {error:.1%}"
        f" | {result.requests / result.trials:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--pages", type=int, default=2_000)
    parser.add_argument("--real", action="store_true", help="also an honest host of a real site")
    parser.add_argument("--only", default="", help="cases whose names begin so")
    given = parser.parse_args()
    site, began = pages(given.pages - 1), time.monotonic()
    true = run(visited(web_of(site), visit_of()))
    print(f"{given.pages:,} pages, {given.trials} trials of each\n")
    print("| the host | f | k | found out | 1 - (1 - f)^k | +- 2 sigma | requests of a check |")
    print("|---|---|---|---|---|---|---|")
    is_good = True
    for case in CASES:
        if case.name.startswith(given.only):
            trying = tried(case, site, true, given.trials)
            result = asyncio.run(trying) if case.rules else run(trying)
            print(row(case, result), flush=True)
            is_good = is_good and is_as_promised(case, result)
    if given.real:
        result = run(tried_for_real(given.trials))
        print(row(Case("honest, Apache's manual", 0.0, honest), result))
        is_good = is_good and not result.found
    print(f"\n{time.monotonic() - began:.0f} s")
    sys.exit(0 if is_good else "not as promised")


def is_as_promised(case: Case, result: Result) -> bool:
    """No honest host is accused; a liar is found out as surely as the formula says, but for 3 sigma."""
    if not case.share:
        return not result.found
    formula = detection(case.share, result.samples // result.trials)
    return result.found / result.trials >= formula - 3 * sqrt(formula * (1 - formula) / result.trials)


if __name__ == "__main__":
    main()
