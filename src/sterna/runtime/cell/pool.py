"""Cells as their host sees them: started by a warm parent, watched, ended, and what each of them died of."""

import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import AbstractAsyncContextManager, suppress
from functools import cache
from itertools import count
from typing import Literal

import msgspec

from sterna.errors import JailError
from sterna.model import Record
from sterna.runtime.cell import forker
from sterna.runtime.cell.jail import JailLimits, bubblewrap, python_environment
from sterna.runtime.cell.kernel import memory_bytes

_log = logging.getLogger(__name__)

READY_SECONDS = 30.0
START_SECONDS = 20.0
WAIT_SECONDS = 10.0
CLOSE_SECONDS = 5.0
OOM_SCORE = 500
# The kernel kills cells before their host when memory is short: they inherit the score, within a wrapper too.
_FIRST_TO_DIE = ("/bin/sh", "-c", f'echo {OOM_SCORE} 2>/dev/null >/proc/self/oom_score_adj; exec "$@"', "sh")
MAX_KILLS = 3  # from outside, of a warm parent that is about to start or has just started
MAX_STARTING = 32  # requests on their way; the line to the warm parent holds a few hundred
FULL_SHARE = 0.5  # of the memory limit; a structure that grows by doubling may fail at half of it

_KILLED = frozenset({-signal.SIGKILL, 128 + signal.SIGKILL})  # codes; the latter is a wrapper's

Cause = Literal["exit", "violation", "cpu_seconds", "wall_seconds", "memory_bytes", "killed", "crash"]

_BY_CODE: dict[int, tuple[Cause, str]] = {
    0: ("exit", ""),
    forker.EXIT_MEMORY: ("memory_bytes", "it needed more memory than its limit"),
    forker.EXIT_NO_JAIL: ("crash", "it failed to enter its jail"),
    forker.EXIT_BROKEN: ("crash", "its program raised an error"),
    -signal.SIGSYS: ("violation", "it made a system call that the jail forbids"),
    -signal.SIGXCPU: ("cpu_seconds", "it computed for longer than its limit"),
}


class Death(Record, frozen=True, kw_only=True):
    """How a cell ended, and what it used."""

    ended: Cause
    detail: str = ""
    cpu_seconds: float = 0.0
    memory_bytes: int = 0  # peak resident, with what it shared with the warm parent


def death_of(died: forker.Died, limits: JailLimits) -> Death:
    """The death of a cell that had these limits."""
    code = os.waitstatus_to_exitcode(died.status)
    if code == -signal.SIGKILL and died.cpu_seconds >= limits.cpu_seconds:
        code = -signal.SIGXCPU  # a second after which the kernel kills a process that blocks that signal
    ended: Cause
    if code in _BY_CODE:
        ended, detail = _BY_CODE[code]
    elif code == -signal.SIGKILL:
        ended, detail = "killed", "not by its host: perhaps the machine ran out of memory"
    # C code that gets no memory fails in its own way: exit(1), abort(), or a null pointer.
    elif died.memory_bytes - died.inherited_bytes >= FULL_SHARE * limits.memory_bytes:
        ended, detail = "memory_bytes", "it failed when its memory was nearly used up"
    elif code > 0:
        ended, detail = "exit", f"exit code {code}"
    else:
        ended, detail = "crash", signal.Signals(-code).name
    return Death(ended=ended, detail=detail, cpu_seconds=died.cpu_seconds, memory_bytes=died.memory_bytes)


