"""Warm parents of readers and engines that serve one test after another: to start one takes 0.2 s of CPU.

Their cells are killed at the end of a test as ever; only the parents stay. Tests of the processes themselves
take the fixture `own_processes`.
"""

import asyncio
import os
import socket
import subprocess
import sys
from asyncio.subprocess import Process
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import msgspec
from tests.killing import children_of

from sterna.runtime import readers
from sterna.runtime.cell import pool
from sterna.runtime.cell.forker import MAX_MESSAGE_BYTES, Ready, Report
from sterna.runtime.engine import client

start_anew = pool._spawn


class WarmParents:
    """Stands in for `pool._spawn`; closing it ends the parents."""

    def __init__(self) -> None:
        # Changed by spawn() and by the end of what it gave out, in the thread of the tests.
        self._idle: defaultdict[tuple[str, ...], list[_WarmParent]] = defaultdict(list)  # by command
        self._all: list[_WarmParent] = []

    async def spawn(self, command: tuple[str, ...]) -> Any:
        """A parent that is idle, or a new one; parents of other cells are started as ever."""
        if command[-1] not in (readers.ENTRY, client.ENTRY):
            return await start_anew(command)
        idle = self._idle[command]
        while idle:
            if (warm := idle.pop()).process.poll() is None:
                return warm.lend(idle.append)
        self._all.append(_WarmParent(command))
        return self._all[-1].lend(idle.append)

    def close(self) -> None:
        for warm in self._all:
            warm.line.close()
            warm.process.wait(10)


class _WarmParent:
    def __init__(self, command: tuple[str, ...]) -> None:
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,
            )
        if not (data := self.line.recv(MAX_MESSAGE_BYTES)):
            raise ConnectionError("the warm parent died")  # where bubblewrap does not work
        self._ready = msgspec.msgpack.decode(data, type=Report)
        assert isinstance(self._ready, Ready)
        self._at_rest = children_of(self.process.pid)  # what an engine's parent is wrapped in
        self.line.setblocking(False)

    def has_cells(self) -> bool:
        return self.process.poll() is None and children_of(self.process.pid) != self._at_rest

    def lend(self, give_back: Callable[["_WarmParent"], None]) -> Any:
        parent = pool._Parent(cast(Process, _Lent(self, give_back)), self.line.dup())
        parent.ready.set_result(self._ready)
        return parent


class _Lent:
    """As much of asyncio's process as its owner uses."""

    def __init__(self, warm: _WarmParent, give_back: Callable[[_WarmParent], None]) -> None:
        self._warm = warm
        self._give_back: Callable[[_WarmParent], None] | None = give_back  # until it is given back
        self.pid = warm.process.pid

    async def wait(self) -> None:
        """Returns when the cells, which were killed, are gone; what was reported of them is dropped."""
        while self._warm.has_cells():  # noqa: ASYNC110 - nobody reads the line that would report it
            await asyncio.sleep(0.01)
        with suppress(BlockingIOError):
            while self._warm.line.recv(MAX_MESSAGE_BYTES):
                pass
        if self._give_back:
            self._give_back(self._warm)
            self._give_back = None

    def kill(self) -> None:
        self._warm.process.kill()
