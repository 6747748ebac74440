"""`sterna export`: a collection in the formats of other tools."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sterna.cli.exits import Exit, interruptible
from sterna.cli.lines import bars, bytes_text, plural, warn

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from sterna.export.job import Exported
    from sterna.export.progress import ExportProgress, Unit

LINE_SECONDS = 10.0

# Repeated from `sterna.export.job`, which loads DuckDB: --help should not wait for it. A test compares them.
_Kind = Literal["jsonl", "parquet", "csv", "warc", "cdxj", "wacz", "sitemap", "markdown"]


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The collection.")],
    to: Annotated[_Kind, typer.Option("--to", help="The format to write.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Where to write; - for standard output. (default: here, under DIR's name)"
        ),
    ] = None,
    table: Annotated[
        str,
        typer.Option(
            metavar="TABLE",
            help="Of jsonl, parquet and csv: page, page_history, link, event, fact, site, visit,"
            " or a template of facts.",
        ),
    ] = "page",
    where: Annotated[
        str,
        typer.Option(
            metavar="CONDITION",
            help="Only rows that meet this condition in SQL; of warc, cdxj and wacz, the responses of"
            " such pages.",
        ),
    ] = "",
    base: Annotated[
        str,
        typer.Option(metavar="URL", help="Of a sitemap: the URL of the folder in which it will be served."),
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> None:
    """Write a collection for other tools, also while it is crawled.

    The output is complete or absent. Examples:
    sterna export crawls/www.example.org --to wacz;
    sterna export crawls/www.example.org --to csv --table link --where "rel = 'nofollow'" --out links.csv
    """
    # DuckDB is slow to load, and --help should not wait for it.
    from sterna.api.export import export as run_export  # noqa: PLC0415
    from sterna.export.job import ExportJob, default_place  # noqa: PLC0415
    from sterna.home.folder import CollectionFolder  # noqa: PLC0415

    collection = CollectionFolder(folder)
    collection.check()
    place = out or default_place(to, name=folder.resolve().name, table=table)
    job = ExportJob(kind=to, place=place, table=table, base=base, force=force)
    try:
        with interruptible("stopped, nothing was written", Exit.STOPPED), _shown(quiet=quiet) as progress:
            made = run_export(
                collection, job, where=where, stdout=sys.stdout.buffer, progress=progress, warn=warn
            )
    except BrokenPipeError:
        # Python must not try again to write what is buffered when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        warn("the reader of the output is gone: stopped")
        raise typer.Exit(int(Exit.STOPPED)) from None
    if not quiet:
        (sys.stderr if job.is_stream else sys.stdout).write(_report(made) + "\n")


# -- what is shown -----------------------------------------------------------------------------------------


def _report(made: "Exported") -> str:
    amount = plural(made.count, made.noun)
    if not made.places:
        return amount
    others = f" and {plural(len(made.places) - 1, 'file')} beside it" if len(made.places) > 1 else ""
    return f"{amount} -> {made.places[0]}{others} ({bytes_text(made.size_bytes)})"


@contextmanager
def _shown(*, quiet: bool) -> Iterator["ExportProgress"]:
    """A bar on a terminal, a line at intervals in a log."""
    if quiet:
        from sterna.export.progress import Unseen  # noqa: PLC0415

        yield Unseen()
    elif not sys.stderr.isatty():
        yield _Lines()
    else:
        with bars() as shown:
            yield _Bar(shown)


class _Bar:
    """A bar for the current piece of work."""

    def __init__(self, shown: "Bars") -> None:
        self._bars = shown
        self._task: TaskID | None = None

    def begin(self, what: str, *, total: int, unit: "Unit") -> None:
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(what, total=total)

    def advance(self, count: int) -> None:
        if self._task is not None:
            self._bars.advance(self._task, count)


class _Lines:
    """A line on stderr at intervals."""

    def __init__(self) -> None:
        self._what, self._total, self._done = "", 0, 0
        self._unit: Unit = "rows"
        self._shown_at = time.monotonic()

    def begin(self, what: str, *, total: int, unit: "Unit") -> None:
        self._what, self._total, self._unit, self._done = what, total, unit, 0

    def advance(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._shown_at >= LINE_SECONDS:
            self._shown_at = now
            sys.stderr.write(f"{self._what}: {self._amount(self._done)} of {self._amount(self._total)}\n")

    def _amount(self, count: int) -> str:
        return bytes_text(count) if self._unit == "bytes" else f"{count:,}"