class Cell(AbstractAsyncContextManager["Cell"]):
    """A child process and its socket; an async context manager that ends it."""

    def __init__(self, pid: int, *, sock: socket.socket, process: int, limits: JailLimits) -> None:
        self.pid = pid
        self.socket = sock
        self._process = process  # its pidfd, closed when it is dead; its number may be reused by then
        self._limits = limits
        self._was_killed = False
        self._death: asyncio.Future[Death] = asyncio.get_running_loop().create_future()

    async def __aexit__(self, *_: object) -> None:
        self.kill()
        await self.wait()
        self.socket.close()

    async def wait(self, seconds: float | None = None) -> Death:
        """How it ended; it is killed if it has not ended after `seconds`."""
        await asyncio.wait([self._death], timeout=WAIT_SECONDS if seconds is None else seconds)
        if not self._death.done():
            self.kill()
            await asyncio.wait([self._death], timeout=WAIT_SECONDS)
        if not self._death.done():  # its warm parent is stuck, or stopped
            self.settle(Death(ended="killed", detail="by its host, and its warm parent did not report it"))
        return self._death.result()

    def kill(self) -> None:
        if not self._death.done():
            self._was_killed = True
            with suppress(ProcessLookupError):  # it died a moment ago, and the report is on its way
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def memory_bytes(self, *, is_peak: bool) -> int:
        return 0 if self._death.done() else memory_bytes(self.pid, is_peak=is_peak)

    def bury(self, died: forker.Died, words: str) -> None:
        death = death_of(died, self._limits)
        if death.ended == "killed" and self._was_killed:
            words = "by its host"
        self.settle(msgspec.structs.replace(death, detail=words) if words else death)

    def settle(self, death: Death) -> None:
        if not self._death.done():
            os.close(self._process)
            self._death.set_result(death)


class Forker(AbstractAsyncContextManager["Forker"]):
    """Starts cells; an async context manager that owns their warm parent, which starts with the first cell.

    `entry` is what runs in them, MODULE:FUNCTION; `wrapper` is a command to run the warm parent in, which is
    bubblewrap by default.
    """

    def __init__(self, entry: str, *, wrapper: tuple[str, ...] | None = None) -> None:
        self._entry = entry
        self._wrapper = (
            bubblewrap() if wrapper is None else wrapper
        )  # emptied when it turns out not to work here
        self._parent: _Parent | None = None
        self._is_closed = False
        self._spawning = asyncio.Lock()
        self._room = asyncio.Semaphore(MAX_STARTING)

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the warm parent and all cells; no other is started."""
        self._is_closed = True
        if self._parent:
            await self._parent.close()

    async def start(self, *, limits: JailLimits, is_jailed: bool | None) -> Cell:
        """A new cell, jailed (None: if this machine can); JailError if it cannot be started like that."""
        async with self._room:
            for _ in range(MAX_KILLS):  # the warm parent may have died unnoticed; then a new one is started
                parent = await self.warm_parent()
                try:
                    return await parent.start(limits, is_jailed)
                except ConnectionError:
                    continue
                except OSError as error:  # no descriptor is left, or no memory
                    raise JailError(f"cannot start a cell: {error}") from error
        raise JailError("cannot start a cell: the warm parent keeps dying, or does not answer")

    async def warm_parent(self) -> "_Parent":
        """Starts the warm parent unless it runs: it takes a while, which other work may fill."""
        async with self._spawning:
            if self._is_closed:
                raise JailError("cannot start a cell: the forker is closed")
            if self._parent and self._parent.is_over:
                await self._parent.close()
                self._parent = None
            if self._parent is None:
                self._parent = await self._spawn()
            return self._parent

    async def _spawn(self) -> "_Parent":
        # -P keeps the working directory off the path, so that nothing in it is imported.
        command = (sys.executable, "-P", "-m", "sterna.runtime.cell.forker", self._entry)
        kills = 0
        while True:
            try:
                return await _spawn((*_FIRST_TO_DIE, *self._wrapper, *command))
            except OSError as error:
                kills += isinstance(error, _KilledAtStart)
                if isinstance(error, _KilledAtStart) and kills < MAX_KILLS:
                    continue  # from outside: its wrapper is not at fault
                if not self._wrapper:
                    raise JailError(f"cannot start the warm parent of {self._entry} ({error})") from error
                self._wrapper = ()  # it does not start, or ends before the warm parent is ready


class _Parent:
    """One warm parent's process, the line to it, and the cells that it has."""

    def __init__(self, process: asyncio.subprocess.Process, line: socket.socket) -> None:
        self.is_over = False
        self._process = process
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        # These are changed by start() and, in the same thread, by what the line brings.
        self.ready: asyncio.Future[forker.Ready] = self._loop.create_future()
        self._starting: dict[int, _Start] = {}
        self._cells: dict[int, Cell] = {}
        self._last_words: dict[int, str] = {}
        self._decoder = msgspec.msgpack.Decoder(forker.Report)
        self._loop.add_reader(line.fileno(), self._hear)

    async def start(self, limits: JailLimits, is_jailed: bool | None) -> Cell:
        if self.is_over:  # it died between its first word and this call
            raise ConnectionError("the warm parent died")
        if no_jail := self.ready.result().no_jail:
            if is_jailed:
                raise JailError(no_jail)
            if is_jailed is None:
                _tell_unjailed(no_jail)
                is_jailed = False
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            start = self._starting[number] = _Start(self._loop.create_future(), ours, limits)
            try:
                request = msgspec.msgpack.encode(forker.Request(number, limits, is_jailed is not False))
                socket.send_fds(self._line, [request], [theirs.fileno()])
                async with asyncio.timeout(START_SECONDS):
                    return await start.cell
            except TimeoutError:  # it is stuck, or stopped: another one takes its place
                self._end(f"the warm parent did not answer within {START_SECONDS:g} seconds")
                raise ConnectionError from None
            except ConnectionError:
                self._end("the warm parent died")
                raise
            finally:
                if not start.has_cell():
                    ours.close()

    async def close(self) -> None:
        self._end("the warm parent was closed")
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._process.wait()
        except TimeoutError:
            # It is alone in its session with its wrapper, whose end a stopped process would not notice.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    def _hear(self) -> None:
        while not self.is_over:
            try:
                data, descriptors, _, _ = socket.recv_fds(
                    self._line, forker.MAX_MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if data:
                self._take(self._decoder.decode(data), descriptors)
            else:
                self._end("the warm parent died")

    def _take(self, report: forker.Report, descriptors: list[int]) -> None:
        match report:
            case forker.Ready() if not self.ready.done():
                self.ready.set_result(report)
            case forker.Broken(words) if not self.ready.done():
                self.ready.set_exception(
                    JailError(f"cannot start a cell: its program failed to import: {words}")
                )
            case forker.Started(number, pid):
                start = self._starting.pop(number)
                cell = Cell(pid, sock=start.socket, process=descriptors[0], limits=start.limits)
                self._cells[number] = cell
                if start.cell.done():  # the caller gave up
                    cell.kill()
                else:
                    start.cell.set_result(cell)
            case forker.Failed(number, words) if number in self._starting:
                self._starting.pop(number).fail(JailError(words))
            case forker.Unjailed(number, words):
                self._last_words[number] = words
            case forker.Died(number):
                self._cells.pop(number).bury(report, self._last_words.pop(number, ""))

    def _end(self, detail: str) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._loop.remove_reader(self._line.fileno())
        self._line.close()
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(detail))
        for start in self._starting.values():
            start.fail(ConnectionError(detail))
        for cell in self._cells.values():
            cell.kill()
            cell.settle(Death(ended="killed", detail=detail))
        self._starting.clear()
        self._cells.clear()


