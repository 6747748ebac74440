"""The parcels of a visit: when they come, and that none is lost."""

import asyncio
import gc
import gzip

import pytest
from tests.runtime.fakes import (
    BEGIN,
    SITE,
    FakeWeb,
    Home,
    Outcome,
    carry_out,
    linking,
    make_kit,
    polite,
    reply,
    run,
    visit_of,
)
from tests.runtime.hubs import KNOWN_RULES, hub

from sterna.errors import StorageError
from sterna.model import Crawler, Ended, Hold
from sterna.runtime import packer, visit
from sterna.runtime.runtime import Runtime
from sterna.web.bodies import DOCUMENT_ROOM_BYTES
from sterna.web.http import Response
from sterna.web.politeness import site_key
from sterna.web.weight import weight_of_texts


def numbers(outcome: Outcome) -> list[int]:
    return [parcel.number for parcel in outcome.parcels]


def check_parcels(outcome: Outcome) -> None:
    assert numbers(outcome) == list(range(1, len(outcome.parcels) + 1))
    assert [parcel.ended is not None for parcel in outcome.parcels] == [
        *([False] * (len(outcome.parcels) - 1)),
        True,
    ]


def test_parcels_come_as_they_fill_numbered_without_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packer, "FULL_PAGES", 7)
    outcome = carry_out(visit_of(etiquette=polite(connections=5)), FakeWeb(hub(60), seconds=0.1))
    check_parcels(outcome)
    assert len(outcome.parcels) >= 6
    assert max(len(parcel.pages) for parcel in outcome.parcels) < 7 + 5
    urls = [page.url for parcel in outcome.parcels for page in parcel.pages]
    assert len(urls) == len(set(urls)) == 61


@pytest.mark.parametrize("take_seconds", [0.0, 3.0, 13.0])
@pytest.mark.parametrize("page_seconds", [0.5, 2.5])
def test_no_parcel_is_lost_however_slowly_home_takes_them(take_seconds: float, page_seconds: float) -> None:
    """Parcels are also sent every few seconds; the visit may end while one of those is on its way."""
    home = Home(seconds=take_seconds)
    web = FakeWeb(hub(12), seconds=page_seconds)
    outcome = carry_out(visit_of(etiquette=polite(connections=2)), web, home=home)
    check_parcels(outcome)
    assert outcome.page_count == 13
    assert len(outcome.found) == 12


@pytest.mark.parametrize("stop_after", [10.0, 34.0, 65.0])
def test_parcel_on_its_way_survives_the_stop(monkeypatch: pytest.MonkeyPatch, stop_after: float) -> None:
    """The first one has the rules, the others have pages; each takes half a minute."""
    monkeypatch.setattr(packer, "FULL_PAGES", 3)
    web = FakeWeb(hub(20), seconds=1.0)
    outcome = carry_out(visit_of(), web, home=Home(seconds=30.0), stop_after=stop_after)
    check_parcels(outcome)
    assert outcome.last.ended is Ended.STOPPED
    assert len(outcome.pages) == len(web.paths())


def test_what_is_found_is_told_every_few_seconds() -> None:
    web = FakeWeb(hub(20), seconds=2.0)
    outcome = carry_out(visit_of(robots=KNOWN_RULES), web)
    pages = [len(parcel.pages) for parcel in outcome.parcels]
    assert max(pages) <= visit.FLUSH_SECONDS / 2.0 + 1
    check_parcels(outcome)


def test_holds_reach_home_although_no_page_comes() -> None:
    web = FakeWeb({"/": [reply(503, retry_after="25"), linking()]})
    outcome = carry_out(visit_of(robots=KNOWN_RULES), web)
    first = outcome.parcels[0]
    assert (first.pages, first.ended) == ((), None)
    assert Hold(site_key(SITE), BEGIN + 25.0) in first.holds
    assert [target.attempts for target in first.checkpoint.again] == [1]


@pytest.mark.parametrize("pages_in_parcel", [1, 500])
@pytest.mark.parametrize("page_seconds", [0.0, 1.0])
def test_home_that_cannot_store_ends_the_visit_with_its_error(
    monkeypatch: pytest.MonkeyPatch, pages_in_parcel: int, page_seconds: float
) -> None:
    monkeypatch.setattr(packer, "FULL_PAGES", pages_in_parcel)
    home = Home(failure=StorageError("the disk is full"))
    web = FakeWeb(hub(20), seconds=page_seconds)
    with pytest.raises(StorageError, match="the disk is full"):
        carry_out(visit_of(robots=KNOWN_RULES, etiquette=polite(connections=3)), web, home=home)


