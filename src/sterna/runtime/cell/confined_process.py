"""The inside of a confined process: it gives up what it does not need, and carries out calls."""

import logging
import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec

from sterna import errors
from sterna.errors import JailError, SternaError
from sterna.model import Record
from sterna.runtime.cell.frame import CellLine, message_decoder
from sterna.runtime.cell.jail import confine, python_environment
from sterna.runtime.cell.scratch import use_for_temporary_files

MOST_BYTES = 256 << 20  # of a frame, unless a caller takes less

Warn = Callable[[str], None]
Work = Callable[[bytes], Iterable[bytes]]  # what a call runs; it gets the request and yields the frames
Kind = Literal["ready", "data", "warning", "error", "done"]

_STARTED_IN = os.environ.get("PWD", "")  # which `python -m` puts on the path
_warn_here: Warn = logging.getLogger(__name__).warning  # set by _serve(): it tells the caller


class Setup(Record, frozen=True, kw_only=True):
    """What a process may open. `prepare` (MODULE:FUNCTION) is called before it is confined.

    It gets `argument`, and gives paths that may be written, too. `scratch` is for temporary files.
    """

    readable: tuple[str, ...]
    writable: tuple[str, ...]
    prepare: str = ""
    argument: str = ""
    scratch: str = ""


class Request(Record, frozen=True):
    work: str  # MODULE:FUNCTION
    body: bytes


class Reply(Record, frozen=True):
    kind: Kind
    body: bytes = b""
    words: tuple[str, ...] = ()  # a warning; the class of an error and what it is made of


# --- what such a process has: variables, files of Python


def environment() -> dict[str, str]:
    """The environment of such a process: nothing that is the user's alone, such as a password."""
    kept = {name: os.environ[name] for name in ("TMPDIR", "TZ") if name in os.environ}
    return python_environment() | {"PYTHONPATH": os.pathsep.join(_module_paths())} | kept


def python_paths() -> list[Path]:
    """Where Python and its packages lie."""
    found = {sys.prefix, sys.base_prefix, *_module_paths()}
    return list(map(Path, sorted(found)))


def _module_paths() -> list[str]:
    """Without the folder of the program and the working one, which are on the path by accident."""
    ours = str(Path(__file__).parents[3])
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    by_accident = {"", os.path.dirname(os.path.abspath(main)) if main else "", _STARTED_IN}  # noqa: PTH100, PTH120
    with suppress(FileNotFoundError):  # it was removed
        by_accident.add(str(Path.cwd()))
    return [ours, *(path for path in sys.path if path not in by_accident)]


# --- the calls


def warn_caller(text: str) -> None:
    """For works: sends a warning to whoever called, before the next frame."""
    _warn_here(text)


def _serve(sock: socket.socket) -> None:
    """Confines this process, and answers calls until the caller closes its end."""
    global _warn_here  # noqa: PLW0603 - there is one caller
    line: CellLine[Any] = CellLine(sock, message_decoder(Any), most_in=MOST_BYTES, most_out=MOST_BYTES)
    # Arrow and DuckDB load these wherever they are installed, for half a second; None makes an import fail.
    sys.modules.update(dict.fromkeys(("numpy", "pandas")))  # type: ignore[arg-type]
    _warn_here = lambda text: line.send(Reply("warning", words=(text,)))  # noqa: E731
    setup = msgspec.convert(line.receive(), Setup)
    try:
        writable = [Path(path) for path in setup.writable]
        if setup.prepare:
            writable += _found(setup.prepare)(setup.argument)
        use_for_temporary_files(Path(setup.scratch))
        writable.append(Path(setup.scratch))
        try:
            readable = [*python_paths(), *map(Path, setup.readable)]
            missing = confine(readable=readable, writable=writable)
        except JailError as error:
            missing = str(error)
        threading.Thread(target=_end_with, args=(sock,), daemon=True).start()
    except SternaError as error:
        line.send(Reply("error", words=_words_of(error)))
        return
    line.send(Reply("ready", words=(missing,) if missing else ()))
    while True:
        request = msgspec.convert(line.receive(), Request)
        try:
            for frame in _found(request.work)(request.body):
                line.send(Reply("data", frame))
        except Exception as error:
            line.send(Reply("error", words=_words_of(error)))
        else:
            line.send(Reply("done"))


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
    # The one that works import: this one is a second copy, whose state they would not see.
    import_module("sterna.runtime.cell.confined_process").main(sys.argv[1:])
