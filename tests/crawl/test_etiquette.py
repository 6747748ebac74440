"""A server's own log shows that no delay and no limit was ever broken, also across a restart."""

import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from tests.crawl.running import crawl_here, kill, start, sterna, stored_urls, summary_of
from tests.servers.pages import Page, PageHit, PageServer, linking
from tests.servers.plain import Reply

from sterna.web.politeness import Limits, Rate

# The arrival of requests is measured to a few hundredths of a second, which other load would spoil.
pytestmark = [pytest.mark.servers, pytest.mark.alone]

A, B = "127.0.4.1", "127.0.4.2"
CLOCK_SLACK = 0.002  # the server's wall clock against ours, which is anchored once


def site(pages: int, **more: Page) -> dict[str, Page]:
    links = linking(*(f"/{n}" for n in range(1, pages)))
    return {"/": links, **{f"/{n}": linking() for n in range(1, pages)}, **more}


def gaps(hits: Iterable[PageHit]) -> list[float]:
    """The time from the end of each answer to the arrival of the next request."""
    ordered = sorted(hits, key=lambda hit: hit.began)
    return [after.began - before.ended for before, after in pairwise(ordered)]


def by_address(hits: Iterable[PageHit]) -> dict[str, list[PageHit]]:
    found = defaultdict(list)
    for hit in hits:
        found[hit.address].append(hit)
    return found


def test_delay_is_kept_from_answer_to_request_on_every_site(tmp_path: Path) -> None:
    with PageServer({A: site(8), B: site(8)}).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A), server.url(B), delay=0.2, response_factor=0.0)
    for hits in by_address(server.log).values():
        assert len(hits) == 9
        assert min(gaps(hits)) >= 0.2 - CLOCK_SLACK


def test_crawl_delay_of_robots_txt_is_kept(tmp_path: Path) -> None:
    sites = {A: site(5, **{"/robots.txt": "User-agent: *\nCrawl-delay: 0.5\n"})}
    with PageServer(sites).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A), delay=0.1, response_factor=0.0)
    hits = sorted(server.log, key=lambda hit: hit.began)
    assert hits[0].path == "/robots.txt"
    assert min(gaps(hits)) >= 0.5 - CLOCK_SLACK


def test_slow_server_gets_a_multiple_of_its_own_time(tmp_path: Path) -> None:
    with PageServer({A: site(4)}, latency_seconds=0.1).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A), delay=0.05, response_factor=4.0)
    assert min(gaps(server.log)) >= 4 * 0.1 - 0.02


def test_sites_on_one_address_keep_its_limit_together(tmp_path: Path) -> None:
    """Two sites, one address: the same server under another port is not to be had, so by host name."""
    with PageServer({"127.0.0.1": site(6)}).run_in_thread() as server:
        seeds = (server.url("127.0.0.1"), server.url("localhost"))
        limits = Limits(address=Rate(requests=10.0), domain=Rate())
        crawl_here(tmp_path / "c", *seeds, limits=limits)
    starts = sorted(hit.began for hit in server.log)
    assert len(starts) == 14
    # Arrivals jitter on a busy machine; over any six requests that evens out.
    assert min(later - earlier for earlier, later in zip(starts, starts[5:], strict=False)) >= 5 * 0.1 - 0.05


@pytest.mark.parametrize("rate", [Rate(requests=10.0), Rate(bytes=2_000.0)])
def test_sites_of_one_domain_keep_its_limit_together(tmp_path: Path, rate: Rate) -> None:
    """By way of a proxy, for which any name will do; another domain beside them is not slowed down."""
    hosts = [f"{name}.shop.example" for name in "abc"] + ["other.test"]
    page = "<p>" + "tern " * 40
    pages: dict[str, Page] = {f"http://{host}/{n}": page for host in hosts for n in range(3)}
    starts = {f"http://{host}/": linking("/0", "/1", "/2") for host in hosts}
    with PageServer({A: {**pages, **starts}}).run_in_thread() as server:
        limits = Limits(address=Rate(), domain=rate)
        crawl_here(
            tmp_path / "c", *starts, limits=limits, proxy=server.url(A), allow_private=True, concurrency=2
        )
    assert len(stored_urls(tmp_path / "c")) == 16
    shop = sorted((hit for hit in server.log if "shop.example" in hit.path), key=lambda hit: hit.began)
    other = sorted(hit.began for hit in server.log if "other.test" in hit.path)
    lasted = shop[-1].began - shop[0].began
    if rate.requests:
        assert lasted >= (len(shop) - 1) / rate.requests - 0.05
    else:  # the last answers of each connection are paid for by nobody
        assert lasted >= sum(hit.sent_bytes for hit in shop[:-3]) / rate.bytes - 0.1
    assert other[-1] - other[0] < lasted


