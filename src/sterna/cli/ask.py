"""`sterna ask`: a query that crawls; its rows are printed as they arrive."""

import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sterna.api.crawlers import check_argument
from sterna.cli.crawl import exit_code, run_under
from sterna.cli.display import choose_display, why_nothing
from sterna.cli.flags import argument, option, setting_flags, setting_values, switch, with_flags
from sterna.cli.lines import say, warn
from sterna.cli.output import job_of, out_option, write_rows_as_markdown, written
from sterna.cli.query import write_answer
from sterna.home.options import Options
from sterna.query.terminal import Format, TextFormat

if TYPE_CHECKING:
    from sterna.api.ask import Question
    from sterna.export.job import ExportJob
    from sterna.query.engine import Engine

_SETTINGS = ("max_pages", "max_depth", "stay", "delay", "contact")


@with_flags(setting_flags(_SETTINGS, Options))
def ask(
    sql: Annotated[str, argument("SQL", "A SELECT over page; see `sterna explain SQL`.")],
    urls: Annotated[list[str], argument("URL", "Where to start.")],
    into: Annotated[Path | None, option("DIR", "Keep the collection here. (default: it is deleted)")] = None,
    form: Annotated[TextFormat, typer.Option("--format", "-f", help="How to print the rows.")] = "table",
    out: Annotated[str | None, out_option("the rows")] = None,
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

    for url in urls:
        check_argument(url)
    job = job_of(out) if out else None
    question = Question(sql, only_matching_urls=only_matching_urls)
    is_live = question.is_streamable and job is None
    with question_folder(into) as collection:
        options = gather_options(collection, urls, flags=setting_values(flags))
        display = choose_display(quiet=quiet)
        with _writing(question, form, is_live=is_live) as rows:
            summary = run_under(display, collection, options, run=question.run(rows.put))
        count = rows.count
        if not is_live and summary.total_pages:
            with open_collection(collection, warn=warn) as engine:
                count = _write(engine, question.home_sql, form, job)
        if job and count and not quiet:
            say(written(count, "row", job))
        if not count:
            for line in why_nothing(summary, collection, question.passed_over):
                display.warn(line)
    raise typer.Exit(0 if question.is_enough else exit_code(summary))


def _write(engine: "Engine", sql: str, form: TextFormat, job: "ExportJob | None") -> int:
    if job is None:
        return write_answer(engine, sql, form=form)
    if job.kind == "markdown":
        return write_rows_as_markdown(engine, sql, job)
    kinds: dict[str, Format] = {"jsonl": "jsonl", "csv": "csv", "parquet": "parquet"}
    return write_answer(engine, sql, form=kinds[job.kind], out=job.place)


class _Rows:
    """A queue of rows that counts them."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self.count = 0

    def put(self, row: tuple[Any, ...]) -> None:
        self.count += 1
        self.queue.put(row)


@contextmanager
def _writing(question: "Question", form: TextFormat, *, is_live: bool) -> Iterator[_Rows]:
    """Rows that a thread prints, if they are to be seen at once; at the end all of them are printed."""
    from sterna.query.engine import Result  # noqa: PLC0415 - see above
    from sterna.query.output import write  # noqa: PLC0415

    rows = _Rows()
    result = Result(question.columns, iter(rows.queue.get, None))
    thread = threading.Thread(
        target=lambda: write(result, format=form, out=sys.stdout, is_live=True), daemon=True
    )
    if is_live:
        thread.start()
    try:
        yield rows
    finally:
        rows.queue.put(None)
        if is_live:
            thread.join()
