"""The archive is killed at every step, and nothing acknowledged is lost, nothing half taken for whole."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from tests import making
from warcio.archiveiterator import ArchiveIterator

import sterna
from sterna.archive.manifest import Batch, FactRow, WarcPosition
from sterna.archive.segments import SegmentStore
from sterna.archive.warc import WarcStore
from sterna.model import Link, Links, Page, Raw

SITE = "https://www.example.org"

# Dies without a word, as by a power cut, the n-th time it comes to the step.
KILLED = """
import os, signal, sys
sys.modules.update(numpy=None, pandas=None)  # as the command does
from pathlib import Path
import msgspec
from sterna.archive.manifest import Segment, WarcPosition
from sterna.archive.manifest import FactRow
from sterna.archive.segments import SegmentStore
from sterna.archive.warc import WarcStore
from sterna.model import Page

action, folder, step, count, pages, known = sys.argv[1:]
left = int(count)

def on_step(name):
    global left
    left -= name == step
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

pages = msgspec.json.decode(pages, type=list[Page])
if action == "segments":
    facts = msgspec.json.decode(known, type=list[FactRow])
    SegmentStore(Path(folder), on_step=on_step).write_pages([("site", page) for page in pages], facts=facts)
elif action == "merge":
    SegmentStore(Path(folder), on_step=on_step).merge(msgspec.json.decode(known, type=list[Segment]))
else:
    store = WarcStore(Path(folder), software="test", on_step=on_step)
    store.recover(msgspec.json.decode(known, type=list[WarcPosition]))
    store.append(pages)
"""


def pages(first: int, count: int) -> list[Page]:
    return [
        making.page(
            f"/{number}",
            fingerprint=number,
            text="text " * 100,
            links=Links.of(Link(f"{SITE}/")),
            raw=Raw(b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", os.urandom(1_000), "192.0.2.1"),
        )
        for number in range(first, first + count)
    ]


def batch(number: int) -> Batch:
    return Batch(number=number, crawler="c", visits=("v",) * 5, again=(False,) * 5)


def kill(action: str, folder: Path, *, step: str, count: int, batch: object = (), known: object = ()) -> None:
    arguments = [
        action,
        str(folder),
        step,
        str(count),
        *(msgspec.json.encode(each).decode() for each in (batch, known)),
    ]
    source = str(Path(sterna.__file__).parent.parent)
    died = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], env={**os.environ, "PYTHONPATH": source}, check=False
    )
    assert died.returncode == -signal.SIGKILL, "the step was never reached"


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("step", ["segment-begun", "segment-written", "segment-renamed"])
def test_killed_while_writing_pages(tmp_path: Path, step: str, count: int) -> None:
    store = SegmentStore(tmp_path)
    known = {segment.name for segment in store.write_pages([(SITE, page) for page in pages(0, 5)])}
    fact = FactRow(crawler="c", site=SITE, visit="v", template="t", data="[]", received=1.0)
    kill("segments", tmp_path, step=step, count=count, batch=pages(5, 5), known=[fact])
    left_behind = {path.name for path in tmp_path.iterdir()} - known
    assert left_behind
    assert set(store.sweep(known)) == left_behind
    assert {path.name for path in tmp_path.iterdir()} == known
    rows = [pq.read_table(store.path(name)).num_rows for name in sorted(known)]
    assert rows == [5, 5]


@pytest.mark.parametrize("step", ["segment-begun", "segment-written"])
def test_killed_before_the_rename_there_is_no_segment_even_unswept(tmp_path: Path, step: str) -> None:
    kill("segments", tmp_path, step=step, count=1, batch=pages(0, 5), known=[])
    assert [path.suffix for path in tmp_path.iterdir()] == [".tmp"]


@pytest.mark.parametrize("step", ["segment-begun", "segment-written", "segment-renamed"])
def test_killed_while_merging_the_old_segments_stand(tmp_path: Path, step: str) -> None:
    store = SegmentStore(tmp_path)
    parts = [
        store.write_pages([(SITE, page) for page in pages(number, 5)], batch=batch(number))[0]
        for number in (2, 3, 1)
    ]
    known = {part.name for part in parts}
    store.sweep(known)
    kill("merge", tmp_path, step=step, count=1, known=parts)
    assert store.sweep(known)
    merged = pq.read_table(store.path(store.merge(parts).name))
    assert merged["batch"].to_pylist() == [1] * 5 + [2] * 5 + [3] * 5


@pytest.mark.parametrize("step", ["warc-written", "warc-synced"])
def test_killed_while_appending_the_committed_records_stand(tmp_path: Path, step: str) -> None:
    (committed,) = WarcStore(tmp_path, software="test").append(pages(0, 3))
    kill("warc", tmp_path, step=step, count=1, batch=pages(3, 3), known=[committed])
    assert (tmp_path / f"{committed.name}.open").stat().st_size > committed.committed_bytes
    assert urls(tmp_path, committed) == [f"{SITE}/{number}" for number in range(3)]
    store = WarcStore(tmp_path, software="test")
    store.recover([committed])
    (grown,) = store.append(pages(3, 3))
    assert urls(tmp_path, grown) == [f"{SITE}/{number}" for number in range(6)]


@pytest.mark.parametrize("step", ["warc-written", "warc-synced"])
def test_killed_while_beginning_a_file_it_is_gone_after(tmp_path: Path, step: str) -> None:
    kill("warc", tmp_path, step=step, count=1, batch=pages(0, 3))
    assert [path.suffix for path in tmp_path.iterdir()] == [".open"]
    WarcStore(tmp_path, software="test").recover([])
    assert list(tmp_path.iterdir()) == []


def urls(folder: Path, position: WarcPosition) -> list[str]:
    """Of the responses that warcio finds in the committed file, all whole."""
    store = WarcStore(folder, software="test")
    store.recover([position])
    with (folder / f"{position.name}.open").open("rb") as file:
        found = [
            (record.rec_headers.get_header("WARC-Target-URI"), len(record.content_stream().read()))
            for record in ArchiveIterator(file, check_digests="raise")
            if record.rec_type == "response"
        ]
    assert {size_bytes for _, size_bytes in found} == {1_000}
    return [url for url, _ in found]
