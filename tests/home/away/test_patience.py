"""How long home waits: not long for signs of life alone, longer if its host says that it rests."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.home.away import lying
from tests.home.away.lying import Chunks, LyingHost, Stream, parcels
from tests.home.away.outings import ForgetfulLedger, FreeDesk, Outing
from tests.home.away.scripted import ScriptedLines
from tests.home.away.test_carrier import WORTHY, World
from tests.home.away.visits import SITE

from sterna.errors import HostGone, Refused
from sterna.home.away.courier import Courier
from sterna.home.away.patience import Clocks, Patience
from sterna.home.away.place import closed_words
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.progress import Progress
from sterna.model import Target
from sterna.web.clock import SystemClock
from sterna.wire.orders import Kill

HOUR = 3600.0
SIGNS = 10  # of life
PATIENCE = Patience(idle_seconds=120.0, late_seconds=HOUR, paused_seconds=24 * HOUR)


def waiting(seconds: float = 60.0) -> Clocks:
    return Clocks(seconds, PATIENCE, now=0.0)


def test_home_waits_so_long_for_a_parcel_and_no_longer() -> None:
    each = waiting()
    assert (each.is_over(180.0), each.is_over(181.0)) == (False, True)


def test_parcel_restarts_the_clock_but_not_the_last_one() -> None:
    each = waiting()
    for now in range(100, 3_700, 100):
        each.note_parcel(float(now))
        assert not each.is_over(float(now))
    assert each.is_over(60.0 + HOUR + 1.0)


def test_pause_that_is_told_of_is_waited_for() -> None:
    each = waiting()
    each.note_line("paused: the site is busy", 100.0)
    assert not each.is_over(20 * HOUR)
    each.note_line("resumed: it is calm again", 20 * HOUR)
    assert not each.is_over(20 * HOUR + 180.0)
    assert each.is_over(20 * HOUR + 181.0)


def test_parcel_ends_a_pause_too() -> None:
    each = waiting()
    each.note_line("paused: the site is busy", 100.0)
    each.note_parcel(5 * HOUR)
    assert each.is_over(5 * HOUR + 181.0)


def test_pauses_together_have_an_end() -> None:
    each = waiting()
    each.note_line("paused: the site is busy", 0.0)
    each.note_parcel(23 * HOUR)
    each.note_line("paused: the site is busy", 23 * HOUR)
    assert not each.is_over(24 * HOUR)
    assert each.is_over(24 * HOUR + 1.0)


def test_pause_that_is_told_again_began_when_it_was_told_first() -> None:
    each = waiting()
    for hour in range(30):
        each.note_line("paused: until Monday", hour * HOUR)
    assert each.is_over(25 * HOUR)


def test_other_lines_mean_nothing() -> None:
    each = waiting()
    each.note_line("a page is paused: no", 0.0)
    assert each.is_over(181.0)


# -- on a trip -------------------------------------------------------------------------------------------


def resting_host(outing_of: list[Outing], *words: str, hours: float) -> LyingHost:
    """A host that writes these lines, gives signs of life for so long, and then brings all parcels."""

    def compose(stream: Stream) -> Chunks:
        writer = stream.writer
        begin = [writer.begin(), *map(writer.line, words), *(writer.alive() for _ in range(SIGNS))]
        return [*begin, *map(writer.parcel, stream.packed), writer.end(stream.ending)]

    async def slowly(chunks: Chunks) -> AsyncIterator[bytes]:
        for number, chunk in enumerate(chunks):
            if len(words) < number <= len(words) + SIGNS:
                outing_of[0].clock.time += hours * HOUR / SIGNS
            yield chunk
            await asyncio.sleep(0)

    return LyingHost(parcels(), compose=compose, distort=lambda chunks, stream: slowly(chunks))


async def test_trip_waits_while_the_host_says_that_the_visit_rests() -> None:
    outings: list[Outing] = []
    outings.append(Outing(resting_host(outings, "paused: the site is busy", hours=20)))
    trip = await outings[0].go()
    assert trip.is_proven
    assert outings[0].lines == ["paused: the site is busy"]


async def test_pause_is_heard_of_after_however_many_other_lines() -> None:
    outings: list[Outing] = []
    words = [*(f"line {number}" for number in range(1_100)), "paused: the site is busy"]
    outings.append(Outing(resting_host(outings, *words, hours=20)))
    assert (await outings[0].go()).is_proven
    assert len(outings[0].lines) == 1_001


@pytest.mark.parametrize(("words", "hours"), [([], 1.0), (["paused: the site is busy"], 25.0)])
async def test_trip_ends_where_nothing_says_why_it_takes_so_long(words: list[str], hours: float) -> None:
    outings: list[Outing] = []
    outings.append(Outing(resting_host(outings, *words, hours=hours)))
    assert "makes no progress" in await outings[0].gone()
    assert Kill("v1") in outings[0].host.orders


def test_people_are_told_once_that_a_crawler_rests() -> None:
    said: list[str] = []
    desk = FreeDesk(ForgetfulLedger())
    lines = ScriptedLines().open
    courier = Courier(lines, desk, clock=SystemClock(), progress=Progress(began=0.0), warn=said.append)
    for line in ("a line", "paused: the site is busy", "resumed: it goes on", "paused: the site is busy"):
        courier.note_line(SITE, line)
    assert said == [f"the host of {SITE} paused the crawler: the site is busy"]


# -- hosts that are closed -------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    ledger = SqliteLedger(tmp_path / "ledger.sqlite")
    ledger.seed([Target(f"{SITE}/")], now=1.0)
    ledger.lease(["v"], now=10.0, pages=5, max_depth=5)
    with ThreadPoolExecutor(1) as thread:
        yield World(ledger, thread)
    ledger.close()


async def test_host_that_is_closed_is_left_alone_till_it_opens_and_one_line_says_so(world: World) -> None:
    world.error = Refused("closed-now", "Mondays 00:00-04:00", retry_after=7_200.0)
    assert await world.carry(WORTHY) == "here"
    assert world.log[-1] == "fail for 7200: closed-now: Mondays 00:00-04:00"
    assert world.warnings == [f"the host of {SITE} is closed for about 2 hours: crawling the site from here"]


async def test_required_host_that_is_closed_ends_the_crawl(world: World) -> None:
    world.is_required = True
    world.error = Refused("closed-now", "Mondays 00:00-04:00", retry_after=7_200.0)
    with pytest.raises(HostGone, match="closed-now: Mondays"):
        await world.carry(WORTHY)
    assert (world.here, world.warnings) == ([], [])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "for now"),
        (20.0, "for about 1 minute"),
        (1_800.0, "for about 30 minutes"),
        (5 * HOUR, "for about 5 hours"),
        (72 * HOUR, "for about 3 days"),
    ],
)
def test_closed_for_so_long(seconds: float | None, words: str) -> None:
    assert closed_words(seconds) == words


async def test_visit_that_is_there_is_given_up_when_its_host_closes() -> None:
    outing = Outing(
        LyingHost(
            parcels(),
            distort=lying.cut_after(3),
            refusals=[None, Refused("closed-now", "come back on Monday", retry_after=90_000.0)],
        )
    )
    assert "come back on Monday" in await outing.gone()
    assert outing.delivered.numbers == [1, 2]