def test_total_limit_of_requests_holds_over_all_sites(tmp_path: Path) -> None:
    with PageServer({A: site(6), B: site(6)}).run_in_thread() as server:
        limits = Limits(address=Rate(), domain=Rate(), total=Rate(requests=20.0))
        crawl_here(tmp_path / "c", server.url(A), server.url(B), limits=limits)
    starts = sorted(hit.began for hit in server.log)
    assert starts[-1] - starts[0] >= (len(starts) - 1) / 20.0 - 0.02


def test_total_limit_of_bytes_holds_over_time(tmp_path: Path) -> None:
    body = b"<p>" + b"tern " * 4_000
    pages: dict[str, Page] = {f"/{n}": Reply(body=body) for n in range(1, 6)}
    with PageServer({A: {**site(6), **pages}}).run_in_thread() as server:
        limits = Limits(address=Rate(), domain=Rate(), total=Rate(bytes=50_000.0))
        crawl_here(tmp_path / "c", server.url(A), limits=limits, concurrency=2)
    hits = sorted(server.log, key=lambda hit: hit.began)
    sent_before_last = sum(hit.sent_bytes for hit in hits[:-2])
    assert hits[-1].began - hits[0].began >= sent_before_last / 50_000.0 - 0.1


def test_retry_after_holds_the_whole_site_and_the_page_is_had_in_the_end(tmp_path: Path) -> None:
    busy = Reply(429, {"Retry-After": "1"})
    with PageServer({A: site(6, **{"/3": [busy, busy, Reply()]})}).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A), concurrency=2)
        assert server.url(A, "/3") in stored_urls(tmp_path / "c")
    refusals = sorted((hit for hit in server.log if hit.path == "/3"), key=lambda hit: hit.began)[:2]
    for refusal in refusals:
        later = [hit.began - refusal.ended for hit in server.log if hit.began > refusal.ended]
        assert later
        assert min(later) >= 1.0 - CLOCK_SLACK


def test_long_retry_after_survives_a_restart(tmp_path: Path) -> None:
    sites = {A: site(4, **{"/2": Reply(503, {"Retry-After": "3600"})})}
    with PageServer(sites).run_in_thread() as server:
        first = crawl_here(tmp_path / "c", server.url(A), concurrency=2)
        asked = len(server.log)
        second = crawl_here(tmp_path / "c", server.url(A), concurrency=2)
        assert len(server.log) == asked
    assert (first.ended, second.ended, second.waiting_sites) == ("waiting", "waiting", 1)
    assert second.next_turn
    assert 3500 < second.next_turn - time.time() <= 3600


def test_short_retry_after_survives_a_kill(tmp_path: Path) -> None:
    busy = Reply(429, {"Retry-After": "2"})
    command = ("--into", tmp_path / "c", "--delay", "0.1", "--quiet")
    with PageServer({A: site(4, **{"/1": [busy, Reply()]})}).run_in_thread() as server:
        process = start("crawl", server.url(A), *command)
        _wait_for(lambda: any(hit.path == "/1" for hit in server.log) and has_hold(tmp_path / "c"))
        kill(process)
        sterna("crawl", server.url(A), *command)
    refused, *_ = [hit for hit in server.log if hit.path == "/1"]
    later = [hit.began - refused.ended for hit in server.log if hit.began > refused.ended]
    assert later
    assert min(later) > 2.0 - CLOCK_SLACK


def test_block_list_survives_a_restart(tmp_path: Path) -> None:
    with PageServer({A: site(3), B: site(3)}).run_in_thread() as server:
        seeds = (server.url(A), server.url(B))
        crawl_here(tmp_path / "c", *seeds, block=(B,))
        crawl_here(tmp_path / "c", *seeds)
        assert {hit.address for hit in server.log} == {A}


