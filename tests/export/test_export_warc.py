"""WARC files copied out: the committed records, as they lie, and nothing else."""

import gzip
import io
import os
from pathlib import Path
from tempfile import mkdtemp

import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from fastwarc.warc import WarcRecordType
from tests.export.exported import export, page, source_of
from warcio.archiveiterator import ArchiveIterator

from sterna.archive.warc import WarcStore
from sterna.archive.warc_scan import members
from sterna.errors import StorageError, UsageError
from sterna.export import raw
from sterna.export.warc import WarcFile, find
from sterna.model import Page, Raw

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"


def answered(path: str, body: bytes = b"<p>hello") -> Page:
    return page(path, text="hello", raw=Raw(b"GET / HTTP/1.1\r\n\r\n", HEAD, body, "192.0.2.1"))


def open_file(folder: Path, *paths: str, max_bytes: int = 1 << 30) -> list[WarcFile]:
    """Files of a crawl that is under way, the last of which it still writes."""
    store = WarcStore(folder, software="test", max_bytes=max_bytes)
    positions = store.append([answered(path, os.urandom(3_000)) for path in paths])
    files, missing = find(folder, positions)
    assert missing == []
    return files


def responses(data: bytes) -> list[str]:
    return [
        record.rec_headers["WARC-Target-URI"]
        for record in ArchiveIterator(io.BytesIO(data), check_digests="raise")
        if record.rec_type == "response" and record.content_stream().read() is not None
    ]


def write(files: list[WarcFile], folder: Path, *paths: str, where: str = "") -> bytes:
    out = io.BytesIO()
    scratch = Path(mkdtemp(dir=folder))  # each export has one of its own
    with source_of(*map(answered, paths), where=where, warcs=files, scratch=scratch) as source:
        raw.write_warc(source, out)
    return out.getvalue()


@pytest.mark.servers
def test_copy_of_a_real_crawl_is_the_same_bytes(real_collection: Path, tmp_path: Path) -> None:
    out = export(real_collection, "warc", tmp_path / "all.warc.gz")
    originals = sorted((real_collection / "warc").iterdir())
    assert out.read_bytes() == b"".join(path.read_bytes() for path in originals)
    folder = export(real_collection, "warc", tmp_path / "files")
    assert sorted(path.name for path in folder.iterdir()) == [path.name for path in originals]
    assert all((folder / path.name).read_bytes() == path.read_bytes() for path in originals)


@pytest.mark.servers
def test_condition_chooses_records_by_their_pages(real_collection: Path, tmp_path: Path) -> None:
    chosen = "url LIKE '%/lang%'"
    out = export(real_collection, "warc", tmp_path / "some.warc.gz", where=chosen)
    lines = export(real_collection, "jsonl", tmp_path / "p.jsonl", where=chosen).read_text().splitlines()
    with out.open("rb") as file:
        records = [
            (record.record_type, record.headers.get("WARC-Target-URI"))
            for record in FastIterator(file, record_types=WarcRecordType.any_type)
        ]
    kinds = [kind for kind, _ in records]
    found = [url for kind, url in records if kind == WarcRecordType.response]
    assert kinds[0] == WarcRecordType.warcinfo
    assert 0 < len(found) == len(lines) < 50
    revisits = kinds.count(WarcRecordType.revisit)
    assert revisits > 0
    assert kinds.count(WarcRecordType.request) == len(lines) + revisits
    assert all("/lang" in (url or "/lang") for _, url in records)
    assert responses(out.read_bytes()) == found


def test_only_what_is_committed_is_copied_from_a_running_crawl(tmp_path: Path) -> None:
    files = open_file(tmp_path / "warc", "/a", "/b")
    (path,) = (tmp_path / "warc").iterdir()
    assert path.suffix == ".open"
    committed = path.read_bytes()
    with path.open("ab") as file:
        file.write(gzip.compress(b"WARC/1.1\r\nhalf a rec"))
    assert write(files, tmp_path, "/a", "/b") == committed
    assert responses(write(files, tmp_path, "/a", "/b", where="url LIKE '%/b'")) == [answered("/b").url]


def test_file_that_is_renamed_meanwhile_is_found(tmp_path: Path) -> None:
    files = open_file(tmp_path / "warc", "/a")
    (path,) = (tmp_path / "warc").iterdir()
    path.rename(path.with_suffix(""))
    assert responses(write(files, tmp_path, "/a")) == [answered("/a").url]


def test_files_without_a_wanted_record_are_left_out(tmp_path: Path) -> None:
    paths = ["/a", "/b", "/c"]
    files = open_file(tmp_path / "warc", *paths, max_bytes=5_000)
    assert len(files) == 3
    with source_of(*map(answered, paths), where="url LIKE '%/b'", warcs=files, scratch=tmp_path) as source:
        counted = raw.write_warcs(source, tmp_path / "made")
    assert counted == (1, "response")
    assert [path.name for path in (tmp_path / "made").iterdir()] == [files[1].name]


def test_collection_without_warc_files_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"made-up has no WARC files.*--warc --refresh") as caught:
        write([], tmp_path, "/a")
    assert "\n" not in str(caught.value)


def test_file_that_lost_data_is_named(tmp_path: Path) -> None:
    files = open_file(tmp_path / "warc", "/a")
    (path,) = (tmp_path / "warc").iterdir()
    os.truncate(path, 100)
    with pytest.raises(StorageError, match="has lost data: it holds 100 of"):
        write(files, tmp_path, "/a")


def test_damage_is_found_where_it_lies(tmp_path: Path) -> None:
    files = open_file(tmp_path / "warc", "/a", "/b")
    (path,) = (tmp_path / "warc").iterdir()
    with path.open("rb") as file:
        _, (second, _, _), *_ = members(file, end=files[0].committed_bytes)
    with path.open("r+b") as file:
        file.seek(second)
        file.write(b"\0" * 50)
    with pytest.raises(StorageError, match=f"is damaged at byte {second:,} "):
        write(files, tmp_path, "/a", "/b", where="true")


def test_files_that_their_owner_took_away_are_told(tmp_path: Path) -> None:
    store = WarcStore(tmp_path, software="test")
    positions = store.append([answered("/a")])
    store.close()
    (tmp_path / positions[0].name).unlink()
    assert find(tmp_path, positions) == ([], [positions[0].name])


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 3_000_000])
def test_members_of_any_size_are_told_apart(tmp_path: Path, size: int) -> None:
    parts = [gzip.compress(b"a" * size), gzip.compress(os.urandom(size)), gzip.compress(b"end")]
    (tmp_path / "file").write_bytes(b"".join(parts) + b"not committed")
    with (tmp_path / "file").open("rb") as file:
        offsets, lengths, beginnings = zip(*members(file, end=sum(map(len, parts))), strict=True)
    assert list(lengths) == [len(part) for part in parts]
    assert list(offsets) == [0, len(parts[0]), len(parts[0]) + len(parts[1])]
    assert beginnings[2] == b"end"
    assert all(len(beginning) <= (1 << 20) + 65_536 for beginning in beginnings)
