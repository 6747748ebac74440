"""Whole crawls of sites that have hosts: crawlers go there, are cut off, killed and called back."""

import json
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crawl.hosting import command, crawl_with_keys, hosts
from tests.crawl.running import kill, rows, start, sterna, sterna_process, stored_urls, summary_of
from tests.servers.pages import Page, PageServer, linking
from tests.servers.plain import Reply

from sterna import Scope, Spec, crawl
from sterna.home.ledger.records import Out
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.wire.discovery import WELL_KNOWN

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

A, B, C = "127.0.6.1", "127.0.6.2", "127.0.6.3"
PAGES = 300


def big_site(pages: int = PAGES) -> dict[str, str]:
    """A front page, chapters of ten pages, and a chain through them all."""
    site = {"/": linking(*(f"/{n}" for n in range(0, pages, 10)), title="Front")}
    for n in range(pages):
        site[f"/{n}"] = linking(f"/{(n + 1) % pages}", title=f"Page {n}") + "tern " * 100
    return site


def states(folder: Path) -> list[tuple[str, str]]:
    """Where each crawler went, and what became of it."""
    ledger = SqliteLedger(folder / "c" / "ledger.sqlite", is_reader=True)
    try:
        return [(row.site.split("/")[2].split(":")[0], row.state) for row in ledger.outbox()]
    finally:
        ledger.close()


def wait_for_pages(folder: Path, count: int) -> None:
    """Until so many pages of a crawler that is away are stored."""
    deadline = time.monotonic() + 60
    while _pages(folder) < count:
        assert time.monotonic() < deadline, f"no {count} pages came"
        time.sleep(0.02)


def _pages(folder: Path) -> int:
    try:
        with sqlite3.connect(f"file:{folder}/c/ledger.sqlite?mode=ro", uri=True) as db:
            found = db.execute(
                "SELECT sum(pages) FROM visit JOIN outbox ON outbox.visit = visit.id WHERE over_at IS NULL"
            ).fetchone()
    except sqlite3.OperationalError:
        return 0
    return int(found[0] or 0)


def assert_whole(folder: Path, server: PageServer, pages: int = PAGES) -> None:
    """Every page is stored once, and every link."""
    expected = sorted(server.url(A, path) for path in big_site(pages))
    assert stored_urls(folder / "c") == expected
    (count,) = rows(folder / "c", "SELECT count(*) FROM t", "link")[0]
    assert count == pages + pages // 10


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer({A: big_site()}).run_in_thread() as running:
        yield running


@pytest.fixture
def slow() -> Iterator[PageServer]:
    """Slow enough that something can happen while a crawler is there, until a test lets it hurry."""
    with PageServer({A: big_site()}, latency_seconds=0.03).run_in_thread() as running:
        yield running


def test_site_whose_host_cannot_get_its_robots_txt_is_left_alone_from_here_too(tmp_path: Path) -> None:
    site: dict[str, Page] = {**big_site(20), "/robots.txt": Reply(503)}
    with PageServer({A: site}).run_in_thread() as server, hosts(server, tmp_path, A):
        result = sterna(*command(tmp_path), server.url(A), "--wait", "0")
        assert "its host says: HTTP 503" in sterna("status", tmp_path / "c").stdout
        paths = Counter(hit.path for hit in server.log)
    assert result.returncode == 1
    assert paths == {WELL_KNOWN: 1, "/robots.txt": 2}


def test_spec_that_is_sent_from_python_goes_to_the_host(tmp_path: Path, server: PageServer) -> None:
    spec = Spec(name="python", seeds=(server.url(A, "/"),))
    with hosts(server, tmp_path, A):
        summary = crawl(spec, tmp_path / "c", delay=0, keys=str(tmp_path / "keys"))

    assert summary.visits == {"here": 0, "host": 1}
    assert_whole(tmp_path, server)


