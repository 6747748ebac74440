"""Whole crawls of a server that does whatever the web does to crawlers."""

import resource
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.crawl.running import crawl_here, rows, stored_urls
from tests.runtime import obedient
from tests.servers.bombs import brotli_bomb, gzip_bomb, zstd_bomb
from tests.servers.hostile import HostileServer
from tests.servers.pages import PageServer, linking

from sterna.home.progress import Summary
from sterna.model import Robots
from sterna.runtime import handler, qualification, runtime, visit
from sterna.runtime.readers import Readers
from sterna.web.urls import DEFAULT_DROP_PARAMS, MAX_URL_LENGTH

pytestmark = pytest.mark.servers

HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
MIB = 1 << 20

# Each misdeed, and what the summary calls it: "" where there is nothing wrong in the end.
MISDEEDS = {
    "/slow?seconds=60": "timeout",
    "/drip": "timeout",
    "/endless": "too_large",
    "/big?mb=100": "too_large",
    "/bomb.gz": "bomb",
    "/bomb.br": "bomb",
    "/bomb.zst": "bomb",
    "/loop/a": "redirect_loop",
    "/chain/0": "redirect",
    "/cut": "",  # what came is kept
    "/garbage": "protocol",
    "/reset": "network",
    "/empty": "empty",
    "/badheaders": "too_large",
    "/nested-gzip": "",
    "/lie-gzip": "",
    "/lie-type": "",
    "/calendar/2026/11": "",
    "/longlinks": "",
    "/manylinks?n=2000": "",
    "/deep": "",
    "/session?sid=0": "",
    "/trap/a": "",
    "/429-then-ok/a": "",
    "/status/403": "http_403",
    "/status/404": "http_404",
    "/status/500": "http_500",
}


@pytest.fixture(scope="module", autouse=True)
def made_bombs() -> None:
    """To make them takes longer than a crawl waits for an answer."""
    for make in (gzip_bomb, brotli_bomb, zstd_bomb):
        make()


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with HostileServer(addresses=(HERE, ELSEWHERE)).run_in_thread() as server:
        yield server


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "BACKOFF_SECONDS", 0.1)


def own_peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def check_memory(summary: Summary, before: int) -> None:
    """Two readers, and what this process took in addition, fit into memory that any machine has."""
    assert own_peak_bytes() - before < 200 * MIB
    assert 0 < summary.peak_memory_bytes - own_peak_bytes() < 700 * MIB


def paths(urls: list[str]) -> set[str]:
    return {"/" + url.split("/", 3)[3] for url in urls}


def test_all_misdeeds_at_once_harm_nobody_else(tmp_path: Path, server: HostileServer) -> None:
    elsewhere = f"http://{ELSEWHERE}:{server.port}/leaf/elsewhere"
    for number, path in enumerate(MISDEEDS):
        server.links += [path, f"/leaf/among-{number}"]
    server.links += [elsewhere, f"/redirect?to={elsewhere}"]
    began, before = time.monotonic(), own_peak_bytes()

    summary = crawl_here(
        tmp_path / "c",
        f"{server.url}/",
        timeout=3.0,
        max_depth=12,
        max_pages=5000,
        concurrency=16,
        drop_params=(*DEFAULT_DROP_PARAMS, "sid"),
    )

    assert summary.ended == "finished"
    assert summary.errors == Counter(kind for kind in MISDEEDS.values() if kind)
    good = paths(stored_urls(tmp_path / "c"))
    assert {f"/leaf/among-{number}" for number in range(len(MISDEEDS))} <= good
    assert {f"/leaf/{number}" for number in range(2000)} <= good
    assert {"/leaf/short", "/leaf/deep", "/nested-gzip", "/lie-type", "/429-then-ok/a"} <= good
    assert {hit.address for hit in server.log} == {HERE}
    assert max(len(path) for path in server.paths()) <= MAX_URL_LENGTH
    check_memory(summary, before)
    assert time.monotonic() - began < 100


