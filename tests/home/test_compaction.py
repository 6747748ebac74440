"""Compaction: fewer and larger segments, the same rows, and old files kept while a reader may need them."""

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests import making
from tests.clocks import StillClock
from tests.home.ledger.ledger_suite import SITE

from sterna.archive.manifest import Batch, FactRow, Segment
from sterna.archive.segments import SegmentStore
from sterna.errors import JailError, SternaError, StorageError
from sterna.home import upkeep
from sterna.home.ledger.interface import LedgerDesk
from sterna.home.ledger.records import Change
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.upkeep import READER_GRACE_SECONDS, merge
from sterna.model import Link, Links, Page
from sterna.runtime.cell.confined import Confined

HANGING = """
import time

def hang(request):
    yield b"begun"
    time.sleep(60)
"""


def some_page(number: int) -> Page:
    return making.page(f"/{number}", site=SITE, fingerprint=number, links=Links.of(Link(f"{SITE}/")))


async def test_small_segments_are_merged_and_removed_after_a_grace(tmp_path: Path) -> None:
    ledger, store, clock = SqliteLedger(tmp_path / "l"), SegmentStore(tmp_path / "s"), StillClock()
    (tmp_path / "s").mkdir(exist_ok=True)
    for number in range(20):
        fact = FactRow(crawler="c", site=SITE, visit="v", template="t", data=f"[{number}]", received=1.0)
        segments = tuple(store.write_pages([(SITE, some_page(number))], facts=[fact]))
        ledger.commit(Change(parcels=(), segments=segments), now=1.0)
    before = {segment.name for segment in ledger.segments()}
    with ThreadPoolExecutor(1) as ledger_thread, ThreadPoolExecutor(1) as thread:
        desk = LedgerDesk(ledger, ledger_thread)
        assert await merge(desk, store, clock=clock, thread=thread) == 3
        assert {path.name for path in (tmp_path / "s").iterdir()} > before
        clock.time += READER_GRACE_SECONDS + 1
        assert await merge(desk, store, clock=clock, thread=thread) == 0
    named = ledger.segments()
    assert {path.name for path in (tmp_path / "s").iterdir()} == {segment.name for segment in named}
    pages = [segment for segment in named if segment.table == "page"]
    assert len(pages) == 5
    urls = [url for each in pages for url in pq.read_table(store.path(each.name))["url"].to_pylist()]
    assert sorted(urls) == sorted(f"{SITE}/{number}" for number in range(20))
    facts = [segment for segment in named if segment.table == "fact"]
    data = [text for each in facts for text in pq.read_table(store.path(each.name))["data"].to_pylist()]
    assert (len(facts), sorted(data)) == (5, sorted(f"[{number}]" for number in range(20)))


async def test_group_that_cannot_be_merged_rests_and_those_behind_it_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(upkeep, "LOOK_SECONDS", 0.0)
    ledger, store, clock = SqliteLedger(tmp_path / "l"), SegmentStore(tmp_path / "segments"), StillClock()
    for number in range(16):
        segments = tuple(store.write_pages([(SITE, some_page(number))]))
        ledger.commit(Change(parcels=(), segments=segments), now=1.0)
    merge_them, tried = store.merge, list[str]()

    def merge_others(group: Sequence[Segment]) -> Segment:
        tried.append(group[0].table)
        if group[0].table == "link" and len(tried) == 1:
            raise JailError("its confined process was ended by SIGKILL")
        return merge_them(group)

    monkeypatch.setattr(store, "merge", merge_others)
    with ThreadPoolExecutor(1) as thread:
        desk = LedgerDesk(ledger, thread)
        merging = asyncio.create_task(upkeep.keep_merging(desk, store, clock=clock))
        for count in (17, 2):  # the pages are merged, and then the links
            async with asyncio.timeout(30):
                while len(await desk.do(lambda ledger: ledger.segments())) != count:
                    assert not merging.done()
                    await asyncio.sleep(0)
            assert tried == ["link", "page", "link"][: len(tried)]
            clock.time += upkeep.REST_SECONDS
        merging.cancel()
    assert tried == ["link", "page", "link"]
    (told,) = [each.getMessage() for each in caplog.records]
    assert "15 other segments are not merged for a while: its confined process was ended by SIGKILL" in told


