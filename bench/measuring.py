"""Running a command and telling what it cost: time, CPU of all its processes, peak memory (sum of PSS)."""

import os
import resource
import subprocess
import threading
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

SAMPLE_SECONDS = 0.5
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command cost."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    output: str


def measure(
    command: list[str], *, folder: Path, timeout: float = 1800.0, good_codes: frozenset[int] = frozenset({0})
) -> Cost:
    """Runs a command to its end; a failure is told with what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = perf_counter()
    log = folder / "output.txt"
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
        watch = _MemoryWatch(process.pid)
        watch.start()
        code = process.wait(timeout)
    seconds = perf_counter() - began
    watch.stop()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = log.read_text(errors="replace")
    if code not in good_codes:
        raise RuntimeError(f"{' '.join(command)} ended with {code}:\n{output[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(seconds, cpu, watch.peak_bytes, output)


class _MemoryWatch(threading.Thread):
    """Adds up the PSS of a process and all its descendants now and then."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._pid = pid
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self.peak_bytes = max(self.peak_bytes, sum(map(pss_bytes, descendants(self._pid))))

    def stop(self) -> None:
        self._over.set()
        self.join()


def thread_seconds(pid: int) -> dict[tuple[int, int], float]:
    """The CPU seconds of each thread of a process, by the numbers of both; nothing if it is over."""
    spent: dict[tuple[int, int], float] = {}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        spent[pid, int(task.name)] = (int(fields[11]) + int(fields[12])) / TICKS
    return spent


def descendants(root: int) -> list[int]:
    """A process and all that come from it."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for name in (entry.name for entry in Path("/proc").iterdir()):
        if name.isdigit():
            try:
                parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children[parent].append(int(name))
    found = [root]
    for pid in found:
        found += children[pid]
    return found


def pss_bytes(pid: int) -> int:
    """What a process takes of the machine, its share of what it shares with others; 0 if it is over."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0)
