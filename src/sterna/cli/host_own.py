"""`sterna host index`, `sitemap`, `changes` and `search`: an owner's own index of the site."""

import asyncio
import logging
import re
import signal
import sys
import tempfile
import time
from contextlib import aclosing, closing, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from msgspec.structs import asdict

from sterna.cli.exits import Exit
from sterna.cli.flags import argument, option, switch, with_flags
from sterna.cli.host_options import HostFlags, OwnSiteOption, OwnStateOption, host_flags, only_folder
from sterna.cli.lines import plural, say, say_json, warn
from sterna.errors import SternaError, UsageError
from sterna.export.workbench import check_file, is_stream, open_stream
from sterna.host.config import HostConfig, config_of
from sterna.host.own.index import MAX_PAGES, NAME, Found, Index
from sterna.host.own.index import search as search_index
from sterna.host.own.shelf import atom_of, lines_of
from sterna.host.policy.policy import read_policy
from sterna.host.site.closed import Closed
from sterna.query.terminal import harmless
from sterna.web.sitemap_file import write_sitemap, xml_time

if TYPE_CHECKING:
    from sterna.host.own.survey import Outcome

PROGRESS_SECONDS = 10.0
_AGO = re.compile(r"(\d+)([mhd])")
_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0}

_OwnPolicy = Annotated[Path | None, option("FILE", "Leave out what this policy.toml closes.")]


# -- reading the site --------------------------------------------------------------------------------------


@with_flags(host_flags(without=("keys", "endpoint")))
def index(
    start: Annotated[list[str] | None, option("PATH", "Where to begin, if not at the front page.")] = None,
    max_pages: Annotated[int, option("N", "End after N pages.", min=1)] = MAX_PAGES,
    anew: Annotated[bool, switch("Read every page, also those that did not change.", "--anew")] = False,
    as_json: Annotated[bool, switch("The summary as one JSON object.", "--json")] = False,
    **flags: Any,
) -> None:
    """Read your own site, for its sitemap, its changes and its search; the next time only what changed.

    It obeys robots.txt and the policy, pauses while the machine is busy, and continues where it was cut off.
    """
    import uvloop  # noqa: PLC0415 - slow to load

    config = config_of(HostFlags(**flags).file())
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="sterna: %(message)s")
    starts = tuple(start or ("/",))
    code = uvloop.run(_survey(config, starts, max_pages=max_pages, is_anew=anew, as_json=as_json))
    raise typer.Exit(int(code))


async def _survey(
    config: HostConfig, starts: tuple[str, ...], *, max_pages: int, is_anew: bool, as_json: bool
) -> Exit:
    from sterna.host.own.survey import Surveyor  # noqa: PLC0415 - it brings the runtime
    from sterna.host.site.source import check_source  # noqa: PLC0415
    from sterna.host.visiting.workshop import Workshop  # noqa: PLC0415
    from sterna.web.clock import SystemClock  # noqa: PLC0415

    check_source(config)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    clock = SystemClock()
    began = time.monotonic()
    watch = asyncio.create_task(_watch(config.state))
    try:
        async with aclosing(Workshop(config, clock, is_own=True)) as workshop:
            surveyor = Surveyor(config, workshop, clock, announce=warn)
            outcome = await surveyor.survey(stop=stop, starts=starts, max_pages=max_pages, is_anew=is_anew)
    finally:
        watch.cancel()
    return _report(config, outcome, seconds=time.monotonic() - began, as_json=as_json)


async def _watch(state: Path) -> None:
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        with suppress(SternaError), closing(Index(state)) as index:  # the survey reports what is wrong
            if survey := index.last_survey(is_over=False):
                warn(f"{plural(survey.pages, 'page')} read")


def _report(config: HostConfig, outcome: "Outcome", *, seconds: float, as_json: bool) -> Exit:
    survey = outcome.survey
    with closing(Index(config.state)) as index:
        shown = index.count()
    if as_json:
        fields = {"site": config.site, "shown": shown, "left": outcome.left, "why": outcome.why}
        say_json(fields | asdict(survey))
    else:
        changes = f"{survey.created:,} created, {survey.updated:,} updated, {survey.deleted:,} deleted"
        since = f"; since the last survey {changes}" if survey.number > 1 else ""
        say(f"{plural(shown, 'page')} of {config.site} in the index{since}")
        say(f"{plural(survey.requests, 'request')} to the site, {seconds:.1f} s -> {config.state / NAME}")
    if outcome.why:
        todo = "more with --max-pages" if outcome.is_over else "run the same command again"
        warn(f"the survey is incomplete, {plural(outcome.left, 'URL')} to go ({outcome.why}): {todo}")
    if not outcome.is_over:
        return Exit.STOPPED
    if not shown:
        warn("no page is public: check robots.txt, noindex, passwords and the policy")
    return Exit.FINISHED if shown else Exit.NOTHING


