"""`sterna crawl`: options from flags, a file, a crawler and the collection, and the run under a display."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from sterna.api.crawlers import errand, is_file, lay_over, read_crawler
from sterna.cli.display import choose_display
from sterna.cli.running import Wishes, start
from sterna.crawler.pack import PackedCrawler
from sterna.errors import EmptyCollection, UsageError
from sterna.home.folder import Collection
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.options import Options, load, merge_seeds, read_config
from sterna.web.dns import literal_address
from sterna.web.urls import hostname_of

_SCOPE, _POLITE, _OUTPUT, _NETWORK = "What to crawl", "Politeness", "Collection and output", "Network"
_HOSTS = "Hosts at the sites"


def crawl(  # noqa: PLR0913, PLR0917 - each is a flag of the command
    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="URL|FILE", help="Where to start, or a crawler's description such as health.toml."
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The collection's folder. (default: crawls/HOSTNAME)", rich_help_panel=_OUTPUT
        ),
    ] = None,
    max_pages: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Stop at so many pages, counted over all runs since the crawl or its last refresh began.",
            rich_help_panel=_SCOPE,
        ),
    ] = None,
    max_depth: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Links from a start page at most. (default: 64)", rich_help_panel=_SCOPE
        ),
    ] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="End this run after so long.", rich_help_panel=_SCOPE),
    ] = None,
    stay: Annotated[
        str | None,
        typer.Option(
            metavar="site|domain|any",
            help="Follow links within the start sites, within their domains, or anywhere. (default: site)",
            rich_help_panel=_SCOPE,
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX",
            help="Follow only URLs that match this regular expression.",
            rich_help_panel=_SCOPE,
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="REGEX", help="Never follow URLs that match this one.", rich_help_panel=_SCOPE),
    ] = None,
    sitemaps: Annotated[
        bool | None,
        typer.Option(
            "--sitemaps/--no-sitemaps",
            help="Read the sitemaps that robots.txt names.",
            rich_help_panel=_SCOPE,
        ),
    ] = None,
    refresh: Annotated[
        str | None,
        typer.Option(
            metavar="AGE",
            help="Visit pages again that are older than this, such as 0, 90m, 12h or 7d.",
            rich_help_panel=_SCOPE,
        ),
    ] = None,
    delay: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Seconds between two requests to a site, or five times its response time if that is longer;"
            " 0 is for sites of your own. (default: 1)",
            rich_help_panel=_POLITE,
        ),
    ] = None,
    gentle: Annotated[
        bool | None,
        typer.Option(
            "--gentle/--no-gentle",
            help="30 seconds instead, for slow or small servers.",
            rich_help_panel=_POLITE,
        ),
    ] = None,
    block: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Never visit this hostname or domain.", rich_help_panel=_POLITE),
    ] = None,
    unblock: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Take a name off the block list.", rich_help_panel=_POLITE),
    ] = None,
    user_agent: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The User-Agent header, whole.", rich_help_panel=_POLITE),
    ] = None,
    contact: Annotated[
        str | None,
        typer.Option(
            metavar="URL|MAIL",
            envvar="STERNA_CONTACT",
            help="A URL or mail address for the owners of sites; goes into User-Agent and From.",
            rich_help_panel=_POLITE,
        ),
    ] = None,
    ignore_robots: Annotated[
        bool | None,
        typer.Option(
            "--ignore-robots/--obey-robots",
            help="Do not ask for robots.txt. Only for sites of your own.",
            rich_help_panel=_POLITE,
        ),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Seconds to wait for sites that ask for a pause, before the run ends. (default: 300)",
            rich_help_panel=_POLITE,
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Open connections at most, 1 to 1000. (default: 100)", rich_help_panel=_NETWORK
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Seconds for one request. (default: 60)", rich_help_panel=_NETWORK
        ),
    ] = None,
    proxy: Annotated[
        str | None,
        typer.Option(
            metavar="URL", envvar="STERNA_PROXY", help="Fetch through this proxy.", rich_help_panel=_NETWORK
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Trust the certificates in this file instead.", rich_help_panel=_NETWORK
        ),
    ] = None,
    allow_private: Annotated[
        bool | None,
        typer.Option(
            "--allow-private/--no-allow-private",
            help="Visit private networks too; a start URL with a private address always may be there.",
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    here: Annotated[
        bool | None,
        typer.Option(
            "--here/--no-here", help="Crawl from here, whatever hosts there are.", rich_help_panel=_HOSTS
        ),
    ] = None,
    require_host: Annotated[
        bool | None,
        typer.Option(
            "--require-host/--no-require-host",
            help="End with an error where a site has no host.",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SITE=URL[,KEY]",
            help="The host of a site, where its own document is not to be asked or believed.",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    priority: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SITE=N",
            help="Offer the host of a site a place in the order of revisits, 0 to 10, for a larger budget.",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="none|auto|strict",
            help="Fetch some of the pages that hosts bring from here too, and compare: at most one in twenty,"
            " fewer the longer a host is known to be true; strict: 59 of each visit, also as a browser."
            " (default: auto)",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    compression: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="How hard hosts compress what they send, 1 to 22. (default: 0, by the line)",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar="STERNA_KEYS",
            help="The folder of your keys; one is made when it is first needed.",
            rich_help_panel=_HOSTS,
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="all|links|FIELDS",
            help="Keep title, text, language and links of every page, or nothing but links, which is faster,"
            " or fields such as title,keywords. (default: all)",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    warc: Annotated[
        bool | None,
        typer.Option("--warc/--no-warc", help="Keep raw responses as WARC 1.1.", rich_help_panel=_OUTPUT),
    ] = None,
    index: Annotated[
        bool | None,
        typer.Option(
            "--index/--no-index",
            help="Index pages for `sterna search` as they come in. (default: index)",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    jail: Annotated[
        bool | None,
        typer.Option(
            "--jail/--no-jail",
            help="Run a crawler's rules in a jail or not at all; without one only your own."
            " (default: in a jail if this machine can)",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A TOML file with options; flags come first.", rich_help_panel=_OUTPUT
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Progress and summary as JSON lines.", rich_help_panel=_OUTPUT)
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Say nothing but errors.", rich_help_panel=_OUTPUT)
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Say of each visit where it is made, and why.", rich_help_panel=_OUTPUT
        ),
    ] = False,
) -> None:
    """Crawl sites into a collection; the same command again goes on where it ended.

    Pages are asked for one at a time and site by site, as robots.txt allows. Where a site has a host, the
    crawler goes there instead, if that saves enough. Ctrl-C stops cleanly.
    """
    flags: dict[str, Any] = {
        "max_pages": max_pages,
        "max_depth": max_depth,
        "stay": stay,
        "include": _tuple(include),
        "exclude": _tuple(exclude),
        "sitemaps": sitemaps,
        "delay": delay,
        "gentle": gentle,
        "block": _tuple(block),
        "user_agent": user_agent,
        "contact": contact,
        "ignore_robots": ignore_robots,
        "wait": wait,
        "concurrency": concurrency,
        "timeout": timeout,
        "proxy": proxy,
        "ca_file": str(ca_file.absolute()) if ca_file else None,
        "allow_private": allow_private,
        "keep": keep,
        "warc": warc,
        "index": index,
        # Who asks for one of them takes the other back.
        "here": False if require_host and here is None else here,
        "require_host": False if here and require_host is None else require_host,
        "hosts": _tuple(host),
        "priority": _tuple(priority),
        "checks": check,
        "compression": compression,
        "keys": str(keys.absolute()) if keys else None,
    }
    if max_seconds is not None and not 0 < max_seconds < float("inf"):
        raise UsageError(f"--max-seconds {max_seconds} cannot be: seconds, more than 0")
    given = urls or []
    packed = _packed([text for text in given if is_file(text)])
    starts = [text for text in given if not is_file(text)]
    collection = Collection(into or _default_folder(starts, packed))
    options = gather_options(collection, starts, packed=packed, flags=flags, config=config)
    wishes = Wishes(
        refresh_seconds=read_age(refresh) if refresh else None,
        max_seconds=max_seconds,
        unblock=_tuple(unblock) or (),
        errand=errand(packed, options, is_keep_given=keep is not None),
        is_jailed=jail,
    )
    display = choose_display(as_json=as_json, quiet=quiet, is_verbose=verbose)
    start(collection, options, display=display, wishes=wishes)


def _packed(files: list[str]) -> PackedCrawler | None:
    if len(files) > 1:
        raise UsageError(f"one crawler at a time: {files[0]} or {files[1]}")
    return read_crawler(Path(files[0])) if files else None


def gather_options(
    collection: Collection,
    urls: list[str],
    *,
    flags: dict[str, Any],
    config: Path | None = None,
    packed: PackedCrawler | None = None,
) -> Options:
    """What the collection remembers, the file over it, the crawler's own over that, the flags over all."""
    kept = _kept(collection)
    base = read_config(config, over=kept) if config else kept
    own = packed.options.get("seeds", ()) if packed else ()
    assert isinstance(own, tuple | list)
    seeds = merge_seeds(kept.seeds, merge_seeds(base.seeds, (*own, *urls)))
    options = msgspec.structs.replace(lay_over(base, packed, flags), seeds=seeds)
    options.check()
    if not options.seeds:
        raise UsageError("no URL to start from: sterna crawl https://www.example.org/")
    # Canonical ones carry no password into the ledger.
    return msgspec.structs.replace(options, seeds=merge_seeds((), options.seed_urls()))


def read_age(text: str) -> float:
    """Seconds in an age such as 0, 90m, 12h or 7d."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"--refresh {text} is not an age: write it like 90m, 12h or 7d")
    return seconds


def _kept(collection: Collection) -> Options:
    if not collection.ledger_path.exists():
        return Options()
    collection.check()
    try:
        ledger = SqliteLedger(collection.ledger_path, is_reader=True)
    except EmptyCollection:
        return Options()
    try:
        return load(ledger.setting("options"))
    finally:
        ledger.close()


def _default_folder(urls: list[str], packed: PackedCrawler | None) -> Path:
    if packed:
        return Path("crawls") / packed.crawler.name
    if not urls:
        raise UsageError("no URL to start from: sterna crawl https://www.example.org/")
    urls_canonical = Options(seeds=(urls[0],)).seed_urls()
    host = hostname_of(urls_canonical[0])
    return Path("crawls") / (literal_address(host) or host).replace(":", "_")


def _tuple(values: list[str] | None) -> tuple[str, ...] | None:
    """What was given; an empty text clears what the collection remembers."""
    return tuple(value for value in values if value) if values else None
