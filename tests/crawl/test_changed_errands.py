"""An errand that changed between two crawls: what was left out is followed, and pages are judged anew."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.crawl.running import ask, sterna, summary_of
from tests.servers.pages import PageServer, linking

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]

A, B = "127.0.7.2", "127.0.7.3"


def site() -> dict[str, Any]:
    return {
        "/": linking("/news/", "/shop/", f"http://{B}:{{port}}/", title="Start"),
        "/news/": linking("/news/terns", "/shop/eggs", title="News") + "<p>of the surgery</p>",
        "/news/terns": linking("/", title="Terns") + "<p>of the garden</p>",
        "/shop/": linking("/shop/eggs", "/shop/deep/", title="Shop") + "<p>of the garden</p>",
        "/shop/eggs": linking("/", title="Eggs") + "<p>of the surgery</p>",
        "/shop/deep/": linking("/shop/deep/deeper", title="Deep"),
        "/shop/deep/deeper": linking(title="Deeper"),
    }


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer({A: site(), B: {"/": linking(title="Neighbour")}}).run_in_thread() as running:
        yield running


def spec(folder: Path, server: PageServer, body: str = "") -> Path:
    path = folder / "errand.toml"
    manners = '[politeness]\ndelay = 0\ncontact = "me@example.org"\n'
    path.write_text(f'name = "errand"\nseeds = ["{server.url(A)}"]\n{body}\n{manners}')
    return path


def crawl(folder: Path, *arguments: str | Path) -> tuple[dict[str, Any], str]:
    """The summary, and the lines before it that say what changed."""
    arguments = (*arguments, "--into", folder / "c", "--delay", "0", "--here", "--json")
    result = sterna("crawl", *arguments)
    assert result.returncode == 0, result.stderr
    notes = [json.loads(line) for line in result.stdout.splitlines() if '"note"' in line]
    return summary_of(result), "\n".join(note["note"] for note in notes)


def pages(folder: Path) -> set[str]:
    rows = ask(folder / "c", "SELECT url FROM page WHERE status = 200")
    return {row["url"].partition("//")[2].partition("/")[2] for row in rows}


NEWS = {"", "news/", "news/terns"}
SHOP = {"shop/", "shop/eggs", "shop/deep/", "shop/deep/deeper"}


def asked(server: PageServer) -> list[str]:
    paths = [hit.path for hit in server.log if hit.path != "/robots.txt"]
    server.log.clear()
    return paths


def test_include_that_admits_more_follows_the_links_that_were_left_out(
    tmp_path: Path, server: PageServer
) -> None:
    url = server.url(A)
    crawl(tmp_path, url, "--include", "/news/")
    assert pages(tmp_path) == NEWS
    asked(server)
    summary, note = crawl(tmp_path, "--include", "/news/|/shop/")
    assert pages(tmp_path) == NEWS | SHOP
    assert "--include changed" in note
    assert "2 links are followed that had been left out" in note
    assert not {"/news/", "/news/terns"} & set(asked(server))  # what is stored is not fetched again
    assert summary["ended"] == "finished"
    _, note = crawl(tmp_path)
    assert (note, asked(server)) == ("", [])


def test_exclusion_that_a_spec_drops_is_followed(tmp_path: Path, server: PageServer) -> None:
    crawl(tmp_path, spec(tmp_path, server, '[scope]\nexclude = ["/shop/"]'))
    assert pages(tmp_path) == NEWS
    _, note = crawl(tmp_path, spec(tmp_path, server))
    assert pages(tmp_path) == NEWS | SHOP
    assert "--exclude changed" in note


def test_subtree_that_a_spec_adds_is_crawled(tmp_path: Path, server: PageServer) -> None:
    crawl(tmp_path, spec(tmp_path, server, '[scope]\nsubtrees = ["/news"]'))
    assert pages(tmp_path) == NEWS
    _, note = crawl(tmp_path, spec(tmp_path, server, '[scope]\nsubtrees = ["/news", "/shop/deep"]'))
    assert pages(tmp_path) == NEWS  # nothing that was fetched links there
    _, note = crawl(tmp_path, spec(tmp_path, server))
    assert (pages(tmp_path), "--subtree changed" in note) == (NEWS | SHOP, True)


def test_wider_borders_lead_to_other_sites(tmp_path: Path, server: PageServer) -> None:
    url = server.url(A)
    crawl(tmp_path, url, "--allow-private")
    _, note = crawl(tmp_path, "--stay", "any")
    assert ask(tmp_path / "c", "SELECT title FROM page WHERE title = 'Neighbour'")
    assert "--stay changed: 1 link is followed that had been left out" in note


def test_greater_depth_goes_on(tmp_path: Path, server: PageServer) -> None:
    crawl(tmp_path, server.url(A), "--max-depth", "1")
    _, note = crawl(tmp_path, "--max-depth", "9")
    assert (pages(tmp_path), "--max-depth changed" in note) == (NEWS | SHOP, True)


def test_narrowed_scope_is_said_and_fetches_nothing(tmp_path: Path, server: PageServer) -> None:
    crawl(tmp_path, server.url(A))
    asked(server)
    _, note = crawl(tmp_path, "--include", "/news/", "--exclude", "/shop/", "--max-depth", "3")
    told = "--include, --exclude, --max-depth narrowed: fewer links are followed; stored pages stay"
    assert (note, asked(server)) == (told, [])
    _, note = crawl(tmp_path)
    assert note == ""


def test_links_of_a_crawler_that_keeps_none_are_found_by_fetching_its_pages(
    tmp_path: Path, server: PageServer
) -> None:
    crawl(tmp_path, server.url(A), "--include", "/news/", "--keep", "title")
    _, note = crawl(tmp_path, "--include", "/news/|/shop/")
    assert (pages(tmp_path), "3 pages are fetched again" in note) == (NEWS | SHOP, True)


# -- which pages are wanted ----------------------------------------------------------------------------------


KEEP = '[keep]\nfields = ["title", "description", "headings", "text", "language", "links"]\n'


def select(word: str) -> str:
    return f'{KEEP}[select]\nkeywords_any = ["{word}"]'


def test_pages_are_judged_again_by_the_archive_and_the_others_are_fetched(
    tmp_path: Path, server: PageServer
) -> None:
    crawl(tmp_path, spec(tmp_path, server, KEEP))
    asked(server)
    _, note = crawl(tmp_path, spec(tmp_path, server, select("surgery")))
    assert pages(tmp_path) == {"news/", "shop/eggs"}
    assert "7 stored pages are judged again, 5 no longer wanted" in note
    assert asked(server) == []
    assert len(ask(tmp_path / "c", "SELECT url FROM event WHERE kind = 'deleted'")) == 5
    _, note = crawl(tmp_path, spec(tmp_path, server, select("garden")))
    assert pages(tmp_path) == {"news/terns", "shop/"}


def test_page_that_the_archive_shows_to_be_unwanted_is_not_fetched_again(
    tmp_path: Path, server: PageServer
) -> None:
    both = select('surgery", "garden')
    crawl(tmp_path, spec(tmp_path, server, both))
    assert pages(tmp_path) == {"news/", "news/terns", "shop/", "shop/eggs"}
    asked(server)
    _, note = crawl(tmp_path, spec(tmp_path, server, select("surgery")))
    assert pages(tmp_path) == {"news/", "shop/eggs"}
    assert "4 stored pages are judged again, 2 no longer wanted; 3 pages are fetched again" in note
    assert sorted(asked(server)) == ["/", "/shop/deep/", "/shop/deep/deeper"]  # which no archive has


def test_condition_on_what_was_not_kept_has_all_pages_fetched(tmp_path: Path, server: PageServer) -> None:
    crawl(tmp_path, spec(tmp_path, server, '[keep]\nfields = ["title", "links"]'))
    _, note = crawl(tmp_path, spec(tmp_path, server, select("surgery")))
    assert pages(tmp_path) == {"news/", "shop/eggs"}
    assert "7 pages are fetched again" in note


def test_condition_that_is_dropped_keeps_all_pages(tmp_path: Path, server: PageServer) -> None:
    crawl(tmp_path, spec(tmp_path, server, select("surgery")))
    assert pages(tmp_path) == {"news/", "shop/eggs"}
    asked(server)
    _, note = crawl(tmp_path, spec(tmp_path, server, KEEP))
    assert pages(tmp_path) == NEWS | SHOP
    assert "5 pages are fetched again" in note
    assert not {"/news/", "/shop/eggs"} & set(asked(server))


def test_more_to_keep_is_fetched(tmp_path: Path, server: PageServer) -> None:
    crawl(tmp_path, spec(tmp_path, server, '[keep]\nfields = ["title", "links"]'))
    _, note = crawl(tmp_path, spec(tmp_path, server, '[keep]\nfields = ["title", "links", "text"]'))
    assert "keep changed: 7 pages are fetched again" in note
    assert ask(tmp_path / "c", "SELECT count(*) AS n FROM page WHERE text IS NOT NULL") == [
        {"n": 6}
    ]  # one has none
    asked(server)
    _, note = crawl(tmp_path, spec(tmp_path, server, '[keep]\nfields = ["title", "links"]'))
    assert (note, asked(server)) == ("", [])


def test_edited_rules_see_all_pages_again(tmp_path: Path, server: PageServer) -> None:
    (tmp_path / "r.clp").write_text('(defrule all (page (title "News")) => (drop))')
    crawl(tmp_path, spec(tmp_path, server, 'rules = ["r.clp"]'))
    (tmp_path / "r.clp").write_text('(defrule all (page (title "Shop")) => (drop))')
    _, note = crawl(tmp_path, spec(tmp_path, server, 'rules = ["r.clp"]'))
    assert pages(tmp_path) == (NEWS | SHOP) - {"shop/"}
    assert "rules changed: 7 pages are fetched again" in note


# The command, killed as kill -9 does it at the given call of a method of the ledger.
DYING = """
import os, signal, sys
from sterna.cli import run
from sterna.home import catching_up
from sterna.home.ledger.sqlite.ledger import SqliteLedger
catching_up.PAGES_AT_ONCE = 1  # five commits, however the pages lie in segments
name, left = sys.argv[1], int(sys.argv[2])
method = getattr(SqliteLedger, name)

