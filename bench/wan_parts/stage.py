"""A line with everything on it: runs a crawl at home, and tells what it cost there and on both sides."""

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.wan_parts.cpu import Cpu, CpuGroup
from bench.wan_parts.places import Places, Traffic, running
from bench.wan_parts.sites import Site
from tests.crawl.running import rows

RUN_SECONDS = 900.0
QUIET_SECONDS = 0.25  # and two round trips: what is still on the line belongs to the run


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one crawl did and what it cost."""

    way: str  # who crawled and how, such as `ordinary 8 gzip` or `root 9`
    task: str  # what it was to bring
    site: str
    line: str
    seconds: float
    traffic: Traffic
    home: Cpu
    at_site: Cpu
    pages: int = 0
    kept: int = 0

    @property
    def bytes(self) -> int:
        return self.traffic.bytes

    @property
    def cpu_seconds(self) -> float:
        return self.home.seconds + self.at_site.seconds


class Differs(Exception):
    """A crawl did not see the pages that all others saw."""


@dataclass(slots=True)
class Stage:
    """A line, sites on one side of it, and a folder for what runs at home on the other."""

    places: Places
    sites: dict[str, Site]
    folder: Path
    # Paths and digests of each site's pages, from its first crawl; changed by check() and forget() alone.
    pages: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def line(self) -> str:
        return str(self.places.line or "LAN, not emulated")

    def collection(self, name: str) -> Path:
        """The path of a new collection; what had the name before is gone."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        return path

    def run(
        self, way: str, task: str, site: Site, command: Sequence[str], *, host: CpuGroup | None = None
    ) -> tuple[Outcome, str]:
        """Runs a command at home to its end; gives what it cost and what it printed.

        The site's side is nginx, and the host if there is one: others that wait there are none of its cost.
        """
        os.sync()  # what the run before wrote is not this one's to wait for
        home = self.places.home
        log = self.folder / "output.txt"
        before = self._counters(host)
        began = time.perf_counter()
        with log.open("w") as out, running(home.start(command, folder=self.folder, output=out)) as process:
            code = process.wait(RUN_SECONDS)
            seconds = time.perf_counter() - began
        time.sleep(QUIET_SECONDS + (self.places.line.round_trip_ms / 500 if self.places.line else 0.0))
        traffic, ours, theirs = (
            after - earlier for after, earlier in zip(self._counters(host), before, strict=True)
        )
        printed = log.read_text(errors="replace")
        if code:
            raise RuntimeError(f"{way}: {' '.join(command)} ended with {code}:\n{printed[-3000:]}")
        return Outcome(way, task, site.name, self.line, seconds, traffic, ours, theirs), printed

    def _counters(self, host: CpuGroup | None) -> tuple[Traffic, Cpu, Cpu]:
        home, at_site = self.places.home, self.places.site.cpu.spent()
        return home.traffic(), home.cpu.spent(), at_site + (host.spent() if host else Cpu())

    def check(self, outcome: Outcome, seen: dict[str, str]) -> None:
        """Raises Differs unless these are the pages that every crawl of the site saw."""
        known = self.pages.setdefault(outcome.site, seen)
        if seen != known:
            other = [path for path in known.keys() | seen.keys() if known.get(path) != seen.get(path)]
            raise Differs(
                f"{outcome.way}, {outcome.task} saw other pages of {outcome.site} than the first crawl:"
                f" {len(seen):,} for {len(known):,}, such as {sorted(other)[:3]}"
            )

    def forget(self, site: Site) -> None:
        """The site's pages changed."""
        self.pages.pop(site.name, None)


def summary_of(printed: str) -> dict[str, Any]:
    """The last line of `sterna crawl --json`."""
    summary: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    return summary


def pages_in(collection: Path) -> dict[str, str]:
    """The paths of the pages of a collection, and the digests of their newest versions."""
    sql = "SELECT url, arg_max(digest, fetched) FROM t WHERE status = 200 GROUP BY url"
    return {urlsplit(url).path: digest for url, digest in rows(collection, sql)}
