"""An export while others work: a crawl under way, and a kill in the middle."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crawl.running import kill, rows, start
from tests.export.exported import export
from tests.forking import Forked
from tests.servers.pages import PageServer, linking
from warcio.archiveiterator import ArchiveIterator

pytestmark = pytest.mark.servers

A = "127.0.5.10"


@pytest.fixture
def crawled(tmp_path: Path) -> Iterator[Path]:
    """A collection into which a crawl is under way."""
    pages = {f"/{n}": f"<title>Page {n}</title><p>tern number {n}" for n in range(1, 1_500)}
    with PageServer({A: {"/": linking(*pages, title="Start"), **pages}}).run_in_thread() as server:
        folder = tmp_path / "birds"
        crawl = start("crawl", server.url(A), "--into", folder, "--delay", "0.05", "--warc", "--no-index")
        try:
            deadline = time.monotonic() + 60
            while len(server.log) < 20 or len(rows(folder, "SELECT url FROM t")) < 5:
                assert time.monotonic() < deadline, "the crawl never began"
                time.sleep(0.1)
            yield folder
            assert crawl.poll() is None, "the crawl was over too early"
        finally:
            kill(crawl)


def test_running_crawl_is_exported_as_far_as_it_is_committed(crawled: Path, tmp_path: Path) -> None:
    lines = export(crawled, "jsonl", tmp_path / "pages.jsonl").read_text().splitlines()
    out = export(crawled, "warc", tmp_path / "all.warc.gz")
    index = export(crawled, "cdxj", tmp_path / "all.cdxj").read_text().splitlines()
    listed = {json.loads(line)["url"] for line in lines}
    with out.open("rb") as file:
        responses = {
            record.rec_headers["WARC-Target-URI"]
            for record in ArchiveIterator(file, check_digests="raise")
            if record.rec_type == "response" and record.content_stream().read()
        }
    assert len(listed) >= 5
    assert listed <= responses
    assert responses <= {json.loads(line.split(" ", 2)[2])["url"] for line in index}
    assert [path.name for path in crawled.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("kind", ["wacz", "markdown"])
def test_killed_export_leaves_nothing_under_its_name(
    real_collection: Path, tmp_path: Path, kind: str
) -> None:
    place = tmp_path / f"out.{kind}"
    died = Forked([sys.executable, "-m", "tests.export.dying", str(real_collection), kind, str(place)])
    assert died.wait(60) == -signal.SIGKILL
    assert not place.exists()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(f".{place.name}.")
    export(real_collection, kind, place, where="url LIKE '%/lang%'")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == [place]
    assert [path.name for path in real_collection.iterdir() if path.name.startswith(".")] == []
