"""`sterna follow`: the process beside a crawl that indexes and stores; `sterna crawl` starts it."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from sterna.api.followers import Company, Report, open_followers
from sterna.home.folder import CollectionFolder

NICE = 5  # the crawl comes first


def follow(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The collection.")],
    index: Annotated[bool, typer.Option("--index/--no-index", help="Index pages, or only store.")] = True,
    parent: Annotated[
        int | None, typer.Option(metavar="PID", help="End at once when this is no longer the parent.")
    ] = None,
) -> None:
    """Index and store what a crawl brings in, until standard input is closed."""
    collection = CollectionFolder(folder)
    collection.check()
    os.nice(NICE)
    openers = open_followers(
        collection, is_indexed=index, environ=os.environ, warn=lambda text: _say(Report(warning=text))
    )
    company = Company(collection, openers, say=_say, parent=parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: company.stop())
    raise typer.Exit(0 if company.run() else 1)


def _say(report: Report) -> None:
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    sys.stdout.flush()
