"""The own index in tests: pages as a survey brings them, and whole surveys of sites that a test makes up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tests import making
from tests.clocks import StillClock

from sterna.host.config import HostConfig
from sterna.host.own.index import Change, Index, Survey
from sterna.host.own.survey import Outcome, Surveyor, SurveyPlan
from sterna.host.policy.load import LoadMeter
from sterna.host.policy.policy import LoadRules, Policy
from sterna.host.visiting.workshop import Workshop
from sterna.model import Page, Usage
from sterna.web.clock import Clock
from sterna.web.http import Fetcher, Request, Response
from sterna.web.signature import digest_of, likeness_of

SITE = "http://site.test"
NOW = 1_800_000_000.0
DAY = 86_400.0
BUSY_OR_NOT = Policy(load=LoadRules(machine=0.0))  # a survey in a test rests for nobody
TEXT = "the arctic tern migrates farther than any other animal on earth does " * 3
OTHER = "a heron stands still in shallow water and waits for whatever fish comes by " * 3


def date(seconds: float) -> str:
    """As HTTP writes it."""
    return formatdate(seconds, usegmt=True)


def page(path: str, text: str = "", **fields: Any) -> Page:
    """A page as a survey brings it."""
    given: dict[str, Any] = {
        "depth": 1,
        "fetched": NOW,
        "content_type": "text/html",
        "text": text,
        "digest": digest_of(text.encode()),
        "likeness": likeness_of(text),
    }
    return making.page(path, site=SITE, **(given | fields))


def gone(path: str, status: int = 404, **fields: Any) -> Page:
    """An answer that says that the page is not there."""
    return page(path, status=status, **fields)


def survey(state: Path, *pages: Page, now: float = NOW, is_whole: bool = True) -> Survey:
    """A survey that brought these pages, made at that time."""
    index = Index(state, site=SITE)
    try:
        plan = SurveyPlan(index, starts=(), now=now)
        brought = tuple(replace(each, fetched=now) for each in pages)
        usage = Usage(pages=len(pages), requests=len(pages))
        plan.take(making.parcel(site=SITE, pages=brought, usage=usage))
        plan.finish(is_whole=is_whole, now=now)
        return plan.standing()
    finally:
        index.close()


def listed(state: Path) -> dict[str, float | None]:
    """Path to date of the pages that are shown."""
    index = Index(state)
    try:
        return {each.url.removeprefix(SITE): each.lastmod for each in index.pages()}
    finally:
        index.close()


def changes(state: Path) -> list[tuple[str, str, float]]:
    """Kind, path and time of what changed."""
    return [(each.kind, each.url.removeprefix(SITE), each.at) for each in all_changes(state)]


def all_changes(state: Path) -> list[Change]:
    index = Index(state)
    try:
        return list(index.changes())
    finally:
        index.close()


# -- sites -------------------------------------------------------------------------------------------------


class Site:
    """A site in memory: paths to bodies, headers and statuses, which a test changes between two surveys."""

    def __init__(self) -> None:
        self.bodies: dict[str, str] = {"/robots.txt": ""}
        self.headers: dict[str, dict[str, str]] = {}
        self.statuses: dict[str, int] = {}
        self.asked: list[str] = []
        self.conditional: list[str] = []  # those of them that were asked for if they changed
        self.pause = asyncio.Event()
        self.pause.set()

    def put(self, path: str, body: str, **headers: str) -> None:
        self.bodies[path] = body
        self.headers[path] = {name.replace("_", "-"): value for name, value in headers.items()}

    async def fetch(self, request: Request) -> Response:
        path = request.url.removeprefix(SITE)
        self.asked.append(path)
        if path != "/robots.txt":
            await self.pause.wait()
        headers = {"content-type": "text/html"} | self.headers.get(path, {})
        etag = dict(request.headers).get("If-None-Match", "")
        if etag:
            self.conditional.append(path)
        status = self.statuses.get(path, 200 if path in self.bodies else 404)
        if status == 200 and etag and etag == headers.get("etag"):
            status = 304
        body = self.bodies.get(path, "").encode() if status == 200 else b""
        return Response(
            status=status,
            head=f"HTTP/1.1 {status} X\r\n\r\n".encode(),
            body=body,
            headers=tuple(headers.items()),
            seconds=0.0,
            wire_bytes=len(body),
        )

    @asynccontextmanager
    async def open(self, config: HostConfig, clock: Clock) -> AsyncIterator[Fetcher]:
        yield self


class Owner:
    """Whoever surveys a site of a test; keeps its processes between two surveys."""

    def __init__(self, site: Site, config: HostConfig, meter: LoadMeter | None) -> None:
        self.site = site
        self.config = config
        self.clock = StillClock()
        self.clock.time = NOW
        self.said: list[str] = []
        self.stop = asyncio.Event()
        self.workshop = Workshop(config, self.clock, open_source=site.open)
        self.surveyor = Surveyor(config, self.workshop, self.clock, announce=self.said.append, meter=meter)

    async def survey(self, *, after: float = 0.0, **fields: Any) -> Outcome:
        self.clock.time += after
        async with asyncio.timeout(60):
            return await self.surveyor.survey(stop=self.stop, **fields)


@asynccontextmanager
async def owner_of(
    site: Site,
    folder: Path,
    policy: Policy = BUSY_OR_NOT,
    *,
    policy_file: Path | None = None,
    meter: LoadMeter | None = None,
) -> AsyncIterator[Owner]:
    """The owner of a site, with the folder of state in which its index is."""
    config = HostConfig(site=SITE, state=folder, keys=folder / "keys", policy=policy, policy_file=policy_file)
    owner = Owner(site, config, meter)
    try:
        yield owner
    finally:
        await owner.workshop.aclose()
