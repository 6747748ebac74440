"""One export: the collection as it is now, given to `sterna.export`, and what a person sees of it."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from sterna.api.query import Bounds, open_collection
from sterna.cli.numbers import bytes_text, plural
from sterna.export import warc as warcs
from sterna.export.job import Made, Wish, check_wish, make, workplace
from sterna.export.pinning import pinned
from sterna.export.progress import Progress, Unit, Unseen
from sterna.export.selection import Source
from sterna.home.folder import Collection
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.snapshots import take

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

LINE_SECONDS = 10.0
_SECONDS = 30 * 86_400.0  # an export may take as long as it takes


def run(collection: Collection, wish: Wish, *, where: str, quiet: bool) -> bool:
    """Makes the export; False where it was stopped on the way, and nothing was made."""
    check_wish(wish)
    try:
        with _shown(quiet=quiet) as progress:
            made = _made(collection, wish, where=where, progress=progress)
    except BrokenPipeError:
        # What Python still holds for the pipe must not be tried again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stderr.write("sterna: whoever read the output is gone: stopped\n")
        return False
    except KeyboardInterrupt:
        sys.stderr.write("sterna: stopped, nothing was written\n")
        return False
    if not quiet:
        (sys.stderr if wish.is_stream else sys.stdout).write(_report(made) + "\n")
    return True


def _made(collection: Collection, wish: Wish, *, where: str, progress: Progress) -> Made:
    with ExitStack() as stack:
        folder = stack.enter_context(workplace(wish))
        ledger = SqliteLedger(collection.ledger_path, is_reader=True)
        try:
            positions = ledger.warc_positions()
        finally:
            ledger.close()
        files, missing = warcs.find(collection.warc_folder, positions)
        if wish.kind in ("warc", "cdxj", "wacz"):
            for name in missing:
                sys.stderr.write(f"sterna: {name} is not in {collection.warc_folder} any more: left out\n")
        tables = stack.enter_context(pinned(take(collection).tables, beside=collection.segments_folder))
        (folder / "spill").mkdir()
        engine = open_collection(
            collection, bounds=Bounds(seconds=_SECONDS), files=tables, spill_folder=folder / "spill"
        )
        stack.enter_context(engine)
        source = stack.enter_context(Source(collection.folder, engine, tuple(files), where.strip()))
        return make(source, wish, folder=folder, stdout=sys.stdout.buffer, progress=progress)


def _report(made: Made) -> str:
    amount = plural(made.count, made.noun)
    if not made.places:
        return amount
    others = f" and {plural(len(made.places) - 1, 'file')} beside it" if len(made.places) > 1 else ""
    return f"{amount} -> {made.places[0]}{others} ({bytes_text(made.size_bytes)})"


@contextmanager
def _shown(*, quiet: bool) -> Iterator[Progress]:
    """A bar on a terminal, a line now and then for a log."""
    if quiet:
        yield Unseen()
    elif not sys.stderr.isatty():
        yield _Lines()
    else:
        # It takes as long to load as the rest of the command, and a script never sees it.
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bars  # noqa: PLC0415

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
            yield _Bar(bars)


class _Bar:
    """A bar for the piece of work that is under way."""

    def __init__(self, bars: "Bars") -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def begin(self, what: str, *, total: int, unit: Unit) -> None:
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(what, total=total)

    def advance(self, count: int) -> None:
        if self._task is not None:
            self._bars.advance(self._task, count)


class _Lines:
    """A line on stderr now and then."""

    def __init__(self) -> None:
        self._what, self._total, self._done = "", 0, 0
        self._unit: Unit = "rows"
        self._told_at = time.monotonic()

    def begin(self, what: str, *, total: int, unit: Unit) -> None:
        self._what, self._total, self._unit, self._done = what, total, unit, 0

    def advance(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._told_at >= LINE_SECONDS:
            self._told_at = now
            sys.stderr.write(f"{self._what}: {self._amount(self._done)} of {self._amount(self._total)}\n")

    def _amount(self, count: int) -> str:
        return bytes_text(count) if self._unit == "bytes" else f"{count:,}"
