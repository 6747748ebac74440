"""Collections read by a confined process beside the same work in this one: python -m bench.confined.

A collection of random pages is queried from Python, its segments are merged, and its links are read, both
ways in turn. Ratios are those of the medians, and above 1 means that the confined process took longer.
"""

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests import making

from sterna.archive.manifest import Batch, Segment
from sterna.archive.segments import SegmentStore
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import Change
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.model import Link, Links
from sterna.runtime.cell.confined import Confined

SITE = "https://www.example.org"
SEGMENTS = 16
ROUNDS = 5
ROWS = "SELECT range AS n, 'a text of some length ' || range AS t FROM range(5_000_000)"

# Programs that ask once: all of their time counts, that of Python and of the libraries too.
HERE = """
import pyarrow as pa
from pathlib import Path
from sterna.api.query import open_collection
from sterna.home.folder import CollectionFolder
with open_collection(CollectionFolder(Path({folder!r}))) as engine:
    answer = engine.run_arrow({sql!r})
    pa.Table.from_batches(list(answer.batches), answer.schema)
"""
CONFINED = "import sterna; sterna.Collection({folder!r}).query({sql!r}).arrow()"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--pages", type=int, default=2_000, help="of each of the 16 segments")
    pages = parser.parse_args().pages
    print(f"{'':34} {'here':>8} {'confined':>8}   ratio")
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "c"
        segments, links = _make(folder, pages)
        for name, sql in (("a program's first query", "SELECT count(*) FROM page"), ("5 million rows", ROWS)):
            _tell(name, *(_program(code, folder=str(folder), sql=sql) for code in (HERE, CONFINED)))
        with closing(Confined(folder / "segments")) as confined:
            ways = SegmentStore(folder / "segments"), SegmentStore(folder / "segments", confined=confined)
            size = sum(each.size_bytes for each in segments) / 1e6
            _tell(f"16 segments of {size:.0f} MB merged", *(_merging(store, segments) for store in ways))
            count = sum(each.rows for each in links)
            _tell(f"{count:,} links read", *(_reading(store, links) for store in ways))


def _make(folder: Path, count: int) -> tuple[list[Segment], list[Segment]]:
    """A collection whose segments of pages and of links are returned."""
    collection = CollectionFolder(folder)
    with collection.open_for_crawl(), closing(SqliteLedger(collection.ledger_path)) as ledger:
        store, pages, links = SegmentStore(collection.segments_folder), [], []
        for number in range(1, SEGMENTS + 1):
            batch = Batch(number=number, crawler="c", visits=("v",) * count, again=(False,) * count)
            random_pages = [(SITE, _page(number * count + place)) for place in range(count)]
            written = store.write_pages(random_pages, batch=batch)
            ledger.commit(Change(parcels=(), batch=number, segments=tuple(written)), now=1.0)
            pages += [each for each in written if each.table == "page"]
            links += [each for each in written if each.table == "link"]
    return pages, links


def _page(number: int) -> making.Page:
    words = random.Random(number).choices([f"word{each}" for each in range(5_000)], k=500)
    links = Links.of(*(Link(f"{SITE}/{number + each}", words[each]) for each in range(50)))
    return making.page(f"/{number}", fingerprint=number, text=" ".join(words), links=links)


def _program(code: str, **given: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, "-c", code.format(**given)], check=True)


def _merging(store: SegmentStore, segments: list[Segment]) -> Callable[[], object]:
    return lambda: store.remove(store.merge(segments).name)


def _reading(store: SegmentStore, segments: list[Segment]) -> Callable[[], object]:
    names = [each.name for each in segments]
    return lambda: [sum(1 for rows in store.rows(name, ["to_url"]) for _ in rows) for name in names]


def _tell(name: str, here: Callable[[], object], confined: Callable[[], object]) -> None:
    times: tuple[list[float], list[float]] = ([], [])
    for work in (here, confined):
        work()  # files are in the page cache, and a process is there
    for _ in range(ROUNDS):
        for work, taken in zip((here, confined), times, strict=True):
            began = time.perf_counter()
            work()
            taken.append(time.perf_counter() - began)
    left, right = map(statistics.median, times)
    print(f"{name:34} {left:7.2f}s {right:7.2f}s   {right / left:5.2f}", flush=True)


if __name__ == "__main__":
    main()
