"""`sterna index`: brings the search index up to date, or makes it anew."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from sterna.cli.exits import Exit
from sterna.cli.numbers import duration_text, plural
from sterna.cli.repeating import every
from sterna.home.folder import Collection

_LINE_SECONDS = 10.0


def index(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The collection.")],
    anew: Annotated[
        bool, typer.Option("--anew", help="Make it from the archive; the old one serves until it is done.")
    ] = False,
) -> None:
    """Bring the search index up to date; a crawl does so by itself.

    Example: sterna index crawls/www.example.org --anew
    """
    collection = Collection(folder)
    collection.check()
    began = time.monotonic()
    is_whole, rows = bring_up(collection, is_anew=anew)
    if not is_whole:
        again = "the index is as it was" if anew else f"go on with: sterna index {folder}"
        sys.stderr.write(f"sterna: stopped; {again}\n")
        raise typer.Exit(int(Exit.STOPPED))
    seconds = duration_text(time.monotonic() - began)
    sys.stdout.write(
        f"{plural(rows, 'version')} of pages read in {seconds}; {plural(_page_count(collection), 'page')}"
        f" can be searched: sterna search {folder} WORDS\n"
    )


def bring_up(collection: Collection, *, is_anew: bool = False) -> tuple[bool, int]:
    """Indexes all that the archive has; False if the user stopped it, and how many rows were looked at."""
    from sterna.archive.arrivals import count  # noqa: PLC0415 - who asks for help should not wait for it
    from sterna.home.snapshots import take  # noqa: PLC0415
    from sterna.search.indexer import Indexer  # noqa: PLC0415

    with _stopping() as stop, Indexer(collection.index_folder, is_anew=is_anew) as indexer:
        snapshot = take(collection)
        total = count(snapshot.tables["page"], after=indexer.batch, upto=snapshot.batch)
        with _showing(lambda: indexer.pages, total):
            while indexer.batch < snapshot.batch and not stop.is_set():
                indexer.catch_up(snapshot, stop=stop)
                indexer.commit()
                snapshot = take(collection)
            if stop.is_set():
                return False, indexer.pages
            indexer.settle()
        if is_anew:
            indexer.publish()
        return True, indexer.pages


def _page_count(collection: Collection) -> int:
    from sterna.search.searcher import Searcher  # noqa: PLC0415 - see above

    with Searcher(collection.index_folder) as searcher:
        return searcher.page_count()


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Set by Ctrl-C, so that what was done is kept; the second one ends it at once."""
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _showing(done: Callable[[], int], total: int) -> AbstractContextManager[None]:
    return _bar(done, total) if sys.stderr.isatty() else _lines(done, total)


@contextmanager
def _lines(done: Callable[[], int], total: int) -> Iterator[None]:
    """A line now and then, for a log."""
    with every(_LINE_SECONDS, lambda: sys.stderr.write(f"indexing: {done():,} of {total:,} pages\n")):
        yield


@contextmanager
def _bar(done: Callable[[], int], total: int) -> Iterator[None]:
    from rich.console import Console  # noqa: PLC0415 - it takes as long to load as the rest of the command
    from rich.progress import Progress as Bar  # noqa: PLC0415

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("indexing", total=total)
        with every(0.2, lambda: bar.update(task, completed=done())):
            yield