class _Start(Record, frozen=True):
    """A cell that was requested and has not been reported yet."""

    cell: asyncio.Future[Cell]
    socket: socket.socket
    limits: JailLimits

    def has_cell(self) -> bool:
        return self.cell.done() and not self.cell.cancelled() and self.cell.exception() is None

    def fail(self, error: Exception) -> None:
        if not self.cell.done():
            self.cell.set_exception(error)


@cache  # once for all cells of this process
def _tell_unjailed(reason: str) -> None:
    _log.warning("pages are read, and rules run, without a jail: %s", reason)


class _KilledAtStart(ConnectionError):
    """Somebody killed a warm parent before it was ready."""


async def _spawn(command: tuple[str, ...]) -> _Parent:
    """A warm parent that has imported its module; OSError if it fails to start or ends before."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=theirs.fileno(),
            stdout=asyncio.subprocess.DEVNULL,
            env=python_environment(),
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    parent = _Parent(process, ours)
    try:
        async with asyncio.timeout(READY_SECONDS):
            await parent.ready
    except BaseException as error:
        await parent.close()
        if isinstance(error, TimeoutError):
            raise ConnectionError(f"not ready after {READY_SECONDS:g} seconds") from None
        if isinstance(error, ConnectionError) and process.returncode in _KILLED:
            raise _KilledAtStart(*error.args) from None
        raise
    return parent
