"""A small collection with everything that a crawl leaves behind, made without a crawl; to be damaged."""

import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests import making

from sterna.archive.manifest import Batch, FactRow, Origin
from sterna.archive.segments import SegmentStore
from sterna.archive.warc import WarcStore
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import Change
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.options import Options, dump, settings_of
from sterna.home.repair.records import Repaired
from sterna.home.repair.repair import repair
from sterna.model import Checkpoint, Link, Links, Page, Parcel, Raw, Target, Usage

SITE = making.SITE
NOW = making.NOW
PAGES = 5  # of a batch
BATCHES = 4
OPTIONS = Options(seeds=(f"{SITE}/0",), delay=2.0, exclude=("/private/",), warc=True)


def page(number: int) -> Page:
    """Each page links to the next two; that of the last ones is not fetched yet."""
    return making.page(
        f"/{number}",
        depth=min(number, 1),
        fetched=NOW + number,
        text=f"text of page {number} " * 40,
        digest=number.to_bytes(16),
        etag=f'"{number}"',
        modified="Tue, 14 Nov 2023 22:13:20 GMT",
        links=Links.of(
            *(Link(f"{SITE}/{number + step}") for step in (1, 2)),
            Link(f"{SITE}/no", rel="nofollow"),
            Link(f"{SITE}/no.png", rel="img"),
        ),
        raw=Raw(b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"body %d" % number * 50, "192.0.2.1"),
    )


class Wreck:
    """The collection while it is made."""

    def __init__(self, folder: Path) -> None:
        self.collection = CollectionFolder(folder)
        with self.collection.open_for_crawl():
            self.ledger = SqliteLedger(self.collection.ledger_path)
        self.collection.claim(self.ledger)
        origin = Origin(self.collection.id(), settings_of(OPTIONS, blocked=["ads.example.org"]))
        self.segments = SegmentStore(self.collection.segments_folder, origin=origin)
        self.warc = WarcStore(
            self.collection.warc_folder, software="Sterna/test", collection=self.collection.id()
        )
        self.ledger.set_setting("options", dump(OPTIONS))
        self.ledger.block(["ads.example.org"])
        self.ledger.seed([Target(f"{SITE}/0")], now=NOW)
        (self._lease,) = self.ledger.lease(["v1"], now=NOW, pages=100, max_depth=9)
        self.batch = 0

    def put(self, pages: Sequence[Page], *, facts: int = 1) -> None:
        """Commits one batch, as intake does."""
        self.batch += 1
        batch = Batch(
            number=self.batch, crawler="default", visits=("v1",) * len(pages), again=(False,) * len(pages)
        )
        rows = [
            FactRow(
                crawler="default", site=SITE, visit="v1", template="t", data=f"[{self.batch}]", received=NOW
            )
        ]
        written = self.segments.write_pages([(SITE, each) for each in pages], facts=rows * facts, batch=batch)
        found = [Target(link.url, 1, each.url) for each in pages for link in each.links if not link.rel]
        parcel: Parcel = making.parcel(
            self._lease,
            self.batch,
            pages=tuple(pages),
            checkpoint=Checkpoint(found=tuple(found)),
            usage=Usage(requests=len(pages), pages=len(pages)),
        )
        warc = tuple(self.warc.append(pages))
        change = Change(parcels=(parcel,), segments=tuple(written), batch=self.batch, warc=warc)
        self.ledger.commit(change, now=NOW + 1_000)

    def close(self) -> None:
        self.ledger.set_warc_positions(self.warc.close())
        self.ledger.lose("v1", now=NOW + 1_000)
        self.ledger.close()


def make(folder: Path) -> CollectionFolder:
    """The collection: four batches, of which the first two are merged; two URLs are left to be fetched."""
    wreck = Wreck(folder)
    for number in range(BATCHES):
        wreck.put([page(PAGES * number + each) for each in range(PAGES)])
    for table in ("page", "link", "fact"):
        first = [each for each in wreck.ledger.segments() if each.table == table][:2]
        merged = wreck.segments.merge(first)
        wreck.ledger.replace_segments(first, merged, now=NOW)
        for name in wreck.ledger.forget_retired(before=NOW + 1):
            wreck.segments.remove(name)
    wreck.close()
    return wreck.collection


# --- what it holds


def rows(collection: CollectionFolder, table: str) -> list[tuple[Any, ...]]:
    """All rows that the ledger names, sorted; of links and facts with their batches."""
    columns = {"page": ["url", "text"], "link": ["from_url", "to_url", "batch"], "fact": ["data", "batch"]}[
        table
    ]
    with collection.open_ledger() as ledger:
        names = [each.name for each in ledger.segments() if each.table == table]
    found: list[tuple[Any, ...]] = []
    for name in names:
        read = pq.read_table(collection.segments_folder / name)
        found += zip(*(read[each].to_pylist() for each in columns if each in read.column_names), strict=True)
    return found


def urls(collection: CollectionFolder) -> list[str]:
    return sorted(url for url, _ in rows(collection, "page"))


def known(collection: CollectionFolder, sql: str) -> list[tuple[Any, ...]]:
    """What the ledger says."""
    with sqlite3.connect(f"file:{collection.ledger_path}?mode=ro", uri=True) as db:
        return db.execute(sql).fetchall()


def waiting(collection: CollectionFolder) -> set[str]:
    """The URLs to be fetched."""
    return {SITE + path for (path,) in known(collection, "SELECT url FROM frontier")}


def segment(collection: CollectionFolder, table: str, number: int = -1) -> Path:
    """The path of a segment; the first is the merged one, the last that of the last batch."""
    with collection.open_ledger() as ledger:
        named = [each for each in ledger.segments() if each.table == table]
    ordered = sorted(named, key=lambda each: (-each.tier, each.name))
    return collection.segments_folder / ordered[number].name


def files(collection: CollectionFolder) -> dict[str, bytes]:
    """All files but SQLite's own and the lock."""
    return {
        str(path.relative_to(collection.folder)): path.read_bytes()
        for path in sorted(collection.folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal", "lock"))
    }


def aside(collection: CollectionFolder) -> set[str]:
    return (
        {path.name for path in collection.aside_folder.iterdir()}
        if collection.aside_folder.exists()
        else set()
    )


def mend(collection: CollectionFolder, **options: Any) -> Repaired:
    return repair(collection, now=NOW + 2_000, **options)


def copy(collection: CollectionFolder, folder: Path) -> CollectionFolder:
    shutil.copytree(collection.folder, folder)
    return CollectionFolder(folder)


def flip(path: Path, at: int, *, length: int = 8) -> None:
    """Changes some bytes; a negative place counts from the end."""
    data = bytearray(path.read_bytes())
    start = at % len(data)
    for place in range(start, min(start + length, len(data))):
        data[place] ^= 0x5A
    path.write_bytes(data)
