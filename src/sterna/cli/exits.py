"""The exit codes, and how an error or Ctrl-C becomes one line and a code."""

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType
from typing import Any

from sterna.cli.commands import COMMANDS, HOST_COMMANDS
from sterna.cli.hints import runnable
from sterna.errors import CollectionError, QueryError, SternaError, StorageError, UsageError, missing_extra
from sterna.query.terminal import harmless

INTERRUPTED = 130  # as shells report a command that Ctrl-C ended

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_interrupted = threading.Event()  # set by the handler of SIGINT, cleared when a command begins


class Exit(IntEnum):
    """What a script can tell from the exit code."""

    FINISHED = 0  # nothing is left to do, or the page limit is reached
    NOTHING = 1  # not one page could be fetched
    USAGE = 2  # an invalid URL, option, configuration or query
    STOPPED = 3  # ended early; the same command continues
    WAITING = 4  # what is left may not be visited yet
    COLLECTION = 5  # the folder is not a collection, or is in use
    STORAGE = 6  # the disk is full or read-only


_CODES: dict[type[SternaError], Exit] = {
    UsageError: Exit.USAGE,
    QueryError: Exit.USAGE,
    CollectionError: Exit.COLLECTION,
    StorageError: Exit.STORAGE,
}


@contextmanager
def reported() -> Iterator[None]:
    """Runs a command: an error of ours is one line on stderr and an exit code, Ctrl-C a code alone."""
    try:
        with _noting_interrupts(), interruptible():
            yield
    except _command_line_error() as error:
        raise _invalid_line(error) from None
    except SternaError as error:
        code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), Exit.NOTHING)
        raise _fail(str(error), code) from None
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise _no_room(error) from None
    except ModuleNotFoundError as error:
        if not (text := missing_extra(error)):
            raise
        raise _fail(f"this command {text}", Exit.USAGE) from None


def _command_line_error() -> type[Exception]:
    """What typer raises for an invalid command line; called after an error, for typer is slow to load."""
    import typer  # noqa: PLC0415

    # Which module has their base depends on typer's version.
    return next(each for each in typer.BadParameter.__mro__ if each.__name__ == "ClickException")


def _invalid_line(error: Any) -> SystemExit:
    """An invalid option or argument, in one line; a group without a command shows its help."""
    words, context = error.format_message(), getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{words}\n")
        return SystemExit(int(Exit.USAGE))
    command = context.command_path if context else _command_of(sys.argv[1:])
    words = harmless(" ".join(words.split())).rstrip(".")
    return _fail(f"{words}: see '{command} --help'", Exit.USAGE)


def _command_of(words: Sequence[str]) -> str:
    """The command that these words call; an error of the parser does not tell."""
    names = [word for word in words[:1] if word in COMMANDS]
    names += [word for word in words[1:2] if names == ["host"] and word in HOST_COMMANDS]
    return " ".join(["sterna", *names])


@contextmanager
def interruptible(words: str = "", code: int = INTERRUPTED) -> Iterator[None]:
    """Ends the command with these words and this code on Ctrl-C.

    Libraries in C turn the KeyboardInterrupt that is raised inside them into errors of their own (DuckDB into
    RuntimeError), which are not errors of the command.
    """
    try:
        yield
    except SystemExit:
        raise
    except BaseException as error:
        if not (isinstance(error, KeyboardInterrupt) or _interrupted.is_set()):
            raise
        if words:
            sys.stderr.write(f"sterna: {words}\n")
        raise SystemExit(code) from None


@contextmanager
def _noting_interrupts() -> Iterator[None]:
    """Remembers a Ctrl-C; nothing changes where the caller has it ignored or handled."""

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        _interrupted.set()
        raise KeyboardInterrupt

    _interrupted.clear()
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled by the main thread alone
        return
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def leave(code: int) -> None:
    """Ends the process at once: Python takes a fifth of a second to clean up what was loaded.

    Returns if a thread is still at work, which the usual end waits for; after Ctrl-C nothing is waited for.
    """
    threads = [each for each in threading.enumerate() if each is not threading.main_thread()]
    if any(not each.daemon for each in threads) and not _interrupted.is_set():
        return
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except OSError as error:
        if error.errno in _FULL:
            code = int(Exit.STORAGE)
            _no_room(error)
    os._exit(code)


def _fail(text: str, code: Exit) -> SystemExit:
    sys.stderr.write(f"sterna: {runnable(text)}\n")
    return SystemExit(int(code))


def _no_room(error: OSError) -> SystemExit:
    return _fail(f"cannot write the output: {error.strerror}", Exit.STORAGE)
