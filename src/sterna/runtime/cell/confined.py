"""Processes that can open a few folders and nothing else, and carry out calls for one that can do more.

DuckDB, Arrow and tantivy parse the files of a collection, which may be a stranger's. They need files and
threads, so they cannot run in a jailed cell. A process that has the network, or all rights of its user, has
them run in one of these instead: requests go in, frames come back, which it bounds and checks.
"""

import logging
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec

from sterna import errors
from sterna.errors import JailError, SternaError
from sterna.model import Record
from sterna.runtime.cell.frame import CellLine, message_decoder
from sterna.runtime.cell.jail import confine, python_environment

CALL_SECONDS = 3_600.0  # that a call may take, not counting the time in which nobody reads its frames
START_SECONDS = 60.0
MOST_BYTES = 1 << 30  # of a frame
_MOST_IDLE = 2
_CLOSE_SECONDS = 5.0

Warn = Callable[[str], None]
Work = Callable[[bytes], Iterable[bytes]]  # what a call runs; it gets the request and yields the frames
_Kind = Literal["ready", "data", "warning", "error", "done"]

_log = logging.getLogger(__name__)
_warn_here: Warn = _log.warning  # in a confined process: sends a warning to the caller; set by _serve()


class Setup(Record, frozen=True, kw_only=True):
    """What a process may open. `prepare` (MODULE:FUNCTION) is called before it is confined.

    It gets `argument`, and gives paths that may be written, too.
    """

    readable: tuple[str, ...]
    writable: tuple[str, ...]
    prepare: str = ""
    argument: str = ""


class _Request(Record, frozen=True):
    work: str  # MODULE:FUNCTION
    body: bytes


class _Reply(Record, frozen=True):
    kind: _Kind
    body: bytes = b""
    words: tuple[str, ...] = ()  # a warning; the class of an error and what it is made of


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

    def call(self, work: str, request: bytes, *, warn: Warn = _log.warning) -> bytes:
        """The only frame of a call."""
        (frame,) = self.stream(work, request, warn=warn)
        return frame

    def stream(
        self, work: str, request: bytes, *, seconds: float = CALL_SECONDS, warn: Warn = _log.warning
    ) -> Generator[bytes]:
        """The frames of a call, while it runs; its errors are raised here. To stop reading ends the call.

        A process that was killed before its first frame is replaced once.
        """
        for is_last in (False, True):
            process, is_over, count = self._take(), False, 0
            try:
                for reply in process.ask(_Request(work, request), seconds=seconds):
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
                    raise JailError(f"cannot read {folder}: its confined process {error}") from None
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
        command = (sys.executable, "-P", "-m", __name__, str(theirs.fileno()))
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
        self._line: CellLine[_Reply] = CellLine(
            ours, message_decoder(_Reply), most_in=MOST_BYTES, most_out=MOST_BYTES
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

    def ask(self, message: Any, *, seconds: float, last: str = "done") -> Iterator[_Reply]:
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
                reply: _Reply = self._line.receive()
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


# --- what such a process has: variables, files of Python, temporary ones


def environment() -> dict[str, str]:
    """The environment of such a process: nothing that is the user's alone, such as a password."""
    kept = ("TMPDIR", "TZ")
    return python_environment() | {name: os.environ[name] for name in kept if name in os.environ}


def python_paths() -> list[Path]:
    """Where Python and its packages lie; not the working folder, which is on the path by accident."""
    found = {sys.prefix, sys.base_prefix, *sys.path} - {"", str(Path.cwd())}
    return [Path(__file__).parents[3], *map(Path, sorted(found))]


def use_scratch() -> Path:
    """The folder for temporary files from now on: the user's alone, and it stays for the next process."""
    place = Path(tempfile.gettempdir()) / f"sterna-{os.geteuid()}"
    with suppress(OSError):  # the disk is full or read-only, or a file is in the way
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
        is_private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
        if not (is_private and found.st_uid == os.geteuid()):
            place = Path(tempfile.mkdtemp(prefix="sterna-"))
    tempfile.tempdir = os.environ["SQLITE_TMPDIR"] = str(place)
    return place


# --- the inside


def warn_caller(text: str) -> None:
    """For works: sends a warning to whoever called, before the next frame."""
    _warn_here(text)


def _serve(sock: socket.socket) -> None:
    """Confines this process, and answers calls until the caller closes its end."""
    global _warn_here  # noqa: PLW0603 - there is one caller
    line: CellLine[Any] = CellLine(sock, message_decoder(Any), most_in=MOST_BYTES, most_out=MOST_BYTES)
    # Arrow and DuckDB load these wherever they are installed, for half a second; None makes an import fail.
    sys.modules.update(dict.fromkeys(("numpy", "pandas")))  # type: ignore[arg-type]
    _warn_here = lambda text: line.send(_Reply("warning", words=(text,)))  # noqa: E731
    setup = msgspec.convert(line.receive(), Setup)
    try:
        writable = [Path(path) for path in setup.writable]
        if setup.prepare:
            writable += _found(setup.prepare)(setup.argument)
        writable.append(use_scratch())
        try:
            readable = [*python_paths(), *map(Path, setup.readable)]
            missing = confine(readable=readable, writable=writable)
        except JailError as error:
            missing = str(error)
        threading.Thread(target=_end_with, args=(sock,), daemon=True).start()
    except SternaError as error:
        line.send(_Reply("error", words=_words_of(error)))
        return
    line.send(_Reply("ready", words=(missing,) if missing else ()))
    while True:
        request = msgspec.convert(line.receive(), _Request)
        try:
            for frame in _found(request.work)(request.body):
                line.send(_Reply("data", frame))
        except Exception as error:
            line.send(_Reply("error", words=_words_of(error)))
        else:
            line.send(_Reply("done"))


def _words_of(error: Exception) -> tuple[str, ...]:
    if isinstance(error, errors.DamagedSegment):
        return type(error).__name__, str(error.path), error.reason
    reason = error.reason if isinstance(error, errors.IndexUnusable) else ""
    return type(error).__name__, str(error), reason


def _found(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def _end_with(sock: socket.socket) -> None:
    """Ends this process when its caller's end is closed, whatever it is at."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    poll.poll()
    os._exit(0)


def main(words: Iterable[str]) -> None:
    (number,) = words
    with socket.socket(fileno=int(number)) as sock, suppress(EOFError, BrokenPipeError):
        _serve(sock)


if __name__ == "__main__":
    main(sys.argv[1:])