# -- what it gives -----------------------------------------------------------------------------------------


def sitemap(
    out: Annotated[
        Path | None, option("FILE", "The file, such as /var/www/html/sitemap.xml; or .xml.gz.", "--out", "-o")
    ] = None,
    base: Annotated[str, option("URL", "Where the folder of FILE is served. (default: the site's top)")] = "",
    state: OwnStateOption = None,
    site: OwnSiteOption = "",
    policy: _OwnPolicy = None,
) -> None:
    """Write the site's sitemap.xml with true dates, from what the last survey found.

    A large site gets an index of sitemaps, whose parts are written beside it.
    """
    with closing(Index(_folder_of(state, site))) as found, found.snapshot():
        pages, where = found.pages(_closed(policy)), base or found.site()
        if out and not is_stream(out):
            check_file(out, force=True)
            say(*map(str, write_sitemap(pages, out, base=where)))
            return
        with tempfile.TemporaryDirectory() as folder:
            paths = write_sitemap(pages, Path(folder) / "sitemap.xml", base=where)
            if len(paths) > 1:
                raise UsageError("the sitemap takes several files: name the first with --out FILE")
            with open_stream(out or Path("-"), stdout=sys.stdout.buffer) as stream:
                stream.write(paths[0].read_bytes())


def changes(
    since: Annotated[str, option("WHEN", "2026-11-30, 2026-11-30T08:00, or 90m, 12h, 7d ago.")] = "",
    form: Annotated[
        Literal["lines", "json", "atom"],
        typer.Option("--format", "-f", help="Lines to read, JSON lines, or an Atom feed."),
    ] = "lines",
    state: OwnStateOption = None,
    site: OwnSiteOption = "",
    policy: _OwnPolicy = None,
) -> None:
    """List the pages of the site that were created, updated and deleted, as surveys found them."""
    begin, closed = _time_of(since), _closed(policy)
    with closing(Index(_folder_of(state, site))) as found, found.snapshot():
        if form == "atom":
            latest = (change for change in found.latest(closed) if change.told >= begin)
            own = found.site()
            for piece in atom_of(latest, site=own, url=f"{own}/sterna/changes.atom", now=time.time()):
                sys.stdout.buffer.write(piece.encode())
            return
        told = found.changes(closed, since=begin)
        if form == "json":
            sys.stdout.buffer.writelines(lines_of(told))
            return
        for change in told:
            title = f"  {change.title}" if change.title else ""
            line = f"{xml_time(change.at)}  {change.kind}  {change.url}{title}"
            sys.stdout.buffer.write(f"{harmless(line)}\n".encode())


def find(
    words: Annotated[list[str], argument("WORDS", 'Words; "a phrase" in quotes.')],
    most: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Pages to show at most.")] = 10,
    as_json: Annotated[bool, switch("One JSON object a page.", "--json")] = False,
    state: OwnStateOption = None,
    site: OwnSiteOption = "",
    policy: _OwnPolicy = None,
) -> None:
    """Search the pages of your own site."""
    with closing(Index(_folder_of(state, site))) as index:
        pages = search_index(index, " ".join(words), most=most, closed=_closed(policy))
    for page in pages:
        if as_json:
            say_json(page)
        else:
            say(page.title or page.url, f"  {page.url}")
            sys.stdout.write(f"  {_excerpt(page)}\n\n")
    if not pages and not as_json:
        warn("no page contains these words")
        raise typer.Exit(int(Exit.NOTHING))


def _excerpt(page: Found) -> str:
    """The excerpt with its matches marked: bold on a terminal, in brackets elsewhere."""
    begin, end = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("[", "]")
    text, at = "", 0
    for first, last in page.marked:
        text += harmless(page.excerpt[at:first]) + begin + harmless(page.excerpt[first:last]) + end
        at = last
    return text + harmless(page.excerpt[at:])


# -- arguments ---------------------------------------------------------------------------------------------


def _folder_of(state: Path | None, site: str) -> Path:
    return only_folder(
        state,
        site,
        is_one=lambda path: (path / NAME).exists(),
        missing="there is no index of a site in {base}: create it with 'sterna host index --site URL'",
        several="there is more than one index",
    )


def _closed(policy: Path | None) -> Closed:
    return Closed(read_policy(policy).closed if policy else ())


def _time_of(written: str) -> float:
    """The time that --since names; dates without a zone are local time."""
    if not written:
        return 0.0
    if ago := _AGO.fullmatch(written):
        return time.time() - int(ago[1]) * _SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(written).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(
            f"--since {written} is invalid: write it as 2026-11-30, 2026-11-30T08:00 or 7d"
        ) from None
