"""Segments read by a confined process: the same rows as without one, and what it must not send is refused."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import making

from sterna.archive.confined import frames_of, read_table, table_of, unpacked
from sterna.archive.manifest import Batch, FactRow, Segment
from sterna.archive.segments import SegmentStore
from sterna.errors import DamagedSegment, StorageError
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


def test_tables_go_in_pieces_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.archive.confined.FRAME_BYTES", 10_000)
    table = pa.table({"text": ["x" * 999] * 100, "n": list(range(100))})
    frames = list(frames_of([table, table.slice(0, 0)]))
    assert len(frames) > 9
    assert max(map(len, frames)) < 20_000
    assert pa.concat_tables(map(read_table, frames)).equals(table)


def forged_offsets() -> bytes:
    """A table of texts whose last one ends far behind the data."""
    (frame,) = frames_of([pa.table({"text": ["abcd"] * 4})])
    offsets = b"".join(number.to_bytes(4, "little") for number in (0, 4, 8, 12, 16))
    assert frame.count(offsets) == 1
    return frame.replace(offsets, offsets[:-4] + (1 << 30).to_bytes(4, "little"))


def forged_text() -> bytes:
    (frame,) = frames_of([pa.table({"text": ["abcd"]})])
    return frame.replace(b"abcd", b"ab\xff\xfe")


@pytest.mark.parametrize(
    "frame",
    [b"", b"nonsense", forged_offsets(), forged_text(), next(frames_of([pa.table({"n": [1]})]))[:-40]],
    ids=["nothing", "nonsense", "offsets", "no UTF-8", "cut"],
)
def test_malformed_table_is_refused(frame: bytes) -> None:
    with pytest.raises(StorageError, match="a confined process sent a malformed table"):
        read_table(frame)


def test_table_of_other_columns_is_refused() -> None:
    (frame,) = frames_of([pa.table({"url": [1]})])
    with pytest.raises(StorageError, match=r"sent the columns \['url'\], asked \['url'\]"):
        table_of(frame, pa.schema({"url": pa.string()}))


def test_message_of_another_form_is_refused() -> None:
    with pytest.raises(StorageError, match="a confined process sent a malformed answer"):
        unpacked(b"\xa1x", int)
