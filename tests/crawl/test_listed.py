"""A second visit of a site whose host has an index of its own asks only for what changed."""

import sqlite3
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.crawl.hosting import HostProcess, crawl_with_keys, hosts
from tests.crawl.running import rows, sterna
from tests.crawl.test_at_hosts import PAGES, big_site
from tests.servers.pages import PageServer, linking
from tests.servers.plain import Reply

from sterna.wire.discovery import WELL_KNOWN

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

A = "127.0.6.21"


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer({A: big_site()}).run_in_thread() as running:
        yield running


STRANGER = ("--keys", "stranger")  # whom the host does not let in: everything is read from here


def survey(folder: Path, server: PageServer) -> None:
    site = server.url(A, "")
    places = ("--state", folder / f"state-{A}", "--policy", folder / f"policy-{A}.toml")
    done = sterna("host", "index", "--site", site, "--upstream", site, *places, "--json")
    assert done.returncode == 0, done.stderr


def announce(server: PageServer, host: HostProcess) -> None:
    """The site shows the offer of its host as it is now."""
    pages = server.sites[A]
    assert isinstance(pages, dict)
    with urllib.request.urlopen(f"http://{A}:{host.port}{WELL_KNOWN}", timeout=10) as answer:
        pages[WELL_KNOWN] = answer.read().decode()


def asked(server: PageServer) -> int:
    """Requests since the last call, discovery aside."""
    count = sum(hit.path != WELL_KNOWN for hit in server.log)
    server.log.clear()
    return count


def let_pass(folder: Path, seconds: float) -> None:
    """Home has read everything so much earlier."""
    with closing(sqlite3.connect(folder / "c" / "ledger.sqlite")) as db, db:
        db.execute("UPDATE page SET fetched = fetched - ?", (seconds,))


@pytest.mark.parametrize(
    ("is_listed", "where"), [(False, ()), (True, ()), (False, STRANGER), (True, STRANGER)]
)
def test_second_visit_asks_for_what_changed(
    server: PageServer, tmp_path: Path, is_listed: bool, where: tuple[str, ...]
) -> None:
    where = tuple(word if word.startswith("-") else str(tmp_path / word) for word in where)
    with hosts(server, tmp_path, A) as (host,):
        if is_listed:
            survey(tmp_path, server)
            announce(server, host)
        crawl_with_keys(tmp_path, server.url(A), *where)
        pages = server.sites[A]
        assert isinstance(pages, dict)
        pages["/7"] = linking("/8", "/new", title="Changed") + "tern " * 100
        pages["/new"] = linking(title="New")
        del pages["/299"]
        let_pass(tmp_path, 24 * 3600.0)
        if is_listed:
            survey(tmp_path, server)
        asked(server)
        again = crawl_with_keys(tmp_path, "--refresh", "12h", *where)
        requests = asked(server)
    titles = dict(rows(tmp_path / "c", "SELECT url, max_by(title, fetched) FROM t GROUP BY url"))
    statuses = dict(rows(tmp_path / "c", "SELECT url, max_by(status, fetched) FROM t GROUP BY url"))
    assert (titles[server.url(A, "/7")], titles[server.url(A, "/new")]) == ("Changed", "New")
    assert statuses[server.url(A, "/299")] == 404
    assert (requests < 60) is is_listed
    read = again["bytes_received"] if where else again["saved"]["fetched"]
    assert (read < 20_000) is is_listed


def test_refresh_of_everything_asks_for_everything(server: PageServer, tmp_path: Path) -> None:
    with hosts(server, tmp_path, A) as (host,):
        survey(tmp_path, server)
        announce(server, host)
        crawl_with_keys(tmp_path, server.url(A))
        asked(server)
        crawl_with_keys(tmp_path, "--refresh", "0")
        assert asked(server) > PAGES


def test_lying_or_broken_listing_costs_nothing_but_its_own_request(
    server: PageServer, tmp_path: Path
) -> None:
    with hosts(server, tmp_path, A) as (host,):
        survey(tmp_path, server)
        announce(server, host)
        crawl_with_keys(tmp_path, server.url(A))
        let_pass(tmp_path, 24 * 3600.0)
        host.kill()
        asked(server)
        summary = crawl_with_keys(tmp_path, "--refresh", "12h")
        assert summary["visits"]["here"] == 1
        assert asked(server) > PAGES


def test_listing_of_pages_that_had_changed_before_is_a_lie(server: PageServer, tmp_path: Path) -> None:
    """Their web server dates the changes before the survey, which says that there were none."""
    stranger = ("--keys", str(tmp_path / "stranger"))
    with hosts(server, tmp_path, A) as (host,):
        survey(tmp_path, server)
        announce(server, host)
        crawl_with_keys(tmp_path, server.url(A), *stranger)
        let_pass(tmp_path, 3 * 24 * 3600.0)
        pages = server.sites[A]
        assert isinstance(pages, dict)
        dated = {"Last-Modified": "Wed, 01 Jan 2020 00:00:00 GMT"}
        for number in range(PAGES):
            body = linking(f"/{(number + 1) % PAGES}", title="Changed") + "gull " * 100
            pages[f"/{number}"] = Reply(200, dated, body.encode())
        asked(server)
        crawl_with_keys(tmp_path, "--refresh", "2d", *stranger)
        let_pass(tmp_path, 4 * 24 * 3600.0)
        assert 0 < asked(server) < PAGES / 4
        site = server.url(A, "")
        shown = sterna("trust", "show", tmp_path / "c", site)
        assert "altered" in shown.stdout
        crawl_with_keys(tmp_path, "--refresh", "2d", *stranger)
        assert asked(server) > PAGES  # the listing is no longer believed
