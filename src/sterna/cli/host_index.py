"""`sterna host index`: the owner's own look at his site, of which sitemap, changes and search are made."""

import asyncio
import logging
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from sterna.cli.exits import Exit
from sterna.cli.host_options import (
    AliasOption,
    CaFileOption,
    CheckOption,
    PolicyOption,
    RootOption,
    SiteOption,
    StateOption,
    UpstreamOption,
    aliases_of,
    say,
    state_of,
)
from sterna.cli.host_own import opened, warn
from sterna.cli.keys import DEFAULT_FOLDER
from sterna.cli.numbers import plural
from sterna.errors import SternaError
from sterna.host.config import HostConfig, HostFile, config_of
from sterna.host.own.index import MAX_PAGES, NAME

if TYPE_CHECKING:
    from sterna.host.own.survey import Outcome

PROGRESS_SECONDS = 10.0


def index(  # noqa: PLR0913, PLR0917 - each is a flag of the command
    site: SiteOption,
    root: RootOption = None,
    alias: AliasOption = None,
    upstream: UpstreamOption = "",
    check: CheckOption = "",
    policy: PolicyOption = None,
    state: StateOption = None,
    ca_file: CaFileOption = "",
    start: Annotated[
        list[str] | None,
        typer.Option("--start", metavar="PATH", help="Where to begin, if not at the front page."),
    ] = None,
    max_pages: Annotated[
        int, typer.Option("--max-pages", metavar="N", min=1, help="End after so many pages.")
    ] = MAX_PAGES,
    anew: Annotated[
        bool, typer.Option("--anew", help="Read every page, also those that did not change.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")] = False,
) -> None:
    """Read the own site, for its sitemap, its changes and its search; the next time only what changed.

    It works under robots.txt and the policy, rests while the machine is busy, and goes on where it was cut.
    """
    config = config_of(
        HostFile(
            site=site,
            root=str(root or ""),
            aliases=aliases_of(alias),
            upstream=upstream,
            check=check,
            policy=str(policy or ""),
            keys=str(Path(DEFAULT_FOLDER).expanduser()),
            state=str(state_of(state, site)),
            ca_file=ca_file,
        )
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="sterna: %(message)s")
    import uvloop  # noqa: PLC0415 - whoever asks for help should not wait for it

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
    """Says now and then how far it is."""
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        with suppress(SternaError), opened(state) as index:  # it tells itself what is wrong
            if survey := index.last_survey(is_over=False):
                warn(f"{survey.pages:,} pages read")


def _tell(config: HostConfig, outcome: "Outcome", *, seconds: float, as_json: bool) -> Exit:
    with opened(config.state) as index:
        shown = index.count()
    survey = outcome.survey
    if as_json:
        fields = {"site": config.site, "shown": shown, "left": outcome.left, "why": outcome.why}
        fields |= {name: getattr(survey, name) for name in survey.__struct_fields__}
        say(msgspec.json.encode(fields).decode())
    else:
        changes = f"{survey.created:,} created, {survey.updated:,} updated, {survey.deleted:,} deleted"
        since = f"; since the last survey {changes}" if survey.number > 1 else ""
        say(f"{plural(shown, 'page')} of {config.site} in the index{since}")
        say(f"{plural(survey.requests, 'request')} to the site, {seconds:.1f} s -> {config.state / NAME}")
    if outcome.why:
        todo = "more with --max-pages" if outcome.is_over else "run the same command again"
        warn(f"the survey is not whole, {plural(outcome.left, 'URL')} to go ({outcome.why}): {todo}")
    if not outcome.is_over:
        return Exit.STOPPED
    if not shown:
        warn("no page is shown to everybody: look at robots.txt, noindex, passwords and the policy")
    return Exit.FINISHED if shown else Exit.NOTHING
