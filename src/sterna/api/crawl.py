"""Crawling from Python: what `sterna crawl` does, as a function."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from sterna.api.companion import OnParcels, following
from sterna.api.crawlers import packed_of
from sterna.cli.crawl import gather_options
from sterna.cli.keys import keyring_of
from sterna.cli.running import keys_folder
from sterna.crawler.spec import Spec
from sterna.home.away.composition import Migration
from sterna.home.crawl import Run
from sterna.home.crawl import crawl as run_crawl
from sterna.home.folder import Collection
from sterna.home.progress import Progress, Summary
from sterna.model import Parcel

_log = logging.getLogger(__name__)


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
    """Sends the spec's crawler out and returns when it is done; called again it goes on where it ended.

    `folder` is where the spec's rules lie. `options` are those of `sterna crawl`, such as `delay=0`, and come
    before what the spec says. `on_parcels` is told what was just stored, and ends the crawl by True.
    Pages are indexed beside the crawl, unless `index=False`; it returns when they are.
    """
    packed, collection = packed_of(spec, Path(folder)), Collection(Path(into))
    chosen = gather_options(collection, [], packed=packed, flags=options)

    async def main(watch: OnParcels) -> Summary:
        run = Run(
            stop=asyncio.Event(),
            refresh_seconds=refresh_seconds,
            max_seconds=max_seconds,
            errand=packed,
            on_parcels=watch,
            migration=Migration(
                identity=partial(keyring_of(keys_folder(chosen)).read_or_make, "home"), warn=_log.warning
            ),
        )
        progress = Progress(began=run.clock.now(), max_pages=chosen.max_pages)
        return await run_crawl(collection, chosen, run=run, progress=progress)

    with following(collection, chosen, on_parcels=on_parcels, warn=_log.warning, show=_log.info) as watch:
        return uvloop.run(main(watch))
