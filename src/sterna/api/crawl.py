"""`sterna.crawl`, `acrawl` and `pages`: send a crawler out. `sterna crawl` does the same under a display."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from sterna.api.background import Beside, PageStream, wait_for
from sterna.api.companion import attended
from sterna.api.crawlers import crawler_and_urls, packed_of, seeds_of
from sterna.crawler.pack import PackedCrawler
from sterna.crawler.spec import Spec
from sterna.errors import EmptyCollection, UsageError
from sterna.home.away.composition import Migration
from sterna.home.away.place import Placement
from sterna.home.crawl import Run
from sterna.home.crawl import crawl as crawl_from_home
from sterna.home.errand import errand_of
from sterna.home.folder import CollectionFolder, path_of
from sterna.home.options import Options, given_options, lay_over, load, merge_seeds, read_config
from sterna.home.progress import Progress, Summary
from sterna.host.keyring import Keyring
from sterna.model import Page, Parcel
from sterna.web.dns import literal_address
from sterna.web.secrets import Secrets
from sterna.web.urls import hostname_of, site_of
from sterna.wire.keys import DEFAULT_KEYS

NO_URL = "no URL to start from: sterna crawl https://www.example.org/"

_log = logging.getLogger(__name__)


def _log_placement(placement: Placement) -> None:
    _log.info("%s: %s (%s)", placement.site, placement.place, placement.reason)


def _log_wait(text: str) -> None:
    if text:
        _log.info(text)


What = Spec | str | Path | Sequence[str]  # a spec, its file, a URL or several


def crawl(  # noqa: PLR0913 - the parameters of a public function have names
    what: What = (),
    into: Path | str | None = None,
    *,
    folder: Path | str = ".",
    refresh_seconds: float | None = None,
    max_seconds: float | None = None,
    retry: bool = False,
    despite_owner: bool = False,
    secrets: Secrets | None = None,
    on_parcels: Callable[[tuple[Parcel, ...]], bool] = lambda parcels: False,
    **options: Any,
) -> Summary:
    """Crawls from a URL or several, or sends out the crawler of a `Spec` or file; returns when it is done.

    `into` is the collection's folder, by default that of the command: crawls/HOSTNAME. Called again it
    continues. `folder` contains the rules of a `Spec`. `options` are those of `sterna crawl`, such as
    `delay=0`, and override the spec. `on_parcels` is called with what was just stored, and ends the crawl
    by returning True. With `retry`, what failed or waits is asked for at once. `secrets`, made by
    `read_secrets`, go to the start sites only, and are stored nowhere. Pages are indexed beside the
    crawl, unless `index=False`; the call returns when the index is complete. Raises SternaError. Inside
    an event loop, as in a notebook, it blocks like any function.
    """
    errand = prepare(
        what,
        into,
        folder=folder,
        refresh_seconds=refresh_seconds,
        max_seconds=max_seconds,
        retry=retry,
        secrets=secrets,
        despite_owner=despite_owner,
        on_parcels=on_parcels,
        **options,
    )
    return wait_for(errand.carry_out, stop=errand.run.stop)


async def acrawl(what: What = (), into: Path | str | None = None, **parameters: Any) -> Summary:
    """`sterna.crawl`, awaited; takes the same parameters. Cancelled, it stops the crawl cleanly first."""
    errand = prepare(what, into, **parameters)
    return await Beside(errand.carry_out, stop=errand.run.stop).finished()


def pages(what: What = (), into: Path | str | None = None, **parameters: Any) -> AsyncIterator[Page]:
    """The pages of a crawl as they are stored, each at most once; takes the parameters of `sterna.crawl`.

    The crawl waits for a slow reader. It ends cleanly when the reader leaves the loop, and its errors are
    raised in it. What is stored goes into the collection as well, so that the next call continues; pages
    that a reader left behind are read there.
    """
    stream = PageStream()
    errand = prepare(what, into, **parameters)
    watch = errand.run.on_parcels
    errand.run.on_parcels = lambda parcels: any([watch(parcels), stream.put(parcels)])
    errand.run.drain = stream.drain
    return stream.read(lambda: Beside(errand.carry_out, stop=errand.run.stop))


def prepare(  # noqa: PLR0913
    what: What,
    into: Path | str | None,
    *,
    folder: Path | str = ".",
    refresh_seconds: float | None = None,
    max_seconds: float | None = None,
    retry: bool = False,
    secrets: Secrets | None = None,
    despite_owner: bool = False,
    on_parcels: Callable[[tuple[Parcel, ...]], bool] = lambda parcels: False,
    **options: Any,
) -> "Errand":
    """The crawl that these parameters of `crawl` describe; UsageError if one is invalid."""
    check_run(max_seconds=max_seconds, refresh_seconds=refresh_seconds)
    packed, urls = _crawler_of(what, path_of("folder", folder))
    place = path_of("into", into) if into is not None else default_folder(urls, packed)
    collection = CollectionFolder(place)
    chosen = gather_options(collection, urls, packed=packed, flags=given_options(options))
    run = Run(
        stop=asyncio.Event(),
        refresh_seconds=refresh_seconds,
        max_seconds=max_seconds,
        retry=retry,
        despite_owner=despite_owner,
        errand=errand_for(packed, options.get("keep"), chosen),
        secrets=secrets or Secrets(),
        on_parcels=on_parcels,
    )
    return Errand(collection, chosen, run)


@dataclass(frozen=True, slots=True)
class Errand:
    """A crawl that is ready to begin."""

    collection: CollectionFolder
    options: Options
    run: Run

    def carry_out(self, wait: Callable[[Coroutine[Any, Any, Summary]], Summary]) -> Summary:
        """Blocks until pages are crawled, by `wait`, and indexed."""
        collection, options, run = self.collection, self.options, self.run
        with attended(collection, options, run=run, warn=_log.warning, show=_log_wait):
            return wait(send(collection, options, run=run))


def check_run(*, max_seconds: float | None, refresh_seconds: float | None) -> None:
    """Raises UsageError for values of a run that are out of range."""
    if max_seconds is not None and not (is_number(max_seconds) and 0 < max_seconds < math.inf):
        raise UsageError(f"--max-seconds {max_seconds} is invalid: seconds, more than 0")
    if refresh_seconds is not None and not (is_number(refresh_seconds) and 0 <= refresh_seconds < math.inf):
        raise UsageError(f"refresh_seconds {refresh_seconds!r} is invalid: seconds, such as 7 * 86_400")


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def errand_for(packed: PackedCrawler | None, keep: str | None, options: Options) -> PackedCrawler | None:
    """The crawler of a run; None for the collection's own, unless other fields are wanted."""
    return packed if packed or keep is None else errand_of(options)


