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
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sterna import errors
from sterna.errors import JailError, SternaError
from sterna.runtime.cell import confined_process
from sterna.runtime.cell.confined_process import MOST_BYTES, Reply, Request, Setup, Warn, environment
from sterna.runtime.cell.frame import CellLine, message_decoder

CALL_SECONDS = 3_600.0  # that a call may take, not counting the time in which nobody reads its frames
START_SECONDS = 60.0
_MOST_IDLE = 2
_CLOSE_SECONDS = 5.0

_log = logging.getLogger(__name__)


class _Died(Exception):
    """The process ended, or was ended, before it had answered."""


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
        frames = list(self.stream(work, request, seconds=seconds, warn=warn))
        if len(frames) != 1:
            raise JailError(f"a confined process sent {len(frames)} frames, asked for one")
        return frames[0]

    def stream(
        self, work: str, request: bytes, *, seconds: float = CALL_SECONDS, warn: Warn = _log.warning
    ) -> Generator[bytes]:
        """The frames of a call, while it runs; its errors are raised here. To stop reading ends the call.

        A process that was killed before its first frame is replaced once.
        """
        for is_last in (False, True):
            process, is_over, count = self._take(), False, 0
            try:
                for reply in process.ask(Request(work, request), seconds=seconds):
                    if reply.kind == "data":
                        count += 1
                        yield reply.body
                    elif reply.kind == "warning":
                        warn(" ".join(reply.words))
                    else:
                        is_over = True
                        if reply.kind == "error":
                            raise _rebuilt(reply.words)
                        return
            except _Died as error:
                if is_last or count:
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
            if self._idle:
                return self._idle.pop()
        return _Process(self._setup)

    def _give_back(self, process: "_Process") -> None:
        with self._lock:
            if not self._is_closed and len(self._idle) < _MOST_IDLE and not self._setup.prepare:
                self._idle.append(process)
                return
        process.end()


class _Process:
    """One process and the line to it, for one caller at a time."""

    def __init__(self, setup: Setup) -> None:
        ours, theirs = socket.socketpair()
        # -P keeps the working directory off the path, so that nothing in it is imported.
        command = (sys.executable, "-P", "-m", confined_process.__name__, str(theirs.fileno()))
        try:
            with theirs:
                # A group of its own: Ctrl-C is for the caller, which then ends it.
                self._process = subprocess.Popen(  # noqa: S603 - our own
                    command,
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=environment(),
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                )
        except OSError as error:
            ours.close()
            raise JailError(f"cannot start a confined process: {error.strerror}") from error
        self._socket = ours
        self._line: CellLine[Reply] = CellLine(
            ours, message_decoder(Reply), most_in=MOST_BYTES, most_out=MOST_BYTES
        )
        try:
            (ready,) = self.ask(setup, seconds=START_SECONDS, last="ready")
            if ready.kind == "error":
                raise _rebuilt(ready.words)
        except _Died as error:
            self.kill()
            raise JailError(f"cannot start a confined process: it {error}") from None
        except BaseException:
            self.kill()
            raise
        for missing in ready.words:
            _tell_once(missing)

    def ask(self, message: Any, *, seconds: float, last: str = "done") -> Iterator[Reply]:
        """The replies up to the last one, or to an error."""
        try:
            self._line.send(message)
        except OSError:
            raise _Died(self._end_in_words()) from None
        while True:
            began = time.monotonic()
            watch = threading.Timer(max(seconds, 0), self._process.kill)
            watch.daemon = True
            watch.start()
            try:
                reply: Reply = self._line.receive()
            except (EOFError, OSError):
                raise _Died(self._end_in_words()) from None
            except ValueError as error:
                raise _Died(f"sent what it must not ({error})") from None
            finally:
                watch.cancel()
                seconds -= time.monotonic() - began
            yield reply
            if reply.kind in (last, "error"):
                return

    def _end_in_words(self) -> str:
        try:
            code = self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its line"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def kill(self) -> None:
        self._process.kill()
        self.end()

    def end(self) -> None:
        self._line.close()
        self._socket.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@cache
def _tell_once(missing: str) -> None:
    _log.warning("collections are read without being confined to them: %s", missing)


def _rebuilt(words: Sequence[str]) -> Exception:
    """The error that a call ended with; its class is one of ours, whatever the process says."""
    name, text, more = (*words, "", "", "")[:3]
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, SternaError)):
        return RuntimeError(f"a confined process failed: {name}: {text}")
    if kind is errors.DamagedSegment:
        return errors.DamagedSegment(Path(text), more)
    return kind(text, more) if more else kind(text)
