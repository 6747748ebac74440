"""`sterna host index`, `sitemap`, `changes` and `search`: an owner's own index of the site."""

import asyncio
import logging
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from sterna.cli.exits import Exit
from sterna.cli.flags import with_flags
from sterna.cli.host_options import (
    OwnSiteOption,
    OwnStateOption,
    StateFlag,
    host_file,
    host_flags,
    only_folder,
)
from sterna.cli.lines import fields_of, plural, say, say_json, warn
from sterna.errors import SternaError, UsageError
from sterna.host.config import HostConfig, config_of
from sterna.host.own.index import MAX_PAGES, NAME, Change, Found, Index, search
from sterna.host.own.shelf import atom_of, lines_of
from sterna.host.site.closed import Closed
from sterna.query.terminal import harmless
from sterna.web.sitemap_file import write_sitemap, xml_time

if TYPE_CHECKING:
    from sterna.host.own.survey import Outcome

PROGRESS_SECONDS = 10.0
_AGO = re.compile(r"(\d+)([mhd])")
_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0}

_OwnPolicy = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="Leave out what this policy.toml closes.")
]


# -- reading the site --------------------------------------------------------------------------------------


@with_flags(host_flags(state=StateFlag))
def index(
    start: Annotated[
        list[str] | None,
        typer.Option("--start", metavar="PATH", help="Where to begin, if not at the front page."),
    ] = None,
    max_pages: Annotated[
        int, typer.Option("--max-pages", metavar="N", min=1, help="End after N pages.")
    ] = MAX_PAGES,
    anew: Annotated[
        bool, typer.Option("--anew", help="Read every page, also those that did not change.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")] = False,
    **flags: Any,
) -> None:
    """Read your own site, for its sitemap, its changes and its search; the next time only what changed.

    It obeys robots.txt and the policy, pauses while the machine is busy, and continues where it was cut off.
    """
    import uvloop  # noqa: PLC0415 - slow to load

    config = config_of(host_file(flags))
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="sterna: %(message)s")
    code = uvloop.run(
        _survey(config, tuple(start or ("/",)), max_pages=max_pages, is_anew=anew, as_json=as_json)
    )
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
    workshop = Workshop(config, clock)
    began = time.monotonic()
    watch = asyncio.create_task(_watch(config.state))
    try:
        surveyor = Surveyor(config, workshop, clock, announce=warn)
        outcome = await surveyor.survey(stop=stop, starts=starts, max_pages=max_pages, is_anew=is_anew)
    finally:
        watch.cancel()
        await workshop.close()
    return _tell(config, outcome, seconds=time.monotonic() - began, as_json=as_json)


async def _watch(state: Path) -> None:
    """Reports at intervals how far it is."""
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        with suppress(SternaError), opened(state) as index:  # the survey itself reports what is wrong
            if survey := index.last_survey(is_over=False):
                warn(f"{survey.pages:,} pages read")


def _tell(config: HostConfig, outcome: "Outcome", *, seconds: float, as_json: bool) -> Exit:
    with opened(config.state) as index:
        shown = index.count()
    survey = outcome.survey
    if as_json:
        fields = {"site": config.site, "shown": shown, "left": outcome.left, "why": outcome.why}
        say_json(fields | fields_of(survey))
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
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="The file, such as /var/www/html/sitemap.xml; or .xml.gz."
        ),
    ] = None,
    base: Annotated[
        str,
        typer.Option(
            "--base", metavar="URL", help="Where the folder of FILE is served. (default: the site's top)"
        ),
    ] = "",
    state: OwnStateOption = None,
    site: OwnSiteOption = "",
    policy: _OwnPolicy = None,
) -> None:
    """Write the site's sitemap.xml with true dates, from what the last survey found.

    A large site gets an index of sitemaps, whose parts are written beside it.
    """
    with opened(_folder_of(state, site)) as found, found.snapshot():
        pages, where = found.pages(_closed(policy)), base or found.site()
        if out:
            paths = write_sitemap(pages, out, base=where)
            say(*map(str, paths))
            return
        with tempfile.TemporaryDirectory() as folder:
            paths = write_sitemap(pages, Path(folder) / "sitemap.xml", base=where)
            if len(paths) > 1:
                raise UsageError("the sitemap takes several files: name the first with --out FILE")
            _write(paths[0].read_bytes())


def changes(
    since: Annotated[
        str,
        typer.Option("--since", metavar="WHEN", help="2026-11-30, 2026-11-30T08:00, or 90m, 12h, 7d ago."),
    ] = "",
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
    with opened(_folder_of(state, site)) as found, found.snapshot():
        if form == "atom":
            latest = (change for change in found.latest(closed) if change.told >= begin)
            own = found.site()
            for piece in atom_of(latest, site=own, url=f"{own}/sterna/changes.atom", now=time.time()):
                _write(piece.encode())
            return
        told = found.changes(closed, since=begin)
        for line in lines_of(told) if form == "json" else map(_line_of, told):
            _write(line)


def _line_of(change: Change) -> bytes:
    title = f"  {change.title}" if change.title else ""
    return (harmless(f"{xml_time(change.at)}  {change.kind}  {change.url}{title}") + "\n").encode()


def find(
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help='Words; "a phrase" in quotes.')],
    most: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Pages to show at most.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a page.")] = False,
    state: OwnStateOption = None,
    site: OwnSiteOption = "",
    policy: _OwnPolicy = None,
) -> None:
    """Search the pages of your own site."""
    with opened(_folder_of(state, site)) as index:
        pages = search(index, " ".join(words), most=most, closed=_closed(policy))
    if as_json:
        for page in pages:
            _write(msgspec.json.encode(page) + b"\n")
        return
    for page in pages:
        lines = (harmless(page.title or page.url), f"  {harmless(page.url)}", f"  {_excerpt(page)}", "")
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    if not pages:
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
    """The folder of the host that is meant; raises UsageError if that is not clear."""
    return only_folder(
        state,
        site,
        is_one=lambda path: (path / NAME).exists(),
        missing="there is no index of a site in {base}: create it with 'sterna host index --site URL'",
        several="there is more than one index",
    )


@contextmanager
def opened(state: Path) -> Iterator[Index]:
    """The index, for reading; raises UsageError if there is none."""
    index = Index(state)
    try:
        yield index
    finally:
        index.close()


def _closed(policy: Path | None) -> Closed:
    from sterna.host.policy.policy import read_policy  # noqa: PLC0415 - few name one

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


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
