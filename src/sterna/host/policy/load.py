"""The load of the site: what others use of the machine, and how fast its web server answers.

"Idle time only", as UCYMicra ran its crawlers: a visit rests while the machine or the web server is busier
than the owner allows, and goes on when the load is well below that.
"""

import asyncio
import math
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from sterna.host.config import HostConfig
from sterna.host.policy.policy import LoadRules, PolicyFile
from sterna.host.site.upstream import Upstream
from sterna.model import Record
from sterna.web.urls import hostname_of

if TYPE_CHECKING:
    import ssl

SMOOTH_SECONDS = 3.0  # time constant of the smoothing
EASE = 0.8  # of a bound: a visit that rests goes on below it
PROBE_SECONDS = 5.0  # timeout
CALM_PROBES = 600  # of which the fastest is the latency of a calm time
LAST_PROBES = 3
MAX_HEAD_BYTES = 64 * 1024
AGENT = "User-Agent: Sterna (load probe)"

PROC = Path("/proc")


class MachineTimes(Record, frozen=True):
    """CPU time so far in ticks, of all cores together."""

    total: float
    busy: float  # at normal priority: niced processes give way by themselves
    own: float  # of that, of this process and all below it


class Load(Record, frozen=True, kw_only=True):
    """How busy the site is now; None if not measured, or not yet."""

    machine: float | None = None  # share of all cores used by others than the host
    latency_ms: float | None = None  # of the web server, beyond its latency in a calm time

    def __str__(self) -> str:
        said = []
        if self.machine is not None:
            said.append(f"other work takes {self.machine:.0%} of the machine")
        if self.latency_ms is not None:
            slow = f"answers {self.latency_ms:.0f} ms later than when the load is low"
            said.append(f"the web server {slow if math.isfinite(self.latency_ms) else 'does not answer'}")
        return ", ".join(said) or "not measured"


