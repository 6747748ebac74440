"""Crawlers on their way: what the ledger knows at each step, and what follows from how they end."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from tests.clocks import StillClock
from tests.home.away.scripted import ScriptedLines
from tests.home.away.visits import OFFER, SITE, parcel, target, visit

from sterna.errors import HostGone, LineBroken, ParcelRefused, Refused, SternaError
from sterna.home.away.courier import Courier, TripRequest, call_back, unfinished
from sterna.home.away.events import Fault
from sterna.home.away.luggage import pack
from sterna.home.away.trip import Trip
from sterna.home.ledger.interface import LedgerDesk
from sterna.home.ledger.records import Change, Disposal, Out, OutboxRow
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.progress import Progress
from sterna.model import Arrival, Checkpoint, Ended, Parcel, Target
from sterna.web.politeness import site_key
from sterna.wire.discovery import Offer


class Bench:
    """A ledger with one site on lease, and an outbox over it."""

    def __init__(self, ledger: SqliteLedger, thread: ThreadPoolExecutor, script: ScriptedLines) -> None:
        self.ledger, self.thread, self.script = ledger, thread, script
        self.clock = StillClock()
        self.progress = Progress(began=0.0)
        self.faults: list[Fault] = []
        self.courier = self.open()
        self.stop = asyncio.Event()

    def open(self) -> Courier:
        return Courier(
            lambda: self.script.open(),  # noqa: PLW0108 - a test may change the script
            LedgerDesk(self.ledger, self.thread),
            clock=self.clock,
            progress=self.progress,
        )

    async def deliver(self, each: Parcel) -> None:
        if self.ledger.judge(each) not in (Disposal.NEW, Disposal.STORED):
            raise ParcelRefused("stale")
        assert each.arrival
        self.ledger.commit(Change(parcels=(each,)), now=self.clock.now())
        self.progress.add([each])

    async def blame(self, fault: Fault) -> None:
        # The site must not be free yet: the next visit would meet the same host again.
        assert self.ledger.counts(now=self.clock.now()).leased == 1
        self.faults.append(fault)

    async def send(self, request: TripRequest) -> Trip:
        return await self.courier.travel(request, deliver=self.deliver, stop=self.stop, blame=self.blame)

    def write_out(self, request: TripRequest) -> None:
        """The crawler left in an earlier run."""
        offer, visit = request.offer, request.visit
        row = OutboxRow(
            visit=visit.id,
            site=visit.site,
            endpoint=offer.endpoint,
            key=offer.key,
            state=Out.WAITING,
            written_at=11.0,
            is_live_only=offer.is_live_only,
        )
        self.ledger.write_out(row, pack(visit, offer))

    def is_free(self) -> bool:
        return self.ledger.due_count(now=self.clock.now() + 1000.0, most=1) == 1


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
def ledger(tmp_path: Path) -> SqliteLedger:
    return SqliteLedger(tmp_path / "ledger.sqlite")


@pytest.fixture
def bench(ledger: SqliteLedger, thread: ThreadPoolExecutor) -> Bench:
    ledger.seed([Target(f"{SITE}/"), Target(f"{SITE}/b")], now=1.0)
    ledger.lease(["v"], now=10.0, pages=5, max_depth=5)
    return Bench(ledger, thread, ScriptedLines())


TRIP = TripRequest(visit=visit(target("/"), target("/b")), offer=OFFER, order_bytes=444)
LAST = parcel(TRIP.visit, 1, "/", "/b", ended=Ended.FINISHED)


async def test_crawler_is_in_the_outbox_before_it_leaves(bench: Bench) -> None:
    seen: list[tuple[str, Out, int]] = []
    bench.script.on_way = lambda: seen.extend(
        (row.endpoint, row.state, row.order_bytes) for row in bench.ledger.outbox()
    )
    bench.script.parcels = [LAST]
    await bench.send(TRIP)
    assert seen == [(OFFER.endpoint, Out.WAITING, 444)]


async def test_crawler_that_returns_is_noted_with_what_crossed_the_network(bench: Bench) -> None:
    bench.script.parcels = [parcel(TRIP.visit, 1, "/"), parcel(TRIP.visit, 2, "/b", ended=Ended.FINISHED)]
    assert (await bench.send(TRIP)).out is Out.RETURNED
    (row,) = bench.ledger.outbox()
    assert (row.state, row.reason, row.bytes_sent, row.bytes_received) == (Out.RETURNED, "finished", 700, 200)
    assert [each.size_bytes for each in bench.ledger.inbox("v")] == [100, 100]
    assert (bench.progress.away, bench.progress.has_sent) == (set(), True)
    assert (bench.progress.usage.bytes_received, bench.progress.fetched_at_hosts) == (200, 8_000)
    assert bench.faults == []


@pytest.mark.parametrize(
    "error", [LineBroken("no route"), Refused("busy", "the queue is full", retry_after=30.0)]
)
async def test_crawler_that_is_not_taken_leaves_its_lease_for_a_visit_from_here(
    bench: Bench, error: SternaError
) -> None:
    bench.script.error = error
    trip = await bench.send(TRIP)
    assert (trip.out, trip.was_taken) == (Out.LOST, False)
    assert [fault.reason for fault in bench.faults] == [str(error)]
    assert [fault.seconds for fault in bench.faults] == [getattr(error, "retry_after", None)]
    assert bench.ledger.judge(LAST) is Disposal.NEW
    assert bench.ledger.outbox()[0].state is Out.LOST


async def test_host_that_breaks_off_keeps_what_it_sent_and_frees_the_rest(bench: Bench) -> None:
    found = Checkpoint(found=(target("/c", 1),))
    bench.script.parcels = [parcel(TRIP.visit, 1, "/", checkpoint=found)]
    bench.script.error = HostGone("it was lost after parcel 1")
    assert (await bench.send(TRIP)).out is Out.LOST
    assert [fault.reason for fault in bench.faults] == ["it was lost after parcel 1"]
    (lease,) = bench.ledger.lease(["w"], now=2000.0, pages=5, max_depth=5)
    assert {start.url for start in lease.starts} == {f"{SITE}/b", f"{SITE}/c"}
    assert bench.ledger.visit_rows()[0].ended == Ended.LOST


async def test_refused_parcel_loses_the_crawler(bench: Bench) -> None:
    bench.script.parcels = [parcel(TRIP.visit, 2, "/")]
    assert isinstance((await bench.send(TRIP)).failure, ParcelRefused)
    assert (bench.ledger.outbox()[0].state, bench.progress.away) == (Out.LOST, set())


async def test_cancelled_trip_goes_on_after_the_next_start(bench: Bench) -> None:
    sending = asyncio.create_task(bench.send(TRIP))
    held = asyncio.Event()

    async def hang() -> None:
        held.set()
        await asyncio.Event().wait()

    bench.script.read = hang  # type: ignore[method-assign, assignment]
    await held.wait()
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert bench.ledger.recover(now=50.0, least_pause=1.0) == 0
    bench.script = ScriptedLines(LAST)
    (trip,) = unfinished(bench.ledger)
    assert (trip.visit, trip.offer, trip.resume_from) == (TRIP.visit, OFFER, 1)
    assert (await bench.send(trip)).out is Out.RETURNED
    assert bench.script.asked == [("v", 1)]


async def test_resumed_crawler_that_its_host_does_not_know_is_lost(bench: Bench) -> None:
    bench.script.parcels = [parcel(TRIP.visit, 1, "/")]
    bench.script.error = HostGone("cut")
    bench.write_out(TRIP)
    await bench.deliver(parcel(TRIP.visit, 1, "/", arrival=Arrival(received_at=5.0)))
    (trip,) = unfinished(bench.ledger)
    assert trip.resume_from == 2
    bench.script = ScriptedLines(error=Refused("gone", "there is no visit v"))
    assert (await bench.send(trip)).out is Out.LOST
    assert bench.is_free()


@pytest.mark.parametrize("is_waited_for", [True, False])
async def test_crawler_that_nobody_waits_for_is_called_back(bench: Bench, is_waited_for: bool) -> None:
    bench.write_out(TRIP)
    call_back(bench.ledger, lambda visit: is_waited_for and visit == TRIP.visit, now=30.0)
    assert len(unfinished(bench.ledger)) == is_waited_for
    assert bench.is_free() is not is_waited_for


async def test_crawler_whose_luggage_cannot_be_read_is_called_back(bench: Bench) -> None:
    row = OutboxRow(visit="v", site=SITE, endpoint="", key="", state=Out.WAITING, written_at=11.0)
    bench.ledger.write_out(row, b"of another version")
    call_back(bench.ledger, lambda visit: True, now=30.0)
    assert (unfinished(bench.ledger), bench.is_free()) == ([], True)
    assert "cannot read the crawler's entry" in bench.ledger.outbox()[0].reason


# -- faults of hosts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ended", [Ended.BUDGET, Ended.STOPPED, Ended.DISQUALIFIED, Ended.FINISHED])
async def test_host_whose_visit_brings_nothing_is_to_blame(bench: Bench, ended: Ended) -> None:
    bench.script.parcels = [parcel(TRIP.visit, ended=ended)]
    assert (await bench.send(TRIP)).out is Out.RETURNED
    assert [fault.reason for fault in bench.faults] == [
        f"the visit to its host ended as {ended} without results"
    ]


async def test_host_that_leaves_out_a_url_is_to_blame_and_the_url_is_tried_again(bench: Bench) -> None:
    bench.script.parcels = [parcel(TRIP.visit, 1, "/", ended=Ended.FINISHED)]
    await bench.send(TRIP)
    assert [fault.reason for fault in bench.faults] == ["its host did not report URLs that it was sent"]
    (lease,) = bench.ledger.lease(["w"], now=2000.0, pages=5, max_depth=5)
    assert [(start.url, start.attempts) for start in lease.starts] == [(f"{SITE}/b", 1)]


async def test_url_that_left_the_frontier_without_a_page_was_not_left_out(bench: Bench) -> None:
    done = Checkpoint(done=(LAST.pages[1].fingerprint,))
    bench.script.parcels = [parcel(TRIP.visit, 1, "/", ended=Ended.FINISHED, checkpoint=done)]
    await bench.send(TRIP)
    assert bench.faults == []


@pytest.mark.parametrize("ended", [Ended.BLOCKED, Ended.FAILING])
async def test_site_in_trouble_is_left_alone_for_a_while(bench: Bench, ended: Ended) -> None:
    bench.script.parcels = [parcel(TRIP.visit, 1, "/", ended=ended)]
    await bench.send(TRIP)
    (hold,) = bench.ledger.holds(now=bench.clock.now())
    assert (hold.key, hold.until) == (site_key(SITE), bench.clock.now() + 60.0)


async def test_nobody_is_to_blame_for_a_crawl_that_was_stopped(bench: Bench) -> None:
    bench.script.on_way = bench.stop.set
    bench.script.parcels = [parcel(TRIP.visit, ended=Ended.STOPPED)]
    assert (await bench.send(TRIP)).out is Out.RETURNED
    assert bench.faults == []


async def test_crawl_that_was_stopped_does_not_wait_for_the_last_parcel(bench: Bench) -> None:
    bench.stop.set()
    assert (await bench.send(TRIP)).out is Out.RETURNED
    assert bench.is_free()


# -- kills -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, HostGone("the visit was killed")])
async def test_killed_crawler_is_noted_as_such_and_none_goes_to_its_site(
    bench: Bench, error: SternaError | None
) -> None:
    bench.script.on_way = lambda: _kill(bench.ledger)
    bench.script.parcels = [] if error else [parcel(TRIP.visit, 1, "/", ended=Ended.STOPPED)]
    bench.script.error = error
    assert (await bench.send(TRIP)).out is Out.KILLED
    assert (bench.courier.killed_sites, bench.faults, bench.is_free()) == ({SITE}, [], True)


async def test_host_that_stops_a_crawler_by_itself_has_not_killed_it(bench: Bench) -> None:
    bench.script.parcels = [parcel(TRIP.visit, 1, "/", ended=Ended.STOPPED)]
    assert (await bench.send(TRIP)).out is Out.RETURNED
    assert bench.courier.killed_sites == set()


def _kill(ledger: SqliteLedger) -> None:
    ledger.mark_out("v", Out.KILLED, now=15.0, reason="killed from here")


async def test_crawler_at_a_host_that_keeps_nothing_is_lost_with_the_line(bench: Bench) -> None:
    bench.write_out(msgspec.structs.replace(TRIP, offer=_live_only()))
    assert bench.ledger.recover(now=50.0, least_pause=1.0) == 1
    assert unfinished(bench.ledger) == []


def _live_only() -> Offer:
    return msgspec.structs.replace(OFFER, is_live_only=True)
