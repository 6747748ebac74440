"""Intake: each parcel once, in batches, and what the ledger refuses stays out of the archive."""

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.home.ledger.ledger_suite import OTHER, SITE, page, targets
from tests.making import parcel

from sterna.archive.segments import SegmentStore
from sterna.archive.warc import WarcStore
from sterna.crawler.facts import Fact, encode
from sterna.errors import ParcelRefused, StorageError
from sterna.home.intake import Intake
from sterna.home.ledger.interface import LedgerDesk
from sterna.home.ledger.records import Lease
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.model import Arrival, Ended, Link, Links, Parcel, Raw, StateChange, Target, Usage
from sterna.web.clock import SystemClock

ROW = encode(Fact("clinic", slots=(("name", "A"),)))


class Desk:
    """An intake over a real ledger and a real archive, and what it told."""

    def __init__(self, folder: Path, thread: ThreadPoolExecutor) -> None:
        self.ledger = SqliteLedger(folder / "ledger.sqlite")
        self.segments = SegmentStore(folder / "segments")
        self.warc = WarcStore(folder / "warc", software="test")
        self.committed: list[int] = []
        self.usages: list[Usage] = []
        self.steps: list[str] = []
        self.intake = Intake(
            LedgerDesk(self.ledger, thread),
            self.segments,
            warc=self.warc,
            clock=SystemClock(),
            admit_outlink=lambda target: "wanted" in target.url,
            on_commit=self._note,
            on_step=self.steps.append,
            crawler="health",
        )

    def _note(self, parcels: tuple[Parcel, ...]) -> None:
        self.committed.extend(each.number for each in parcels)
        self.usages.extend(each.usage for each in parcels)

    def lease(self, now: float = 10.0) -> Lease:
        (lease,) = self.ledger.lease([f"v{now}"], now=now, pages=100, max_depth=9)
        return lease

    async def take(self, *parcels: Parcel) -> list[BaseException | None]:
        """Gives them in at once, and tells what became of each."""
        running = asyncio.create_task(self.intake.run())
        try:
            return await asyncio.gather(*map(self.intake.take, parcels), return_exceptions=True)
        finally:
            running.cancel()

    def stored(self, table: str = "page", column: str = "url") -> list[str]:
        paths = [self.segments.path(each.name) for each in self.ledger.segments() if each.table == table]
        return sorted(value for path in paths for value in pq.read_table(path)[column].to_pylist())

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        paths = [self.segments.path(each.name) for each in self.ledger.segments() if each.table == table]
        rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
        return [tuple(row[column] for column in columns) for row in rows]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "segments").mkdir()
    with ThreadPoolExecutor(1) as thread:
        desk = Desk(tmp_path, thread)
        desk.ledger.seed([Target(f"{SITE}/")], now=1.0)
        yield desk


async def test_parcel_from_a_host_is_in_the_inbox_in_the_same_commit(desk: Desk) -> None:
    lease = desk.lease()
    arrival = Arrival(received_at=3.0, size_bytes=9)
    first = parcel(lease, 1, pages=(page("/"),), arrival=arrival)
    second = parcel(lease, 2, ended=Ended.FINISHED, arrival=arrival)
    running = asyncio.create_task(desk.intake.run())
    for each in (first, first, second):
        await desk.intake.take(each)
    running.cancel()
    assert [(row.number, row.size_bytes) for row in desk.ledger.inbox(lease.visit)] == [(1, 9), (2, 9)]
    assert (desk.committed, desk.stored()) == ([1, 2], [f"{SITE}/"])


async def test_parcels_that_come_together_are_one_commit(desk: Desk) -> None:
    desk.ledger.seed([Target(f"{OTHER}/")], now=2.0)
    one, two = desk.lease(), desk.lease(11.0)
    outcome = await desk.take(parcel(one, pages=(page("/"),)), parcel(two, pages=(page("/", OTHER),)))
    assert outcome == [None, None]
    assert desk.steps == ["received", "archived", "committed"]
    assert desk.stored() == [f"{SITE}/", f"{OTHER}/"]
    assert len([each for each in desk.ledger.segments() if each.table == "page"]) == 1


async def test_parcel_given_twice_is_acknowledged_twice_and_stored_once(desk: Desk) -> None:
    one = parcel(desk.lease(), pages=(page("/"),), usage=Usage(pages=1))
    assert await desk.take(one) == [None]
    assert await desk.take(one) == [None]
    assert desk.stored() == [f"{SITE}/"]
    assert desk.committed == [1]


async def test_parcel_that_comes_twice_at_once_is_stored_once(desk: Desk) -> None:
    one = parcel(desk.lease(), pages=(page("/"),), rows=(ROW,), usage=Usage(pages=1))
    assert await desk.take(one, one) == [None, None]
    assert desk.stored() == [f"{SITE}/"]
    assert len(desk.stored("fact", "data")) == len(desk.committed) == 1


async def test_rows_become_facts_of_their_crawler_site_and_visit(desk: Desk) -> None:
    lease = desk.lease()
    one = parcel(lease, rows=(ROW, encode(Fact("pair", ("x", 1)))))
    before = time.time()
    assert await desk.take(one) == [None]
    (segment,) = desk.ledger.segments()
    rows = pq.read_table(desk.segments.path(segment.name)).to_pylist()
    assert [(row["crawler"], row["site"], row["visit"], row["template"]) for row in rows] == [
        ("health", SITE, lease.visit, "clinic"),
        ("health", SITE, lease.visit, "pair"),
    ]
    assert json.loads(rows[0]["data"]) == {"template": "clinic", "slots": {"name": "A"}}
    assert all(row["received"].timestamp() >= before - 1e-3 for row in rows)


