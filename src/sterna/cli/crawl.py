"""`sterna crawl`: its flags, the run under a display and signals, and its exit code."""

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from sterna.api.crawlers import crawler_and_urls
from sterna.cli.display import Display, choose_display, report
from sterna.cli.exits import Exit
from sterna.cli.flags import (
    argument,
    option,
    read_age,
    setting_flags,
    setting_values,
    strings,
    switch,
    with_flags,
)
from sterna.cli.lines import warn
from sterna.cli.output import job_of, out_option, write_pages
from sterna.errors import command
from sterna.export.job import ExportJob
from sterna.home.folder import CollectionFolder
from sterna.home.options import Options, is_private_name
from sterna.home.progress import Progress, Summary
from sterna.home.settings import NETWORK, OUTPUT, POLITENESS, SCOPE, SETTINGS
from sterna.web.secrets import read_secrets
from sterna.web.urls import site_of

if TYPE_CHECKING:
    from sterna.home.crawl import Run


@with_flags(setting_flags(SETTINGS, Options))
def crawl(  # noqa: PLR0913, PLR0917 - each is a flag of the command
    urls: Annotated[
        list[str] | None,
        argument("URL|FILE", "Where to start, or a crawler's description such as health.toml."),
    ] = None,
    max_seconds: Annotated[
        float | None, option("SECONDS", "End this run after this time.", panel=SCOPE)
    ] = None,
    refresh: Annotated[
        str | None,
        option("AGE", "Visit pages again that are older than this, such as 0, 90m, 12h or 7d.", panel=SCOPE),
    ] = None,
    retry: Annotated[
        bool,
        switch(
            "Ask again at once for what failed or waits: sites whose robots.txt could not be fetched, sites"
            " that asked for a pause, pages that failed.",
            "--retry",
            panel=SCOPE,
        ),
    ] = False,
    unblock: Annotated[
        list[str] | None, option("NAME", "Remove a name from the block list.", panel=POLITENESS)
    ] = None,
    despite_owner: Annotated[
        bool,
        switch(
            "Fetch pages from here although the site's owner stopped the crawler, or closed them.",
            "--despite-owner",
            panel=POLITENESS,
        ),
    ] = False,
    cookies: Annotated[
        Path | None,
        option(
            "FILE",
            "Send the cookies in this file (cookies.txt) to the start sites only. Never stored.",
            panel=NETWORK,
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        option("'NAME: VALUE'", "Send this header to the start sites. Never stored.", panel=NETWORK),
    ] = None,
    auth: Annotated[
        str | None,
        option(
            "USER:PASSWORD",
            "Log in to the start sites only, by HTTP Basic. Better in STERNA_AUTH: others on this machine see"
            " its commands. Never stored.",
            panel=NETWORK,
        ),
    ] = None,
    into: Annotated[
        Path | None,
        option(
            "DIR",
            "The collection's folder. (default: crawls/HOSTNAME or crawls/HOSTNAME_PORT)",
            panel=OUTPUT,
        ),
    ] = None,
    out: Annotated[str | None, out_option("the collection's pages", panel=OUTPUT)] = None,
    jail: Annotated[
        bool | None,
        switch(
            "Read pages and run a crawler's rules only in a sandbox, or without one."
            " (default: in a sandbox if this machine supports it)",
            "--jail/--no-jail",
            panel=OUTPUT,
        ),
    ] = None,
    config: Annotated[
        Path | None, option("FILE", "A TOML file with options; flags override it.", panel=OUTPUT)
    ] = None,
    as_json: Annotated[bool, switch("Progress and summary as JSON lines.", "--json", panel=OUTPUT)] = False,
    quiet: Annotated[bool, switch("Print only errors.", "--quiet", "-q", panel=OUTPUT)] = False,
    verbose: Annotated[
        bool,
        switch(
            "Report where each visit is made, and why, and each address that failed to give a robots.txt.",
            "--verbose",
            "-v",
            panel=OUTPUT,
        ),
    ] = False,
    **flags: Any,
) -> None:
    """Crawl sites into a collection; the same command again continues where it ended.

    Pages are fetched one at a time and site by site, as robots.txt allows. Where a site has a host, the
    crawler goes there instead, if that saves enough. Ctrl-C stops cleanly.
    """
    # They are slow to load, and --help should not wait for them.
    from sterna.api.crawl import check_run, default_folder, errand_for, gather_options  # noqa: PLC0415
    from sterna.home.crawl import Run  # noqa: PLC0415

    check_run(max_seconds=max_seconds, refresh_seconds=None)
    packed, starts = crawler_and_urls(urls or ())
    job = job_of(out) if out else None
    collection = CollectionFolder(into or default_folder(starts, packed))
    values = setting_values(flags)
    # --here takes back a remembered --require-host, and the other way round.
    for one, other in (("here", "require_host"), ("require_host", "here")):
        if values[one] and values[other] is None:
            values[other] = False
    options = gather_options(collection, starts, packed=packed, flags=values, config=config)
    run = Run(
        stop=asyncio.Event(),
        refresh_seconds=read_age(refresh) if refresh else None,
        max_seconds=max_seconds,
        unblock=strings(unblock) or (),
        asked=tuple(starts),
        retry=retry,
        errand=errand_for(packed, values["keep"], options),
        is_jailed=jail,
        despite_owner=despite_owner,
        secrets=msgspec.structs.replace(
            read_secrets(
                headers=strings(header) or (), auth=auth or os.environ.get("STERNA_AUTH", ""), cookies=cookies
            ),
            # Start sites of a crawler that somebody else wrote, or of earlier runs, are not meant.
            sites=frozenset(map(site_of, Options(seeds=tuple(starts)).seed_urls())),
        ),
    )
    display = choose_display(as_json=as_json, quiet=quiet, is_verbose=verbose)
    run.say = display.note
    with _logged(display) if verbose and not quiet else nullcontext():
        crawl_and_exit(collection, options, run=run, display=display, job=job)


class _Lines(logging.Handler):
    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        self._display.warn(record.getMessage())


@contextmanager
def _logged(display: Display) -> Iterator[None]:
    """Shows what is logged of each address that is asked for a robots.txt."""
    logger, lines = logging.getLogger("sterna.runtime.qualification"), _Lines(display)
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)


