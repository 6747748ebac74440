"""`sterna ask`: a query that crawls; its rows are printed as they arrive."""

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
from sterna.cli.flags import argument, option, setting_flags, setting_values, switch, with_flags
from sterna.cli.lines import warn
from sterna.cli.query import write_answer
from sterna.home.options import Options
from sterna.query.terminal import TextFormat

if TYPE_CHECKING:
    from sterna.api.ask import Question

_SETTINGS = ("max_pages", "max_depth", "stay", "delay", "contact")


@with_flags(setting_flags(_SETTINGS, Options))
def ask(
    sql: Annotated[str, argument("SQL", "A SELECT over page; see `sterna explain SQL`.")],
    urls: Annotated[list[str], argument("URL", "Where to start.")],
    into: Annotated[Path | None, option("DIR", "Keep the collection here. (default: it is deleted)")] = None,
    form: Annotated[TextFormat, typer.Option("--format", "-f", help="How to print the rows.")] = "table",
    only_matching_urls: Annotated[
        bool,
        switch(
            "Pass only through URLs that match the query's conditions on url: fewer requests, but pages"
            " that are reached through others are missed.",
            "--only-matching-urls",
        ),
    ] = False,
    quiet: Annotated[bool, switch("Print only the rows, and errors.", "--quiet", "-q")] = False,
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

    question = Question(sql, only_matching_urls=only_matching_urls)
    with question_folder(into) as collection, _writing(question, form) as rows:
        options = gather_options(collection, urls, flags=setting_values(flags))
        display = choose_display(quiet=quiet)
        summary = run_under(display, collection, options, run=question.run(rows.put))
        if not question.is_streamable:
            with open_collection(collection, warn=warn) as engine:
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
