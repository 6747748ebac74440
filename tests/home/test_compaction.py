"""Compaction: fewer and larger segments, the same rows, and old files kept while a reader may need them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
from tests import making
from tests.clocks import StillClock
from tests.home.ledger.ledger_suite import SITE

from sterna.archive.manifest import FactRow
from sterna.archive.segments import SegmentStore
from sterna.home.ledger.interface import LedgerDesk
from sterna.home.ledger.records import Change
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.upkeep import READER_GRACE_SECONDS, merge
from sterna.model import Link, Links, Page


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
