"""What reads the segments of earlier runs for a crawl."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sterna.errors import JailError
from sterna.home.crawl import MOST_FRAME_BYTES, reader_of

WORKS = """
import time

def hang(request):
    yield b"begun"
    time.sleep(60)

def send(request):
    yield bytes(int(request))
"""


@pytest.fixture(autouse=True)
def works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reading_works.py").write_text(WORKS)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_thread_that_reads_from_a_process_that_hangs_is_free_at_the_end_of_a_crawl(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:
        with reader_of(tmp_path) as reader:
            frames = reader.stream("reading_works:hang", b"")
            assert next(frames) == b"begun"
            reading = thread.submit(next, frames)
            began = time.monotonic()
        with pytest.raises(JailError, match="was ended by SIGKILL"):
            reading.result(20)
    assert time.monotonic() - began < 20


def test_frame_that_would_fill_the_memory_of_a_crawl_is_refused(tmp_path: Path) -> None:
    with reader_of(tmp_path) as reader, pytest.raises(JailError, match="is larger than 67,108,864"):
        reader.call("reading_works:send", b"%d" % MOST_FRAME_BYTES)
