"""Segments read by a confined process: the same rows as without one."""

import random
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import making

from sterna.archive.frames import packed
from sterna.archive.manifest import Batch, Contents, FactRow, Segment
from sterna.archive.rows import PAGE_SCHEMA, page_table
from sterna.archive.segments import SegmentStore
from sterna.errors import DamagedSegment, StorageError
from sterna.model import Link, Links
from sterna.runtime.cell.confined import Confined

SITE = "https://www.example.org"
MIB = 1 << 20
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


class Lying:
    """A process that answers a merge with what it likes."""

    def __init__(self, says: Iterable[bytes], contents: Contents) -> None:
        self._says, self._contents = says, contents

    def stream(self, work: str, request: bytes, *, seconds: float) -> Iterator[bytes]:
        assert work.endswith(":merged_frames")
        yield packed((PAGE_SCHEMA.names, self._contents))
        yield from self._says


def frame_of(rows: int, *, text_bytes: int = 0) -> bytes:
    page = making.page("/", text=random.Random(rows).randbytes(text_bytes // 2).hex())
    batch = Batch(number=1, crawler="c", visits=("v",) * rows, again=(False,) * rows)
    table = page_table([(SITE, page)] * rows, batch).select(PAGE_SCHEMA.names)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return bytes(out.getvalue())


# Frames, batches, and what is said of them.
LIES: dict[str, tuple[Iterable[bytes], Contents, str]] = {
    "rows without end": (repeat(frame_of(2)), (), "has more than 6 rows: the old segments stay"),
    "no rows, again and again": ([frame_of(0)] * 1_000 + [frame_of(7)], (), "has more than 6 rows"),
    "too few rows": ([frame_of(5)], (), "has 5 rows: the old segments stay"),
    "long texts": ([frame_of(1, text_bytes=4 * MIB)] * 6, (), "would take more than 1,0[0-9,]+ bytes"),
    "a long label": ([frame_of(6)], tuple((n, (n,)) for n in range(200_000)), "would take more than"),
    "too many batches": ([frame_of(6)], ((1, (0,) * 5_000_000),), "an answer of more than 5,000,000 values"),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_merge_that_a_process_lies_about_takes_little_room(
    lie: tuple[Iterable[bytes], Contents, str], plain: SegmentStore
) -> None:
    frames, contents, reason = lie
    pages = [each for number in (1, 2) for each in write(plain, number) if each.table == "page"]
    folder = plain.path(pages[0].name).parent
    before, largest = sorted(folder.iterdir()), 0

    def watched(frames: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal largest
        for frame in frames:
            largest = max([largest, *(path.stat().st_size for path in folder.glob("*.tmp"))])
            yield frame

    lying: Any = Lying(watched(frames), contents)
    with pytest.raises(StorageError, match=reason):
        SegmentStore(folder, confined=lying).merge(pages)
    assert largest < 3 * MIB
    assert sorted(folder.iterdir()) == before


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
