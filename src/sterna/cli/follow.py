"""`sterna follow`: the process beside a crawl that indexes and stores; `sterna crawl` starts it."""

import os
import signal
from typing import Annotated

import typer

from sterna.api.followers import Company, Report, open_followers
from sterna.cli.flags import FolderArgument, option, switch
from sterna.cli.lines import say_json
from sterna.home.folder import CollectionFolder

NICE = 5  # the crawl comes first


def follow(
    folder: FolderArgument,
    index: Annotated[bool, switch("Index pages, or only store.", "--index/--no-index")] = True,
    parent: Annotated[int | None, option("PID", "End at once when this is no longer the parent.")] = None,
) -> None:
    """Index and store what a crawl brings in, until standard input is closed."""
    collection = CollectionFolder(folder).check()
    os.nice(NICE)
    openers = open_followers(
        collection, is_indexed=index, environ=os.environ, warn=lambda text: say_json(Report(warning=text))
    )
    company = Company(collection, openers, say=say_json, parent=parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: company.stop())
    raise typer.Exit(0 if company.run() else 1)
