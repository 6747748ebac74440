"""The warm parent of `tests.forking`: has loaded all of Sterna, and forks a process for each start.

Its standard input is a SEQPACKET socket to the tests; when they close it, the parent ends. What its processes
have as the warm parent of their readers is forked too, from a process that has loaded no more than that.
"""

import asyncio
import gc
import os
import pkgutil
import runpy
import signal
import socket
import sys
from asyncio.subprocess import Process
from functools import cache
from importlib import import_module
from typing import Any, NoReturn, cast

import msgspec
from tests.forking import Start

import sterna
import sterna.runtime.reader
from sterna.runtime import readers
from sterna.runtime.cell import forker, jail, pool

MAX_START_BYTES = 128 * 1024

start_anew = pool._spawn


def main() -> None:
    """Serves until the tests are over; a process that is forked does its work in here too."""
    line = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    readers_line = _fork_readers_parent(line)
    sys.modules.update(dict.fromkeys(["numpy", "pandas"]))  # type: ignore[arg-type]  # as the command does
    jail.protection = cache(jail.protection)
    jail.protection()  # a trial of the jail, which takes as long as a start
    for module in pkgutil.walk_packages(sterna.__path__, "sterna."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    gc.collect()
    gc.freeze()  # keeps the memory pages shared
    while True:
        data, streams, _, _ = socket.recv_fds(line, MAX_START_BYTES, 3)
        if not data:
            os._exit(0)
        if (pid := _fork_orphan()) == 0:
            line.close()
            pool._spawn = ForkedReaders(readers_line).spawn
            _work(msgspec.msgpack.decode(data, type=Start), streams)
        for stream in streams:
            os.close(stream)
        line.send(str(pid).encode())


def _fork_orphan() -> int:
    """As os.fork(), but when this returns in the caller, the parent of the new process is gone."""
    ours, theirs = os.pipe()
    if between := os.fork():
        os.close(theirs)
        os.waitpid(between, 0)
        with os.fdopen(ours) as told:
            return int(told.read())
    os.close(ours)
    if pid := os.fork():
        os.write(theirs, str(pid).encode())
        os._exit(0)
    os.close(theirs)
    return 0


def _work(start: Start, streams: list[int]) -> NoReturn:
    """What `python -m MODULE` does once it is loaded."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    if start.is_session:
        os.setsid()
    if start.is_group:
        os.setpgid(0, 0)
    os.chdir(start.folder)
    os.environ.clear()
    os.environ.update(start.environment)
    sys.argv = [start.module, *start.words]
    runpy.run_module(start.module, run_name="__main__", alter_sys=True)
    sys.stdout.flush()
    os._exit(0)  # to clean up what was loaded takes a fifth of a second


# -- readers -----------------------------------------------------------------------------------------------


def _fork_readers_parent(line: socket.socket) -> socket.socket:
    """The line to a process that makes a warm parent of readers of each socket that it gets."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        theirs.close()
        return ours
    line.close()
    ours.close()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        data, given, _, _ = socket.recv_fds(theirs, 1, 1)
        if data and os.fork():
            os.close(given[0])
            continue
        if data:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            theirs.close()
            os.dup2(given[0], 0)
            os.close(given[0])
            os.setsid()
            os.environ.clear()
            socket.socket(fileno=os.dup(0)).send(str(os.getpid()).encode())
            sys.argv = [forker.__name__, readers.ENTRY]
            forker.main()
        os._exit(0)


class ForkedReaders:
    """Stands in for `pool._spawn` in a process that was forked."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    async def spawn(self, command: tuple[str, ...]) -> Any:
        """Warm parents of other cells are started as ever."""
        if command[-1] != readers.ENTRY:
            return await start_anew(command)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._line, [b"+"], [theirs.fileno()])
        pid = int(ours.recv(100))
        ours.setblocking(False)
        parent = pool._Parent(cast(Process, _ReadersParent(pid)), ours)
        await parent.ready
        return parent


class _ReadersParent:
    """As much of asyncio's process as its owner uses."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._process = os.pidfd_open(pid)

    async def wait(self) -> None:
        is_over = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._process, is_over.set)
        try:
            await is_over.wait()
        finally:
            loop.remove_reader(self._process)

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