def test_fault_of_ours_at_one_site_costs_no_other_site(
    tmp_path: Path, server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = qualification.qualify

    async def stumble(site: str, *given: Any, **more: Any) -> Robots:
        if ELSEWHERE in site:
            raise ValueError("nobody thought of this")
        return await ask(site, *given, **more)

    monkeypatch.setattr(visit, "qualify", stumble)
    server.links = ["/leaf/a"]
    elsewhere = f"http://{ELSEWHERE}:{server.port}/leaf/b"
    summary = crawl_here(tmp_path / "c", elsewhere, f"{server.url}/")
    assert (summary.pages, summary.errors) == (2, {"internal": 1})
    assert paths(stored_urls(tmp_path / "c")) == {"/", "/leaf/a"}


def test_bombs_do_no_harm(tmp_path: Path, server: HostileServer) -> None:
    bombs = ["/bomb.gz", "/bomb.br", "/bomb.zst"]
    server.links = [*bombs, "/leaf/a", *(f"{path}?{n}" for n in range(3) for path in bombs), "/leaf/b"]
    before = own_peak_bytes()
    summary = crawl_here(tmp_path / "c", f"{server.url}/", warc=True)
    assert (summary.ended, summary.errors, summary.pages) == ("finished", {"bomb": 12}, 3)
    check_memory(summary, before)
    kept = rows(tmp_path / "c", "SELECT count(*), max(length(text)) FROM t WHERE error = 'bomb'")
    assert kept == [(12, None)]


def test_calendar_without_end_ends_at_the_depth_limit(tmp_path: Path, server: HostileServer) -> None:
    summary = crawl_here(tmp_path / "c", f"{server.url}/calendar/2026/11", max_depth=5)
    assert (summary.ended, summary.pages) == ("finished", 1 + 5 * 2)
    months = sorted(path for path in server.paths() if path.startswith("/calendar"))
    assert (months[0], months[-1]) == ("/calendar/2026/06", "/calendar/2027/04")


def test_calendar_without_end_ends_at_the_page_limit(tmp_path: Path, server: HostileServer) -> None:
    summary = crawl_here(tmp_path / "c", f"{server.url}/calendar/2026/11", max_pages=25)
    assert (summary.ended, summary.pages) == ("limit", 25)
    assert sum(path.startswith("/calendar") for path in server.paths()) == 25


def test_session_ids_make_one_page_once_they_are_dropped(tmp_path: Path, server: HostileServer) -> None:
    trapped = crawl_here(tmp_path / "c", f"{server.url}/session?sid=0", max_pages=20)
    assert (trapped.ended, trapped.pages) == ("limit", 20)
    server.log.clear()
    summary = crawl_here(tmp_path / "d", f"{server.url}/session?sid=0", drop_params=("sid",))
    assert (summary.ended, summary.pages) == ("finished", 1)
    assert server.paths() == ["/robots.txt", "/session"]


def test_path_that_repeats_itself_is_not_followed_for_ever(tmp_path: Path, server: HostileServer) -> None:
    summary = crawl_here(tmp_path / "c", f"{server.url}/trap/a")
    assert summary.ended == "finished"
    assert summary.pages < 10


def test_link_of_100_kilobytes_is_never_asked_for(tmp_path: Path, server: HostileServer) -> None:
    crawl_here(tmp_path / "c", f"{server.url}/longlinks")
    assert server.paths() == ["/robots.txt", "/longlinks", "/leaf/short"]


def test_robots_txt_of_many_megabytes_is_read_as_far_as_it_counts(
    tmp_path: Path, server: HostileServer
) -> None:
    server.robots = (200, {}, b"User-agent: *\nDisallow: /leaf/no\n" + b"# nothing\n" * 2_000_000)
    server.links = ["/leaf/yes", "/leaf/no"]
    summary = crawl_here(tmp_path / "c", f"{server.url}/")
    assert server.paths() == ["/robots.txt", "/", "/leaf/yes"]
    assert summary.bytes_received < MIB


def test_body_that_breaks_a_reader_is_an_error_and_the_crawl_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        runtime, "Readers", partial(Readers, entry=obedient.ENTRY, limits=obedient.LIMITS, seconds=6.0)
    )
    bodies = {"/die": "please die", "/hang": "please hang", "/eat": "<p>" * 2**22}
    leaves = [f"/leaf{n}" for n in range(20)]
    links = [*leaves[:10], *bodies, *leaves[10:]]
    site = {"/": linking(*links), **bodies, **dict.fromkeys(leaves, linking(title="Leaf"))}
    with PageServer({HERE: site}).run_in_thread() as server:
        summary = crawl_here(tmp_path / "c", server.url(HERE))
    assert (summary.ended, summary.errors, summary.pages) == ("finished", {"parser": 3}, 21)
    broken = rows(tmp_path / "c", "SELECT url FROM t WHERE error = 'parser' ORDER BY url")
    assert paths([url for (url,) in broken]) == set(bodies)
