"""`sterna.crawl`: sends a crawler out. `sterna crawl` does the same under a display."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import uvloop

from sterna.api.companion import attended
from sterna.api.crawlers import packed_of, seeds_of
from sterna.crawler.pack import PackedCrawler
from sterna.crawler.spec import Spec
from sterna.errors import EmptyCollection, UsageError
from sterna.home.away.composition import Migration
from sterna.home.away.place import Placement
from sterna.home.crawl import Run
from sterna.home.crawl import crawl as crawl_from_home
from sterna.home.folder import CollectionFolder
from sterna.home.options import Options, lay_over, load, merge_seeds, read_config
from sterna.home.progress import Progress, Summary
from sterna.host.keyring import Keyring
from sterna.model import Parcel
from sterna.wire.keys import DEFAULT_KEYS

_log = logging.getLogger(__name__)


class Watch(Protocol):
    """Receives what a run has to say while it goes."""

    def warn(self, text: str) -> None: ...

    def tell(self, placement: Placement) -> None:
        """Where a visit is made, and why."""

    def wait_for(self, text: str) -> None:
        """What the run still waits for after its last page; "" when it is done."""


class _Log:
    """Writes to the log of this module."""

    def warn(self, text: str) -> None:
        _log.warning(text)

    def tell(self, placement: Placement) -> None:
        _log.info("%s: %s (%s)", placement.site, placement.place, placement.reason)

    def wait_for(self, text: str) -> None:
        if text:
            _log.info(text)


LOG = _Log()


def crawl(
    spec: Spec,
    into: Path | str,
    *,
    folder: Path | str = ".",
    refresh_seconds: float | None = None,
    max_seconds: float | None = None,
    on_parcels: Callable[[tuple[Parcel, ...]], bool] = lambda parcels: False,
    **options: Any,
) -> Summary:
    """Sends the spec's crawler out, and returns when it is done; called again it continues.

    `into` is the collection's folder, `folder` contains the rules of the spec. `options` are those of
    `sterna crawl`, such as `delay=0`, and override the spec. `on_parcels` is called with what was just
    stored, and ends the crawl by returning True. Pages are indexed beside the crawl, unless `index=False`;
    the call returns when the index is complete. Raises SternaError.
    """
    packed, collection = packed_of(spec, Path(folder)), CollectionFolder(Path(into))
    chosen = gather_options(collection, (), packed=packed, flags=options)
    run = Run(
        stop=asyncio.Event(),
        refresh_seconds=refresh_seconds,
        max_seconds=max_seconds,
        errand=packed,
        on_parcels=on_parcels,
    )
    progress = Progress(began=run.clock.now(), max_pages=chosen.max_pages)
    with attended(collection, chosen, run=run, warn=LOG.warn, show=LOG.wait_for):
        return uvloop.run(send(collection, chosen, run=run, watch=LOG, progress=progress))


async def send(
    collection: CollectionFolder, options: Options, *, run: Run, watch: Watch, progress: Progress
) -> Summary:
    """One run; crawlers travel under the identity in the folder of keys."""
    identity = partial(keyring_of(options).read_or_make, "home")
    run.migration = Migration(identity=identity, tell=watch.tell, warn=watch.warn)
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
    kept = _kept(collection)
    base = read_config(config, over=kept) if config else kept
    seeds = merge_seeds(kept.seeds, merge_seeds(base.seeds, (*seeds_of(packed), *urls)))
    own = packed.options if packed else {}
    options = msgspec.structs.replace(lay_over(base, own, flags), seeds=seeds)
    options.check()
    if not options.seeds:
        raise UsageError("no URL to start from: sterna crawl https://www.example.org/")
    # Canonical URLs carry no password into the ledger.
    return msgspec.structs.replace(options, seeds=merge_seeds((), options.seed_urls()))


def _kept(collection: CollectionFolder) -> Options:
    if not collection.ledger_path.exists():
        return Options()
    collection.check()
    try:
        with collection.open_ledger() as ledger:
            return load(ledger.setting("options"))
    except EmptyCollection:
        return Options()
