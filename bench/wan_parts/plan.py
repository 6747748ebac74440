"""Which crawls are measured on which line: the papers' experiments, one after the other."""

import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.wan_parts import migrating, ordinary
from bench.wan_parts.changes import changed
from bench.wan_parts.forwarder import Line
from bench.wan_parts.migrating import STORED, Hosts
from bench.wan_parts.ordinary import BRIEF, FULL, TEXT, Task
from bench.wan_parts.results import Results
from bench.wan_parts.sites import LARGE, MIDDLE, SMALL, Site
from bench.wan_parts.sizes import handshake_ms, xz_bytes
from bench.wan_parts.stage import Outcome, Stage

MAIN = Line(100, 10)
OTHERS: tuple[Line | None, ...] = (
    Line(20, 10),
    Line(300, 10),
    Line(100, 2),
    Line(100, 100),
    Line(100, 10, 0.01),
    None,
)
LEVEL = 9
ROUNDS = 3  # of what the aims are judged by
# Each crawler wants pages with one of its words; the pages that have one become fewer from set to set.
SELECTIONS = {
    "M1": ("postgresql", "documentation", "prev", "next"),
    "M2": ("table", "tables"),
    "M3": ("transaction", "transactions"),
    "M4": ("encoding", "encodings"),
}
DEGREES = range(10, 100, 10)
FIRST_PAGES = (50, 100, 200, 400, 800)
CHANGES = (1, 5, 20)


