"""`sterna follow`: a process beside a crawl that indexes or stores; `sterna crawl` starts it."""

import os
import signal
from functools import partial
from typing import Annotated, Literal

import typer

from sterna.api.followers import INDEX, Company, Open, Report, open_index, open_storage
from sterna.cli.confinement import keep_to
from sterna.cli.flags import FolderArgument, option
from sterna.cli.lines import say_json
from sterna.home.folder import CollectionFolder

NICE = 5  # the crawl comes first


def follow(
    what: Annotated[Literal["index", "storage"], typer.Argument(help="What is done.")],
    folder: FolderArgument,
    parent: Annotated[int | None, option("PID", "End at once when this is no longer the parent.")] = None,
) -> None:
    """Index or store what a crawl brings in, until standard input is closed."""
    collection = CollectionFolder(folder).check()
    opened: Open
    os.nice(NICE)
    if what == INDEX:
        # A note: not what it dies of, if it dies.
        keep_to(folder, makes_index=True, warn=lambda text: say_json(Report(note=text)))
        opened = partial(open_index, collection)
    else:
        warn = lambda text: say_json(Report(warning=text))  # noqa: E731
        opened = partial(open_storage, collection, environ=os.environ, warn=warn)
    company = Company(what, collection, opened, say=say_json, parent=parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: company.stop())
    raise typer.Exit(0 if company.run() else 1)
