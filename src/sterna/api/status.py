"""Where a crawl stands; it may be running."""

import time

import msgspec

from sterna.api.away import owners_of
from sterna.api.search import IndexState, index_state
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import Counts, OwnerRow, SiteRow


class Status(msgspec.Struct, frozen=True, kw_only=True):
    counts: Counts
    index: IndexState
    sites: tuple[SiteRow, ...]
    owners: tuple[OwnerRow, ...]  # what owners of sites ask for now
    has_storage: bool  # rules copy rows into other databases


def status(collection: CollectionFolder) -> Status:
    """Where the crawl of a collection stands now; raises NotACollection."""
    collection.check()
    with collection.open_ledger() as ledger:
        counts, sites = ledger.counts(now=time.time()), tuple(ledger.site_rows())
    return Status(
        counts=counts,
        index=index_state(collection),
        sites=sites,
        owners=tuple(owners_of(collection)),
        has_storage=collection.storage_path.exists(),
    )