def plain_text(size_bytes: int, *, is_small: bool) -> Response:
    text = b"tern " * (size_bytes // 5)
    if is_small:
        return reply(200, gzip.compress(text), content_type="text/plain", content_encoding="gzip")
    return reply(200, text, content_type="text/plain")


@pytest.mark.parametrize("is_small", [True, False], ids=["small bodies", "large bodies"])
@pytest.mark.parametrize("keeps_raw", [False, True])
def test_large_documents_wait_until_those_before_them_are_at_home(is_small: bool, keeps_raw: bool) -> None:
    paths = [f"/{n}" for n in range(6)]
    web = FakeWeb(dict.fromkeys(paths, plain_text(6_000_000, is_small=is_small)))
    asked = visit_of(
        *paths,
        robots=KNOWN_RULES,
        etiquette=polite(connections=6),
        crawler=Crawler(keeps_raw=keeps_raw),
    )
    outcome = carry_out(asked, web, home=Home(seconds=1.0))
    assert outcome.pages == dict.fromkeys(paths, (200, ""))
    weights = [
        sum(weight_of_texts(page) + (len(page.raw.body) if page.raw else 0) for page in parcel.pages)
        for parcel in outcome.parcels
    ]
    assert max(weights) <= DOCUMENT_ROOM_BYTES < sum(weights)


def test_large_documents_do_not_wait_for_the_time_of_the_next_parcel() -> None:
    paths = [f"/{n}" for n in range(12)]
    web = FakeWeb(dict.fromkeys(paths, plain_text(1_000_000, is_small=False)))
    asked = visit_of(*paths, robots=KNOWN_RULES, etiquette=polite(connections=12))
    # Each claims nearly all of the room until it is read, and the rest of what it takes until it is at home.
    outcome = carry_out(asked, web, home=Home(seconds=0.01), read_seconds=0.01)
    assert outcome.pages == dict.fromkeys(paths, (200, ""))
    assert outcome.seconds < 1.0


def test_large_raw_responses_that_no_reader_sees_wait_too() -> None:
    paths = [f"/{n}" for n in range(6)]
    moved = reply(301, bytes(6_000_000), location="/0/moved")
    asked = visit_of(
        *paths, robots=KNOWN_RULES, etiquette=polite(connections=6), crawler=Crawler(keeps_raw=True)
    )
    outcome = carry_out(asked, FakeWeb(dict.fromkeys(paths, moved)), home=Home(seconds=1.0))
    raws = [sum(len(page.raw.body) for page in each.pages if page.raw) for each in outcome.parcels]
    assert max(raws) <= DOCUMENT_ROOM_BYTES < sum(raws)


def test_room_for_documents_comes_back_where_home_takes_none() -> None:
    """Twice as many visits as there is room for, each of which ends with its large pages untaken."""
    web = FakeWeb({"/": plain_text(DOCUMENT_ROOM_BYTES // 2, is_small=True)})

    async def main() -> int:
        kit = make_kit(web)
        for _ in range(4):
            with pytest.raises(StorageError):
                await Runtime(kit).carry_out(
                    visit_of("/", robots=KNOWN_RULES),
                    deliver=Home(failure=StorageError("full")).take,
                    stop=asyncio.Event(),
                )
        return kit.documents.left_bytes

    assert run(main()) == DOCUMENT_ROOM_BYTES


@pytest.mark.parametrize(("length", "left"), [(10, 1), (1_900, 0)])
def test_visit_with_long_urls_leaves_nothing_in_memory(length: int, left: int) -> None:
    """A visit's loop refers to itself, and its garbage may wait for many other visits."""
    starts = [f"/{number:05}{'x' * length}" for number in range(700)]

    async def main() -> int:
        runtime = Runtime(make_kit(FakeWeb({})))
        visiting = runtime.carry_out(visit_of(*starts), deliver=Home().take, stop=asyncio.Event())
        await visiting
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return count()

    def count() -> int:
        return sum(isinstance(each, visit.VisitLoop) for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = count()  # those of other tests in this process that hold theirs
        assert run(main()) - before == left
    finally:
        gc.enable()
