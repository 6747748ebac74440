"""A visit that is interrupted after any parcel goes on as if nothing had happened: in virtual time."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace
from tests import making
from tests.runtime.fakes import SITE, FakeWeb, carry_out, linking, polite, reply, rules, visit_of

from sterna.errors import FetchError
from sterna.host.visiting.progress import Progress, Step, advanced, progress_of, rest_of
from sterna.model import Budget, Crawler, Ended, Known, Parcel, Scope, StateChange, Usage, Visit
from sterna.web.urls import fingerprint

SOON = FetchError("timeout", "scripted")
SITE_MAP = (
    f"<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url><loc>{SITE}/m</loc></url></urlset>"
)


def web() -> FakeWeb:
    """Trees, a redirect, errors, a page that comes at the second try, other sites, a sitemap."""
    pages: dict[str, Any] = {
        "/robots.txt": rules(f"User-agent: *\nDisallow: /secret\nSitemap: {SITE}/map.xml\n"),
        "/map.xml": reply(body=SITE_MAP, content_type="application/xml"),
        "/": linking("/a", "/b", "/moved", "/gone", "/secret", "/late", "https://b.test/", "/part/1"),
        "/a": linking("/a/1", "/a/2", "https://b.test/", "https://c.test/"),
        "/b": linking("/a", "/b/1"),
        "/moved": reply(301, location="/b/2"),
        "/gone": reply(404),
        "/late": [SOON, reply(body="late")],
        "/b/1": linking("/b/1/1"),
    }
    return FakeWeb(pages, seconds=20.0)


def steps_of(parcels: list[Parcel]) -> list[Step]:
    return [making.step(each) for each in parcels]


def summed(parcels: list[Parcel]) -> dict[str, Any]:
    """All that the parcels brought, whatever their order."""
    targets = [target for parcel in parcels for target in parcel.outlinks]
    return {
        "pages": Counter(
            (page.url, page.status, page.error, page.depth) for each in parcels for page in each.pages
        ),
        "found": Counter(target.url for each in parcels for target in each.checkpoint.found),
        "done": Counter(mark for each in parcels for mark in each.checkpoint.done),
        "outlinks": Counter(target.url for target in targets),
    }


def interrupted(visit: Visit, parcels: list[Parcel], at: int) -> Visit:
    return rest_of(visit, advanced(progress_of(visit), steps_of(parcels[:at])))


@pytest.mark.parametrize("connections", [1, 3])
def test_visit_that_is_interrupted_anywhere_brings_the_same(connections: int) -> None:
    crawler = Crawler(scope=Scope(stay="any"))
    visit = visit_of(
        crawler=crawler, etiquette=polite(connections=connections), budget=Budget(seconds=9000.0)
    )
    whole = carry_out(visit, web()).parcels
    assert len(whole) > 5
    for at in range(len(whole)):
        rest = carry_out(interrupted(visit, whole, at), web()).parcels
        assert summed([*whole[:at], *rest]) == summed(whole), at
        assert rest[-1].ended is Ended.FINISHED


def test_pages_of_other_parts_are_not_fetched_afterwards_either() -> None:
    visit = visit_of(within=("/",), budget=Budget(seconds=9000.0))
    whole = carry_out(visit, web()).parcels
    for at in range(len(whole)):
        again = web()
        carry_out(interrupted(visit, whole, at), again)
        assert "/part/1" not in again.paths()


def test_sum_of_a_sum_and_the_rest_is_the_sum_of_all() -> None:
    """So a log may be rewritten at any time."""
    visit = visit_of(crawler=Crawler(scope=Scope(stay="any")), budget=Budget(seconds=9000.0))
    steps = steps_of(carry_out(visit, web()).parcels)
    whole = advanced(progress_of(visit), steps)
    for at in range(len(steps)):
        assert advanced(advanced(progress_of(visit), steps[:at]), steps[at:]) == whole


def test_what_is_left_of_a_budget() -> None:
    visit = visit_of(budget=Budget(pages=10, seconds=60.0, requests=20, fetched_bytes=1000, cpu_seconds=5.0))
    usage = Usage(pages=4, requests=30, bytes_received=400, cpu_seconds=1.0)
    left = rest_of(visit, Progress(usage=usage, worked_seconds=100.0)).budget
    assert (left.pages, left.seconds, left.requests) == (6, 1.0, 1)  # 0 would stand for no limit
    assert (left.fetched_bytes, left.cpu_seconds) == (600, 4.0)
    assert rest_of(visit, Progress(usage=Usage(pages=99))).budget.pages == 0


def test_what_home_knew_before_is_still_known() -> None:
    mark = fingerprint(f"{SITE}/a")
    visit = visit_of(known=Known(fingerprints=mark.to_bytes(8, "little", signed=True)))
    known = memoryview(rest_of(visit, Progress(gone=b"")).known.fingerprints).cast("q")
    assert list(known) == [mark]


def test_parcels_that_do_not_follow_are_refused() -> None:
    steps = steps_of(carry_out(visit_of(), web()).parcels)
    with pytest.raises(ValueError, match="parcel 2 follows parcel 0"):
        advanced(Progress(), steps[1:])


def test_fact_that_was_modified_keeps_its_number_and_is_still_there() -> None:
    """Such a fact is among the removed ones and, with its new value, among those that were added."""
    first, second = steps_of(carry_out(visit_of(), web()).parcels[:2])
    first = replace(first, state=StateChange(added=((1, b"one"), (2, b"two")), memory=b"m"))
    second = replace(second, state=StateChange(added=((1, b"ONE"),), removed=(1, 2)))

    assert advanced(Progress(), [first, second]).state.facts == ((1, b"ONE"),)
