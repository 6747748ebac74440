"""What of the archive is committed at one moment, also while it grows and is merged."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests import making
from tests.clocks import StillClock
from tests.home.ledger.ledger_suite import SITE

from sterna.archive.arrivals import arrivals
from sterna.archive.manifest import Batch, FactRow, Snapshot
from sterna.archive.segments import SegmentStore
from sterna.errors import EmptyCollection
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.interface import LedgerDesk
from sterna.home.ledger.records import Change
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.upkeep import merge
from sterna.model import Link, Links


class Archive:
    """A collection into which batches are committed, one page each."""

    def __init__(self, folder: Path) -> None:
        self.collection = CollectionFolder(folder)
        folder.mkdir()
        self.ledger = SqliteLedger(self.collection.ledger_path)
        self.segments = SegmentStore(self.collection.segments_folder)

    def write(self, number: int) -> Change:
        """The change of a batch, whose files are there already."""
        page = making.page(f"/{number}", site=SITE, fingerprint=number, links=Links.of(Link(f"{SITE}/")))
        fact = FactRow(crawler="c", site=SITE, visit="v", template="t", data="[]", received=1.0)
        batch = Batch(number=number, crawler="c", visits=("v",), again=(False,))
        segments = self.segments.write_pages([(SITE, page)], facts=[fact], batch=batch)
        return Change(parcels=(), segments=tuple(segments), batch=number)

    def commit(self, *numbers: int) -> None:
        for number in numbers:
            self.ledger.commit(self.write(number), now=1.0)

    async def compact(self) -> int:
        with ThreadPoolExecutor(1) as ledger_thread, ThreadPoolExecutor(1) as thread:
            desk = LedgerDesk(self.ledger, ledger_thread)
            return await merge(desk, self.segments, clock=StillClock(), thread=thread)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "c")


def urls(snapshot: Snapshot, *, after: int = 0) -> list[str]:
    files = snapshot.tables["page"]
    tables = arrivals(files, after=after, upto=snapshot.batch, columns=["url"])
    return [url.removeprefix(SITE) for table in tables for url in table["url"].to_pylist()]


def test_collection_that_was_never_crawled_has_none(tmp_path: Path) -> None:
    with pytest.raises(EmptyCollection):
        CollectionFolder(tmp_path).snapshot()


def test_new_ledger_gives_an_empty_one(archive: Archive) -> None:
    assert archive.collection.snapshot() == Snapshot(tables={"page": (), "link": (), "fact": ()}, batch=0)


def test_what_is_committed_is_there_and_what_is_only_written_is_not(archive: Archive) -> None:
    archive.commit(1, 2)
    archive.write(3)
    snapshot = archive.collection.snapshot()
    assert snapshot.batch == 2
    assert {name: len(files) for name, files in snapshot.tables.items()} == {"page": 2, "link": 2, "fact": 2}
    assert all(path.exists() for files in snapshot.tables.values() for path in files)
    assert urls(snapshot) == ["/1", "/2"]


async def test_merging_changes_nothing_for_who_has_an_old_snapshot_or_a_new_one(archive: Archive) -> None:
    archive.commit(*range(1, 20))
    before = archive.collection.snapshot()
    assert await archive.compact() == 3
    archive.commit(20)
    after = archive.collection.snapshot()
    assert len(after.tables["page"]) == 5 < len(before.tables["page"])
    assert urls(before) == [f"/{number}" for number in range(1, 20)]
    assert urls(after) == [f"/{number}" for number in range(1, 21)]
    assert urls(after, after=15) == [f"/{number}" for number in range(16, 21)]