def test_unblocked_site_stays_unblocked(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with PageServer({A: site(3), B: site(3)}).run_in_thread() as server:
        flags = ("--into", folder, "--delay", "0", "--quiet")
        sterna("crawl", server.url(A), server.url(B), *flags, "--block", B)
        assert {hit.address for hit in server.log} == {A}
        sterna("crawl", *flags, "--unblock", B, "--max-pages", "4")
        sterna("crawl", *flags, "--max-pages", "100")
    assert len(stored_urls(folder)) == 6


def test_disqualified_site_is_left_alone_until_its_retry(tmp_path: Path) -> None:
    sites: dict[str, dict[str, Page]] = {A: {"/": linking(), "/robots.txt": Reply(503)}}
    with PageServer(sites).run_in_thread() as server:
        summary = crawl_here(tmp_path / "c", server.url(A))
        assert [hit.path for hit in server.log] == ["/robots.txt", "/robots.txt"]
        assert gaps(server.log)[0] >= 2.0 - CLOCK_SLACK
        crawl_here(tmp_path / "c", server.url(A))
        assert len(server.log) == 2
    assert (summary.pages, summary.ended) == (0, "waiting")
    assert summary.next_turn
    assert 3500 < summary.next_turn - time.time() <= 3600


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_delay_is_kept_across_a_restart(tmp_path: Path, how: str) -> None:
    command = ("--into", tmp_path / "c", "--delay", "0.7", "--max-pages", "4", "--json")
    with PageServer({A: site(9)}).run_in_thread() as server:
        process = start("crawl", server.url(A), *command)
        _wait_for_hits(server, 2)
        if how == "kill":
            kill(process)
        else:
            process.terminate()
            process.communicate(timeout=20)
        result = sterna("crawl", server.url(A), *command)
    assert result.returncode == 0
    assert summary_of(result)["total_pages"] == 4
    assert len(set(stored_urls(tmp_path / "c"))) == 4
    assert min(gaps(server.log)) >= 0.7 - CLOCK_SLACK


def test_user_agent_is_honest_and_from_is_sent(tmp_path: Path) -> None:
    with PageServer({A: site(2)}).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A), contact="bot@example.org")
    for hit in server.log:
        assert hit.headers["user-agent"].startswith("Sterna/")
        assert "bot@example.org" in hit.headers["user-agent"]
        assert hit.headers["from"] == "bot@example.org"


def test_pages_are_asked_for_conditionally_when_visited_again(tmp_path: Path) -> None:
    sites: dict[str, dict[str, Page]] = {
        A: {
            "/": Reply(
                headers={"ETag": '"v1"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}, body=b"<p>a"
            )
        }
    }
    with PageServer(sites).run_in_thread() as server:
        crawl_here(tmp_path / "c", server.url(A))
        sites[A]["/"] = Reply(304)
        again = crawl_here(tmp_path / "c", server.url(A), refresh=0.0)
        headers = server.log[-1].headers
        assert headers["if-none-match"] == '"v1"'
        assert headers["if-modified-since"] == "Mon, 01 Jan 2024 00:00:00 GMT"
        assert (again.pages, again.unchanged, again.total_pages) == (1, 1, 1)
        sites[A]["/"] = Reply(headers={"ETag": '"v2"'}, body=b"<title>New</title>")
        changed = crawl_here(tmp_path / "c", server.url(A), refresh=0.0)
    assert (changed.unchanged, changed.total_pages) == (0, 1)
    assert len(stored_urls(tmp_path / "c")) == 2


def has_hold(folder: Path) -> bool:
    """True once a pause that a site asked for is committed."""
    with sqlite3.connect(f"file:{folder}/ledger.sqlite?mode=ro", uri=True) as db:
        (count,) = db.execute("SELECT count(*) FROM hold WHERE until > ?", (time.time() + 0.5,)).fetchone()
    return bool(count)


def _wait_for_hits(server: PageServer, count: int) -> None:
    _wait_for(lambda: len(server.log) >= count)


def _wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)