def die(*given, **named):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return method(*given, **named)

setattr(SqliteLedger, name, die)
sys.argv = ["sterna", *sys.argv[3:]]
run()
"""


def kill_at(method: str, calls: int, folder: Path, wanted: Path) -> None:
    """A crawl that dies when it has called this method of the ledger so often."""
    words = ["crawl", wanted, "--into", folder / "c", "--here", "--no-index"]
    done = subprocess.run([sys.executable, "-c", DYING, method, str(calls), *map(str, words)], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("calls", [0, 1, 3, 4])
def test_change_that_was_killed_is_finished_by_the_next_crawl(
    tmp_path: Path, server: PageServer, calls: int
) -> None:
    crawl(tmp_path, spec(tmp_path, server, KEEP))
    wanted = spec(tmp_path, server, select("surgery"))
    kill_at("commit", calls, tmp_path, wanted)
    crawl(tmp_path, wanted)
    assert pages(tmp_path) == {"news/", "shop/eggs"}
    assert len(ask(tmp_path / "c", "SELECT url FROM event WHERE kind = 'deleted'")) == 5


@pytest.mark.parametrize("method", ["follow", "lease"])
def test_wider_scope_that_was_killed_is_followed_by_the_next_crawl(
    tmp_path: Path, server: PageServer, method: str
) -> None:
    crawl(tmp_path, spec(tmp_path, server, '[scope]\ninclude = ["/news/"]'))
    wanted = spec(tmp_path, server)
    kill_at(method, 0, tmp_path, wanted)
    crawl(tmp_path, wanted)
    assert pages(tmp_path) == NEWS | SHOP


def test_change_that_was_killed_and_taken_back_loses_nothing(tmp_path: Path, server: PageServer) -> None:
    crawl(tmp_path, spec(tmp_path, server, KEEP))
    kill_at("fetch_again", 0, tmp_path, spec(tmp_path, server, select("surgery")))
    assert pages(tmp_path) == {"news/", "shop/eggs"}
    crawl(tmp_path, spec(tmp_path, server, KEEP))
    assert pages(tmp_path) == NEWS | SHOP
