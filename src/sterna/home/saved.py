"""A collection's crawler with its progress at a site, to go on elsewhere."""

from pathlib import Path

import msgspec

from sterna.crawler.pack import PackedCrawler
from sterna.errors import UsageError
from sterna.home.errand import choose_errand
from sterna.home.errand import load as load_errand
from sterna.home.folder import Collection
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.options import load as load_options
from sterna.web.urls import Canonical, site_of


def saved_crawler(folder: Path, site: str = "") -> PackedCrawler:
    """The crawler as it stands at the site, or at the only one; UsageError names them if there are more."""
    collection = Collection(folder)
    collection.check()
    ledger = SqliteLedger(collection.ledger_path, is_reader=True)
    try:
        options = load_options(ledger.setting("options"))
        errand = choose_errand(None, load_errand(ledger.setting("errand")), options)
        chosen = _choose(site, [row.site for row in ledger.site_rows()])
        progress = ledger.progress(chosen)
    finally:
        ledger.close()
    seeds = tuple(url for url in options.seed_urls() if site_of(url) == chosen) or (f"{chosen}/",)
    return msgspec.structs.replace(
        errand, progress=progress, options={**errand.options, "seeds": seeds}, journey=(), gather=()
    )


def _choose(site: str, sites: list[str]) -> str:
    canonical = Canonical()(site) if site else None
    if canonical and site_of(canonical) in sites:
        return site_of(canonical)
    if not site and len(sites) == 1:
        return sites[0]
    raise UsageError(f"choose one of its sites with --site: {', '.join(sorted(sites)[:20])}")
