"""`sterna ask`: a query that crawls; its rows are printed as they come."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from sterna.cli.crawl import gather_options
from sterna.cli.display import choose_display
from sterna.cli.running import Wishes, exit_code, run
from sterna.crawler.pack import PackedCrawler
from sterna.errors import UsageError
from sterna.home.folder import Collection
from sterna.query.formats import TextFormat


def ask(  # noqa: PLR0913, PLR0917 - each is a flag of the command
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A SELECT over page; see `sterna explain SQL`.")],
    urls: Annotated[list[str], typer.Argument(metavar="URL", help="Where to start.")],
    into: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the collection here. (default: it is thrown away)"),
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
    max_pages: Annotated[int | None, typer.Option(metavar="N", help="Fetch so many pages at most.")] = None,
    max_depth: Annotated[
        int | None, typer.Option(metavar="N", help="Links from a start page at most.")
    ] = None,
    stay: Annotated[
        str | None, typer.Option(metavar="site|domain|any", help="How far links are followed.")
    ] = None,
    delay: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Seconds between two requests to a site.")
    ] = None,
    contact: Annotated[
        str | None,
        typer.Option(metavar="URL|MAIL", envvar="STERNA_CONTACT", help="For the owners of sites."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the rows, and errors.")] = False,
) -> None:
    """Crawl, and print what a query finds.

    What the query asks of a page is decided where the page is read; only rows that it may want are kept.
    Example: sterna ask "SELECT url, title FROM page WHERE status = 200 AND text LIKE '%clinic%'" URL
    """
    # SQL's reader and DuckDB take a while to load, and who asks for help should not wait for them.
    from sterna.cli.answers import CRAWLER, Answers  # noqa: PLC0415
    from sterna.crawler.compiler import compile_query  # noqa: PLC0415
    from sterna.crawler.sql.plan import plan_query  # noqa: PLC0415

    plan = plan_query(sql)
    if only_matching_urls:
        plan = msgspec.structs.replace(plan, prune=plan.prunable)
    crawler = compile_query(plan, CRAWLER)
    flags: dict[str, Any] = {
        "max_pages": max_pages, "max_depth": max_depth, "stay": stay, "delay": delay, "contact": contact
    }  # fmt: skip
    with _collection(into) as collection, Answers(plan, form=form, out=sys.stdout) as answers:
        options = gather_options(collection, urls, flags=flags)
        wishes = Wishes(errand=PackedCrawler(crawler=crawler), on_parcels=answers.take)
        summary = run(collection, options, display=choose_display(as_json=False, quiet=quiet), wishes=wishes)
        answers.finish(collection)
    raise typer.Exit(0 if answers.is_enough else exit_code(summary))


@contextmanager
def _collection(folder: Path | None) -> Iterator[Collection]:
    if folder:
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"--into {folder} holds something already: a question needs a folder of its own")
        yield Collection(folder)
        return
    with tempfile.TemporaryDirectory(prefix="sterna-ask-") as work:
        yield Collection(Path(work) / "collection")
