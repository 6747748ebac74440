"""Segments read by a confined process: the same rows as without one."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests import making

from sterna.archive.manifest import Batch, FactRow, Segment
from sterna.archive.segments import SegmentStore
from sterna.errors import DamagedSegment
from sterna.model import Link, Links
from sterna.runtime.cell.confined import Confined

SITE = "https://www.example.org"
COLUMNS = ["url", "batch", "keywords", "headers", "text"]


@pytest.fixture
def plain(tmp_path: Path) -> SegmentStore:
    return SegmentStore(tmp_path / "segments")


@pytest.fixture
def confined(tmp_path: Path) -> Iterator[SegmentStore]:
    with closing(Confined(tmp_path / "segments")) as reader:
        yield SegmentStore(tmp_path / "segments", confined=reader)


def write(store: SegmentStore, number: int) -> list[Segment]:
    """Pages, links and facts of a batch."""
    pages = [
        (
            SITE,
            making.page(
                f"/{number}/{place}",
                text="ice " * 50,
                keywords=("a",) if place else (),
                links=Links.of(Link(f"{SITE}/next", "next")),
            ),
        )
        for place in range(3)
    ]
    batch = Batch(number=number, crawler="c", visits=("v",) * 3, again=(False,) * 3)
    fact = FactRow(crawler="c", site=SITE, visit="v", template="t", data="[1]", received=1.0)
    return store.write_pages(pages, facts=[fact], batch=batch)


def test_merge_is_the_same(plain: SegmentStore, confined: SegmentStore) -> None:
    batches = [write(plain, number) for number in (1, 2, 3)]
    for segments in zip(*batches, strict=True):
        ours, theirs = plain.merge(segments), confined.merge(segments)
        same = [getattr(ours, name) == getattr(theirs, name) for name in ("table", "rows", "tier")]
        assert all(same)
        left, right = (pq.ParquetFile(plain.path(each.name)) for each in (ours, theirs))
        assert left.read().equals(right.read())
        assert left.schema_arrow.metadata == right.schema_arrow.metadata  # the labels


def test_rows_are_the_same(plain: SegmentStore, confined: SegmentStore) -> None:
    names = [segment.name for number in (1, 2) for segment in write(plain, number) if segment.table == "page"]
    for name in names:
        ours, theirs = (list(map(list, store.rows(name, COLUMNS))) for store in (plain, confined))
        assert ours == theirs
        assert plain.last_batch(name) == confined.last_batch(name) > 0
    ours, theirs = (
        [table.to_pylist() for table in store.arrivals(names, after=1, upto=2, columns=COLUMNS)]
        for store in (plain, confined)
    )
    assert ours == theirs
    assert len(ours[0]) == 3


def test_damaged_segment_is_named(plain: SegmentStore, confined: SegmentStore) -> None:
    (segment,) = (each for each in write(plain, 1) if each.table == "page")
    path = plain.path(segment.name)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DamagedSegment) as found:
        confined.merge([segment, segment])
    assert found.value.path == path.absolute()
