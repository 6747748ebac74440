"""Processes that can open a few folders and nothing else, and carry out calls for one that can do more.

DuckDB, Arrow and tantivy parse the files of a collection, which may be a stranger's. They need files and
threads, so they cannot run in a jailed cell. A process that has the network, or all rights of its user, has
them run in one of these instead: requests go in, frames come back, which it bounds and checks.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from sterna import errors
from sterna.errors import JailError, SternaError, one_line
from sterna.runtime.cell import confined_process
from sterna.runtime.cell.confined_process import MOST_BYTES, Reply, Request, Setup, Warn, environment
from sterna.runtime.cell.frame import HEAD_BYTES, frame_size, framed, message_decoder

CALL_SECONDS = 3_600.0  # that a call may take, not counting the time in which nobody reads its frames
START_SECONDS = 60.0
MOST_WARNINGS = 1_000  # of a call
_MOST_LINES = 20  # of an error
_MOST_IDLE = 2
_CLOSE_SECONDS = 5.0

T = TypeVar("T")

_decode: Callable[[bytearray], Reply] = message_decoder(Reply)
_log = logging.getLogger(__name__)


class _Ended(Exception):
    """The process sends nothing more."""


class _Died(_Ended):
    """By itself, or somebody killed it."""


class Confined:
    """Starts such processes when they are needed, for calls from any thread; close() ends them."""

    def __init__(
        self,
        *readable: Path,
        writable: Sequence[Path] = (),
        prepare: str = "",
        argument: str = "",
    ) -> None:
        self._setup = Setup(
            readable=tuple(str(path.absolute()) for path in readable),
            writable=tuple(str(path.absolute()) for path in writable),
            prepare=prepare,
            argument=argument,
        )
        self._lock = threading.Lock()
        self._idle: list[_Process] = []  # changed under the lock
        self._is_closed = False
        self._owner = os.getpid()

    def call(
        self, work: str, request: bytes, *, seconds: float = CALL_SECONDS, warn: Warn = _log.warning
    ) -> bytes:
        """The only frame of a call."""
        frame = None
        for found in self.stream(work, request, seconds=seconds, warn=warn):
            if frame is not None:
                raise JailError("a confined process sent several frames, asked for one")
            frame = found
        if frame is None:
            raise JailError("a confined process sent no frame, asked for one")
        return frame

    def stream(
        self, work: str, request: bytes, *, seconds: float = CALL_SECONDS, warn: Warn = _log.warning
    ) -> Generator[bytes]:
        """The frames of a call, while it runs; its errors are raised here. To stop reading ends the call.

        A process that dies before its first frame is replaced once.
        """
        for is_last in (False, True):
            process, is_over, count, warnings = self._take(), False, 0, 0
            try:
                for reply in process.ask(Request(work, request), seconds=seconds):
                    if reply.kind == "data":
                        count += 1
                        yield reply.body
                    elif reply.kind == "warning":
                        warnings += 1
                        if warnings > MOST_WARNINGS:
                            raise _Ended("sent too many warnings")
                        warn(one_line(" ".join(reply.words)))
                    else:
                        is_over = True
                        if reply.kind == "error":
                            raise _rebuilt(reply.words)
                        return
            except _Ended as error:
                if is_last or count or not isinstance(error, _Died):
                    folder = (*self._setup.readable, *self._setup.writable)[0]
                    raise JailError(f"cannot read '{folder}': its confined process {error}") from None
            finally:
                if is_over:
                    self._give_back(process)
                else:
                    process.kill()

    def close(self) -> None:
        """Ends the processes that are idle now, and later those that are at work."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()

    def _take(self) -> "_Process":
        with self._lock:
            if self._owner != os.getpid():  # this one was forked: those are the other's
                self._owner, self._idle = os.getpid(), []
            folders = _folders_of(self._setup)
            while self._idle:
                process = self._idle.pop()
                if process.folders == folders:
                    return process
                process.end()  # others lie there now, which it cannot open
        return _Process(self._setup)

    def _give_back(self, process: "_Process") -> None:
        with self._lock:
            if not self._is_closed and len(self._idle) < _MOST_IDLE and not self._setup.prepare:
                self._idle.append(process)
                return
        process.end()


