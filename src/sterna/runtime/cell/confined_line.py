"""One confined process and the line to it, as its caller sees them: bounded replies, errors made anew."""

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from sterna import errors
from sterna.errors import JailError, SternaError, one_line
from sterna.runtime.cell import confined_process
from sterna.runtime.cell.confined_process import MOST_BYTES, Reply, Setup, environment
from sterna.runtime.cell.frame import HEAD_BYTES, frame_size, framed, message_decoder
from sterna.runtime.cell.scratch import Scratch
from sterna.web.weight import objects_in

START_SECONDS = 60.0
_MOST_LINES = 20  # of an error
_MOST_VALUES = 1_000  # of a reply, which is a few words beside the frame of a call
CLOSE_SECONDS = 5.0

T = TypeVar("T")

_decode: Callable[[bytearray], Reply] = message_decoder(Reply)
_log = logging.getLogger(__name__)


class Ended(Exception):
    """The process sends nothing more."""


class Died(Ended):
    """By itself, or somebody killed it."""


def folders_of(setup: Setup) -> list[tuple[int, int]]:
    """Which folders lie there now."""
    found = []
    for path in (*setup.readable, *setup.writable):
        with suppress(OSError):  # it is gone
            status = Path(path).stat()
            found.append((status.st_dev, status.st_ino))
    return found


class Process:
    """One process and the line to it, for one caller at a time."""

    def __init__(self, setup: Setup, *, most_bytes: int) -> None:
        self.folders = folders_of(setup)
        self._owner = os.getpid()
        self._most_bytes = most_bytes
        self._scratch = Scratch()
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
            self._scratch.remove()
            raise JailError(f"cannot start a confined process: {error.strerror}") from error
        try:
            setup = msgspec.structs.replace(setup, scratch=str(self._scratch.folder))
            (ready,) = self.ask(setup, seconds=START_SECONDS, last="ready")
            if ready.kind == "error":
                raise rebuilt(ready.words)
        except Ended as error:
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
                raise Ended(f"took longer than its {seconds:g} seconds") from None
            except ValueError as error:
                raise Ended(f"sent what it must not ({error})") from None
            except (EOFError, OSError):
                raise Died(self._end_in_words()) from None
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
        size = frame_size(self._read(HEAD_BYTES, until), most_bytes=self._most_bytes)
        data = self._read(size, until)
        if objects_in(data, most=_MOST_VALUES) > _MOST_VALUES:
            raise ValueError(f"a message of more than {_MOST_VALUES:,} values")
        return _decode(data)

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
            code = self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its line"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def kill(self) -> None:
        """Ends it and what it started."""
        if self._owner == os.getpid():
            with suppress(ProcessLookupError):
                if self._has_other or self._process.poll() is not None:
                    self._process.kill()
                else:
                    os.killpg(self._process.pid, signal.SIGKILL)
        self.end()

    def end(self) -> None:
        """Has it end, and removes its temporary files; in a child that was forked it only lets go of it."""
        if self._owner == os.getpid():
            with suppress(OSError):  # it is gone
                self._socket.shutdown(socket.SHUT_RDWR)  # children that were forked hold the socket, too
            try:
                self._process.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._scratch.remove()
        self._socket.close()


def _left_until(moment: float) -> float:
    left = moment - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


@cache
def _tell_once(missing: str) -> None:
    _log.warning("collections are read without being confined to them: %s", missing)


def rebuilt(words: Sequence[str]) -> Exception:
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
