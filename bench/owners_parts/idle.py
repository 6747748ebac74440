"""The memory of a host that nobody visits: fresh, and when its only crawler has left."""

import time
from dataclasses import dataclass
from pathlib import Path

import uvloop
from bench.owners_parts.homes import Home, travel
from bench.owners_parts.stage import Host, Site, running
from tests.transport.calling import line_to_hosts

POLICY = "[limits]\nidle_seconds = 1.0\n"  # for which its processes are kept after the last visit
SETTLE_SECONDS = 3.0
REST_SECONDS = 20.0
PAGES = 200


@dataclass(frozen=True, slots=True)
class Idle:
    """Memory (PSS) of all its processes, and how many there are."""

    fresh_bytes: int
    fresh_processes: int
    after_bytes: int
    after_processes: int


def measure_idle(site: Site, folder: Path) -> Idle:
    home = Home("Tern/1")
    with running(site, folder, homes=[home], policy=POLICY) as host:
        time.sleep(SETTLE_SECONDS)
        fresh = host.pss_bytes(), host.processes()
        uvloop.run(_visit(site, host, home))
        _rest(host)
        after = host.pss_bytes(), host.processes()
    return Idle(*fresh, *after)


async def _visit(site: Site, host: Host, home: Home) -> None:
    async with line_to_hosts() as line:
        trip = await travel(line, home, site=site.url, start=site.start, key=host.key, pages=PAGES)
    if trip.pages < PAGES:
        raise SystemExit(f"the crawler brought {trip.pages} pages: {trip.problem}")


def _rest(host: Host) -> None:
    """Waits until the processes of the visit have ended."""
    deadline = time.monotonic() + REST_SECONDS
    while host.processes() > 1 and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(SETTLE_SECONDS)
