"""`sterna export`: a collection in the formats of other tools."""

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from sterna.cli.confinement import keep_to
from sterna.cli.exits import Exit, interruptible
from sterna.cli.flags import FolderArgument, SafeCellsOption, option, switch
from sterna.cli.lines import bytes_text, plural, shown, warn
from sterna.export.job import ExportJob, check_job, default_place
from sterna.export.progress import ExportFormat, ExportProgress


def export(  # noqa: PLR0913, PLR0917 - each is a flag of the command
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
    main_content: Annotated[
        bool, switch("Of markdown: leave out menus, banners, footers and lists of links.", "--main-content")
    ] = False,
    force: Annotated[
        bool, switch("Overwrite the file; of markdown, a folder that contains nothing else.", "--force")
    ] = False,
    safe_cells: SafeCellsOption = False,
    quiet: Annotated[bool, switch("Print only errors.", "--quiet", "-q")] = False,
) -> None:
    """Write a collection for other tools, also while it is crawled.

    The output is complete or absent. Examples:
    sterna export crawls/www.example.org --to wacz;
    sterna export crawls/www.example.org --to csv --table link --where "rel = 'nofollow'" --out links.csv
    """
    place = out or default_place(to, name=folder.resolve().name, table=table)
    job = ExportJob(
        kind=to,
        place=place,
        table=table,
        base=base,
        force=force,
        safe_cells=safe_cells,
        main_content=main_content,
    )
    check_job(job)
    keep_to(folder, out=place, exports=True)
    # DuckDB is slow to load, and --help should not wait for it.
    from sterna.api.export import export as run_export  # noqa: PLC0415
    from sterna.home.folder import CollectionFolder  # noqa: PLC0415

    collection = CollectionFolder(folder).check()
    progress = ExportProgress()

    def line() -> str:
        in_words = bytes_text if progress.unit == "bytes" else "{:,}".format
        done, total = in_words(progress.done), in_words(progress.total)
        return f"{progress.what}: {done} of {total}\n" if progress.what else ""

    display = shown(lambda: {progress.what: (progress.done, progress.total)}, line=line)
    try:
        with interruptible("stopped, nothing was written", Exit.STOPPED), nullcontext() if quiet else display:
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
