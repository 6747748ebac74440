"""A site in memory, a host that visits it and lies about it, and a home that checks: all in virtual time."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from msgspec.structs import replace
from tests.runtime.fakes import SITE, FakeWeb, Home, VirtualClock, make_kit, reply, visit_of

from sterna.home.away.claims import Claims
from sterna.home.belief.check import Check, Report
from sterna.home.belief.inquiry import witness_of
from sterna.model import Crawler, Ended, Links, Page, Parcel, Program, Scope, Source, Target, Visit
from sterna.runtime.engine.client import Engines
from sterna.runtime.runtime import Runtime
from sterna.version import __version__
from sterna.web.http import Request, Response
from sterna.wire.discovery import Offer

OLD = "Thu, 01 Jan 1970 01:00:00 GMT"
OFFER = Offer(site=SITE, key="ed25519:k", endpoint=f"{SITE}/sterna", platform={"sterna": __version__})

Tamper = Callable[[list[Parcel]], list[Parcel]]


def body(name: str, *links: str, words: str = "") -> str:
    """A page of a hundred words that no other has, with links."""
    text = " ".join(f"{name}{n}" for n in range(100))
    anchors = "".join(f'<a href="{link}">{link}</a> ' for link in links)
    return f"<title>{name}</title><p>{text} {words}</p>{anchors}"


def pages(count: int = 40) -> dict[str, str]:
    """A front page that leads to all others, of which each leads to the next two."""
    site = {"/": body("front", *(f"/{n}" for n in range(count)))}
    for n in range(count):
        site[f"/{n}"] = body(f"p{n}x", f"/{(n + 1) % count}", f"/{(n + 2) % count}")
    return site


def web_of(site: Mapping[str, str], *, modified: str = OLD) -> FakeWeb:
    return FakeWeb({path: reply(body=text, last_modified=modified) for path, text in site.items()})


class Cloaking(FakeWeb):
    """Shows browsers another site."""

    def __init__(self, site: Mapping[str, str], to_browsers: Mapping[str, str]) -> None:
        super().__init__({path: reply(body=text) for path, text in site.items()})
        self._other = FakeWeb({path: reply(body=text) for path, text in to_browsers.items()})

    async def fetch(self, request: Request) -> Response:
        agent = dict(request.headers).get("User-Agent", "")
        return await (self._other.fetch(request) if "Mozilla" in agent else super().fetch(request))


class Changing(FakeWeb):
    """Every page is another at each request, by a few words."""

    def __init__(self, site: Mapping[str, str], *, new: int = 1) -> None:
        super().__init__({})
        self._site = site
        self._new = new
        self._count = 0

    async def fetch(self, request: Request) -> Response:
        await super().fetch(request)
        text = self._site.get(request.url.removeprefix(SITE))
        if text is None:
            return reply(404)
        self._count += 1
        words = " ".join(f"new{self._count}n{n}" for n in range(self._new))
        return reply(body=text.replace("</p>", f" {words}</p>"))


@dataclass
class Checking:
    """A visit at a host, and its check from here."""

    site: FakeWeb  # as home sees it
    at_host: FakeWeb | None = None  # where the host reads something else
    tamper: Tamper = lambda parcels: parcels
    visit: Visit = field(default_factory=visit_of)
    seed: int = 1
    later: float = 5.0  # seconds from the visit to its check
    engines: Engines | None = None  # of a crawler with rules, which needs real time

    async def told(self) -> list[Parcel]:
        """The parcels as the host sends them."""
        home = Home()
        runtime = Runtime(make_kit(self.at_host or self.site, engines=self.engines))
        await runtime.carry_out(self.visit, deliver=home.take, stop=asyncio.Event())
        return self.tamper(home.parcels)

    async def run(self, count: int = 59, **fields: Any) -> Report:
        witness = witness_of(self.visit, self.visit.state, Random(self.seed))
        for parcel in taken(await self.told(), self.visit):
            witness.see(parcel)
        await asyncio.sleep(self.later)
        check = Check(
            self.visit,
            witness,
            fields.pop("offer", OFFER),
            here=Runtime(make_kit(self.site, engines=self.engines)),
            clock=VirtualClock(),
            **fields,
        )
        return await check.run(count, asyncio.Event())


def each_page(change: Callable[[Page], Page | None]) -> Tamper:
    """Pages as this makes them; those of which it makes None are left out, with every mention of them."""

    def tamper(parcels: list[Parcel]) -> list[Parcel]:
        told = [
            replace(parcel, pages=tuple(page for each in parcel.pages if (page := change(each)) is not None))
            for parcel in parcels
        ]
        gone = {each.url for parcel in parcels for each in parcel.pages if change(each) is None}
        return [
            replace(
                parcel,
                checkpoint=replace(
                    parcel.checkpoint,
                    found=tuple(each for each in parcel.checkpoint.found if each.url not in gone),
                ),
            )
            for parcel in told
        ]

    return tamper


HIDING = ("done", "is_kept", "timeout", "too_large", "again")  # the ways of leaving pages out
# The sixth: done with, where rules judge requests. These refuse one page in ten.
ASKING = '(defrule no (request (url ?url)) (test (like ?url "%9")) => (refuse ?url))'


def ruled_visit(rules: str) -> Visit:
    program = Program(rules=(Source("r.clp", rules),))
    return visit_of(crawler=Crawler(scope=Scope(use_sitemaps=False), program=program))


def hiding(way: str, urls: Collection[str]) -> Tamper:
    """These pages are left out, and the host has a reason for it."""

    def tamper(parcels: list[Parcel]) -> list[Parcel]:
        gone = [page for parcel in parcels for page in parcel.pages if page.url in urls]
        left = [
            replace(parcel, pages=tuple(page for page in parcel.pages if page.url not in urls))
            for parcel in parcels
        ]
        *first, last = left
        if way == "done":
            done = tuple(page.fingerprint for page in gone)
            return [*first, replace(last, checkpoint=replace(last.checkpoint, done=done))]
        if way == "again":
            at = last.pages[0].fetched + 24 * 3600
            again = tuple(Target(page.url, page.depth, not_before=at) for page in gone)
            checkpoint = replace(last.checkpoint, again=again)
            return [*first, replace(last, checkpoint=checkpoint, ended=Ended.BUDGET)]
        return [*first, replace(last, pages=(*last.pages, *(_excused(page, way) for page in gone)))]

    return tamper


def _excused(page: Page, way: str) -> Page:
    if way == "is_kept":
        return replace(page, is_kept=False, text="", title="", links=Links())
    return Page(url=page.url, fingerprint=page.fingerprint, depth=page.depth, fetched=page.fetched, error=way)


def taken(parcels: list[Parcel], visit: Visit) -> list[Parcel]:
    """The parcels as home takes them; WireError if they leave out what cannot be left out."""
    claims = Claims(visit)
    return [claims.checked(parcel, now=VirtualClock().now()) for parcel in parcels]


def falsified(page: Page, **fields: Any) -> Page:
    return replace(page, **fields)


def is_one_in(share: int, page: Page, *, seed: int = 0) -> bool:
    """True of about one page in so many, the same ones each time; never of the front page."""
    return page.url != f"{SITE}/" and Random(f"{seed} {page.url}").randrange(share) == 0


def detection(share: float, samples: int) -> float:
    """The probability that this many samples catch a host that altered this share of its pages."""
    return 1.0 - (1.0 - share) ** samples
