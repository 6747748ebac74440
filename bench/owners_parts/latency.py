"""What visitors feel of a host: the web server's answers without one, beside one, and with one at work.

wrk keeps up a steady load, so many requests a second at most, and tells its own percentiles; beside it a
client with fixed arrivals asks, which counts from when a request was due. Visitors are elsewhere in truth,
and so is the crawler's home: the former run here before everything else, the latter behind everything else.
"""

import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
from bench.crawl import DEBIAN
from bench.limit import LUA
from bench.owners_parts.homes import Home, travel
from bench.owners_parts.stage import Host, Site, running
from tests.transport.calling import line_to_hosts

CONNECTIONS = 8
PAUSE_MS = 20  # of each of these: 400 requests a second at most
RATE = 200.0  # of the client with fixed arrivals
PATHS = 2_000
DRAWS = 2_000
WARM_SECONDS = 3.0  # in which a crawler gets going
BEFORE_ALL = ("chrt", "--fifo", "1")
ALONE, COUNTER, IDLE, AT_WORK, RUDE = (
    "no host",
    "no host, a counter at idle priority",
    "idle host",
    "crawler at work",
    "crawler at work, no load policy",
)
WAYS = (ALONE, COUNTER, IDLE, AT_WORK, RUDE)
# What any work on this machine does to others, even work that asks nobody for anything.
_COUNT = "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nn = 0\nwhile True: n += 1"
# Who does not look at the load does not give way either.
RUDE_POLICY = "[load]\nmachine = 0\n"
_UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_LUA = (
    LUA
    + """
function delay() return {pause} end
wrk.headers["Accept-Encoding"] = "gzip"
"""
)


@dataclass(frozen=True, slots=True)
class Felt:
    """One round of one way: milliseconds, and what was done meanwhile."""

    way: str
    median_ms: float  # as wrk tells them
    p99_ms: float
    fixed_median_ms: float  # by the client with fixed arrivals
    fixed_p99_ms: float
    requests_per_second: float  # of wrk
    pages_per_second: float  # of the crawler


def measure_latency(site: Site, folder: Path, *, rounds: int, seconds: int) -> list[Felt]:
    """All ways in turn, so often."""
    visitors = Visitors(site, folder)
    found = []
    for number in range(rounds):
        for way in WAYS:
            with _at(site, folder / f"{way}-{number}", way):
                found.append(visitors.feel(way, seconds))
            print(f"round {number + 1}, {_words(found[-1])}", flush=True)
    return found


def _words(felt: Felt) -> str:
    return (
        f"{felt.way}: p99 {felt.p99_ms:.2f} ms by wrk, {felt.fixed_p99_ms:.2f} ms by fixed arrivals,"
        f" {felt.requests_per_second:.0f} requests/s, {felt.pages_per_second:.0f} pages/s crawled"
    )


def rise(found: Sequence[Felt], way: str, figure: str) -> float:
    """The median of this way / that of no host.

    Not the median of each round's ratio: one disturbed round of either would count for both.
    """
    return statistics.median(_of(found, way, figure)) / statistics.median(_of(found, ALONE, figure))


