"""Processes that can open a few folders and nothing else, and carry out calls for one that can do more.

DuckDB, Arrow and tantivy parse the files of a collection, which may be a stranger's. They need files and
threads, so they cannot run in a jailed cell. A process that has the network, or all rights of its user, has
them run in one of these instead: requests go in, frames come back, which it bounds and checks.
"""

import logging
import os
from collections import deque
from collections.abc import Generator, Sequence
from pathlib import Path

from sterna.errors import JailError, one_line
from sterna.runtime.cell.confined_line import Died, Ended, Process, folders_of, rebuilt
from sterna.runtime.cell.confined_process import MOST_BYTES, Request, Setup, Warn

CALL_SECONDS = 3_600.0  # that a call may take, not counting the time in which nobody reads its frames
MOST_WARNINGS = 1_000  # of a call
_MOST_IDLE = 2

_log = logging.getLogger(__name__)


class Confined:
    """Starts such processes when they are needed, for calls from any thread; close() ends them."""

    def __init__(
        self,
        *readable: Path,
        writable: Sequence[Path] = (),
        prepare: str = "",
        argument: str = "",
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """`most_bytes` bounds a frame; this process takes up to twice as much for it."""
        self._setup = Setup(
            readable=tuple(str(path.absolute()) for path in readable),
            writable=tuple(str(path.absolute()) for path in writable),
            prepare=prepare,
            argument=argument,
        )
        self._most_bytes = most_bytes
        # Changed by any thread, by single operations that need no lock: a child that is forked while another
        # thread holds one would wait for ever.
        self._idle: deque[Process] = deque()
        self._at_work: set[Process] = set()
        self._is_closed = self._is_killed = False
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
            process, is_over, count, warnings = self._take(is_new=is_last), False, 0, 0
            try:
                for reply in process.ask(Request(work, request), seconds=seconds):
                    if reply.kind == "data":
                        count += 1
                        yield reply.body
                    elif reply.kind == "warning":
                        warnings += 1
                        if warnings > MOST_WARNINGS:
                            raise Ended("sent too many warnings")
                        warn(one_line(" ".join(reply.words)))
                    else:
                        is_over = True
                        if reply.kind == "error":
                            raise rebuilt(reply.words)
                        return
            except Ended as error:
                if self._is_killed or is_last or count or not isinstance(error, Died):
                    raise self._failed(str(error)) from None
            finally:
                self._at_work.discard(process)
                if is_over:
                    self._give_back(process)
                else:
                    process.kill()

    def close(self) -> None:
        """Ends the processes that are idle now, and later those that are at work."""
        self._is_closed = True
        self._end_idle()

    def kill(self) -> None:
        """Ends all processes now: calls that are under way fail, in whatever thread, and so do later ones."""
        self._is_killed = True
        self.close()
        if self._owner == os.getpid():
            for process in list(self._at_work):
                process.kill()

    def _failed(self, reason: str) -> JailError:
        folder = (*self._setup.readable, *self._setup.writable)[0]
        return JailError(f"cannot read '{folder}': its confined process {reason}")

    def _take(self, *, is_new: bool) -> "Process":
        """One that waits, unless others lie there now than it can open; or a new one."""
        self._forget_if_forked()
        folders = folders_of(self._setup)
        found = None
        while not (is_new or found) and (waiting := self._next_idle()):
            if waiting.folders == folders:
                found = waiting
            else:
                waiting.end()
        process = found or Process(self._setup, most_bytes=self._most_bytes)
        self._at_work.add(process)
        if self._is_killed:  # while it started
            self._at_work.discard(process)
            process.kill()
            raise self._failed("was ended")
        return process

    def _give_back(self, process: "Process") -> None:
        if self._is_closed or len(self._idle) >= _MOST_IDLE or self._setup.prepare:
            process.end()
            return
        self._idle.append(process)
        if self._is_closed:  # meanwhile
            self._end_idle()

    def _end_idle(self) -> None:
        self._forget_if_forked()
        while process := self._next_idle():
            process.end()

    def _next_idle(self) -> "Process | None":
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _forget_if_forked(self) -> None:
        """In a child that was forked: the processes are those of its parent."""
        if self._owner != os.getpid():
            self._owner, self._idle, self._at_work = os.getpid(), deque(), set()
