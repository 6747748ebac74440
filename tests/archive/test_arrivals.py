"""What came after a batch: each row once, in the order of the batches, however segments were merged since."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import making

from sterna.archive import parquet
from sterna.archive.arrivals import arrivals, count
from sterna.archive.manifest import Batch, FactRow, Segment
from sterna.archive.parquet import batches_of, write_segment
from sterna.archive.rows import SCHEMAS
from sterna.archive.segments import SegmentStore, choose_merges
from sterna.errors import StorageError
from sterna.model import Link, Links, Page

SITE = "https://www.example.org"
SMALL = 100  # rows of a segment above which compaction takes it for full


def site_pages(number: int, size: int, **fields: Any) -> list[tuple[str, Page]]:
    """The pages of a batch; their URLs tell which, and their place in it."""
    return [(SITE, making.page(f"/{number}/{place}", **fields)) for place in range(size)]


def write(store: SegmentStore, number: int, size: int = 2, **fields: Any) -> Segment:
    batch = Batch(number=number, crawler="c", visits=("v",) * size, again=(False,) * size)
    return store.write_pages(site_pages(number, size, **fields), batch=batch)[0]


def early(folder: Path, name: str, urls: Sequence[str]) -> Segment:
    """A segment of before there were batches."""
    schema = pa.schema([SCHEMAS["page"].field(column) for column in ("url", "title")])
    rows = pa.table({"url": [f"{SITE}/{url}" for url in urls], "title": ["early"] * len(urls)}, schema=schema)
    return write_segment(folder, f"{name}.page.parquet", rows=[rows], schema=schema)


def paths(store: SegmentStore, segments: Sequence[Segment]) -> list[Path]:
    return [store.path(segment.name) for segment in segments]


def read(files: Sequence[Path], after: int, upto: int) -> list[tuple[int, str]]:
    """Batch and URL of all that came."""
    tables = list(arrivals(files, after=after, upto=upto, columns=["batch", "url"]))
    rows = [row for table in tables for row in table.to_pylist()]
    assert count(files, after=after, upto=upto) == len(rows)
    return [(row["batch"], row["url"].removeprefix(SITE)) for row in rows]


@pytest.fixture
def store(tmp_path: Path) -> SegmentStore:
    return SegmentStore(tmp_path / "segments")


def test_rows_of_later_batches_come_in_their_order(store: SegmentStore) -> None:
    files = paths(store, [write(store, number) for number in (1, 2, 3, 4)])
    expected = [(2, "/2/0"), (2, "/2/1"), (3, "/3/0"), (3, "/3/1")]
    assert read(files, 1, 3) == expected
    assert read(files[::-1], 1, 3) == expected
    assert read(files, 4, 9) == read([], 0, 9) == []


def test_columns_are_those_asked_for_and_what_a_file_lacks_is_null(store: SegmentStore) -> None:
    written = [write(store, 1, 1, keywords=("a", "b"), headers=(("server", "x"),)), write(store, 2, 1)]
    columns = ["title", "keywords", "headers", "visit"]
    tables = list(arrivals(paths(store, written), after=0, upto=2, columns=columns))
    assert pa.concat_tables(tables).schema.names == columns
    assert [row for table in tables for row in table.to_pylist()] == [
        {"title": None, "keywords": ["a", "b"], "headers": [("server", "x")], "visit": "v"},
        {"title": None, "keywords": None, "headers": None, "visit": "v"},
    ]


def test_links_and_facts_arrive_too(store: SegmentStore) -> None:
    batch = Batch(number=5, crawler="c", visits=("v",), again=(True,))
    fact = FactRow(crawler="c", site=SITE, visit="v", template="t", data="[]", received=1.0)
    links = Links.of(Link(f"{SITE}/x"), Link(f"{SITE}/y"))
    written = store.write_pages(site_pages(5, 1, links=links), facts=[fact], batch=batch)
    by_table = {segment.table: [store.path(segment.name)] for segment in written}
    (links_found,) = arrivals(by_table["link"], after=4, upto=5, columns=["to_url", "crawler"])
    (facts_found,) = arrivals(by_table["fact"], after=4, upto=5, columns=["template"])
    assert links_found["to_url"].to_pylist() == [f"{SITE}/x", f"{SITE}/y"]
    assert facts_found.to_pylist() == [{"template": "t"}]


def test_rows_from_before_there_were_batches_are_of_batch_0(store: SegmentStore, tmp_path: Path) -> None:
    old = early(tmp_path / "segments", "00", ["old/a", "old/b"])
    files = paths(store, [old, write(store, 1, 1)])
    assert read(files, -1, 1) == [(0, "/old/a"), (0, "/old/b"), (1, "/1/0")]
    assert read(files, 0, 1) == [(1, "/1/0")]
    (early_rows,) = arrivals(files[:1], after=-1, upto=0, columns=["batch"])
    assert early_rows["batch"].to_pylist() == [0, 0]
    merged = store.merge([old, write(store, 2, 1)])
    assert read(paths(store, [merged]), -1, 9) == [(0, "/old/a"), (0, "/old/b"), (2, "/2/0")]
    assert read(paths(store, [merged]), 0, 9) == [(2, "/2/0")]


def test_groups_that_lie_outside_are_not_read(store: SegmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_BYTES", 1_000)
    merged = store.merge([write(store, number, 4, text="x" * 300) for number in range(1, 9)])
    groups = batches_of(pq.read_metadata(store.path(merged.name)))
    assert len(groups) > 4
    read_groups: list[int] = []
    read_row_group = pq.ParquetFile.read_row_group

    def noted(file: pq.ParquetFile, group: int, columns: list[str]) -> pa.Table:
        read_groups.append(group)
        return read_row_group(file, group, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", noted)
    tables = list(arrivals(paths(store, [merged]), after=4, upto=6, columns=["url"]))
    assert sum(table.num_rows for table in tables) == 8
    assert read_groups == [place for place, (low, high) in enumerate(groups) if high > 4 and low <= 6]
    assert max(table.num_rows for table in tables) <= 4, "no piece is larger than a group"


def test_batch_between_those_of_a_merged_segment_comes_in_its_turn(store: SegmentStore) -> None:
    """As when it was too large to be merged with its neighbours."""
    one, two, three = (write(store, number, 1) for number in (1, 2, 3))
    merged = store.merge([one, three])
    expected = [(1, "/1/0"), (2, "/2/0"), (3, "/3/0")]
    assert read(paths(store, [merged, two]), 0, 3) == expected
    assert read(paths(store, [two, merged]), 0, 3) == expected


def test_merge_orders_segments_whose_names_a_clock_mixed_up(store: SegmentStore) -> None:
    segments = [write(store, number, 1) for number in (4, 5, 1, 2, 3)]
    merged = store.merge(segments)
    assert pq.read_table(store.path(merged.name))["batch"].to_pylist() == [1, 2, 3, 4, 5]


def test_statistics_that_are_missing_cost_time_and_no_rows(
    store: SegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_OPTIONS", {"compression": "zstd", "write_statistics": False})
    files = paths(store, [write(store, number) for number in (2, 1)])
    assert batches_of(pq.read_metadata(files[0]))[0] == (0, 2**63 - 1)
    assert read(files, 1, 2) == [(2, "/2/0"), (2, "/2/1")]
    assert [batch for batch, _ in read(files, 0, 2)] == [1, 1, 2, 2]


def test_file_that_is_gone_is_named(store: SegmentStore, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"gone\.page\.parquet"):
        list(arrivals([tmp_path / "gone.page.parquet"], after=0, upto=1, columns=["url"]))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """How many rows each batch has, after which of them compaction runs, and how many it merges."""
    sizes = draw(st.lists(st.integers(1, 4) | st.just(SMALL), min_size=1, max_size=24))
    merges = draw(st.lists(st.integers(0, len(sizes)), max_size=8))
    return sizes, merges, draw(st.integers(2, 4))


@settings(max_examples=12, deadline=None)
@given(histories(), st.data(), st.randoms(use_true_random=False))
def test_compaction_of_all_tiers_keeps_every_row_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, history: tuple[list[int], list[int], int], data: st.DataObject,
    random: Any,
) -> None:  # fmt: skip
    sizes, merges, fan_in = history
    names = (f"{number:06}" for number in range(10_000))
    store = SegmentStore(tmp_path_factory.mktemp("s"), make_id=lambda: next(names))
    present: list[Segment] = []
    for number, size in enumerate(sizes, 1):
        present.append(write(store, number, size))
        if number in merges:
            present = compacted(store, present, fan_in)
    present = compacted(store, present, fan_in)
    after = data.draw(st.integers(-1, len(sizes)))
    upto = data.draw(st.integers(after, len(sizes)))
    expected = [
        (number, f"/{number}/{place}")
        for number, size in enumerate(sizes, 1)
        if after < number <= upto
        for place in range(size)
    ]
    files = paths(store, present)
    assert read(files, after, upto) == expected
    random.shuffle(files)
    assert read(files, after, upto) == expected


def compacted(store: SegmentStore, present: list[Segment], fan_in: int) -> list[Segment]:
    """As `home.compaction` does it, with the rows of a segment for its size."""
    sized = [Segment(each.name, each.table, each.rows, each.rows, each.tier) for each in present]
    while groups := choose_merges(sized, fan_in=fan_in, max_bytes=SMALL):
        for group in groups:
            merged = store.merge(group)
            batches = pq.read_table(store.path(merged.name))["batch"].to_pylist()
            assert batches == sorted(batches)
            sized = [each for each in sized if each not in group]
            sized.append(Segment(merged.name, merged.table, merged.rows, merged.rows, merged.tier))
    return sized