def test_deep_subtrees_hold_at_a_host(tmp_path: Path) -> None:
    paths = ("/docs/api/v1/a", "/docs/api/v1/b", "/docs/api/v2/c", "/docs/api/v1x", "/docs/guide/d")
    site = {"/docs/api/v1/": linking(*paths, title="v1"), **{path: linking(*paths) for path in paths}}
    with PageServer({A: site}).run_in_thread() as server, hosts(server, tmp_path, A):
        start_url = server.url(A, "/docs/api/v1/")
        spec = Spec(name="deep", seeds=(start_url,), scope=Scope(subtrees=("/docs/api/v1/",)))
        summary = crawl(spec, tmp_path / "c", delay=0, keys=str(tmp_path / "keys"), require_host=True)
        assert summary.visits == {"here": 0, "host": 1}
        wanted = ["/docs/api/v1/", "/docs/api/v1/a", "/docs/api/v1/b"]
        assert stored_urls(tmp_path / "c") == [server.url(A, path) for path in wanted]


def test_figure_2_of_the_crawlets_paper_over_hosts(tmp_path: Path) -> None:
    """w11 leads to w12; w21 and w32 lie outside; w13 is found only by way of w22, and leads to w14."""
    sites = {
        A: {
            "/w11": linking("/w12", f"http://{B}:{{port}}/w21"),
            "/w12": linking(f"http://{C}:{{port}}/w32"),
            "/w13": linking("/w14"),
            "/w14": linking("/w11"),
        },
        B: {"/w21": linking("/w22"), "/w22": linking(f"http://{A}:{{port}}/w13")},
        C: {"/w31": linking(), "/w32": linking("/w31")},
    }
    with PageServer(sites).run_in_thread() as server, hosts(server, tmp_path, A, B, C):
        summary = crawl_with_keys(
            tmp_path, server.url(A, "/w11"), "--stay", "any", "--allow-private", "--require-host"
        )
    urls = [url.rpartition("/")[2] for url in stored_urls(tmp_path / "c")]
    assert urls == ["w11", "w12", "w13", "w14", "w21", "w22", "w31", "w32"]
    assert summary["visits"] == {"here": 0, "host": 4}
    first, *between, last = states(tmp_path)
    assert (first, sorted(between), last) == (
        (A, "returned"),
        [(B, "returned"), (C, "returned")],
        (A, "returned"),
    )
    ledger = SqliteLedger(tmp_path / "c" / "ledger.sqlite", is_reader=True)
    assert [(row.place, row.pages) for row in ledger.visit_rows()][::3] == [("host", 2), ("host", 2)]
    ledger.close()


def test_site_is_taken_through_its_host_and_the_summary_says_what_was_saved(
    server: PageServer, tmp_path: Path
) -> None:
    with hosts(server, tmp_path, A):
        result = sterna(*command(tmp_path)[:-1], server.url(A), "--verbose")
    assert result.returncode == 0
    assert f"http://{A}:{server.port}: at its host (http://{A}:" in result.stderr
    assert "1 visit made at hosts: " in result.stdout
    assert "crossed the network" in result.stdout
    assert_whole(tmp_path, server)
    assert Counter(hit.path for hit in server.log)[WELL_KNOWN] == 1


def test_second_visit_moves_little_and_finds_what_changed(server: PageServer, tmp_path: Path) -> None:
    with hosts(server, tmp_path, A):
        first = crawl_with_keys(tmp_path, server.url(A))
        pages = server.sites[A]
        assert isinstance(pages, dict)
        pages["/7"] = linking("/8", "/new", title="Changed")
        pages["/new"] = linking(title="New")
        # What nothing leads to any more is given to another visit by name.
        pages["/"] = linking(*(f"/{n}" for n in range(0, 100, 10)), title="Front")
        pages["/99"] = linking(title="The chain ends here")
        second = crawl_with_keys(tmp_path, "--refresh", "0")
    assert (first["visits"], second["visits"]) == ({"here": 0, "host": 1}, {"here": 0, "host": 2})
    assert (second["pages"], second["unchanged"]) == (PAGES + 2, PAGES - 2)
    assert second["saved"]["crossed"] < 17_000 < first["saved"]["fetched"] // 10
    titles = dict(rows(tmp_path / "c", "SELECT url, max_by(title, fetched) FROM t GROUP BY url"))
    assert (titles[server.url(A, "/7")], titles[server.url(A, "/new")]) == ("Changed", "New")


