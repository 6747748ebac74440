"""A crawler that is stopped at any page goes on elsewhere as if nothing had happened."""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.forking import Forked
from tests.servers.nginx import NginxServer, serve

from sterna.crawler.compiler import compile_spec
from sterna.crawler.pack import PackedCrawler, SavedProgress, encode, read
from sterna.crawler.spec import Select, Spec

PAGES = 40

RULES = """
(deftemplate visited (slot url) (slot number) (multislot words))
(deftemplate total (slot pages) (slot words))
(defglobal ?*seen* = 0)
(deffacts beginning (total (pages 0) (words 0)))

(defrule note
   (page (url ?url) (status 200))
   ?total <- (total (pages ?pages) (words ?words))
   (not (visited (url ?url)))
   =>
   (bind ?*seen* (+ ?*seen* 1))
   (store ?url ?*seen*)
   (assert (visited (url ?url) (number ?*seen*) (words (text-count "number") "quoted \\"text\\"")))
   (modify ?total (pages (+ ?pages 1)) (words (+ ?words (text-count "number")))))

(defrule forget-a-third
   (page (url ?))
   ?old <- (visited (number ?n&:(= (mod ?n 3) 0)))
   =>
   (retract ?old))
"""
BEST_FIRST = """
(defrule even-pages-first
   (page (url ?url) (status 200))
   =>
   (progn$ (?link (page-links))
      (follow ?link (if (like ?link "%0.html") then 5 else 0))))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages that link to each other in a tangle."""
    folder = tmp_path_factory.mktemp("site")
    chance = random.Random(7)
    for number in range(PAGES):
        links = "".join(f"<a href='/{chance.randrange(PAGES)}.html'>x</a>" for _ in range(5))
        (folder / f"{number}.html").write_text(f"<title>{number}</title><p>number {number}. {links}")
    start = "".join(f"<a href='/{number}.html'>x</a>" for number in range(0, PAGES, 7))
    (folder / "index.html").write_text(f"<title>Start</title>{start}")
    return folder


@pytest.fixture(scope="module")
def server(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NginxServer]:
    with serve(site, folder=tmp_path_factory.mktemp("nginx")) as server:
        yield server


def crawler(folder: Path, *, is_best_first: bool) -> PackedCrawler:
    (folder / "rules.clp").write_text(RULES + (BEST_FIRST if is_best_first else ""))
    spec = Spec(
        name="moving",
        rules=("rules.clp",),
        order="best" if is_best_first else "breadth",
        select=Select(keywords_any=("number",)),
    )
    return PackedCrawler(crawler=compile_spec(spec, folder))


def carry_on(path: Path, server: NginxServer, source: str, pages: int) -> str:
    command = [sys.executable, "-m", "tests.runtime.continuing", str(path), server.url, source, str(pages)]
    with Forked(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return out


@pytest.mark.servers
@pytest.mark.parametrize("is_best_first", [False, True], ids=["breadth", "best"])
def test_crawler_goes_on_in_another_process_and_on_another_source(
    tmp_path: Path, site: Path, server: NginxServer, is_best_first: bool
) -> None:
    packed = crawler(tmp_path, is_best_first=is_best_first)
    undisturbed, moved = tmp_path / "undisturbed.crawler", tmp_path / "moved.crawler"
    undisturbed.write_bytes(encode(packed))
    moved.write_bytes(encode(packed))
    chance = random.Random(11 + is_best_first)

    assert carry_on(undisturbed, server, "http", 1_000) == "finished"
    moves, ended = 0, ""
    while ended != "finished":
        source = ("http", str(site))[moves % 2]
        ended = carry_on(moved, server, source, chance.randrange(1, 16))
        moves += 1

    assert moves > 2
    assert read(moved).progress == read(undisturbed).progress
    assert moved.read_bytes() == undisturbed.read_bytes()


@pytest.mark.servers
def test_frontier_of_a_stopped_crawler_is_that_of_an_undisturbed_one_at_the_same_page(
    tmp_path: Path, site: Path, server: NginxServer
) -> None:
    packed = crawler(tmp_path, is_best_first=False)
    at_once, in_steps = tmp_path / "at_once.crawler", tmp_path / "in_steps.crawler"
    at_once.write_bytes(encode(packed))
    in_steps.write_bytes(encode(packed))

    carry_on(at_once, server, "http", 20)
    for pages in (1, 6, 13):
        carry_on(in_steps, server, str(site), pages)

    progress = read(at_once).progress
    assert progress != SavedProgress()
    assert len(progress.frontier) > 3
    assert in_steps.read_bytes() == at_once.read_bytes()
