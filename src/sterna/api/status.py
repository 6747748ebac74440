"""Where a crawl stands; it may be running."""

import time

import msgspec

from sterna.errors import IndexUnusable
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import Counts, OwnerRow, SiteRow


class IndexState(msgspec.Struct, frozen=True, kw_only=True):
    """How far the search index is."""

    is_there: bool = True
    pages_left: int = 0  # stored, but not searchable yet
    trouble: str = ""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    counts: Counts
    index: IndexState
    sites: tuple[SiteRow, ...]
    owners: tuple[OwnerRow, ...]  # what owners of sites ask for now
    has_storage: bool  # rules copy rows into other databases


def status(collection: CollectionFolder) -> Status:
    """Where the crawl of a collection stands now; raises NotACollection."""
    from sterna.api.away import owners_of  # noqa: PLC0415 - slow to load, and not needed for the records

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


def index_state(collection: CollectionFolder) -> IndexState:
    from sterna.archive.arrivals import count  # noqa: PLC0415 - as above
    from sterna.search.generations import read_position  # noqa: PLC0415 - as above

    try:
        position = read_position(collection.index_folder)
    except IndexUnusable as error:
        return IndexState(trouble=str(error))
    if position is None:
        return IndexState(is_there=False)
    snapshot = collection.snapshot()
    return IndexState(pages_left=count(snapshot.tables["page"], after=position, upto=snapshot.batch))
