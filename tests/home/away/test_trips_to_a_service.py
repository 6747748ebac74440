"""Visits at the real service of a host, in memory and over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests import making
from tests.home.away.outings import ForgetfulLedger, PlainCourier
from tests.host.knocking import SITE, GatedSite, Home, open_home
from tests.transport.serving import Answerer, Cut, HttpFace, MemoryTransport, Said, Saying

from sterna.errors import HostGone, Refused
from sterna.home.away.patience import Patience
from sterna.home.away.receipts import Keep as KeepReceipt
from sterna.home.away.receipts import forget
from sterna.home.away.trip import Trip
from sterna.model import (
    Budget,
    Crawler,
    Ended,
    Etiquette,
    Keep,
    Parcel,
    Program,
    Visit,
)
from sterna.transport.http import HttpConfig, HttpTransport
from sterna.transport.interface import Call, Transport
from sterna.web.clock import SystemClock
from sterna.wire.discovery import Offer, decode_offer
from sterna.wire.holdings import Holdings
from sterna.wire.keys import Identity
from sterna.wire.orders import Look

ENDPOINT = f"{SITE}/sterna"
QUICK = Patience(silence_seconds=20.0, stop_seconds=10.0, tries=3, pause_seconds=0.01)
SOON_SECONDS = 60.0


def visit(name: str = "v1", **fields: Any) -> Visit:
    etiquette = Etiquette(user_agent="Tern/1", robots_name="Tern")
    given = {"epoch": 7, "etiquette": etiquette, "budget": Budget(pages=1000, seconds=60.0)}
    return making.visit(id=name, site=SITE, **(given | fields))


@dataclass
class Outing:
    """A home that sends crawlers to a service."""

    home: Home
    transport: Transport
    identity: Identity
    parcels: list[Parcel] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    on_parcel: Callable[[Parcel], None] = lambda parcel: None
    keep_receipt: KeepReceipt = forget
    noted: ForgetfulLedger = field(default_factory=ForgetfulLedger)

    @property
    def courier(self) -> PlainCourier:
        return PlainCourier(
            self.transport,
            clock=SystemClock(),
            identity=self.identity,
            patience=QUICK,
            keep_receipt=self.keep_receipt,
            noted=self.noted,
        )

    async def offer(self) -> Offer:
        reply = await self.home.service.answer(Call("discover"))
        assert isinstance(reply.body, bytes)
        return decode_offer(reply.body, SITE)

    async def deliver(self, parcel: Parcel) -> None:
        self.parcels.append(parcel)
        self.on_parcel(parcel)

    async def go(self, sent: Visit | None = None, **fields: Any) -> Trip:
        async with asyncio.timeout(SOON_SECONDS):
            return await self.courier.carry(
                sent or visit(), await self.offer(), deliver=self.deliver, stop=self.stop, **fields
            )

    @property
    def paths(self) -> list[str]:
        return [page.url.removeprefix(SITE) for parcel in self.parcels for page in parcel.pages]

    @property
    def numbers(self) -> list[int]:
        return [parcel.number for parcel in self.parcels]


@asynccontextmanager
async def outing_at(
    folder: Path, *, through: Callable[[Answerer], Answerer] = lambda answer: answer, **fields: Any
) -> AsyncIterator[Outing]:
    async with open_home(folder, **({"site": open_site()} | fields)) as home:
        transport = MemoryTransport({ENDPOINT: through(home.service.answer)})
        yield Outing(home, transport, home.identity)


def open_site() -> GatedSite:
    """A site that lets everything through."""
    site = GatedSite()
    site.let(1000)
    return site


async def trickle(site: GatedSite, is_enough: Callable[[], bool]) -> None:
    """Lets page after page through."""
    while not is_enough():
        site.let(1)
        await asyncio.sleep(0.02)


ALL = {"/", *(f"/{number}" for number in range(12))}


async def test_visit_brings_the_site_home_and_proves_it(tmp_path: Path) -> None:
    async with outing_at(tmp_path) as outing:
        trip = await outing.go()
        report = await outing.courier.lines.to(await outing.offer()).ask(Look("v1"))
    assert set(outing.paths) == ALL
    assert len(outing.paths) == len(ALL)
    assert (trip.ended, trip.is_proven, trip.cuts) == (Ended.FINISHED, True, 0)
    assert outing.numbers == list(range(1, trip.parcels + 1))
    assert (report.state, report.acknowledged, report.kept_bytes) == ("finished", trip.parcels, 0)


async def test_visit_over_http_is_the_same(tmp_path: Path) -> None:
    async with open_home(tmp_path, site=open_site()) as home, HttpFace(home.service.answer) as face:
        transport = HttpTransport(HttpConfig(), resolver=_Local(), clock=SystemClock())
        transport.let_private("127.0.0.1")
        outing = Outing(home, transport, home.identity)
        offer = await outing.offer()
        moved = Offer(site=SITE, key=offer.key, endpoint=f"{face.url}/sterna")
        trip = await outing.courier.carry(visit(), moved, deliver=outing.deliver, stop=outing.stop)
        await transport.close()
    assert set(outing.paths) == ALL
    assert trip.is_proven
    assert 0 < outing.noted.bytes_received < transport.bytes_received <= face.sent_bytes
    assert 0 < outing.noted.bytes_sent < transport.bytes_sent == sum(each.size for each in face.arrived)
    hello, order, *rest = [arrived.target for arrived in face.arrived]
    assert (hello, order, set(rest)) == ("/sterna/hello", "/sterna/order", {"/sterna/acknowledge"})


class _Local:
    async def resolve(self, hostname: str) -> tuple[str, ...]:
        return ("127.0.0.1",)

    def prefer(self, hostname: str, address: str) -> None:
        pass


async def test_cut_anywhere_is_gone_on_with(tmp_path: Path) -> None:
    for count in range(20):
        cutter = Cutter(count)
        async with outing_at(tmp_path / str(count), through=cutter.through) as outing:
            trip = await outing.go()
            assert sorted(outing.paths) == sorted(ALL)
            assert outing.numbers == list(range(1, trip.parcels + 1))
            assert trip.is_proven
            assert trip.cuts == cutter.cuts
            if not cutter.cuts:
                break
    assert count > 3


class Cutter:
    """Cuts the first stream after so many chunks."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.cuts = 0

    def through(self, answer: Answerer) -> Answerer:
        async def cutting(call: Call) -> Said:
            said = await answer(call)
            if call.op != "order" or isinstance(said.body, bytes) or self.cuts:
                return said
            return Saying(self._cut(said.body))

        return cutting

    async def _cut(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in body:
            if not self._left:
                self.cuts += 1
                raise Cut
            self._left -= 1
            yield chunk


async def test_home_that_was_restarted_goes_on(tmp_path: Path) -> None:
    site = GatedSite()
    async with outing_at(tmp_path, site=site) as outing:
        first = asyncio.create_task(outing.go())
        site.let(3)
        while len(outing.paths) < 3:  # noqa: ASYNC110 - parcels come by time
            await asyncio.sleep(0.05)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        site.let(99)
        trip = await outing.go(resume_from=outing.numbers[-1] + 1)
    assert len(outing.paths) == len(set(outing.paths)) == 13
    assert outing.numbers == list(range(1, len(outing.numbers) + 1))
    assert (trip.ended, trip.is_proven) == (Ended.FINISHED, False)


async def test_stopped_visit_ends_there_and_comes_home(tmp_path: Path) -> None:
    async with outing_at(tmp_path, site=(site := GatedSite(1000))) as outing:
        going = asyncio.create_task(outing.go())
        await trickle(site, lambda: len(outing.paths) >= 3)
        outing.stop.set()
        await trickle(site, going.done)
        trip = await going
    assert trip.ended is Ended.STOPPED
    assert trip.is_proven
    assert outing.parcels[-1].ended is Ended.STOPPED


async def test_visit_that_is_killed_from_elsewhere_comes_home(tmp_path: Path) -> None:
    async with outing_at(tmp_path, site=(site := GatedSite(1000))) as outing:
        going = asyncio.create_task(outing.go())
        await trickle(site, lambda: len(outing.paths) >= 3)
        killing = asyncio.create_task(outing.courier.lines.kill(await outing.offer(), "v1"))
        await trickle(site, killing.done)
        report, trip = await killing, await going
    assert report.visit == "v1"
    assert trip.ended is Ended.STOPPED


async def test_unknown_visit_is_gone(tmp_path: Path) -> None:
    async with outing_at(tmp_path) as outing:
        offer = await outing.offer()
        with pytest.raises(HostGone, match="does not know visit v9"):
            await outing.courier.lines.kill(offer, "v9")
        with pytest.raises(HostGone):
            await outing.go(resume_from=1)


async def test_home_that_is_not_allowed_is_told_so(tmp_path: Path) -> None:
    async with outing_at(tmp_path) as outing:
        outing.identity = Identity.new()
        with pytest.raises(Refused, match="unknown-home"):
            await outing.go()


async def test_host_that_keeps_nothing_brings_a_visit_home_in_one_go(tmp_path: Path) -> None:
    async with outing_at(tmp_path, is_live_only=True) as outing:
        trip = await outing.go()
    assert set(outing.paths) == ALL
    assert (trip.ended, trip.is_proven) == (Ended.FINISHED, True)


async def test_many_crawlers_are_away_at_once(tmp_path: Path) -> None:
    async with outing_at(tmp_path) as outing:
        trips = await asyncio.gather(*(outing.go(visit(f"v{number}")) for number in range(6)))
    assert all(trip.is_proven for trip in trips)
    assert len(outing.paths) == 6 * len(ALL)


async def test_only_what_was_asked_for_comes(tmp_path: Path) -> None:
    crawler = Crawler(program=Program(keep=Keep(fields=("title",)), needs=("title", "links")))
    async with outing_at(tmp_path) as outing:
        trip = await outing.go(visit(crawler=crawler))
    assert trip.is_proven
    pages = [page for parcel in outing.parcels for page in parcel.pages]
    assert {page.title for page in pages} >= {"/1", "/2"}
    assert not any(page.text or page.html for page in pages)


# -- what a crawler holds ----------------------------------------------------------------------------------


async def queried(outing: Outing) -> Holdings:
    held, ahead_seconds = await outing.courier.lines.to(await outing.offer()).query("v1")
    assert ahead_seconds == 0.0
    return held


async def test_home_queries_its_crawler(tmp_path: Path) -> None:
    async with outing_at(tmp_path) as outing:
        await outing.go()
        held = await queried(outing)
    assert (held.report.visit, held.report.state, held.waiting) == ("v1", "finished", ())


@pytest.mark.parametrize(
    ("platform", "why"),
    [
        ({"sterna": "0.3.1"}, "it is of an earlier release (0.3.1), which takes no queries"),
        ({}, "it is of an earlier release, which takes no queries"),
        ({"queries": "no", "live-only": "yes"}, "it keeps no visits, so its crawlers cannot be queried"),
    ],
)
async def test_home_does_not_query_a_host_that_would_not_understand(
    tmp_path: Path, platform: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sterna.host.service._platform_of", lambda config, is_live_only: platform)
    async with outing_at(tmp_path) as outing:
        await outing.go()
        with pytest.raises(Refused) as caught:
            await queried(outing)
    assert (caught.value.problem, caught.value.detail) == ("version", why)
