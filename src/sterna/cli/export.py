"""`sterna export`: a collection in the formats of other tools."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from sterna.cli.exits import Exit, interruptible
from sterna.cli.flags import FolderArgument, option, switch
from sterna.cli.lines import bars, bytes_text, every, plural, warn
from sterna.export.progress import ExportFormat, ExportProgress, Unit, Unseen

LINE_SECONDS, BAR_SECONDS = 10.0, 0.2


def export(
    folder: FolderArgument,
    to: Annotated[ExportFormat, typer.Option("--to", help="The format to write.")],
    out: Annotated[
        Path | None,
        option("PATH", "Where to write; - for standard output. (default: here, under DIR's name)"),
    ] = None,
    table: Annotated[
        str,
        option(
            "TABLE",
            "Of jsonl, parquet and csv: page, page_history, link, event, fact, site, visit,"
            " or a template of facts.",
        ),
    ] = "page",
    where: Annotated[
        str,
        option(
            "CONDITION",
            "Only rows that meet this condition in SQL; of warc, cdxj and wacz, the responses of such pages.",
        ),
    ] = "",
    base: Annotated[
        str, option("URL", "Of a sitemap: the URL of the folder in which it will be served.")
    ] = "",
    force: Annotated[bool, switch("Overwrite the file.", "--force")] = False,
    quiet: Annotated[bool, switch("Print only errors.", "--quiet", "-q")] = False,
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

    collection = CollectionFolder(folder).check()
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
    if quiet:
        return
    amount, where_to = plural(made.count, made.noun), ""
    if made.places:
        others = f" and {plural(len(made.places) - 1, 'file')} beside it" if len(made.places) > 1 else ""
        where_to = f" -> {made.places[0]}{others} ({bytes_text(made.size_bytes)})"
    (sys.stderr if job.is_stream else sys.stdout).write(f"{amount}{where_to}\n")


# -- while it is made --------------------------------------------------------------------------------------


class _Seen:
    """The current piece of work; changed by the export, read by the thread that shows it."""

    what, total, done = "", 0, 0
    unit: Unit = "rows"

    def begin(self, what: str, *, total: int, unit: Unit) -> None:
        self.what, self.total, self.unit, self.done = what, total, unit, 0

    def advance(self, count: int) -> None:
        self.done += count


@contextmanager
def _shown(*, quiet: bool) -> Iterator[ExportProgress]:
    """A bar on a terminal, a line at intervals in a log."""
    seen = _Seen()

    def write_line() -> None:
        in_words = bytes_text if seen.unit == "bytes" else "{:,}".format
        if seen.what:
            sys.stderr.write(f"{seen.what}: {in_words(seen.done)} of {in_words(seen.total)}\n")

    if quiet:
        yield Unseen()
    elif not sys.stderr.isatty():
        with every(LINE_SECONDS, write_line):
            yield seen
    else:
        with bars() as shown:
            task = shown.add_task("", total=None)

            def move_bar() -> None:
                shown.update(task, description=seen.what, total=seen.total, completed=seen.done)

            with every(BAR_SECONDS, move_bar):
                yield seen
                move_bar()  # an export may be over sooner than the first interval