def test_here_forbids_hosts(server: PageServer, tmp_path: Path) -> None:
    with hosts(server, tmp_path, A):
        summary = crawl_with_keys(tmp_path, server.url(A), "--here")
    assert summary["visits"] == {"here": 1, "host": 0}
    assert WELL_KNOWN not in {hit.path for hit in server.log}


def test_required_host_that_is_not_there_ends_the_crawl_in_one_line(
    server: PageServer, tmp_path: Path
) -> None:
    result = sterna(*command(tmp_path), server.url(A), "--require-host")
    assert result.returncode == 1
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith(f"sterna: http://{A}:{server.port}: the site has no host (")
    assert line.endswith("to crawl it from here, leave out --require-host")
    assert not (tmp_path / "keys").exists()


def test_home_that_is_not_allowed_visits_from_here_and_is_told_what_to_do(
    server: PageServer, tmp_path: Path
) -> None:
    with hosts(server, tmp_path, A):
        other = tmp_path / "other"
        result = sterna(
            "crawl", server.url(A), "--into", other / "c", "--keys", other / "keys", "--delay", "0", "--json"
        )
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert lines[-1]["visits"] == {"here": 1, "host": 0}
    assert "sterna keys allow ed25519:" in lines[0]["warning"]
    assert (other / "keys" / "home.key").stat().st_mode & 0o777 == 0o600


# -- what breaks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [1, 60])
def test_home_killed_while_a_crawler_is_away_hears_of_it_again(
    slow: PageServer, tmp_path: Path, moment: int
) -> None:
    with hosts(slow, tmp_path, A):
        process = start(*command(tmp_path), slow.url(A))
        wait_for_pages(tmp_path, moment)
        kill(process)
        assert states(tmp_path) == [(A, "away")]
        if moment == 1:
            slow.latency_seconds = 0.0  # the visit is over by the time that home is back
        summary = crawl_with_keys(tmp_path)
    assert summary["visits"] == {"here": 0, "host": 1}
    assert states(tmp_path) == [(A, "returned")]
    assert_whole(tmp_path, slow)
    again = Counter(hit.path for hit in slow.log)
    assert max(count for path, count in again.items() if path in big_site()) == 1


def test_host_killed_in_the_middle_is_gone_on_with_from_here(slow: PageServer, tmp_path: Path) -> None:
    with hosts(slow, tmp_path, A) as (host,):
        process = start(*command(tmp_path), slow.url(A))
        wait_for_pages(tmp_path, 60)
        host.kill()
        slow.latency_seconds = 0.0
        out, _ = process.communicate(timeout=200)
    summary = json.loads(out.strip().splitlines()[-1])
    assert summary["visits"] == {"here": 1, "host": 1}
    assert states(tmp_path) == [(A, "lost")]
    assert_whole(tmp_path, slow)


def test_home_and_host_killed_both_is_gone_on_with_from_here(slow: PageServer, tmp_path: Path) -> None:
    with hosts(slow, tmp_path, A) as (host,):
        process = start(*command(tmp_path), slow.url(A))
        wait_for_pages(tmp_path, 60)
        kill(process)
        host.kill()
    slow.latency_seconds = 0.0
    summary = crawl_with_keys(tmp_path)
    assert summary["visits"] == {"here": 1, "host": 1}
    assert states(tmp_path) == [(A, "lost")]
    assert_whole(tmp_path, slow)


# -- calling them back -----------------------------------------------------------------------------------


def test_kill_beside_a_running_crawl_stops_the_crawler_and_none_goes_there_again(
    slow: PageServer, tmp_path: Path
) -> None:
    with hosts(slow, tmp_path, A):
        process = start(*command(tmp_path), slow.url(A))
        wait_for_pages(tmp_path, 60)
        listed = json.loads(sterna("crawlers", tmp_path / "c", "--json").stdout)["crawlers"]
        killed = sterna("crawlers", "kill", tmp_path / "c", listed[0]["visit"])
        out, _ = process.communicate(timeout=100)
    assert killed.returncode == 0
    assert killed.stdout.strip() == f"{listed[0]['visit']} at http://{A}:{slow.port}: killed"
    assert states(tmp_path) == [(A, "killed")]
    summary = json.loads(out.strip().splitlines()[-1])
    assert (summary["visits"], summary["ended"]) == ({"here": 0, "host": 1}, "finished")
    assert 60 <= summary["pages"] < PAGES


