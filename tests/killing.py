"""Processes to be killed, forked from a warm parent: a test can kill many of them in little time.

A module whose main program is `fork_on_demand(work)` runs `work` in a new child for each line of its input.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parent.parent


def fork_on_demand(work: Callable[[Path], None]) -> None:
    """Runs `work` in a child for each line of the input, with the folder that it names."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or it would not learn how its own children end
            sys.stdin.close()
            report("started")
            work(Path(line.rstrip("\n")))
            os._exit(0)


def report(words: str) -> None:
    """Tells the test something, in a child; one write, so that lines of several children never mix."""
    os.write(1, f"{os.getpid()} {words}\n".encode())


class Parent:
    """The warm parent, as the test sees it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def start(self, folder: Path) -> int:
        """The process number of a new child, which works in this folder."""
        assert self._process.stdin
        self._process.stdin.write(f"{folder}\n")
        self._process.stdin.flush()
        while not (line := self._line()).endswith(" started\n"):  # reports of children that are dead
            continue
        return int(line.split()[0])

    def wait_for_report(self, child: int) -> None:
        """Returns when the child has reported once more."""
        while not self._line().startswith(f"{child} "):
            continue

    def _line(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the parent ended"
        return line


@contextmanager
def warm(module: str) -> Iterator[Parent]:
    """The parent that runs a module, until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield Parent(process)
        assert process.stdin
        process.stdin.close()


def kill(pid: int) -> None:
    """kill -9; returns when the process is gone, for it may be in the middle of a write."""
    os.kill(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            time.sleep(0.005)


def children_of(pid: int) -> list[int]:
    """The processes below this one; none if it is gone."""
    try:
        found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return found + [below for child in found for below in children_of(child)]
