"""`sterna ask`: a query that crawls; its rows are printed as they arrive."""

import asyncio
import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sterna.cli.crawl import exit_code, run_under
from sterna.cli.display import choose_display
from sterna.cli.flags import setting_flags, setting_values, with_flags
from sterna.home.options import Options
from sterna.model import Parcel
from sterna.query.terminal import TextFormat

if TYPE_CHECKING:
    from sterna.api.ask import Question

_SETTINGS = ("max_pages", "max_depth", "stay", "delay", "contact")


@with_flags(setting_flags(_SETTINGS, Options))
def ask(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A SELECT over page; see `sterna explain SQL`.")],
    urls: Annotated[list[str], typer.Argument(metavar="URL", help="Where to start.")],
    into: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the collection here. (default: it is deleted)"),
    ] = None,
    form: Annotated[TextFormat, typer.Option("--format", "-f", help="How to print the rows.")] = "table",
    only_matching_urls: Annotated[
        bool,
        typer.Option(
            "--only-matching-urls",
            help="Pass only through URLs that match the query's conditions on url: fewer requests, but pages"
            " that are reached through others are missed.",
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the rows, and errors.")] = False,
    **flags: Any,
) -> None:
    """Crawl, and print the rows of a query.

    The query's conditions on a page are checked where the page is read; only pages that may match are kept.
    Example: sterna ask "SELECT url, title FROM page WHERE status = 200 AND text LIKE '%clinic%'" URL
    """
    # The SQL parser and DuckDB are slow to load, and --help should not wait for them.
    from sterna.api.ask import Question, question_folder  # noqa: PLC0415
    from sterna.api.crawl import gather_options  # noqa: PLC0415
    from sterna.api.query import open_collection  # noqa: PLC0415
    from sterna.cli.query import write_answer  # noqa: PLC0415
    from sterna.home.crawl import Run  # noqa: PLC0415

    question = Question(sql, only_matching_urls=only_matching_urls)
    with question_folder(into) as collection, _writing(question, form) as rows:
        options = gather_options(collection, urls, flags=setting_values(flags))

        def take(parcels: tuple[Parcel, ...]) -> bool:
            for row in question.rows_of(parcels):
                rows.put(row)
            return question.is_enough

        run = Run(stop=asyncio.Event(), errand=question.errand, on_parcels=take)
        display = choose_display(as_json=False, quiet=quiet)
        summary = run_under(display, collection, options, run=run)
        if not question.is_streamable:
            with open_collection(collection) as engine:
                write_answer(engine, question.home_sql, form=form)
    raise typer.Exit(0 if question.is_enough else exit_code(summary))


@contextmanager
def _writing(question: "Question", form: TextFormat) -> Iterator["queue.SimpleQueue[tuple[Any, ...] | None]"]:
    """A queue of rows, which a thread prints; at the end all of them are printed."""
    from sterna.query.engine import Result  # noqa: PLC0415 - see above
    from sterna.query.output import write  # noqa: PLC0415

    rows: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
    result = Result(question.columns, iter(rows.get, None))
    thread = threading.Thread(
        target=lambda: write(result, format=form, out=sys.stdout, is_live=True), daemon=True
    )
    if question.is_streamable:
        thread.start()
    try:
        yield rows
    finally:
        rows.put(None)
        if question.is_streamable:
            thread.join()
