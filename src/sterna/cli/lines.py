"""What commands write: numbers in words, lines and files, progress; and Ctrl-C meanwhile."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

import msgspec

from sterna.cli.hints import runnable
from sterna.host.owner.status import size_text
from sterna.query.terminal import harmless

LINE_SECONDS, BAR_SECONDS = 10.0, 0.2  # between two lines in a log, and two moves of a bar

bytes_text = size_text  # as a host's own page says it


def duration_text(seconds: float) -> str:
    """12.3 s, 4 min 5 s, 2 h 3 min and the like."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def date_text(at: float) -> str:
    """2026-11-30 08:00:00 and the like, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def plural(count: int, noun: str) -> str:
    """1 site, 2 sites and the like."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """Rows of a table as aligned lines; `right` are the numbers of the columns that are flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def say(*lines: str) -> None:
    """Writes lines to stdout, at once and harmless to the terminal."""
    sys.stdout.write("".join(f"{harmless(runnable(line))}\n" for line in lines))
    sys.stdout.flush()


def say_json(answer: object) -> None:
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    sys.stdout.flush()


def warn(text: str) -> None:
    """Writes a line to stderr; a closed stderr does not end the command."""
    with suppress(OSError):
        sys.stderr.write(f"sterna: {harmless(runnable(text))}\n")


@contextmanager
def every(seconds: float, show: Callable[[], object]) -> Iterator[None]:
    """Calls `show` at this interval from a thread of its own, so that one long call is shown too."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(seconds):
            show()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def shown(
    pieces: Callable[[], Mapping[str, tuple[int, int]]], *, line: Callable[[], str] = lambda: ""
) -> Iterator[None]:
    """Pieces of work, each with what is done and its total: bars on a terminal, lines in a log."""
    if not sys.stderr.isatty():
        with every(LINE_SECONDS, lambda: sys.stderr.write(line())):
            yield
        return
    # rich takes as long to load as the rest of a command, and a script never sees it.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, TaskID  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def move() -> None:
            found = pieces()
            for name in tasks.keys() - found.keys():
                bars.remove_task(tasks.pop(name))
            for name, (done, total) in found.items():
                if name not in tasks:
                    tasks[name] = bars.add_task(name, total=total)
                bars.update(tasks[name], completed=done, total=total)

        with every(BAR_SECONDS, move):
            yield
            move()  # the work may be over sooner than the first interval


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, so that what was done is kept; the second one ends it at once."""
    stop = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
