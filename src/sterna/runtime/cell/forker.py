"""The warm parent: imports a module once, then forks a cell for each request and reports how each one died.

    python -P -m sterna.runtime.cell.forker MODULE:FUNCTION

Its standard input is a SEQPACKET socket to its host; when the host closes it, the forker and its cells end.
The function gets the cell's socket. If the module has a function `warm`, the forker calls it to load what
cells cannot load; if it has a function `prepare`, the cell tells it whether it is jailed before the seccomp
filter is installed, the last time that a thread can be started. Once all is loaded, the forker gives up its
own rights: jailed or not, no cell has more.
"""

import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import msgspec

from sterna.errors import JailError
from sterna.model import Record
from sterna.runtime.cell import jail, kernel
from sterna.runtime.cell.jail import JailLimits

MAX_CELLS = 500
MAX_MESSAGE_BYTES = 64 * 1024
GARBAGE_OBJECTS = 100_000  # before the collector runs: a page makes thousands of objects and no cycles
# Exit codes of a cell; below those that shells and signals use.
EXIT_BROKEN, EXIT_MEMORY, EXIT_NO_JAIL = 70, 77, 78

Serve = Callable[[socket.socket], None]
Prepare = Callable[[bool], None]


class Request(Record, frozen=True):
    """Asks for a cell; one end of its socket comes along."""

    number: int
    limits: JailLimits
    is_jailed: bool


class Ready(Record, frozen=True, tag=True):
    """The module is imported; `no_jail` says why no cell can be jailed, empty if one can."""

    no_jail: str


class Broken(Record, frozen=True, tag=True):
    """Importing the module failed; the forker ends."""

    words: str


class Started(Record, frozen=True, tag=True):
    """A cell runs; a descriptor of its process comes along."""

    number: int
    pid: int


class Failed(Record, frozen=True, tag=True):
    """A cell did not start."""

    number: int
    words: str


class Unjailed(Record, frozen=True, tag=True):
    """Sent by a cell that failed to enter its jail, and ends; this may come before Started."""

    number: int
    words: str


class Died(Record, frozen=True, tag=True):
    """A cell is over."""

    number: int
    status: int  # as wait(2) returns it
    cpu_seconds: float
    memory_bytes: int  # peak resident
    inherited_bytes: int  # the part of it that it was forked with


Report = Ready | Broken | Started | Failed | Unjailed | Died


class _Child(Record, frozen=True):
    number: int
    pid: int
    inherited_bytes: int


