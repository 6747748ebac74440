"""A whole crawl of a site whose host grants little: killed in the middle, gone on with, and paid for."""

import sqlite3
import time
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from tests.crawl.hosting import command, crawl_with_keys, hosts
from tests.crawl.running import kill, start, sterna, stored_urls
from tests.servers.pages import PageServer, linking

from sterna.wire.discovery import WELL_KNOWN

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

A = "127.0.6.41"
PARTS = {"a": 40, "b": 38, "c": 36, "d": 30, "e": 28, "f": 24, "g": 18, "h": 14, "i": 8, "j": 4, "k": 2}
GRANT = 50
LITTLE = f"""
[load]
machine = 0
[budget]
pages = {GRANT}
[[priority]]
least = 5
budget = {{ pages = 1_000 }}
"""


def site() -> dict[str, str]:
    """A front page, and parts with an index each: 243 pages."""
    pages = {"/": linking(*(f"/{part}/" for part in PARTS), title="Front")}
    for part, count in PARTS.items():
        inner = [f"/{part}/{number}" for number in range(count - 1)]
        pages[f"/{part}/"] = linking(*inner, title=part)
        pages |= {path: linking("/", f"/{part}/", title=path) + "tern " * 100 for path in inner}
    return pages


def visits(folder: Path) -> list[tuple[str, int]]:
    """Where each visit was made, and how many pages it read."""
    with sqlite3.connect(f"file:{folder}/c/ledger.sqlite?mode=ro", uri=True) as db:
        return db.execute("SELECT place, pages FROM visit ORDER BY began").fetchall()


def wait_for_visits(folder: Path, count: int) -> None:
    """Until so many visits have brought something."""
    deadline = time.monotonic() + 100
    while True:
        assert time.monotonic() < deadline, "the crawl does not get on"
        time.sleep(0.02)
        try:
            if sum(pages > 0 for _, pages in visits(folder)) >= count:
                return
        except sqlite3.OperationalError:
            continue  # there is no ledger yet


def test_site_of_243_pages_and_a_host_that_grants_50(tmp_path: Path) -> None:
    expected, served = site(), site()
    assert len(expected) == 243
    with (
        PageServer({A: served}, latency_seconds=0.02).run_in_thread() as server,
        hosts(server, tmp_path, A) as (host,),
    ):
        (tmp_path / f"policy-{A}.toml").write_text(LITTLE)
        time.sleep(1.1)  # it is looked at every second
        with urllib.request.urlopen(f"http://{A}:{host.port}{WELL_KNOWN}", timeout=10) as answer:
            served[WELL_KNOWN] = answer.read().decode()
        process = start(*command(tmp_path), server.url(A))
        wait_for_visits(tmp_path, 3)
        kill(process)
        summary = crawl_with_keys(tmp_path)
        assert summary["ended"] == "finished"
        assert stored_urls(tmp_path / "c") == sorted(server.url(A, path) for path in expected)
        asked = Counter(hit.path for hit in server.log if hit.path in expected)
        assert asked == Counter(dict.fromkeys(expected, 1))
        made = visits(tmp_path)
        assert {place for place, _ in made} == {"host"}
        assert max(pages for _, pages in made) == GRANT
        assert len(made) <= 8

        told = sterna("explain", tmp_path / "c").stdout
        assert f"its host grants at most {GRANT} pages" in told
        assert f"pages to revisit: 243; a visit has room for {GRANT}: it visits /" in told

        offer = f"{server.url(A, '')}=6"
        again = crawl_with_keys(tmp_path, "--refresh", "0", "--priority", offer)
        assert (again["visits"], again["unchanged"]) == ({"here": 0, "host": 1}, 243)
        told = sterna("explain", tmp_path / "c").stdout
        assert "offers revisit priority 6 of 10" in told
        assert "priority 5 was promised for the last visit" in told
