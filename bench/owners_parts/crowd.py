"""Many crawlers with rules at one host at once, in a memory cgroup: do they fit, and is each given its share?

Who got how much is told by nginx's log, in which each crawler has a name of its own: no side counts itself.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop
from bench.owners_parts.fairness import jain, least, shares_of
from bench.owners_parts.homes import Home, Trip, travel
from bench.owners_parts.memory import Watch, memory_group
from bench.owners_parts.stage import Host, Site, running
from tests.transport.calling import line_to_hosts

from sterna.transport.http import HttpTransport

LIMIT_BYTES = 1_500_000_000
POLICY = """
[limits]
crawlers_at_once = {crawlers}
queue = 0
"""


@dataclass(frozen=True, slots=True)
class Crowd:
    """What became of them."""

    crawlers: int
    whole: int  # that brought all the pages they were sent for, with a signed end
    problems: tuple[str, ...]
    pages: int
    seconds: float
    least_share: float  # pages of the slowest / of the fastest, from when all were there until one was done
    jain: float  # of the same pages: 1 if all have the same, 1/n if one has all
    least_so_far: float  # slowest / fastest when one was done, counted from the first page on
    peak_bytes: int  # of the cgroup, files that the kernel keeps included
    process_bytes: int  # of these, what the processes had for themselves
    killed: int  # processes that the kernel killed for want of memory

    @property
    def share(self) -> float:
        return self.whole / self.crawlers


def measure_crowd(site: Site, folder: Path, *, crawlers: int, pages: int) -> Crowd:
    """Sends them all at once, each from a home of its own, and waits until all are back."""
    homes = [Home(f"Tern{number:03}/1") for number in range(crawlers)]
    since = site.size()
    with memory_group(LIMIT_BYTES) as group:
        policy = POLICY.format(crawlers=crawlers)
        with running(site, folder, homes=homes, policy=policy, group=group) as host:
            watch = Watch(group)
            watch.start()
            began = time.perf_counter()
            trips = uvloop.run(_send_all(site, host, homes, pages))
            seconds = time.perf_counter() - began
            watch.stop()
            killed = group.killed()
            peak = group.peak_bytes()
    asked = [agent for agent in site.asked_by(since) if agent.startswith("Tern")]
    shares, so_far = shares_of(asked, [home.name for home in homes])
    return Crowd(
        crawlers=crawlers,
        whole=sum(trip.pages >= pages for trip in trips),
        problems=tuple({trip.problem for trip in trips if trip.problem}),
        pages=len(asked),
        seconds=seconds,
        least_share=least(shares),
        jain=jain(shares),
        least_so_far=least(so_far),
        peak_bytes=peak,
        process_bytes=watch.peak_bytes,
        killed=killed,
    )


async def _send_all(site: Site, host: Host, homes: Sequence[Home], pages: int) -> list[Trip]:
    async with line_to_hosts() as line:
        return await asyncio.gather(*(_send(site, host, home, pages, line) for home in homes))


async def _send(site: Site, host: Host, home: Home, pages: int, line: HttpTransport) -> Trip:
    try:
        return await travel(line, home, site=site.url, start=site.start, key=host.key, pages=pages)
    except Exception as error:
        # One that fails is a result, and must not end the others.
        return Trip(problem=f"{type(error).__name__}: {error}")