def default_folder(urls: Sequence[str], packed: PackedCrawler | None) -> Path:
    """Where a crawl goes by default: under the crawler's name, or host and port of the first URL."""
    if packed:
        return Path("crawls") / packed.crawler.name
    if not urls:
        raise UsageError(NO_URL)
    url = Options(seeds=(urls[0],)).seed_urls()[0]
    host = hostname_of(url)
    name = (literal_address(host) or host).replace(":", "_")
    _, _, port = site_of(url).rpartition("]" if "[" in site_of(url) else "//")[2].partition(":")
    return Path("crawls") / (f"{name}_{port}" if port else name)


def _crawler_of(what: What, folder: Path) -> tuple[PackedCrawler | None, list[str]]:
    if isinstance(what, Spec):
        return packed_of(what, folder), []
    given = [what] if isinstance(what, str | Path) else what
    if not isinstance(given, Collection) or not all(isinstance(each, str | Path) for each in given):
        raise UsageError(f"{what!r} cannot be crawled: give a URL, several, a Spec or the file of one")
    return crawler_and_urls([str(each) for each in given])


async def send(
    collection: CollectionFolder,
    options: Options,
    *,
    run: Run,
    progress: Progress | None = None,
    warn: Callable[[str], None] = _log.warning,
    tell: Callable[[Placement], None] = _log_placement,
) -> Summary:
    """One run; crawlers travel under the identity in the folder of keys. `tell` gets the place of a visit."""
    identity = partial(keyring_of(options).read_or_make, "home")
    run.migration = Migration(identity=identity, tell=tell, warn=warn, is_defiant=run.despite_owner)
    progress = progress or Progress(began=run.clock.now(), max_pages=options.max_pages)
    return await crawl_from_home(collection, options, run=run, progress=progress)


def keyring_of(options: Options) -> Keyring:
    """The keys of home, of which one is created when the first crawler leaves."""
    return Keyring(Path(options.keys or DEFAULT_KEYS).expanduser())


def gather_options(
    collection: CollectionFolder,
    urls: Sequence[str],
    *,
    flags: dict[str, Any],
    config: Path | None = None,
    packed: PackedCrawler | None = None,
) -> Options:
    """What the collection remembers, overridden by the file, the crawler's own options and the flags."""
    kept = Options()
    collection.check_ledger()
    if collection.ledger_path.exists():
        with suppress(EmptyCollection), collection.check().open_ledger() as ledger:
            kept = load(ledger.setting("options"))
    base = read_config(config, over=kept) if config else kept
    seeds = merge_seeds(kept.seeds, merge_seeds(base.seeds, (*seeds_of(packed), *urls)))
    own: dict[str, Any] = dict(packed.options) if packed else {}
    if packed:
        own["subtrees"] = packed.crawler.scope.subtrees
    options = msgspec.structs.replace(lay_over(base, own, flags), seeds=seeds)
    options.check()
    if not options.seeds:
        raise UsageError(NO_URL)
    # Canonical URLs carry no password into the ledger.
    return msgspec.structs.replace(options, seeds=merge_seeds((), options.seed_urls()))