# -- the run -----------------------------------------------------------------------------------------------


def crawl_and_exit(
    collection: CollectionFolder,
    options: Options,
    *,
    run: "Run",
    display: Display,
    job: ExportJob | None = None,
) -> None:
    """Runs the crawl under the display and exits with its code; what comes in is indexed and stored."""
    from sterna.api.companion import attended  # noqa: PLC0415 - see above

    with attended(collection, options, run=run, warn=display.warn, show=display.wait_for):
        summary = run_under(display, collection, options, run=run)
    lines = report(summary, collection)
    if job and summary.total_pages:
        lines.append(write_pages(collection, job))
    display.finish(summary, lines)
    raise typer.Exit(exit_code(summary))


def run_under(display: Display, collection: CollectionFolder, options: Options, *, run: "Run") -> Summary:
    """Runs the crawl under the display; Ctrl-C stops it cleanly."""
    import uvloop  # noqa: PLC0415 - see above

    if options.ignore_robots:
        display.warn("robots.txt is not fetched: do this only on sites of your own")
    is_local = all(is_private_name(url) for url in options.seed_urls())
    if not (options.contact or options.user_agent or is_local):
        display.warn("no --contact: the owners of the sites cannot tell who is crawling them")
    return uvloop.run(_run(display, collection, options, run=run))


async def _run(display: Display, collection: CollectionFolder, options: Options, *, run: "Run") -> Summary:
    from sterna.api.crawl import send  # noqa: PLC0415 - see above

    progress = Progress(began=run.clock.now(), max_pages=options.max_pages)
    task = asyncio.current_task()
    assert task
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if run.stop.is_set():
            task.cancel()  # the second time: nothing that was acknowledged is lost
        progress.note = "stopping; once more ends at once"
        run.stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    with display.showing(progress):
        try:
            return await send(
                collection, options, run=run, progress=progress, warn=display.warn, tell=display.tell
            )
        except asyncio.CancelledError:
            warn(f"ended at once; continue with: {command('crawl', '--into', collection.folder)}")
            raise SystemExit(int(Exit.STOPPED)) from None


def exit_code(summary: Summary) -> Exit:
    if summary.ended == "stopped":
        return Exit.STOPPED
    if summary.total_pages == 0:
        return Exit.NOTHING
    return Exit.WAITING if summary.ended == "waiting" else Exit.FINISHED