class _Forker:
    def __init__(self, line: socket.socket, serve: Serve, prepare: Prepare | None) -> None:
        self._line = line
        self._serve = serve
        self._prepare = prepare
        self._children: dict[int, _Child] = {}  # by the descriptors of their processes
        self._poll = select.poll()
        self._memory = os.open("/proc/self/statm", os.O_RDONLY)  # later nothing can be opened
        self._decoder = msgspec.msgpack.Decoder(Request)

    def run(self) -> None:
        """Serves until the host is gone, which may be a ConnectionError; kills the cells that still run."""
        self._poll.register(self._line, select.POLLIN)
        try:
            while True:
                for descriptor, _ in self._poll.poll():
                    if descriptor in self._children:
                        self._bury(descriptor)
                    elif not self._take_request():
                        return
        finally:
            for child in self._children.values():
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)

    def _take_request(self) -> bool:
        """Starts a cell, or reports why not; False if the host is gone."""
        data, descriptors, _, _ = socket.recv_fds(self._line, MAX_MESSAGE_BYTES, 4, socket.MSG_CMSG_CLOEXEC)
        sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        try:
            if data:
                self._answer(data, sockets)
        finally:
            for sock in sockets:
                sock.close()
        return bool(data)

    def _answer(self, data: bytes, sockets: list[socket.socket]) -> None:
        try:
            request = self._decoder.decode(data)
        except msgspec.MsgspecError as error:
            tell(self._line, Failed(0, f"malformed request: {error}"))
            return
        try:
            if len(self._children) >= MAX_CELLS:
                raise JailError(f"{MAX_CELLS} cells run already")
            if len(sockets) != 1:
                raise JailError("more than one descriptor came along" if sockets else "no socket came along")
            self._fork(request, sockets[0])
        except (JailError, OSError) as error:
            tell(self._line, Failed(request.number, f"cannot start a cell: {error}"))

    def _fork(self, request: Request, sock: socket.socket) -> None:
        parent = os.getpid()
        pages = os.pread(self._memory, 100, 0).split()[:2]
        space_bytes, resident_bytes = (int(count) * resource.getpagesize() for count in pages)
        pid = os.fork()
        if pid == 0:
            try:
                self._live(request, sock, parent=parent, inherited_bytes=space_bytes)
            finally:  # a cell must never return into the loop
                os._exit(EXIT_BROKEN)
        try:
            process = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self._children[process] = _Child(request.number, pid, resident_bytes)
        self._poll.register(process, select.POLLIN)
        tell(self._line, Started(request.number, pid), process)

    def _live(self, request: Request, sock: socket.socket, *, parent: int, inherited_bytes: int) -> None:
        try:
            gc.enable()
            gc.set_threshold(GARBAGE_OBJECTS)
            if request.is_jailed:
                jail.enter(
                    request.limits,
                    keep=sock.fileno(),
                    parent=parent,
                    inherited_bytes=inherited_bytes,
                    prepare=partial(self._prepare, True) if self._prepare else None,
                )
            else:
                jail.limit(request.limits, parent=parent, inherited_bytes=inherited_bytes)
                jail.close_all_but(sock.fileno())
                if self._prepare:
                    self._prepare(False)
        except (JailError, OSError) as error:
            with suppress(OSError):  # the line may be closed already; the exit code says it too
                tell(self._line, Unjailed(request.number, str(error)))
            os._exit(EXIT_NO_JAIL)
        try:
            self._serve(sock)
        except MemoryError:
            os._exit(EXIT_MEMORY)
        os._exit(0)

    def _bury(self, process: int) -> None:
        child = self._children.pop(process)
        self._poll.unregister(process)
        os.close(process)
        _, status, usage = os.wait4(child.pid, 0)
        died = Died(
            number=child.number,
            status=status,
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            memory_bytes=usage.ru_maxrss * 1024,
            inherited_bytes=child.inherited_bytes,
        )
        tell(self._line, died)


def tell(line: socket.socket, report: Report, *descriptors: int) -> None:
    data = msgspec.msgpack.encode(report)
    if descriptors:
        socket.send_fds(line, [data], list(descriptors))
    else:
        line.send(data)


def _load(entry: str) -> tuple[Serve, Prepare | None]:
    name, _, function = entry.partition(":")
    module = importlib.import_module(name)
    if warm := getattr(module, "warm", None):
        warm()
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 - only their number matters
        raise JailError(f"{name} starts threads when it is imported, and a fork loses them")
    return getattr(module, function), getattr(module, "prepare", None)


def _give_up_rights() -> str:
    """Gives up what only imports need; returns why no cell can be jailed, empty if one can."""
    try:
        jail.give_up_rights()
        jail.check()
    except JailError as error:
        return str(error)
    return ""


def main() -> None:
    """Runs until the host is gone; the host handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.clear()
    line = socket.socket(fileno=os.dup(0))
    line.setblocking(True)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)  # cells inherit this, and must not have the line
    with suppress(ConnectionError):  # the host may be gone before all is loaded
        _serve(line)


def _serve(line: socket.socket) -> None:
    try:
        serve, prepare = _load(sys.argv[1])
    # Importing may fail in any way; the host reports it.
    except Exception as error:
        tell(line, Broken(f"{type(error).__name__}: {error}"))
        return
    # What each cell would otherwise do by itself, or must not do in its jail.
    kernel.use_one_heap()
    warnings.simplefilter("ignore")
    gc.collect()
    gc.disable()
    gc.freeze()  # keeps the memory pages shared
    forker = _Forker(line, serve, prepare)
    tell(line, Ready(_give_up_rights()))
    forker.run()


if __name__ == "__main__":
    main()
