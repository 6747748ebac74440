"""`sterna.crawl`: sends a crawler out. `sterna crawl` does the same under a display."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

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
from sterna.web.secrets import Secrets
from sterna.wire.keys import DEFAULT_KEYS

_log = logging.getLogger(__name__)


def _log_placement(placement: Placement) -> None:
    _log.info("%s: %s (%s)", placement.site, placement.place, placement.reason)


def _log_wait(text: str) -> None:
    if text:
        _log.info(text)


def crawl(
    spec: Spec,
    into: Path | str,
    *,
    folder: Path | str = ".",
    refresh_seconds: float | None = None,
    max_seconds: float | None = None,
    despite_owner: bool = False,
    secrets: Secrets | None = None,
    on_parcels: Callable[[tuple[Parcel, ...]], bool] = lambda parcels: False,
    **options: Any,
) -> Summary:
    """Sends the spec's crawler out, and returns when it is done; called again it continues.

    `into` is the collection's folder, `folder` contains the rules of the spec. `options` are those of
    `sterna crawl`, such as `delay=0`, and override the spec. `secrets`, made by `read_secrets`, go to the
    start sites only, and are stored nowhere. `on_parcels` is called with what was just stored, and ends
    the crawl by returning True. Pages are indexed beside the crawl, unless `index=False`; the call returns
    when the index is complete. Raises SternaError.
    """
    packed, collection = packed_of(spec, Path(folder)), CollectionFolder(Path(into))
    chosen = gather_options(collection, (), packed=packed, flags=options)
    run = Run(
        stop=asyncio.Event(),
        refresh_seconds=refresh_seconds,
        max_seconds=max_seconds,
        despite_owner=despite_owner,
        errand=packed,
        secrets=secrets or Secrets(),
        on_parcels=on_parcels,
    )
    with attended(collection, chosen, run=run, warn=_log.warning, show=_log_wait):
        return uvloop.run(send(collection, chosen, run=run))


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
    own = packed.options if packed else {}
    options = msgspec.structs.replace(lay_over(base, own, flags), seeds=seeds)
    options.check()
    if not options.seeds:
        raise UsageError("no URL to start from: sterna crawl https://www.example.org/")
    # Canonical URLs carry no password into the ledger.
    return msgspec.structs.replace(options, seeds=merge_seeds((), options.seed_urls()))
