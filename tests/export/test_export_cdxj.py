"""The index of the WARC files is, line for line, the one that cdxj-indexer makes."""

import gzip
import io
import json
from pathlib import Path

import pytest
from cdxj_indexer.main import CDXJIndexer  # type: ignore[import-untyped]
from tests.export.exported import export, page, source_of
from warcio.archiveiterator import ArchiveIterator

from sterna.archive.warc import WarcStore
from sterna.export import raw
from sterna.export.cdxj import BLOCK_LINES, blocks
from sterna.export.warc import find
from sterna.model import Page, Raw


def judged(*paths: Path, folder: Path) -> list[str]:
    """The index as cdxj-indexer makes and sorts it."""
    out = folder / "judge.cdxj"
    CDXJIndexer(str(out), [str(path) for path in paths], sort=True).process_all()
    return out.read_text().splitlines()


@pytest.mark.servers
def test_index_of_a_real_crawl_is_that_of_cdxj_indexer(real_collection: Path, tmp_path: Path) -> None:
    out = export(real_collection, "cdxj", tmp_path / "index.cdxj")
    lines = out.read_text().splitlines()
    assert lines == judged(*(real_collection / "warc").iterdir(), folder=tmp_path)
    assert lines == sorted(lines)
    kinds = [json.loads(line.split(" ", 2)[2])["mime"] for line in lines]
    assert kinds.count("warc/revisit") > 25
    assert kinds.count("text/html") > 50


@pytest.mark.servers
def test_each_line_leads_to_its_record(real_collection: Path, tmp_path: Path) -> None:
    out = export(real_collection, "cdxj", tmp_path / "some.cdxj", where="url LIKE '%/lang%'")
    lines = out.read_text().splitlines()
    assert 0 < len(lines) < 100
    for line in lines:
        fields = json.loads(line.split(" ", 2)[2])
        with (real_collection / "warc" / fields["filename"]).open("rb") as file:
            file.seek(int(fields["offset"]))
            data = file.read(int(fields["length"]))
        (record,) = ArchiveIterator(io.BytesIO(data))
        assert record.rec_headers["WARC-Target-URI"] == fields["url"]
        assert "/lang" in fields["url"]


HEADS = {
    "plain": b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n",
    "http2": b"HTTP/2 200\r\ncontent-type:text/plain\r\n\r\n",
    "no type": b"HTTP/1.1 404 Not Found\r\nServer: x\r\n\r\n",
    "empty type": b"HTTP/1.1 200 OK\r\nContent-Type: \r\n\r\n",
    "two types": b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Type: c/d\r\n\r\n",
    "folded": b"HTTP/1.1 200 OK\r\nContent-Type:\r\n text/html\r\nX: y\r\n z\r\n\r\n",
    "latin-1": b"HTTP/1.1 200 \xe4\r\nContent-Type: t\xe4xt/html\r\n\r\n",
    "bare lines": b"HTTP/1.1 301 Moved\nLocation: /x\nContent-Type: text/html\n\n",
    "no reason": b"HTTP/1.1 204\r\n\r\n",
    "spaces": b"HTTP/1.1   200   OK\r\nContent-Type  :  text/html  ;x\r\n\r\n",
    "no colon": b"HTTP/1.1 200 OK\r\nnonsense\r\nContent-Type: text/html\r\n\r\n",
}


@pytest.mark.parametrize("name", HEADS)
def test_odd_heads_are_read_as_cdxj_indexer_reads_them(tmp_path: Path, name: str) -> None:
    pages = [_answered("/a?b=1", HEADS[name]), _answered("/%C3%A4%20b", HEADS[name])]
    store = WarcStore(tmp_path / "warc", software="test")
    positions = store.append(pages)
    store.close()
    files, _ = find(tmp_path / "warc", positions)
    out = io.BytesIO()
    with source_of(*pages, warcs=files, scratch=tmp_path) as source:
        raw.write_cdxj(source, out)
    assert out.getvalue().decode().splitlines() == judged(*(tmp_path / "warc").iterdir(), folder=tmp_path)


def _answered(path: str, head: bytes) -> Page:
    return page(path, raw=Raw(b"GET / HTTP/1.1\r\n\r\n", head, b"body", "192.0.2.1"))


def test_compressed_index_is_found_by_its_pointers() -> None:
    lines = [
        f'org,example)/{number:06d} 20260102030405 {{"url": "x"}}\n' for number in range(BLOCK_LINES + 5)
    ]
    made = list(blocks(lines, filename="index.cdx.gz"))
    data = b"".join(block for block, _ in made)
    head, *pointers = "".join(pointer for _, pointer in made).splitlines()
    assert head == '!meta 0 {"format": "cdxj-gzip-1.0", "filename": "index.cdx.gz"}'
    assert [pointer.partition(" {")[0] for pointer in pointers] == [
        "org,example)/000000 20260102030405",
        f"org,example)/{BLOCK_LINES:06d} 20260102030405",
    ]
    found = []
    for pointer in pointers:
        place = json.loads(pointer[pointer.index("{") :])
        found += (
            gzip.decompress(data[place["offset"] :][: place["length"]]).decode().splitlines(keepends=True)
        )
    assert found == lines
    assert gzip.decompress(data).decode() == "".join(lines)