def test_crawler_that_is_away_is_queried_beside_the_crawl_and_after_home_died(
    slow: PageServer, tmp_path: Path
) -> None:
    ask = ("crawlers", "query", tmp_path / "c")
    with hosts(slow, tmp_path, A) as (host,):
        process = start(*command(tmp_path), slow.url(A))
        wait_for_pages(tmp_path, 30)
        deadline = time.monotonic() + 60
        state = "SELECT ended, pages, (SELECT count(*) FROM page) AS held FROM visit"
        # Until the host has heard that some pages are stored.
        while (beside := json.loads(sterna(*ask, state, "--json").stdout))["held"] == beside["pages"]:
            assert time.monotonic() < deadline, beside
        kill(process)
        slow.latency_seconds = 0.0
        while "finished" not in (later := sterna(*ask, state, "--json")).stdout:
            assert time.monotonic() < deadline, later
        (away,) = json.loads(sterna("crawlers", tmp_path / "c", "--json").stdout)["crawlers"]
        named = sterna_process(
            *ask, away["visit"], "SELECT title FROM page WHERE url LIKE '%/299'", "-f", "csv"
        )
        unknown = sterna(*ask, "v1", "SELECT 1")
        wrong = sterna(*ask, "SELECT titel FROM page")
        host.kill()
        gone = sterna(*ask, "SELECT 1")
        listed = sterna("crawlers", tmp_path / "c")
    assert beside["pages"] >= 30
    assert 0 < json.loads(later.stdout)["held"] < PAGES + 1
    assert (named.stdout, named.stderr) == ("title\nPage 299\n", "")
    assert unknown.stderr.startswith("sterna: no crawler v1 is away: sterna crawlers ")
    assert 'no column "titel", did you mean "title"?' in wrong.stderr
    assert gone.returncode == 1
    (line,) = gone.stderr.splitlines()
    assert line.startswith("sterna: ") and "127.0.6.1" in line
    assert "1 away" in listed.stdout  # asking changes nothing


def test_kill_of_all_after_home_died_frees_the_site(slow: PageServer, tmp_path: Path) -> None:
    with hosts(slow, tmp_path, A):
        process = start(*command(tmp_path), slow.url(A))
        wait_for_pages(tmp_path, 30)
        kill(process)
        killed = sterna("crawlers", "kill", tmp_path / "c")
        assert killed.stdout.strip().endswith(": killed")
        assert sterna("crawlers", "kill", tmp_path / "c").stdout == "no crawler is away\n"
        slow.latency_seconds = 0.0
        summary = crawl_with_keys(tmp_path)
    assert [state for _, state in states(tmp_path)] == [Out.KILLED, Out.RETURNED]
    assert summary["visits"] == {"here": 0, "host": 1}
    assert_whole(tmp_path, slow)


def test_stopped_crawl_calls_its_crawlers_back_and_goes_on_later(slow: PageServer, tmp_path: Path) -> None:
    with hosts(slow, tmp_path, A):
        process = start(*command(tmp_path), slow.url(A))
        wait_for_pages(tmp_path, 30)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 3
        stopped = json.loads(out.strip().splitlines()[-1])
        assert 30 <= stopped["pages"] < PAGES
        slow.latency_seconds = 0.0
        crawl_with_keys(tmp_path)
    assert_whole(tmp_path, slow)


def test_crawler_that_is_away_is_called_back_by_here(slow: PageServer, tmp_path: Path) -> None:
    with hosts(slow, tmp_path, A):
        process = start(*command(tmp_path), slow.url(A))
        wait_for_pages(tmp_path, 30)
        kill(process)
        slow.latency_seconds = 0.0
        result = sterna(*command(tmp_path), "--here")
    assert summary_of(result)["visits"] == {"here": 1, "host": 0}
    assert states(tmp_path) == [(A, "lost")]
    assert_whole(tmp_path, slow)