@dataclass(slots=True)
class Plan:
    """The experiments on one stage; each method is one of them."""

    stage: Stage
    hosts: Hosts
    results: Results

    def note(self, outcome: Outcome) -> Outcome:
        self.results.add(outcome)
        elapsed = time.monotonic() - self.results.began
        print(
            f"{elapsed:6.0f} s  {outcome.line}: {outcome.site}, {outcome.way}, {outcome.task}:"
            f" {outcome.bytes / 1e6:.3f} MB, {outcome.seconds:.2f} s, CPU {outcome.cpu_seconds:.2f} s",
            flush=True,
        )
        return outcome

    def from_home(self, site: Site, connections: Iterable[int], *, gzip: bool, rounds: int = 1) -> None:
        for number in connections:
            for _ in range(rounds):
                self.note(ordinary.crawl_from_home(self.stage, site, connections=number, gzip=gzip))

    def by_scrapy(self, site: Site, connections: Iterable[int]) -> None:
        for number in connections:
            self.note(ordinary.crawl_by_scrapy(self.stage, site, connections=number))

    def at_host(self, site: Site, source: str, level: int, *, task: Task = FULL, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.note(
                migrating.crawl_at_host(self.stage, self.hosts, site, source=source, level=level, task=task)
            )

    # -- the experiments

    def beside(self, site: Site) -> None:
        """The site itself, and what `xz -9e` makes of it; some crawl has seen its pages before."""
        paths = self.stage.pages[site.name]
        files = list(map(site.file, sorted(paths)))
        self.results.pages[site.name] = len(paths)
        self.results.page_bytes[site.name] = sum(file.stat().st_size for file in files)
        self.results.xz_bytes[site.name] = xz_bytes(files)

    def four_kinds(self, site: Site, *, rounds: int = 1) -> None:
        """Crawlets 8: over HTTP or from the document root, compressed or not."""
        for source in ("http", "root"):
            self.at_host(site, source, LEVEL, rounds=rounds)
            self.at_host(site, source, STORED)

    def less_asked(self, site: Site, *, rounds: int = 1) -> None:
        """The document root where the web server is not asked about every file."""
        self.at_host(site, "root-folder", LEVEL, rounds=rounds)

    def levels(self, site: Site) -> None:
        for level in (3, 19):
            self.at_host(site, "root", level)

    def less_of_each(self, site: Site) -> None:
        """Text, and title and keywords alone."""
        for task in (TEXT, BRIEF):
            self.at_host(site, "root", LEVEL, task=task)
            self.at_host(site, "root", STORED, task=task)

    def selection(self, site: Site) -> None:
        for name, words in SELECTIONS.items():
            for level in (LEVEL, STORED):
                self.at_host(site, "root", level, task=Task(name, words=words))

    def filtering(self, site: Site) -> None:
        for degree in DEGREES:
            task = Task(f"filtered {degree}", share=1 - degree / 100)
            for level in (LEVEL, STORED):
                self.at_host(site, "root", level, task=task)

    def first_pages(self, site: Site) -> None:
        for count in FIRST_PAGES:
            label = f"first {count}"
            stage, limit = self.stage, {"max_pages": count, "label": label}
            self.note(ordinary.crawl_from_home(stage, site, connections=64, gzip=False, **limit))
            for level in (LEVEL, STORED):
                self.note(migrating.crawl_at_host(stage, self.hosts, site, level=level, **limit))

    def second_visits(self, site: Site, shares: Iterable[int] = CHANGES) -> None:
        """Conditional requests beside a crawler that takes along what is known."""
        stage = self.stage
        home, away = (stage.collection(name) for name in ("first-ordinary", "first-migrating"))
        ordinary.crawl_from_home(stage, site, connections=64, gzip=True, collection=home)
        migrating.crawl_at_host(stage, self.hosts, site, level=LEVEL, collection=away)
        paths = list(stage.pages[site.name])
        for share in shares:
            again = {"label": f"again {share} %", "is_again": True}
            with changed(site, paths, share):
                stage.forget(site)
                folder = self._copy(home)
                self.note(
                    ordinary.crawl_from_home(
                        stage, site, connections=64, gzip=True, collection=folder, **again
                    )
                )
                folder = self._copy(away)
                self.note(
                    migrating.crawl_at_host(stage, self.hosts, site, level=LEVEL, collection=folder, **again)
                )
            stage.forget(site)

    def _copy(self, collection: Path) -> Path:
        folder = self.stage.collection("second")
        shutil.copytree(collection, folder)
        return folder

    # -- whole runs

    def whole(self) -> None:
        """Everything, on the main line."""
        self.results.handshake_ms = handshake_ms()
        small, middle, large = (self.stage.sites[name] for name in (SMALL, MIDDLE, LARGE))
        self.from_home(middle, (64,), gzip=True, rounds=ROUNDS)
        self.beside(middle)
        self.four_kinds(middle, rounds=ROUNDS)
        self.less_asked(middle, rounds=ROUNDS)
        self.less_of_each(middle)
        self.levels(middle)
        self.second_visits(middle)
        self.from_home(middle, (8, 16), gzip=True)
        self.from_home(middle, (8, 16, 64), gzip=False)
        self.by_scrapy(middle, (8, 64))
        self.selection(middle)
        self.filtering(middle)
        self.first_pages(middle)
        for site in (small, large):
            self.from_home(site, (8, 16, 64), gzip=True)
            self.beside(site)
            self.from_home(site, (8, 64), gzip=False)
            self.by_scrapy(site, (8, 64))
            self.four_kinds(site)
        # One request at a time takes minutes, and on the large site it would tell nothing new.
        for site in (middle, small):
            self.from_home(site, (1,), gzip=True)
        self.from_home(middle, (1,), gzip=False)

    def short(self) -> None:
        """A look at the aims, on the main line."""
        self.results.handshake_ms = handshake_ms()
        middle = self.stage.sites[MIDDLE]
        self.from_home(middle, (8, 64), gzip=True)
        self.beside(middle)
        self.from_home(middle, (64,), gzip=False)
        self.four_kinds(middle, rounds=ROUNDS)
        self.less_asked(middle, rounds=ROUNDS)
        self.at_host(middle, "root", LEVEL, task=BRIEF)
        self.second_visits(middle, (1,))

    def few(self) -> None:
        """A few runs, on another line."""
        middle = self.stage.sites[MIDDLE]
        self.from_home(middle, (8, 64), gzip=True)
        for source in ("http", "root"):
            self.at_host(middle, source, LEVEL)
