"""`sterna query`: SQL over a collection, also while it is crawled."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from sterna.home.collection import Collection


def query(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The collection.")],
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="A SELECT over page, page_history, link, fact, site, visit.")
    ],
    form: Annotated[
        Literal["table", "csv", "json"], typer.Option("--format", "-f", help="How to print the rows.")
    ] = "table",
) -> None:
    """Ask a collection in SQL.

    Example: sterna query crawls/www.example.org "SELECT status, count(*) FROM page GROUP BY status"
    """
    collection = Collection(folder)
    collection.check()
    # DuckDB takes a while to load, and who asks for help should not wait for it.
    from sterna.cli.asking import ask  # noqa: PLC0415

    ask(collection, sql, form=form)
