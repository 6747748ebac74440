"""`python -m MODULE` in processes forked from a warm parent: to load all of Sterna anew takes 0.6 s of CPU.

Each is a child of the tests' process, and differs from one that `subprocess` starts in its start alone. Tests
of a start, or of the memory of a process, use `subprocess`. The warm parent is `tests.warm_python`.
"""

import atexit
import inspect
import os
import socket
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from sterna.model import Record
from sterna.runtime.cell import kernel

ROOT = Path(__file__).parent.parent
_PR_SET_CHILD_SUBREAPER = 36

_starting = threading.Lock()


class Start(Record, frozen=True):
    """A process that is asked for; its three streams come along."""

    module: str
    words: list[str]
    folder: str
    environment: dict[str, str]
    is_session: bool
    is_group: bool


class Forked(subprocess.Popen[str]):
    """Popen for (sys.executable, "-m", MODULE, ...); other options of Python have no effect."""

    def _execute_child(self, *given: Any) -> None:
        """As the original does it, for the arguments that tests use."""
        how = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments  # type: ignore[attr-defined]
        python, *words = map(os.fspath, how["args"])
        at = words.index("-m") + 1
        assert python == sys.executable
        assert not (how["preexec_fn"] or how["pass_fds"] or how["shell"])
        start = Start(
            module=words[at],
            words=words[at + 1 :],
            folder=str(Path(how["cwd"] or "").absolute()),
            environment=dict(os.environ if how["env"] is None else how["env"]),
            is_session=how["start_new_session"],
            is_group=how["process_group"] == 0,
        )
        ends = (how["p2cread"], how["c2pwrite"], how["errwrite"])
        self.pid = _fork(start, [own if end == -1 else end for own, end in enumerate(ends)])
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(how[end] for end in pipes))  # type: ignore[attr-defined]


def _fork(start: Start, streams: list[int]) -> int:
    """The number of the new process: an orphan of the warm parent's, which this process takes in."""
    with _starting:
        line = _warm_parent()
        kernel.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            socket.send_fds(line, [msgspec.msgpack.encode(start)], streams)
            return int(line.recv(100))
        finally:
            kernel.prctl(_PR_SET_CHILD_SUBREAPER, 0)


@cache
def _warm_parent() -> socket.socket:
    """The line to it; it starts with the first process and ends with the tests."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.warm_python"]
        process = subprocess.Popen(command, cwd=ROOT, stdin=theirs.fileno(), start_new_session=True)

    def end() -> None:
        ours.close()
        process.wait(10)

    atexit.register(end)
    return ours
