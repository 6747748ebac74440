"""Segments: written whole, merged without loss, and what happens when the disk refuses."""

import errno
import os
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import making

from sterna.archive import parquet as module
from sterna.archive.manifest import Batch, FactRow, Label, Origin, Segment
from sterna.archive.parquet import label_of, write_segment
from sterna.archive.rows import MORE, OPTIONAL, PAGE_SCHEMA
from sterna.archive.segments import SegmentStore
from sterna.errors import StorageError
from sterna.model import Link, Links, Page

SITE = "https://www.example.org"


def pages(first: int, count: int, *, text_bytes: int = 100) -> list[tuple[str, Page]]:
    return [
        (
            SITE,
            making.page(
                f"/{number}",
                fingerprint=number,
                fetched=making.NOW + number,
                text=random.Random(number).randbytes(text_bytes // 2).hex(),
                links=Links.of(Link(f"{SITE}/{number + 1}", "next"), Link(f"{SITE}/")),
            ),
        )
        for number in range(first, first + count)
    ]


def fact(number: int) -> FactRow:
    return FactRow(
        crawler="c", site=SITE, visit="v", template="t", data=f"[{number}]", received=1_700_000_000.0
    )


def early_segment(folder: Path, number: int) -> Segment:
    """A segment as a version wrote it that knew fewer columns."""
    schema = pa.schema([field for field in PAGE_SCHEMA if field.name not in OPTIONAL["page"]])
    row = {"url": f"{SITE}/{number}", "site": SITE, "status": 200, "text": "early"}
    rows = [pa.Table.from_pylist([row], schema=schema)]
    return write_segment(folder, f"0{number}.page.parquet", rows=rows, schema=schema)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def urls(store: SegmentStore, segment: Segment) -> list[str]:
    return list(pq.read_table(store.path(segment.name))["url"].to_pylist())


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """A write beyond this size fails half way, as on a disk that fills up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_pages_and_links_come_back_as_they_were_written(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path / "segments")
    page_segment, link_segment = store.write_pages(pages(0, 3))
    assert (page_segment.table, page_segment.rows, page_segment.tier) == ("page", 3, 0)
    assert (link_segment.table, link_segment.rows) == ("link", 6)
    assert urls(store, page_segment) == [f"{SITE}/0", f"{SITE}/1", f"{SITE}/2"]
    assert pq.read_table(store.path(link_segment.name))["to_url"][0].as_py() == f"{SITE}/1"
    assert page_segment.size_bytes == store.path(page_segment.name).stat().st_size
    assert names(tmp_path / "segments") == {page_segment.name, link_segment.name}


def test_no_empty_segment_is_written(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    without_links = [(SITE, making.page())]
    assert store.write_pages([]) == []
    assert [segment.table for segment in store.write_pages(without_links)] == ["page"]


def test_facts_have_a_segment_of_their_own(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    (segment,) = store.write_pages([], facts=[fact(1), fact(2)])
    assert (segment.table, segment.rows) == ("fact", 2)
    assert pq.read_table(store.path(segment.name))["data"].to_pylist() == ["[1]", "[2]"]
    assert store.sweep(set()) == [segment.name]


def test_fields_that_no_page_has_are_not_written(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    plain, *_ = store.write_pages(pages(0, 2))
    described = making.page(description="d")
    with_one, *_ = store.write_pages([*pages(2, 2), (SITE, described)])
    assert not set(MORE) & set(pq.read_schema(store.path(plain.name)).names)
    assert set(MORE) & set(pq.read_schema(store.path(with_one.name)).names) == {"description"}


def test_every_table_says_in_which_batch_its_rows_came(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    batch = Batch(number=3, crawler="c", visits=("v", "w"), again=(False, True))
    written = store.write_pages(pages(0, 2), facts=[fact(1)], batch=batch)
    tables = {each.table: pq.read_table(store.path(each.name)) for each in written}
    assert {name: set(rows["batch"].to_pylist()) for name, rows in tables.items()} == {
        "page": {3}, "link": {3}, "fact": {3}
    }  # fmt: skip
    assert tables["page"]["visit"].to_pylist() == ["v", "w"]


def test_later_segments_have_later_names(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    written = [store.write_pages(pages(number, 1))[0].name for number in range(5)]
    assert written == sorted(written)


def test_nothing_is_renamed_before_it_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    sync, rename = os.fsync, Path.rename

    def noted_sync(handle: int) -> None:
        target = Path(f"/proc/self/fd/{handle}").readlink()
        happened.append("sync folder" if target.is_dir() else f"sync {target.suffix}")
        sync(handle)

    def noted_rename(path: Path, target: Path) -> Path:
        happened.append("rename")
        return rename(path, target)

    store = SegmentStore(tmp_path, on_step=happened.append)
    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    store.write_pages([(SITE, making.page())])
    assert happened == [
        "segment-begun",
        "sync .tmp",
        "segment-written",
        "rename",
        "sync folder",
        "segment-renamed",
    ]


def test_statistics_copy_no_long_texts(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    (page, *_) = store.write_pages(pages(0, 3))
    group = pq.read_metadata(store.path(page.name)).row_group(0)
    columns = [group.column(position) for position in range(group.num_columns)]
    told = {each.path_in_schema for each in columns if each.is_stats_set}
    assert "text" not in told
    assert {"url", "fetched", "status"} <= told


def test_merged_segment_has_the_rows_of_all(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    parts = [store.write_pages(pages(10 * number, 10))[0] for number in range(4)]
    merged = store.merge(parts)
    assert (merged.table, merged.rows, merged.tier) == ("page", 40, 1)
    expected = pa.concat_tables([pq.read_table(store.path(part.name)) for part in parts])
    assert pq.read_table(store.path(merged.name)).equals(expected)
    assert pq.ParquetFile(store.path(merged.name)).num_row_groups == 1


def test_merge_of_early_and_late_segments_fills_what_is_missing(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    rich = making.page(
        "/rich",
        keywords=("a", "b"),
        headers=(("server", "x"),),
        extracts=(("price", ("1",)),),
    )
    (late,) = store.write_pages([(SITE, rich)])
    merged = store.merge([early_segment(tmp_path, 1), late, early_segment(tmp_path, 2)])
    rows = pq.read_table(store.path(merged.name))
    assert rows.schema.names == [
        name
        for name in PAGE_SCHEMA.names
        if name not in OPTIONAL["page"] or name in ("keywords", "headers", "extracts")
    ]
    assert rows.select(["url", "text", "keywords", "headers", "extracts"]).to_pylist() == [
        {"url": f"{SITE}/1", "text": "early", "keywords": None, "headers": None, "extracts": None},
        {
            "url": f"{SITE}/rich",
            "text": None,
            "keywords": ["a", "b"],
            "headers": [("server", "x")],
            "extracts": [("price", ["1"])],
        },
        {"url": f"{SITE}/2", "text": "early", "keywords": None, "headers": None, "extracts": None},
    ]


def test_merge_of_early_segments_alone_adds_no_columns(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    merged = store.merge([early_segment(tmp_path, number) for number in range(3)])
    assert not set(OPTIONAL["page"]) & set(pq.read_schema(store.path(merged.name)).names)
    assert urls(store, merged) == [f"{SITE}/{number}" for number in range(3)]


def test_merged_facts_are_all_there(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    parts = [store.write_pages([], facts=[fact(number)])[0] for number in range(3)]
    merged = store.merge(parts)
    assert (merged.table, merged.tier) == ("fact", 1)
    assert pq.read_table(store.path(merged.name))["data"].to_pylist() == ["[0]", "[1]", "[2]"]


def test_merge_writes_row_groups_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP_BYTES", 20_000)
    store = SegmentStore(tmp_path)
    parts = [store.write_pages(pages(20 * number, 20, text_bytes=1_000))[0] for number in range(6)]
    merged = pq.ParquetFile(store.path(store.merge(parts).name)).metadata
    sizes = [merged.row_group(number).total_byte_size for number in range(merged.num_row_groups)]
    assert merged.num_rows == 120
    assert len(sizes) > 3
    assert max(sizes) < 60_000


def test_merge_reads_on_only_when_a_group_is_written() -> None:
    read: list[int] = []

    def groups() -> Iterator[pa.Table]:
        for number in range(100):
            read.append(number)
            yield pa.table({"text": ["x" * 5_000]})

    assert next(module.gathered(groups(), least_bytes=20_000)).num_rows == len(read) == 4


def test_merge_of_different_tables_is_refused(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    with pytest.raises(ValueError, match="one table"):
        store.merge(store.write_pages(pages(0, 2)))


@pytest.mark.parametrize("damage", ["bit in a text", "bit in the footer", "half lost"])
def test_merge_names_a_damaged_segment_and_leaves_nothing(tmp_path: Path, damage: str) -> None:
    store = SegmentStore(tmp_path)
    good, bad = (store.write_pages(pages(number, 50))[0] for number in (0, 50))
    text = pq.read_metadata(store.path(bad.name)).row_group(0).column(6)
    middle = text.data_page_offset + text.total_compressed_size // 2
    data = bytearray(store.path(bad.name).read_bytes())
    data[middle if damage == "bit in a text" else -8] ^= 0x10
    store.path(bad.name).write_bytes(data[: len(data) // 2] if damage == "half lost" else data)
    before = names(tmp_path)
    with pytest.raises(StorageError, match=f"{bad.name}' is damaged"):
        store.merge([good, bad])
    assert names(tmp_path) == before


def test_merge_names_a_missing_segment(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    with pytest.raises(StorageError, match=r"gone\.page\.parquet"):
        store.merge([Segment("gone.page.parquet", "page", 1, 1)])


def test_what_the_manifest_does_not_know_is_set_aside_and_never_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "segments"
    store = SegmentStore(folder)
    kept, unknown = store.write_pages(pages(0, 1))
    content = store.path(unknown.name).read_bytes()
    (folder / "notes.txt").write_text("the owner's own")
    for half in (b"half", b"other half"):
        (folder / "0.page.parquet.tmp").write_bytes(half)
        store.sweep({kept.name})
    assert names(folder) == {kept.name, "notes.txt"}
    aside = {path.name: path.read_bytes() for path in (tmp_path / "aside").iterdir()}
    assert aside == {
        unknown.name: content, "0.page.parquet.tmp": b"half", "0.page.parquet.tmp.2": b"other half"
    }  # fmt: skip


def test_segment_says_whose_it_is_and_what_its_batches_brought(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path, origin=Origin("c1", '{"delay":2.0}'))
    written = [
        store.write_pages(
            pages(number, 1),
            facts=[fact(1)] * number,
            batch=Batch(number=number + 1, crawler="c", visits=("v",), again=(False,)),
        )
        for number in (0, 1)
    ]
    merged = store.merge([each[0] for each in written])
    label = label_of(pq.read_metadata(store.path(merged.name)))
    assert label == Label(
        collection="c1",
        options='{"delay":2.0}',
        table="page",
        tier=1,
        contents=((1, (1, 2, 0)), (2, (1, 2, 1))),
    )
    assert store.last_batch(merged.name) == 2


def test_segment_of_an_earlier_release_has_an_empty_label(tmp_path: Path) -> None:
    schema = pa.schema([("url", pa.string())])
    pq.write_table(pa.table({"url": ["u"]}, schema=schema), tmp_path / "0.page.parquet")
    assert label_of(pq.read_metadata(tmp_path / "0.page.parquet")) == Label()
    assert SegmentStore(tmp_path).last_batch("0.page.parquet") == 0


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "the disk is full: free some space"),
        (errno.EROFS, "read-only"),
        (errno.EIO, "I/O error"),
    ],
)
def test_refusal_of_the_disk_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, advice: str
) -> None:
    def refuse(_handle: int) -> None:
        raise OSError(code, os.strerror(code))

    store = SegmentStore(tmp_path)
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match=advice):
        store.write_pages(pages(0, 1))
    assert names(tmp_path) == set()


def test_disk_that_fills_up_half_way_leaves_nothing(tmp_path: Path) -> None:
    store = SegmentStore(tmp_path)
    many = [(site, page) for number in range(200) for site, page in pages(number, 1, text_bytes=number * 40)]
    with largest_file(4_096), pytest.raises(StorageError, match="exceeds the size limit"):
        store.write_pages(many)
    assert names(tmp_path) == set()
    assert [segment.rows for segment in store.write_pages(many)] == [200, 400]


def test_pages_go_when_their_links_find_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fsync

    def refuse_links(handle: int) -> None:
        if ".link." in Path(f"/proc/self/fd/{handle}").readlink().name:
            raise OSError(errno.ENOSPC, "no space")
        sync(handle)

    store = SegmentStore(tmp_path)
    monkeypatch.setattr(os, "fsync", refuse_links)
    with pytest.raises(StorageError, match="disk is full"):
        store.write_pages(pages(0, 1))
    assert names(tmp_path) == set()


def test_pages_and_links_go_when_their_facts_find_no_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def refuse_facts(handle: int) -> None:
        if ".fact." in Path(f"/proc/self/fd/{handle}").readlink().name:
            raise OSError(errno.ENOSPC, "no space")
        sync(handle)

    store = SegmentStore(tmp_path)
    monkeypatch.setattr(os, "fsync", refuse_facts)
    with pytest.raises(StorageError, match="disk is full"):
        store.write_pages(pages(0, 1), facts=[fact(1)])
    assert names(tmp_path) == set()


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="file/segments"):
        SegmentStore(tmp_path / "file" / "segments")


def test_hostile_texts_survive_a_segment(tmp_path: Path) -> None:
    hostile: dict[str, Any] = {"title": "\x00\x1b]0;x\x07\u202e", "text": "\ud800" + "\U0010ffff" * 1_000}
    store = SegmentStore(tmp_path)
    page = making.page(**hostile)
    (segment,) = store.write_pages([(SITE, page)])
    (row,) = pq.read_table(store.path(segment.name)).to_pylist()
    assert row["title"] == hostile["title"]
    assert row["text"] == "\ufffd" + "\U0010ffff" * 1_000


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "..", ".", "", "a/b", "a\0b"])
def test_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("x")
    store = SegmentStore(tmp_path / "c" / "segments")
    for use in (store.path, store.remove, lambda name: list(store.rows(name, ["url"]))):
        with pytest.raises(StorageError, match="is no name of a file in it"):
            use(name)
    assert (tmp_path / "secret").exists()
