"""What crawlers make at a real host comes home, however much it is: in parcels that home takes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.home.away.test_trips_to_a_service import Outing, outing_at, visit
from tests.host.knocking import SITE, GatedSite, answer

from sterna.home.away.trip import Trip
from sterna.model import Budget, Crawler, Ended, Program, Scope, Source
from sterna.web.http import Request, Response

IN_A_SITEMAP = 50_000
SECONDS = 120.0  # more than any of these takes on a busy machine


class HeavySite(GatedSite):
    """Some pages, and sitemaps of 50,000 URLs each, as many as are read of one."""

    def __init__(self, *, pages: int = 1, sitemaps: int = 0) -> None:
        super().__init__(pages)
        self.let(1000)
        self._sitemaps = sitemaps

    async def fetch(self, request: Request) -> Response:
        path = request.url.removeprefix(SITE)
        if path == "/robots.txt" and self._sitemaps:
            lines = (f"Sitemap: {SITE}/{number}.txt\n" for number in range(self._sitemaps))
            return answer(200, "".join(lines), "text/plain")
        if path.endswith(".txt") and self._sitemaps:
            urls = (f"{SITE}{path}/{number}" for number in range(IN_A_SITEMAP))
            return answer(200, "\n".join(urls), "text/plain")
        return await super().fetch(request)


async def brought(folder: Path, site: GatedSite, **fields: Any) -> tuple[Outing, Trip]:
    async with outing_at(folder, site=site) as outing:
        async with asyncio.timeout(SECONDS):
            sent = visit(budget=Budget(pages=50, seconds=SECONDS, urls=1_000_000), **fields)
            trip = await outing.courier.carry(
                sent, await outing.offer(), deliver=outing.deliver, stop=outing.stop
            )
    return outing, trip


def ruled(rules: str) -> Crawler:
    return Crawler(scope=Scope(), program=Program(rules=(Source("heavy.clp", rules),)))


async def test_urls_of_large_sitemaps_come_in_several_parcels(tmp_path: Path) -> None:
    outing, trip = await brought(tmp_path, HeavySite(sitemaps=4), crawler=Crawler())
    assert trip.failure is None
    assert trip.is_proven
    found = [len(parcel.checkpoint.found) for parcel in outing.parcels]
    assert sum(found) >= 4 * IN_A_SITEMAP
    assert max(found) < IN_A_SITEMAP
    assert outing.numbers == list(range(1, len(outing.parcels) + 1))


async def test_sitemap_is_done_only_after_its_urls_came(tmp_path: Path) -> None:
    outing, _ = await brought(tmp_path, HeavySite(sitemaps=1), crawler=Crawler())
    done = next(parcel.number for parcel in outing.parcels if parcel.checkpoint.done)
    of_sitemap = [
        parcel.number
        for parcel in outing.parcels
        if any(target.referrer.endswith("/0.txt") for target in parcel.checkpoint.found)
    ]
    assert len(of_sitemap) > 1
    assert max(of_sitemap) <= done


async def test_rows_of_many_pages_come_in_several_parcels(tmp_path: Path) -> None:
    rules = "(defrule all (page (url ?url)) => (loop-for-count (?n 1 200000) (emit r 1)))"
    outing, trip = await brought(tmp_path, HeavySite(pages=6), crawler=ruled(rules))
    assert trip.failure is None
    assert trip.is_proven
    assert sum(len(parcel.rows) for parcel in outing.parcels) == 7 * 200_000
    assert not [page.error for parcel in outing.parcels for page in parcel.pages if page.error]


@pytest.mark.parametrize(("facts", "ended"), [(100_000, Ended.FINISHED), (250_000, Ended.FACTS)])
async def test_more_facts_than_a_parcel_carries_end_the_crawler(
    tmp_path: Path, facts: int, ended: Ended
) -> None:
    rules = f'(defrule all (page (url "{SITE}/")) => (loop-for-count (?n 1 {facts}) (assert (seen ?n))))'
    outing, trip = await brought(tmp_path, HeavySite(), crawler=ruled(rules))
    assert trip.failure is None
    assert trip.is_proven
    came = sum(len(parcel.state.added) for parcel in outing.parcels)
    assert came == (facts if ended is Ended.FINISHED else 0)
    assert trip.ended is ended
    assert ("/" in outing.paths) is (ended is Ended.FINISHED)  # no page without its facts
