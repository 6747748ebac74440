"""Two places, each a network namespace of its own, and what joins them: an emulated line, or a cable."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from bench.wan_parts.cpu import CpuGroup, cpu_group, groups_named
from bench.wan_parts.forwarder import Line

PREFIX = "sternawan"
HOME_ADDRESS, SITE_ADDRESS = "10.77.0.1", "10.77.0.2"
MASK_BITS = 30
STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes on the line as home sees them, IP headers included."""

    up: int = 0
    down: int = 0

    @property
    def bytes(self) -> int:
        return self.up + self.down

    def __sub__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.up - other.up, self.down - other.down)


@dataclass(frozen=True, slots=True)
class Place:
    """A network namespace, its device on the line, and the CPU time of what runs there, if not told else."""

    namespace: str
    device: str
    address: str
    cpu: CpuGroup

    def start(
        self,
        command: Sequence[str],
        *,
        folder: Path | None = None,
        output: IO[str] | None = None,
        cpu: CpuGroup | None = None,
    ) -> subprocess.Popen[str]:
        """Starts a command here; its session is its own, so that Ctrl-C reaches nobody but us."""
        return subprocess.Popen(
            (cpu or self.cpu).counted(["ip", "netns", "exec", self.namespace, *command]),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output or subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def traffic(self) -> Traffic:
        shown = _ip("-j", "-s", "-n", self.namespace, "link", "show", "dev", self.device)
        stats = json.loads(shown)[0]["stats64"]
        return Traffic(up=stats["tx"]["bytes"], down=stats["rx"]["bytes"])


@dataclass(frozen=True, slots=True)
class Places:
    """Home, and the site's machine."""

    home: Place
    site: Place
    line: Line | None  # none: a cable


@contextmanager
def joined(line: Line | None) -> Iterator[Places]:
    """Both places, joined; everything is gone at the end, whatever ends it."""
    sweep()
    with ExitStack() as stack:
        home, site = (_place(stack, name) for name in ("home", "site"))
        if line:
            stack.enter_context(_emulated(home, site, line))
        else:
            _ip("link", "add", home.device, "type", "veth", "peer", "name", site.device)
        for place, address in ((home, HOME_ADDRESS), (site, SITE_ADDRESS)):
            _connect(place, address)
        yield Places(home, site, line)


@contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A process for as long as the block; its whole session ends with it."""
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        # Whatever of its session is left, such as children that lost their parent.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_SECONDS)


def sweep() -> None:
    """Removes what a run left behind that was killed: its number is in the names, and no process has it."""
    for group in groups_named(PREFIX):
        if _is_over(group.name):
            for number in (group / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(number), signal.SIGKILL)
            _remove(group)
    for entry in json.loads(_ip("-j", "netns", "list") or "[]"):
        if entry["name"].startswith(PREFIX) and _is_over(entry["name"]):
            _ip("netns", "delete", entry["name"])


def _is_over(name: str) -> bool:
    return not Path(f"/proc/{name.rpartition('-')[2]}").exists()


def _remove(group: Path) -> None:
    """A group is busy until the last of its processes is gone."""
    deadline = time.monotonic() + STOP_SECONDS
    while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    group.rmdir()


def group_name(role: str) -> str:
    """The name of a control group of this run."""
    return f"{PREFIX}-{role}-{os.getpid()}"


def _place(stack: ExitStack, role: str) -> Place:
    number = os.getpid()
    namespace = f"{PREFIX}-{role}-{number}"
    group = stack.enter_context(cpu_group(group_name(role)))
    _ip("netns", "add", namespace)
    stack.callback(_ip, "netns", "delete", namespace)
    address = HOME_ADDRESS if role == "home" else SITE_ADDRESS
    return Place(namespace, f"{role[0]}wan{number}", address, group)


def _connect(place: Place, address: str) -> None:
    _ip("link", "set", place.device, "netns", place.namespace)
    # What TCP learned of the line in one run must not help the next; and nobody else is to talk on it.
    settings = (
        "echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save; echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6"
    )
    subprocess.run(["ip", "netns", "exec", place.namespace, "sh", "-c", settings], check=True)
    inside = ("-n", place.namespace)
    _ip(*inside, "addr", "add", f"{address}/{MASK_BITS}", "dev", place.device)
    _ip(*inside, "link", "set", "lo", "up")
    _ip(*inside, "link", "set", place.device, "txqueuelen", "2000", "up")


@contextmanager
def _emulated(home: Place, site: Place, line: Line) -> Iterator[None]:
    # A late packet would be a slower line than was asked for.
    command = ["nice", "-n", "-10", sys.executable, "-m", "bench.wan_parts.forwarder"]
    process = subprocess.Popen(
        [*command, home.device, site.device, json.dumps(asdict(line))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin and process.stdout
    try:
        if process.stdout.readline() != b"ready\n":
            raise SystemExit("the emulated line cannot be had: see above")
        yield
    finally:
        process.stdin.close()
        process.wait(STOP_SECONDS)
        process.stdout.close()


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout
