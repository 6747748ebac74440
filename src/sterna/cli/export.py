"""`sterna export`: a collection in the forms that other tools read."""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from sterna.cli.exits import Exit
from sterna.home.folder import Collection

# The kinds once more, as `sterna.export.job` has them: who asks for help should not wait for DuckDB.
_Kind = Literal["jsonl", "parquet", "csv", "warc", "cdxj", "wacz", "sitemap", "markdown"]


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The collection.")],
    to: Annotated[_Kind, typer.Option("--to", help="What to make of it.")],
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
            help="Only rows that meet it, in SQL; of warc, cdxj and wacz, the responses of such pages.",
        ),
    ] = "",
    base: Annotated[
        str, typer.Option(metavar="URL", help="Of a sitemap: the folder in which it will be served.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
) -> None:
    """Write a collection out for other tools, also while it is crawled.

    What is written is there whole, or not at all. Examples:
    sterna export crawls/www.example.org --to wacz;
    sterna export crawls/www.example.org --to csv --table link --where "rel = 'nofollow'" --out links.csv
    """
    collection = Collection(folder)
    collection.check()
    # DuckDB takes a while to load, and who asks for help should not wait for it.
    from sterna.api.export import run  # noqa: PLC0415
    from sterna.export.job import Wish, default_place  # noqa: PLC0415

    name = folder.resolve().name
    place = out or default_place(to, name=name, table=table)
    wish = Wish(kind=to, place=place, table=table, base=base, force=force)
    if not run(collection, wish, where=where, quiet=quiet):
        # DuckDB loses track of what it was doing when Ctrl-C came, and would say so at length on the way out.
        sys.stderr.flush()
        os._exit(Exit.STOPPED)