async def test_cancelled_merging_does_not_wait_for_a_process_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "LOOK_SECONDS", 0.0)
    (tmp_path / "hanging.py").write_text(HANGING)
    monkeypatch.syspath_prepend(str(tmp_path))
    ledger, confined = SqliteLedger(tmp_path / "l"), Confined(tmp_path)
    store = SegmentStore(tmp_path / "segments", confined=confined)
    for number in range(16):
        segments = tuple(store.write_pages([(SITE, some_page(number))]))
        ledger.commit(Change(parcels=(), segments=segments), now=1.0)
    hangs = threading.Event()

    def hang(group: Sequence[Segment]) -> Segment:
        frames = confined.stream("hanging:hang", b"")
        assert next(frames)
        hangs.set()
        next(frames)
        raise AssertionError("the process went on")

    monkeypatch.setattr(store, "merge", hang)
    with ThreadPoolExecutor(1) as thread:
        merging = asyncio.create_task(
            upkeep.keep_merging(LedgerDesk(ledger, thread), store, clock=StillClock())
        )
        async with asyncio.timeout(30):
            while not hangs.is_set():
                assert not merging.done()
                await asyncio.sleep(0)
        merging.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await merging
    assert time.monotonic() - began < 20


async def test_damaged_segment_is_left_out_of_merges_and_does_not_end_the_crawl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(upkeep, "LOOK_SECONDS", 0.0)
    ledger, store = SqliteLedger(tmp_path / "l"), SegmentStore(tmp_path / "segments")
    for number in range(17):
        segments = store.write_pages([(SITE, making.page(f"/{number}", site=SITE))])
        ledger.commit(Change(parcels=(), segments=tuple(segments)), now=1.0)
    bad = ledger.segments()[3]
    store.path(bad.name).write_bytes(b"")
    with ThreadPoolExecutor(1) as thread:
        desk = LedgerDesk(ledger, thread)
        merging = asyncio.create_task(upkeep.keep_merging(desk, store, clock=StillClock()))
        async with asyncio.timeout(30):
            while len(await desk.do(lambda ledger: ledger.segments())) != 2:
                assert not merging.done()
                await asyncio.sleep(0)
        merging.cancel()
    assert bad.name in {segment.name for segment in ledger.segments()}
    assert [record.getMessage().count("sterna repair") for record in caplog.records] == [1]


def test_unknown_segment_of_a_later_batch_shows_that_the_ledger_is_older(tmp_path: Path) -> None:
    ledger, store = SqliteLedger(tmp_path / "l"), SegmentStore(tmp_path / "segments")
    for number in (1, 2):
        batch = Batch(number=number, crawler="c", visits=("v",), again=(False,))
        store.write_pages([(SITE, some_page(number))], batch=batch)
        found = upkeep.sign_of_age(ledger, store)
        # One batch may be there uncommitted: a crash leaves it.
        assert ("ends with batch 0" in found) == (number == 2)


@pytest.mark.parametrize("found", [JailError("its process was ended by SIGSEGV"), StorageError("malformed")])
def test_unknown_segment_that_kills_its_reader_says_nothing_of_the_ledger(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, found: SternaError
) -> None:
    """It is set aside when the crawl starts, as every other damaged one that the ledger does not know."""

    def die(*_: object, **__: object) -> bytes:
        raise found

    ledger, reader = SqliteLedger(tmp_path / "l"), Confined(tmp_path / "segments")
    monkeypatch.setattr(reader, "call", die)
    store = SegmentStore(tmp_path / "segments", confined=reader)
    (bad, _) = store.write_pages([(SITE, some_page(1))])
    assert upkeep.sign_of_age(ledger, store) == ""
    assert f"{store.path(bad.name)} is taken as damaged: {found}" in caplog.text
