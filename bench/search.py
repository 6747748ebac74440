"""Search: what indexing costs a crawl, how long searches take, and whether they find: python -m bench.search.

Whole crawls of a real site with and without an index, in turn, to the end of indexing. An archive of 100,000
pages, made from real ones, is indexed and searched: words, phrases, rare and frequent ones, one site's;
SQLite's FTS5 holds the same texts and answers the same searches. And 500 pages of the real site, by chance,
are asked for by the words of their titles.
"""

import argparse
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.crawl import DEBIAN, SERVER, START, install_sites, seen, sterna
from bench.measuring import Cost, measure
from bench.ratios import settle
from bench.search_parts.corpus import made_pages, real_pages, snapshot_of, text_bytes_of, write_corpus
from bench.search_parts.quality import Quality, title_words_find
from bench.search_parts.timing import Times, fill_sqlite, our_times, questions, their_times
from tests.crawl.running import rows
from tests.servers.nginx import serve

from sterna.archive.manifest import Snapshot
from sterna.search.indexer import Indexer
from sterna.search.searcher import Searcher

PARTS = ("crawl", "search")
REAL = 6_000
QUALITY_PAGES = 500
LEAST_SPEED = 0.7
MEDIAN_MS, P99_MS = 5.0, 30.0
LEAST_FOUND = 0.95
INDEX_SIZE = "our index, of the text"


@dataclass(slots=True)
class Results:
    """What was measured; parts that were left out are empty."""

    plain: list[float] = field(default_factory=list)  # pages a second
    indexed: list[float] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)  # bytes, with an index
    quality: Quality | None = None
    ours: list[Times] = field(default_factory=list)
    theirs: list[Times] = field(default_factory=list)
    sizes: dict[str, float] = field(default_factory=dict)


def crawls(rounds: int, results: Results) -> None:
    """The same site with and without an index, in turn."""
    with tempfile.TemporaryDirectory() as work:
        roots = {"/boost/": DEBIAN["libboost1.81-doc"], "/java/": DEBIAN["openjdk-17-doc"]}
        with serve(roots, folder=Path(work) / "nginx", extra=SERVER) as server:
            for number in range(rounds):
                for name, flags in (("plain", ["--no-index"]), ("indexed", ["--index"])):
                    folder = Path(work) / f"{name}{number}"
                    folder.mkdir()
                    since = server.log_path.stat().st_size
                    cost: Cost = measure(sterna(*flags)(f"{server.url}{START}", folder), folder=folder)
                    speed = len(seen(server, since)) / cost.seconds
                    getattr(results, name).append(speed)
                    if name == "indexed":
                        results.peaks.append(cost.peak_bytes)
                    print(f"crawl, {name}: {speed:,.0f} pages/s, {cost.cpu_seconds:.0f} CPU s,"
                          f" peak {cost.peak_bytes / 1e6:.0f} MB", flush=True)  # fmt: skip
            found = Path(work) / "indexed0" / "c"
            titled = rows(found, "SELECT url, title FROM t WHERE status = 200")
            with Searcher(found / "index") as searcher:
                results.quality = title_words_find(searcher, titled, count=QUALITY_PAGES)
                print(
                    f"{searcher.page_count():,} pages can be searched of {len(titled):,} stored", flush=True
                )


def searches(folder: Path, pages: int, asked: int, results: Results) -> None:
    """An archive of so many pages, indexed and searched by us and by SQLite; what is there is used again."""
    real = real_pages(REAL)
    if not (folder / "segments").is_dir():
        write_corpus(folder / "segments", pages, real=real)
    snapshot = snapshot_of(folder / "segments")
    text_bytes = sum(text_bytes_of(path) for path in snapshot.tables["page"])
    if not (folder / "index").is_dir():
        results.sizes["pages indexed a second"] = pages / index(folder / "index", snapshot)
    if not (folder / "fts.sqlite").exists():
        seconds = fill_sqlite(folder / "fts.sqlite", made_pages(real, pages))
        results.sizes["FTS5, pages a second"] = pages / seconds
    size = sum(path.stat().st_size for path in (folder / "index").rglob("*") if path.is_file())
    their_size = (folder / "fts.sqlite").stat().st_size
    results.sizes |= {
        "text, MB": text_bytes / 1e6,
        INDEX_SIZE: size / text_bytes,
        "FTS5 with its texts, of the text": their_size / text_bytes,
    }
    mixed = questions(real, count=asked)
    with Searcher(folder / "index") as searcher:
        results.ours = our_times(searcher, mixed)
    results.theirs = their_times(folder / "fts.sqlite", mixed[::5])  # of each kind a fifth