def _folders_of(setup: Setup) -> list[tuple[int, int]]:
    """Which folders lie there now."""
    found = []
    for path in (*setup.readable, *setup.writable):
        with suppress(OSError):  # it is gone
            status = Path(path).stat()
            found.append((status.st_dev, status.st_ino))
    return found


class _Process:
    """One process and the line to it, for one caller at a time."""

    def __init__(self, setup: Setup) -> None:
        self.folders = _folders_of(setup)
        self._has_other = bool(setup.prepare)  # one that cleans up when this one is gone
        self._socket, theirs = socket.socketpair()
        # -P keeps the working directory off the path, so that nothing in it is imported.
        command = (sys.executable, "-P", "-m", confined_process.__name__, str(theirs.fileno()))
        try:
            with theirs:
                # A session of its own: without a terminal, and Ctrl-C is for the caller, which then ends it.
                self._process = subprocess.Popen(  # noqa: S603 - our own
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environment(),
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            self._socket.close()
            raise JailError(f"cannot start a confined process: {error.strerror}") from error
        try:
            (ready,) = self.ask(setup, seconds=START_SECONDS, last="ready")
            if ready.kind == "error":
                raise _rebuilt(ready.words)
        except _Ended as error:
            self.kill()
            raise JailError(f"cannot start a confined process: it {error}") from None
        except BaseException:
            self.kill()
            raise
        for missing in ready.words:
            _tell_once(one_line(missing))

    def ask(self, message: Any, *, seconds: float, last: str = "done") -> Iterator[Reply]:
        """The replies up to the last one, or to an error; the time in between does not count."""
        left = seconds

        def within(work: Callable[[float], T]) -> T:
            nonlocal left
            began = time.monotonic()
            try:
                return work(began + left)
            except TimeoutError:
                raise _Ended(f"took longer than its {seconds:g} seconds") from None
            except ValueError as error:
                raise _Ended(f"sent what it must not ({error})") from None
            except (EOFError, OSError):
                raise _Died(self._end_in_words()) from None
            finally:
                left -= time.monotonic() - began

        within(lambda until: self._send(framed(message, most_bytes=MOST_BYTES), until))
        while True:
            reply = within(self._receive)
            yield reply
            if reply.kind in (last, "error"):
                return

    def _send(self, frame: bytearray, until: float) -> None:
        self._socket.settimeout(_left_until(until))
        self._socket.sendall(frame)

    def _receive(self, until: float) -> Reply:
        size = frame_size(self._read(HEAD_BYTES, until), most_bytes=MOST_BYTES)
        return _decode(self._read(size, until))

    def _read(self, size: int, until: float) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            self._socket.settimeout(_left_until(until))
            count = self._socket.recv_into(view)
            if not count:
                raise EOFError
            view = view[count:]
        return data

    def _end_in_words(self) -> str:
        try:
            code = self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its line"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def kill(self) -> None:
        """Ends it and what it started."""
        with suppress(ProcessLookupError):
            if self._has_other or self._process.poll() is not None:
                self._process.kill()
            else:
                os.killpg(self._process.pid, signal.SIGKILL)
        self.end()

    def end(self) -> None:
        self._socket.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _left_until(moment: float) -> float:
    left = moment - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


@cache
def _tell_once(missing: str) -> None:
    _log.warning("collections are read without being confined to them: %s", missing)


def _rebuilt(words: Sequence[str]) -> Exception:
    """The error that a call ended with; its class is one of ours, whatever the process says."""
    name, text, more = map(_readable, (*words, "", "", "")[:3])
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, SternaError)):
        return JailError(f"a confined process failed: {name}: {text}")
    if kind is errors.DamagedSegment:
        return errors.DamagedSegment(Path(text), more)
    return errors.IndexUnusable(text, more) if kind is errors.IndexUnusable else kind(text)


def _readable(text: str) -> str:
    """The text without what a terminal might obey; further lines, such as those of a query, are indented."""
    first, *others = text.split("\n")[:_MOST_LINES]
    return "\n".join([one_line(first), *(f"  {one_line(line).removeprefix('  ')}" for line in others)])
