"""`sterna host dry-run`: what would leave the site for a given crawler, into a file; nothing is sent."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import typer
import uvloop

from sterna import __version__
from sterna.api.crawlers import is_file, lay_over, read_crawler
from sterna.cli.host_options import (
    AliasOption,
    CaFileOption,
    CheckOption,
    PolicyOption,
    RootOption,
    SiteOption,
    UpstreamOption,
    aliases_of,
    say,
)
from sterna.cli.keys import DEFAULT_FOLDER, KeysOption, keyring_of
from sterna.cli.numbers import bytes_text, duration_text, plural
from sterna.crawler.compiler import crawler_of_fields
from sterna.crawler.pack import PackedCrawler
from sterna.errors import StorageError, UsageError
from sterna.home.options import Options
from sterna.host.config import HostConfig, HostFile, config_of
from sterna.host.owner.dry_run import DryRun, dry_run
from sterna.host.policy.policy import rules_of
from sterna.host.policy.terms import AllowedHomes, Terms
from sterna.host.policy.terms import terms_of as policy_terms
from sterna.model import LIMITS, Budget, Ended, Known, State, Target
from sterna.query.terminal import harmless
from sterna.web.clock import SystemClock
from sterna.web.urls import site_of
from sterna.wire.known import pack_known
from sterna.wire.orders import Agent, Send

VISIT = "dry-run"
FAR_LEVEL = 9  # as a home asks for it that is not next door
_UNFINISHED = LIMITS | {Ended.BUDGET, Ended.STOPPED}


def dry_run_command(  # noqa: PLR0913, PLR0917 - each is a flag of the command
    crawler: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|URL", help="A crawler's description, a packed crawler, or URLs to start from."
        ),
    ],
    site: SiteOption,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write: JSON lines.")],
    home: Annotated[
        str, typer.Option("--home", metavar="NAME", help="Under the terms of this home. (default: any)")
    ] = "",
    max_pages: Annotated[
        int, typer.Option("--max-pages", metavar="N", help="End after so many pages.", min=0)
    ] = 0,
    root: RootOption = None,
    alias: AliasOption = None,
    upstream: UpstreamOption = "",
    check: CheckOption = "",
    policy: PolicyOption = None,
    keys: KeysOption = Path(DEFAULT_FOLDER),
    ca_file: CaFileOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")] = False,
) -> None:
    """Write down what would leave the site for a crawler: every page and fact as its home would get it.

    It is carried out as a host does it, under robots.txt, the policy and in a jail; no home is told of it.
    """
    written = HostFile(
        site=site,
        root=str(root or ""),
        aliases=aliases_of(alias),
        upstream=upstream,
        check=check,
        policy=str(policy or ""),
        keys=str(keyring_of(keys).folder),
        state=str(out.parent),
        ca_file=ca_file,
    )
    config = config_of(written)
    with _lines_into(out) as file:
        result = uvloop.run(_run(config, crawler, home, max_pages, file))
    say(msgspec.json.encode(result).decode() if as_json else "\n".join(map(harmless, _lines(result, out))))


async def _run(config: HostConfig, given: list[str], home: str, max_pages: int, file: BinaryIO) -> DryRun:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    encoder = msgspec.json.Encoder()

    def write(line: dict[str, object]) -> None:
        file.write(encoder.encode(line) + b"\n")

    terms = terms_of(config, home)
    return await dry_run(
        order_of(given, config.site, terms=terms, max_pages=max_pages),
        config=config,
        terms=terms,
        clock=SystemClock(),
        write=write,
        stop=stop,
    )


# -- what is asked for -------------------------------------------------------------------------------------


def order_of(given: list[str], site: str, *, terms: Terms, max_pages: int) -> Send:
    """What a home would order with this crawler; UsageError if nothing of it is about the site."""
    files = [text for text in given if is_file(text)]
    if len(files) > 1:
        raise UsageError(f"one crawler at a time: {files[0]} or {files[1]}")
    packed = read_crawler(Path(files[0])) if files else None
    options = _options(packed, [text for text in given if not is_file(text)])
    crawler = packed.crawler if packed else crawler_of_fields(options.keep)
    scope = msgspec.structs.replace(options.scope(), subtrees=crawler.scope.subtrees)
    etiquette = options.etiquette(__version__)
    limits = [limit for limit in (max_pages, options.max_pages, terms.caps.pages) if limit]
    return Send(
        visit=VISIT,
        crawler=msgspec.structs.replace(crawler, scope=scope),
        agent=Agent(etiquette.user_agent, etiquette.robots_name, etiquette.sender),
        starts=_starts(packed, options, site),
        known=pack_known(Known(packed.progress.seen)) if packed and packed.progress.seen else b"",
        state=packed.progress.state if packed else State(),
        budget=msgspec.structs.replace(
            packed.budget if packed else Budget(),
            pages=min(limits, default=0),
            seconds=terms.caps.seconds,
            urls=terms.caps.urls,
        ),
        level=FAR_LEVEL,
    )


def _options(packed: PackedCrawler | None, urls: list[str]) -> Options:
    own = packed.options.get("seeds", ()) if packed else ()
    assert isinstance(own, tuple | list)
    options = msgspec.structs.replace(lay_over(Options(), packed, {}), seeds=(*own, *urls))
    options.check()
    return options


def _starts(packed: PackedCrawler | None, options: Options, site: str) -> tuple[Target, ...]:
    going_on = packed.progress.frontier if packed else ()
    targets = going_on or tuple(Target(url) for url in options.seed_urls() or [f"{site}/"])
    starts = tuple(target for target in targets if site_of(target.url) == site)
    if not starts:
        raise UsageError(f"no start URL of the crawler is one of {site}: name one after it")
    return starts


def terms_of(config: HostConfig, home: str) -> Terms:
    """What holds for the home of this name, or for any; UsageError if there is none of this name."""
    policy = config.policy
    if not home:
        return policy_terms(policy, "any")
    if home in policy.homes:
        terms = policy_terms(policy, home, rules_of(policy.homes[home]))
    elif home in AllowedHomes(config.keys, policy).names().values():
        terms = policy_terms(policy, home)
    else:
        raise UsageError(f"no home {home!r} is allowed: sterna keys list names them")
    if terms.never:
        raise UsageError(f"nothing would leave: {home} is never let in, says the policy")
    return terms


# -- what is written ---------------------------------------------------------------------------------------


@contextmanager
def _lines_into(path: Path) -> Iterator[BinaryIO]:
    """The file, in its place when all went well; StorageError if it cannot be written."""
    beside = path.with_name(f"{path.name}.new")
    try:
        with beside.open("wb") as file:
            try:
                yield file
            except BaseException:
                beside.unlink(missing_ok=True)
                raise
        beside.replace(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error


def _lines(result: DryRun, out: Path) -> list[str]:
    share = result.sent_bytes / result.page_bytes if result.page_bytes else 0.0
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in result.lines.items())
    lines = [
        f"crawler {result.crawler} at {result.site}:"
        f" {plural(result.pages, 'page')} in {duration_text(result.seconds)},"
        f" {plural(result.requests, 'request')}, {bytes_text(result.page_bytes)}",
        f"would leave: {bytes_text(result.plain_bytes)}, {bytes_text(result.sent_bytes)} on the line"
        f" ({share:.1%} of the pages), {plural(result.parcels, 'parcel')}",
        f"ended: {result.ended.value}; nothing was sent",
        f"{out}: {kinds}",
    ]
    if result.ended in _UNFINISHED:
        lines.append("a home could send it again for the rest")
    return lines
