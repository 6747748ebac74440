"""Running a crawl from the command line: signals, display, summary, exit code."""

import asyncio
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import typer
import uvloop

from sterna.api.companion import following
from sterna.cli.display import Display
from sterna.cli.exits import Exit
from sterna.cli.keys import DEFAULT_FOLDER, keyring_of
from sterna.cli.report import report
from sterna.crawler.pack import PackedCrawler
from sterna.home.folder import Collection
from sterna.home.options import Options, is_private_name
from sterna.home.progress import Progress, Summary
from sterna.model import Parcel


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What is asked of one run besides the collection's options."""

    refresh_seconds: float | None = None
    max_seconds: float | None = None
    unblock: tuple[str, ...] = ()
    errand: PackedCrawler | None = None
    is_jailed: bool | None = None  # None: if this machine can
    on_parcels: Callable[[tuple[Parcel, ...]], bool] | None = None


def start(
    collection: Collection, options: Options, *, display: Display, wishes: Wishes | None = None
) -> None:
    """Runs the crawl under the display and ends the process with the fitting exit code.

    What it brings in is indexed and stored beside it.
    """
    wishes = wishes or Wishes()
    with following(
        collection, options, on_parcels=wishes.on_parcels, warn=display.warn, show=display.wait_for
    ) as on_parcels:
        followed = replace(wishes, on_parcels=on_parcels)
        summary = run(collection, options, display=display, wishes=followed)
    display.finish(summary, report(summary, collection))
    raise typer.Exit(exit_code(summary))


def run(collection: Collection, options: Options, *, display: Display, wishes: Wishes) -> Summary:
    """Runs the crawl under the display."""
    if options.ignore_robots:
        display.warn("robots.txt is not asked for: do this only on sites of your own")
    if not (options.contact or options.user_agent) and not _are_local(options.seed_urls()):
        display.warn("no --contact: the owners of the sites cannot tell who is crawling them")
    return uvloop.run(_run(collection, options, display=display, wishes=wishes))


async def _run(collection: Collection, options: Options, *, display: Display, wishes: Wishes) -> Summary:
    # Arrow takes a while to load, and who asks for help should not wait for it.
    from sterna.home.away.composition import Migration  # noqa: PLC0415
    from sterna.home.crawl import Run  # noqa: PLC0415
    from sterna.home.crawl import crawl as run_crawl  # noqa: PLC0415

    stop = asyncio.Event()
    run = Run(
        stop=stop,
        refresh_seconds=wishes.refresh_seconds,
        max_seconds=wishes.max_seconds,
        unblock=wishes.unblock,
        errand=wishes.errand,
        is_jailed=wishes.is_jailed,
        migration=Migration(
            identity=partial(keyring_of(keys_folder(options)).read_or_make, "home"),
            tell=display.tell,
            warn=display.warn,
        ),
    )
    if wishes.on_parcels:
        run.on_parcels = wishes.on_parcels
    progress = Progress(began=run.clock.now(), max_pages=options.max_pages)
    task = asyncio.current_task()
    assert task
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            task.cancel()  # asked twice: nothing that was acknowledged is lost
        progress.note = "stopping; once more ends at once"
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    with display.showing(progress):
        try:
            return await run_crawl(collection, options, run=run, progress=progress)
        except asyncio.CancelledError:
            sys.stderr.write(f"sterna: ended at once; go on with: sterna crawl --into {collection.folder}\n")
            raise SystemExit(int(Exit.STOPPED)) from None


def keys_folder(options: Options) -> Path:
    """Where the keys are, of which home's is made when the first crawler leaves."""
    return Path(options.keys or DEFAULT_FOLDER)


def exit_code(summary: Summary) -> Exit:
    """What a script is told."""
    if summary.ended == "stopped":
        return Exit.STOPPED
    if summary.total_pages == 0:
        return Exit.NOTHING
    return Exit.WAITING if summary.ended == "waiting" else Exit.FINISHED


def _are_local(urls: list[str]) -> bool:
    return all(is_private_name(url) for url in urls)
