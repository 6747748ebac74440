"""Crawls whose pages are indexed beside them: whatever is killed, crawl and index come to the same end."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.crawl.running import kill, start, sterna, stored_urls, summary_of
from tests.servers.pages import PageServer, linking

pytestmark = pytest.mark.servers

A = "127.0.5.7"
PAGES = 60


@pytest.fixture
def server() -> Iterator[PageServer]:
    pages = {f"/{n}": f"<title>Page {n}</title><p>tern number {n}" for n in range(1, PAGES)}
    sites = {A: {"/": linking(*pages, title="Start"), **pages}}
    with PageServer(sites, latency_seconds=0.01).run_in_thread() as running:
        yield running


def index_of(folder: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(sterna("status", folder, "--json").stdout)["index"]
    return answer


def followers(crawl: int) -> list[int]:
    """The processes that follow this crawl."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue  # it ended meanwhile
        if b"follow" in words and str(crawl).encode() in words:
            found.append(int(path.parent.name))
    return found


def wait_until(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def slow_crawl(server: PageServer, folder: Path) -> tuple[subprocess.Popen[str], int]:
    """A crawl on its way, and the process that follows it."""
    process = start("crawl", server.url(A), "--into", folder, "--delay", "0.05", "--index")
    wait_until(lambda: followers(process.pid) and (folder / "index" / "current").exists())
    return process, followers(process.pid)[0]


def test_pages_are_found_when_the_crawl_is_over(server: PageServer, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    result = sterna("crawl", server.url(A), "--into", folder, "--delay", "0", "--index", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    assert summary_of(result)["pages"] == PAGES
    assert index_of(folder) == {"is_there": True, "pages_left": 0, "trouble": ""}
    assert "search index: up to date" in sterna("status", folder).stdout
    found = json.loads(sterna("search", folder, "title:37", "--json").stdout)
    assert [hit["url"] for hit in found["hits"]] == [server.url(A, "/37")]


def test_without_an_index_there_is_none_and_a_later_run_makes_it(server: PageServer, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    sterna("crawl", server.url(A), "--into", folder, "--delay", "0", "--max-pages", "20")
    assert not (folder / "index").exists()
    assert f"no search index: sterna index {folder}" in sterna("status", folder).stdout
    sterna("crawl", "--into", folder, "--max-pages", "100", "--index")
    assert index_of(folder)["pages_left"] == 0
    assert len(stored_urls(folder)) == PAGES


def test_killed_crawl_takes_its_follower_along_and_the_index_is_caught_up_later(
    server: PageServer, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    process, follower = slow_crawl(server, folder)
    os.kill(process.pid, signal.SIGKILL)
    began = time.monotonic()
    wait_until(lambda: not Path(f"/proc/{follower}").exists())
    assert time.monotonic() - began < 15
    kill(process)
    assert sterna("index", folder).returncode == 0
    assert index_of(folder)["pages_left"] == 0
    found = json.loads(sterna("search", folder, "tern", "--limit", "100", "--json").stdout)
    urls = {url for hit in found["hits"] for url in (hit["url"], *hit["folded"])}
    assert urls == set(stored_urls(folder)) - {server.url(A)}


def test_run_with_nothing_to_fetch_completes_the_index_that_a_killed_one_left(
    server: PageServer, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    command = ("crawl", server.url(A), "--into", folder, "--delay", "0", "--json")
    sterna(*command, "--no-index")  # as if it had been killed after its last commit, and its follower too
    result = sterna(*command, "--index")
    assert (result.returncode, summary_of(result)["requests"]) == (0, 0)
    assert index_of(folder) == {"is_there": True, "pages_left": 0, "trouble": ""}


def test_process_that_indexes_is_confined_and_has_nothing_of_the_environment(
    server: PageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    process, follower = slow_crawl(server, tmp_path / "c")
    status = Path(f"/proc/{follower}/status").read_text()
    environment = Path(f"/proc/{follower}/environ").read_bytes()
    kill(process)
    assert "NoNewPrivs:\t1\n" in status
    assert "Seccomp:\t2\n" in status
    assert b"hunter2" not in environment


def test_killed_follower_is_one_warning_and_the_crawl_goes_on(server: PageServer, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    process, follower = slow_crawl(server, folder)
    os.kill(follower, signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    warnings = [line for line in errors.splitlines() if line.startswith("sterna: ")]
    assert (process.returncode, len(stored_urls(folder))) == (0, PAGES)
    assert len(warnings) == 1
    assert f"afterwards: sterna index {folder}" in warnings[0]
    assert sterna("index", folder).returncode == 0
    assert index_of(folder)["pages_left"] == 0


def test_ctrl_c_stops_the_crawl_and_what_it_brought_is_indexed(server: PageServer, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    process, _ = slow_crawl(server, folder)
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "sterna: " not in errors
    assert "stopped cleanly" in out
    assert index_of(folder)["pages_left"] == 0
    assert len(stored_urls(folder)) < PAGES


def test_broken_index_is_told_and_the_crawl_goes_on(server: PageServer, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    sterna("crawl", server.url(A), "--into", folder, "--delay", "0", "--max-pages", "20", "--index")
    (folder / "index" / "current").write_text("nonsense")
    result = sterna("crawl", "--into", folder, "--max-pages", "100", "--index")
    assert (result.returncode, len(stored_urls(folder))) == (0, PAGES)
    assert f"sterna index {folder} --anew" in result.stderr
    assert f"sterna index {folder} --anew" in sterna("status", folder).stdout