async def test_each_commit_is_a_batch_and_its_rows_say_how_they_came(desk: Desk) -> None:
    lease = desk.lease()
    links = Links.of(Link(f"{SITE}/x"))
    await desk.take(parcel(lease, 1, pages=(page("/", links=links),), rows=(ROW,)))
    await desk.take(parcel(lease, 2, pages=(page("/"), page("/new"), page("/new"))))
    assert desk.ledger.batch() == 2
    columns = ("batch", "crawler", "visit", "again")
    assert desk.rows("page", *columns) == [
        (1, "health", lease.visit, False),
        (2, "health", lease.visit, True),
        (2, "health", lease.visit, False),
        (2, "health", lease.visit, True),
    ]
    assert desk.rows("link", "batch", "crawler") == [(1, "health")]
    assert desk.rows("fact", "batch") == [(1,)]


async def test_visits_of_one_commit_are_told_apart(desk: Desk) -> None:
    desk.ledger.seed([Target(f"{OTHER}/")], now=2.0)
    one, two = desk.lease(), desk.lease(11.0)
    await desk.take(parcel(one, pages=(page("/"), page("/b"))), parcel(two, pages=(page("/", OTHER),)))
    assert desk.rows("page", "batch", "visit", "again") == [
        (1, one.visit, False), (1, one.visit, False), (1, two.visit, False)
    ]  # fmt: skip


async def test_commit_that_brings_no_rows_is_a_batch_too_and_one_that_is_refused_is_none(desk: Desk) -> None:
    lease = desk.lease()
    await desk.take(parcel(lease, 1, pages=(page("/"),)))
    await desk.take(parcel(lease, 1, pages=(page("/"),)))
    await desk.take(parcel(lease, 3, pages=(page("/gap"),)))
    assert desk.ledger.batch() == 1
    await desk.take(parcel(lease, 2, ended=Ended.FINISHED))
    assert desk.ledger.batch() == 2


async def test_row_that_nobody_can_read_costs_itself_and_is_counted(desk: Desk) -> None:
    one = parcel(
        desk.lease(),
        pages=(page("/"),),
        rows=(b"\xc1 nothing", ROW, b""),
        usage=Usage(pages=1, errors={"timeout": 1}),
    )
    assert await desk.take(one) == [None]
    assert (desk.stored(), desk.stored("fact", "template")) == ([f"{SITE}/"], ["clinic"])
    errors = {"timeout": 1, "unreadable_fact": 2}
    assert desk.ledger.counts(now=20.0).errors == desk.usages[0].errors == errors


async def test_rows_of_a_refused_parcel_are_not_stored(desk: Desk) -> None:
    old = desk.lease()
    desk.ledger.recover(now=20.0, least_pause=0.0)
    (outcome,) = await desk.take(parcel(old, rows=(ROW,), state=StateChange(added=((1, ROW),))))
    assert isinstance(outcome, ParcelRefused)
    assert (desk.stored("fact", "data"), desk.ledger.facts()) == ([], [])


async def test_page_that_is_not_wanted_is_done_but_nowhere_stored(desk: Desk) -> None:
    raw = Raw(b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"body", "192.0.2.1")
    unwanted = page("/", is_kept=False, raw=raw, links=Links.of(Link(f"{SITE}/x")))
    assert await desk.take(parcel(desk.lease(), pages=(unwanted,), ended=Ended.FINISHED)) == [None]
    assert (desk.ledger.segments(), desk.ledger.warc_positions()) == ([], [])
    counts = desk.ledger.counts(now=20.0)
    assert (counts.pages, counts.pending) == (1, 0)


async def test_parcel_of_an_old_epoch_is_refused_and_leaves_nothing(desk: Desk) -> None:
    old = desk.lease()
    desk.ledger.recover(now=20.0, least_pause=0.0)
    desk.lease(30.0)
    (outcome,) = await desk.take(parcel(old, pages=(page("/"),)))
    assert isinstance(outcome, ParcelRefused)
    assert "stale" in str(outcome)
    assert desk.stored() == []


async def test_parcel_that_leaves_a_gap_is_refused_and_its_neighbour_is_stored(desk: Desk) -> None:
    desk.ledger.seed([Target(f"{OTHER}/")], now=2.0)
    one, two = desk.lease(), desk.lease(11.0)
    good, gap = parcel(one, pages=(page("/"),)), parcel(two, 2, pages=(page("/", OTHER),))
    first, second = await desk.take(good, gap)
    assert first is None
    assert isinstance(second, ParcelRefused)
    assert desk.stored() == [f"{SITE}/"]


async def test_links_that_the_borders_refuse_do_not_enter_the_frontier(desk: Desk) -> None:
    outlinks = targets("/wanted", "/other", site=OTHER)
    await desk.take(parcel(desk.lease(), pages=(page("/"),), outlinks=outlinks, ended=Ended.FINISHED))
    assert [target.url for target in desk.lease(1e12).starts] == [f"{OTHER}/wanted"]


async def test_disk_that_refuses_acknowledges_nothing_and_the_parcel_can_come_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = parcel(desk.lease(), pages=(page("/"),))

    def refuse(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(desk.segments, "write_pages", refuse)
        (outcome,) = await desk.take(one)
    assert isinstance(outcome, StorageError)
    assert desk.committed == []
    assert await desk.take(one) == [None]
    assert desk.stored() == [f"{SITE}/"]


async def test_commit_that_fails_ends_intake_so_that_files_and_ledger_part_no_further(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(desk.ledger, "commit", refuse)
    running = asyncio.create_task(desk.intake.run())
    with pytest.raises(StorageError):
        await desk.intake.take(parcel(desk.lease(), pages=(page("/"),)))
    with pytest.raises(StorageError):
        await asyncio.wait_for(running, 5)