class LoadMeter:
    """Measures the load; to be called about every second."""

    def __init__(
        self,
        *,
        machine: Callable[[], MachineTimes | None] | None = None,
        probe: Callable[[], Awaitable[float]] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._machine = machine or read_machine
        self._probe = probe  # seconds until an answer
        self._now = now
        # All of these are changed by measure() alone.
        self._before: tuple[float, MachineTimes] | None = None
        self._smoothed: float | None = None
        self._calm: deque[float] = deque(maxlen=CALM_PROBES)
        self._last: deque[float] = deque(maxlen=LAST_PROBES)
        self.load = Load()

    async def measure(self, *, has_probe: bool = False) -> Load:
        """The load now; the web server is probed only with `has_probe`."""
        latency_ms = None
        if has_probe and self._probe:
            seconds = await self._probe()
            self._last.append(seconds)
            if math.isfinite(seconds):
                self._calm.append(seconds)
            latency_ms = 1000.0 * max(median(self._last) - min(self._calm, default=0.0), 0.0)
        self.load = Load(machine=self._machine_share(), latency_ms=latency_ms)
        return self.load

    def _machine_share(self) -> float | None:
        times, now = self._machine(), self._now()
        before, self._before = self._before, None if times is None else (now, times)
        if times is None or before is None:
            self._smoothed = None
            return None
        then, old = before
        total = times.total - old.total
        if total <= 0:  # within one tick
            self._before = before
            return self._smoothed
        # A process that died in between took its time with it, so the difference may be negative.
        others = (times.busy - old.busy) - max(times.own - old.own, 0.0)
        share = min(max(others / total, 0.0), 1.0)
        weight = 1.0 - math.exp(-max(now - then, 0.0) / SMOOTH_SECONDS)
        before_share = share if self._smoothed is None else self._smoothed
        self._smoothed = before_share + weight * (share - before_share)
        return self._smoothed


def meter_of(config: HostConfig, policy: PolicyFile) -> LoadMeter:
    """The meter of the site's load; a document root without a web server has nothing to probe."""
    if config.root and config.check == "never":
        return LoadMeter()
    upstream = Upstream.of(config.site, config.upstream)
    return LoadMeter(probe=lambda: probe(config.site, upstream, policy.policy.load.probe))


class Governor:
    """Decides by the load whether a visit may work; one that rests waits until the load is well below."""

    def __init__(self, rules: LoadRules) -> None:
        self.rules = rules  # replaced when the policy changes
        self._rests = False

    def judge(self, load: Load) -> str:
        """Why it may not work now; "" if it may."""
        ease = EASE if self._rests else 1.0
        rules = self.rules
        is_busy = bool(rules.machine) and (load.machine or 0.0) > rules.machine * ease
        is_slow = bool(rules.latency_ms) and (load.latency_ms or 0.0) > rules.latency_ms * ease
        self._rests = is_busy or is_slow
        return str(load) if self._rests else ""


# -- the machine -------------------------------------------------------------------------------------------


def read_machine() -> MachineTimes | None:
    """The times as Linux counts them; None if /proc cannot be read."""
    try:
        fields = [float(each) for each in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
        user, nice, system, idle, waiting, interrupts, soft, _ = fields  # no time that a hypervisor took
        own = sum(map(_own_ticks, family_of(os.getpid())))
    except (OSError, ValueError):
        return None
    busy = user + system + interrupts + soft
    return MachineTimes(total=busy + nice + idle + waiting, busy=busy, own=own)


def family_of(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for each in found:
        with suppress(OSError):  # it has ended, or the kernel does not list children
            found += map(int, (PROC / f"{each}/task/{each}/children").read_text().split())
    return found


def memory_bytes(pid: int) -> int:
    """The memory of a process with its part of what it shares; 0 if it has ended."""
    with suppress(OSError, StopIteration):  # an old kernel: the resident size is close enough
        lines = (PROC / f"{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    with suppress(OSError):
        return int((PROC / f"{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return 0


def _own_ticks(pid: int) -> float:
    """The ticks of a process and its dead children at normal priority."""
    try:
        # After the name in brackets, which may hold any character.
        fields = (PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    user, system, dead_user, dead_system, niceness = (int(fields[at]) for at in (11, 12, 13, 14, 16))
    return float(system + dead_system + (0 if niceness > 0 else user + dead_user))


def give_way() -> None:
    """Lets all other processes go first: applies to this process and those that it starts from now on."""
    for thread in (PROC / "self/task").iterdir():
        with suppress(OSError):  # it has just ended, or the system forbids it
            os.setpriority(os.PRIO_PROCESS, int(thread.name), 19)
            # One that is only niced may finish its time slice while the web server waits for the core.
            os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))


# -- the web server ----------------------------------------------------------------------------------------


async def probe(site: str, upstream: Upstream, path: str) -> float:
    """Seconds until the web server's head for this page arrives; infinite if none does, or a server error."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            status = await _ask(site, upstream, path)
    except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return math.inf
    return math.inf if status >= 500 else time.monotonic() - began


async def _ask(site: str, upstream: Upstream, path: str) -> int:
    has_tls = upstream.scheme == "https"
    reader, writer = await asyncio.open_connection(
        upstream.address,
        upstream.port,
        ssl=_unverified() if has_tls else None,
        server_hostname=hostname_of(site) if has_tls else None,
        limit=MAX_HEAD_BYTES,
    )
    try:
        host = site.partition("://")[2]
        lines = (f"GET {path} HTTP/1.1", f"Host: {host}", AGENT, "Connection: close", "", "")
        writer.write("\r\n".join(lines).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        return int(head.partition(b" ")[2][:3])
    finally:
        writer.close()


def _unverified() -> "ssl.SSLContext":
    import ssl  # noqa: PLC0415 - large, and most hosts do not need it

    # It is the own machine, and nothing of the answer is used.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
