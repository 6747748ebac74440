"""Crawlers that migrate: hosts beside nginx at the site's place, and the crawls that are sent there."""

import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.wan_parts.cpu import CpuGroup, cpu_group
from bench.wan_parts.ordinary import FULL, STERNA, Task, more_flags, settled
from bench.wan_parts.places import Place, group_name, running
from bench.wan_parts.sites import Site
from bench.wan_parts.stage import Outcome, Stage, summary_of

START_SECONDS = 20.0
# Home is on the same machine here, which a host would take for a busy site.
POLICY = "connections = 16\n[load]\nmachine = 0\n"
ANY_LEVEL = "[limits]\nlevel = 22\n"
WITHOUT_LIMITS = (sys.executable, "-m", "bench.wan_parts.host_without_limits")
MOST_LEVEL = 12  # of a host as people run it
STORED = 0  # the level that stands for no compression


@dataclass(slots=True)
class Hosts:
    """Starts the hosts that are asked for, each once; they run until the stack is closed."""

    stack: ExitStack
    place: Place
    folder: Path
    # What those that run cost, by site and kind; changed by need() alone.
    groups: dict[tuple[str, str], CpuGroup] = field(default_factory=dict)

    def need(self, site: Site, kind: str) -> CpuGroup:
        """Sees to it that the host of this kind runs at the site; tells what it costs."""
        if (site.name, kind) not in self.groups:
            group = self.stack.enter_context(cpu_group(group_name(f"{site.number}-{kind}")))
            self._start(site, kind, group)
            self.groups[site.name, kind] = group
        return self.groups[site.name, kind]

    def keys(self) -> Path:
        """Home's keys; made here, so that hosts can allow them before the first crawl."""
        folder = self.folder / "home-keys"
        if not folder.exists():
            subprocess.run(
                [*STERNA, "keys", "new", "home", "--keys", folder], check=True, capture_output=True
            )
        return folder

    def _home_key(self) -> str:
        show = [*STERNA, "keys", "show", "home", "--keys", self.keys()]
        shown = subprocess.run(show, check=True, capture_output=True, text=True).stdout
        return next(word for word in shown.split() if word.startswith("ed25519:"))

    def _start(self, site: Site, kind: str, group: CpuGroup) -> None:
        folder = self.folder / f"host-{site.number}-{kind}"
        folder.mkdir()
        (folder / "policy.toml").write_text(POLICY + (ANY_LEVEL if kind.endswith("-any") else ""))
        allow = [*STERNA, "keys", "allow", self._home_key(), "--name", "bench", "--keys", folder / "keys"]
        subprocess.run(allow, check=True, capture_output=True)
        source, _, special = kind.partition("-")
        program = [*WITHOUT_LIMITS, special] if special in ("any", "stored") else list(STERNA)
        command = [*program, "host", "run", "--site", site.origin(kind)]
        command += ["--listen", f"127.0.0.1:{site.host_port(kind)}", "--policy", str(folder / "policy.toml")]
        command += ["--keys", str(folder / "keys"), "--state", str(folder / "state")]
        if source == "root":
            command += ["--root", str(site.root), *(["--check", "folder"] if special == "folder" else [])]
        log = folder / "log.txt"
        with log.open("w") as output:
            process = self.place.start(command, output=output, cpu=group)
        self.stack.enter_context(running(process))
        _wait_for(process, log)


def _wait_for(process: subprocess.Popen[str], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while "listens" not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the host did not start:\n{log.read_text()}")
        time.sleep(0.05)


def way_of(source: str, level: int) -> str:
    return f"{source} {level or 'stored'}"


def crawl_at_host(
    stage: Stage,
    hosts: Hosts,
    site: Site,
    *,
    source: str = "root",
    level: int = 9,
    task: Task = FULL,
    max_pages: int = 0,
    collection: Path | None = None,
    is_again: bool = False,
    label: str = "",
) -> Outcome:
    """Sterna, its crawler sent to the host; in a collection of its own, or again in one that is there."""
    kind = source if 0 < level <= MOST_LEVEL else f"{source}-{'any' if level else 'stored'}"
    host = hosts.need(site, kind)
    folder = collection or stage.collection("migrating")
    command = [*STERNA, "crawl", str(task.write(stage.folder)), site.start(kind), "--into", str(folder)]
    command += ["--delay", "0", "--require-host", "--compression", str(level or 1)]
    command += ["--no-index", "--check", "none"]  # the papers measure the trip, and believe what it brings
    command += ["--keys", str(hosts.keys()), "--json", *more_flags(max_pages, is_again=is_again)]
    outcome, printed = stage.run(way_of(source, level), label or task.name, site, command, host=host)
    visits = summary_of(printed)["visits"]
    if visits.get("here") or not visits.get("host"):
        raise RuntimeError(f"{outcome.way}: the crawler did not go to the host: {visits}")
    return settled(stage, outcome, printed, folder=folder, is_whole=not max_pages and not task.words)