def spread(found: Sequence[Felt], way: str, figure: str) -> tuple[float, float]:
    """Between which bounds the rise lies nine times of ten, if rounds are drawn again by chance."""
    chance = random.Random(1)
    alone, others = _of(found, ALONE, figure), _of(found, way, figure)
    drawn = sorted(
        statistics.median(chance.choices(others, k=len(others)))
        / statistics.median(chance.choices(alone, k=len(alone)))
        for _ in range(DRAWS)
    )
    return drawn[DRAWS // 20], drawn[-DRAWS // 20]


def _of(found: Sequence[Felt], way: str, figure: str) -> list[float]:
    return [getattr(each, figure) for each in found if each.way == way]


class Visitors:
    """Those who ask the web server."""

    def __init__(self, site: Site, folder: Path) -> None:
        self._site = site
        self._paths = folder / "paths"
        self._paths.write_text("\n".join(_some_paths()))
        self._script = folder / "steady.lua"
        self._script.write_text((_LUA % self._paths).replace("{pause}", str(PAUSE_MS)))

    def feel(self, way: str, seconds: int) -> Felt:
        since = self._site.size()
        wrk = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", str(self._script)]
        probe = [sys.executable, "-m", "bench.owners_parts.probe", self._site.url.rpartition(":")[2]]
        probe += [str(self._paths), str(RATE), str(seconds)]
        with (
            subprocess.Popen([*BEFORE_ALL, *wrk, self._site.url], stdout=subprocess.PIPE, text=True) as first,
            subprocess.Popen([*BEFORE_ALL, *probe], stdout=subprocess.PIPE, text=True) as second,
        ):
            printed, took = first.communicate()[0], json.loads(second.communicate()[0])
        if "Non-2xx" in printed:
            raise SystemExit(f"the web server refuses pages:\n{printed}")
        return Felt(
            way=way,
            median_ms=_percentile(printed, 50),
            p99_ms=_percentile(printed, 99),
            fixed_median_ms=statistics.median(took),
            fixed_p99_ms=statistics.quantiles(took, n=100)[98],
            requests_per_second=float(_found(r"Requests/sec:\s+([\d.]+)", printed)[1]),
            pages_per_second=self._site.counts(since)[HOME.name] / seconds,
        )


def _some_paths() -> list[str]:
    """Pages from all over the site."""
    paths = []
    for prefix, folder in (("/boost/", DEBIAN["libboost1.81-doc"]), ("/java/", DEBIAN["openjdk-17-doc"])):
        pages = sorted(page for page in folder.rglob("*.html") if page.is_file() and page.name.isascii())
        paths += [prefix + str(page.relative_to(folder)) for page in pages]
    plain = [path for path in paths if re.fullmatch(r"[A-Za-z0-9._/-]+", path)]
    return plain[:: max(1, len(plain) // PATHS)]


def _percentile(printed: str, percent: int) -> float:
    found = _found(rf"{percent}%\s+([\d.]+)(us|ms|s)\b", printed)
    return float(found[1]) * _UNITS[found[2]]


def _found(pattern: str, printed: str) -> re.Match[str]:
    found = re.search(pattern, printed)
    if not found:
        raise SystemExit(f"wrk says something else than it did:\n{printed}")
    return found


# -- the host ----------------------------------------------------------------------------------------------

HOME = Home("Tern/1")


@contextmanager
def _at(site: Site, folder: Path, way: str) -> Iterator[None]:
    """The host of this way, with a crawler in it that is at work already."""
    if way == ALONE:
        yield
        return
    if way == COUNTER:
        with subprocess.Popen([sys.executable, "-c", _COUNT]) as counter:
            try:
                yield
            finally:
                counter.kill()
        return
    with running(site, folder, homes=[HOME], policy=RUDE_POLICY if way == RUDE else "") as host:
        if way == IDLE:
            yield
            return
        sender = _Sender(site, host)
        sender.start()
        time.sleep(WARM_SECONDS)
        yield
        sender.is_over = True
    sender.join()  # the host is gone, and with it the line


class _Sender(threading.Thread):
    """Sends one crawler after the other for as long as the host is there."""

    def __init__(self, site: Site, host: Host) -> None:
        super().__init__(daemon=True)
        self._site = site
        self._host = host
        self.is_over = False

    def run(self) -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # of this thread alone
        uvloop.run(self._send())

    async def _send(self) -> None:
        site, host = self._site, self._host
        async with line_to_hosts() as line:
            while not self.is_over:
                try:
                    await travel(line, HOME, site=site.url, start=site.start, key=host.key, pages=100_000)
                except Exception as error:
                    if not self.is_over:
                        print(f"a crawler was lost: {error}", flush=True)
                        await asyncio.sleep(1)