def index(folder: Path, snapshot: Snapshot) -> float:
    """Seconds until everything is indexed and merged."""
    began = time.perf_counter()
    with Indexer(folder) as indexer:
        while indexer.batch < snapshot.batch:
            indexer.catch_up(snapshot, stop=threading.Event())
            indexer.commit()
        indexer.settle()
    return time.perf_counter() - began


def report(results: Results) -> dict[str, float]:
    """The tables, and the ratios that are kept."""
    ratios: dict[str, float] = {}
    if results.plain:
        speed = statistics.median(
            one / other for one, other in zip(results.indexed, results.plain, strict=True)
        )
        print("\n| crawl | pages/s (each round) |\n|---|---|")
        for name in ("plain", "indexed"):
            speeds = getattr(results, name)
            each = ", ".join(f"{speed:,.0f}" for speed in speeds)
            print(f"| {name} | {statistics.median(speeds):,.0f} ({each}) |")
        ratios["crawl with an index / without"] = speed
    if results.quality:
        found = results.quality
        print(f"\n{found.found} of {found.asked} pages found by their titles' words ({found.share:.1%}),"
              f" {found.folded} of them as a near-duplicate; {found.ambiguous} share their title with others;"
              f" {found.untitled} pages of the site have no title to ask for")  # fmt: skip
        print("missed:", *(f"\n  {url} {words!r}" for url, words in found.missed[:10]))
        ratios["pages found by their titles' words"] = found.share
    if results.ours:
        print(
            "\n| search | median ms (CPU) | p99 ms (CPU) | hits"
            " | FTS5, median ms (CPU) | p99 ms (CPU) | hits |"
            "\n|---|---|---|---|---|---|---|"
        )
        for ours, theirs in zip(results.ours, results.theirs, strict=True):
            print(f"| {ours.kind} | {cells(ours)} | {cells(theirs)} |")
        print("\n| what | |\n|---|---|")
        for name, value in results.sizes.items():
            print(f"| {name} | {value:,.2f} |")
        every, their_every = results.ours[-1], results.theirs[-1]
        ratios["5 ms / median search"] = MEDIAN_MS / every.median
        ratios["30 ms / 99th percentile"] = P99_MS / every.p99
        ratios["FTS5's median / ours"] = their_every.median / every.median
        ratios["text / index"] = 1 / results.sizes[INDEX_SIZE]
    return ratios


def cells(times: Times) -> str:
    """Median, 99th percentile and hits of one kind of search."""
    median = f"{times.median:.2f} ({times.cpu_median:.2f})"
    return f"{median} | {times.p99:.2f} ({times.cpu_p99:.2f}) | {times.hits:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--searches", type=int, default=3_000)
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part")
    parser.add_argument("--into", type=Path, metavar="DIR", help="keep archive and indexes for the next run")
    parser.add_argument("--record", action="store_true", help="keep the ratios for later comparisons")
    given = parser.parse_args()
    install_sites()
    results = Results()
    chosen = given.only or PARTS
    if "crawl" in chosen:
        crawls(given.rounds, results)
    if "search" in chosen:
        with tempfile.TemporaryDirectory() as work:
            searches(given.into or Path(work), given.pages, given.searches, results)
    ratios = report(results)
    aims = {
        "crawl with an index / without": LEAST_SPEED,
        "pages found by their titles' words": LEAST_FOUND,
        "5 ms / median search": 1.0,
        "30 ms / 99th percentile": 1.0,
    }
    print("\n| aim | at least | is | |\n|---|---|---|---|")
    for name, least in aims.items():
        if name in ratios:
            verdict = "reached" if ratios[name] >= least else "NOT REACHED"
            print(f"| {name} | {least:.2f} | {ratios[name]:.2f} | {verdict} |")
    settle("search", ratios, record=given.record)


if __name__ == "__main__":
    main()
