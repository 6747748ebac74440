"""The thesis's own program runs: figures 6 to 8, on a small site that was made up for it."""

from pathlib import Path

import pytest
from tests.runtime.engine.running import Running, running

from sterna.crawler.facts import Fact, encode
from sterna.crawler.rules import needs_of, uses
from sterna.model import Link, Links, Source
from sterna.runtime.engine.messages import PageView

PROGRAM = Path(__file__).with_name("figures.clp").read_text()
SITE = "https://www.example.org"
PAGES = {
    "/": ("/a", "/b"),
    "/a": ("/", "/b", "/a/1", "/a/2"),
    "/b": ("/missing",),
    "/a/1": ("/a/2", "/a"),
    "/a/2": (),
    "/alone": ("/",),
}
REACHABLE = {"/", "/a", "/b", "/a/1", "/a/2", "/missing"}


def view_of(url: str) -> PageView:
    path = url.removeprefix(SITE)
    links = [Link(SITE + link) for link in PAGES.get(path, ())]
    return PageView(
        url=url,
        site=SITE,
        status=200 if path in PAGES else 404,
        content_type="text/html",
        size=len(path) + 100,
        html=f"<HTML>{path}</HTML>",
        links=Links.of(*links, Link("https://elsewhere.example.org/")),
    )


def crawl(crawler: Running, *, move_every: int = 0) -> tuple[list[str], Running]:
    """Loads what the rules load until they load no more; the URLs in their order."""
    waiting = [url for url, _ in crawler.first.follow]
    loaded: list[str] = []
    while waiting:
        url = waiting.pop(0)
        loaded.append(url)
        verdict = crawler.engine.judge(view_of(url))
        assert not verdict.follows_links
        assert verdict.error_count == 0
        waiting += [url for url, _ in verdict.follow]
        if move_every and len(loaded) % move_every == 0:
            crawler = crawler.moved()
    return loaded, crawler


def begun() -> Running:
    return running(PROGRAM, facts=[encode(Fact("todo", (f"{SITE}/",)))], drives_loading=True)


def test_the_program_of_the_thesis_loads_the_whole_site_once() -> None:
    loaded, crawler = crawl(begun())
    assert sorted(loaded) == sorted(SITE + path for path in REACHABLE)
    facts = crawler.facts()
    pages = {dict(fact.slots or ())["location"]: dict(fact.slots or ()) for fact in facts if fact.slots}
    assert set(pages) == {SITE + path for path in REACHABLE}
    assert pages[f"{SITE}/a"] == {
        "status-code": 200,
        "location": f"{SITE}/a",
        "last-modified": 0,
        "content-type": "text/html",
        "content-length": 102,
        "content": "<HTML>/a</HTML>",
    }
    assert pages[f"{SITE}/missing"]["status-code"] == 404
    todo, done = ({fact.values for fact in facts if fact.template == name} for name in ("todo", "done"))
    assert todo == done == {(SITE + path,) for path in REACHABLE}


@pytest.mark.parametrize("move_every", [1, 2, 3])
def test_the_program_of_the_thesis_goes_on_wherever_it_is_moved(move_every: int) -> None:
    loaded, crawler = crawl(begun())
    loaded_on_the_way, moved = crawl(begun(), move_every=move_every)
    assert loaded_on_the_way == loaded
    assert moved.state() == crawler.state()


def test_what_the_program_of_the_thesis_needs_is_told_from_its_text() -> None:
    sources = (Source("figures.clp", PROGRAM),)
    assert needs_of(sources) == ("links", "html")
    assert uses(sources, "load-page")
    assert uses(sources, "link")
