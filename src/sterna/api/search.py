"""The search index of a collection: brought up to date, and searched."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from sterna.archive.arrivals import count
from sterna.home.folder import CollectionFolder, names_of
from sterna.search.generations import current
from sterna.search.indexer import Indexer
from sterna.search.results import Found, Searches
from sterna.search.searcher import Searcher
from sterna.search.several import Several

# Shows how far it is, while the context is open: pages done so far, and how many there are.
Show = Callable[[Callable[[], int], int], AbstractContextManager[None]]


def has_index(collection: CollectionFolder) -> bool:
    """True if there is an index that can be searched."""
    return current(collection.index_folder) is not None


def bring_up(
    collection: CollectionFolder,
    *,
    is_anew: bool = False,
    stop: threading.Event | None = None,
    show: Show = lambda done, total: nullcontext(),
) -> tuple[bool, int]:
    """Indexes everything in the archive; False if `stop` was set, and the number of rows processed.

    Raises LedgerLost, and makes no index, if the collection has lost its ledger.
    """
    stop, snapshot = stop or threading.Event(), collection.snapshot()
    with Indexer(collection.index_folder, is_anew=is_anew) as indexer:
        total = count(snapshot.tables["page"], after=indexer.batch, upto=snapshot.batch)
        with show(lambda: indexer.pages, total):
            while indexer.batch < snapshot.batch and not stop.is_set():
                indexer.catch_up(snapshot, stop=stop)
                indexer.commit()
                snapshot = collection.snapshot()
            if stop.is_set():
                return False, indexer.pages
            indexer.settle()
        if is_anew:
            indexer.publish()
        return True, indexer.pages


def search(
    collection: CollectionFolder, words: str, *others: CollectionFolder, limit: int = 10, offset: int = 0
) -> Found:
    """The pages of a collection, and of others as one with it, that match; the indexes must be there."""
    with open_searcher(collection, *others) as searcher:
        return searcher.search(words, limit=limit, offset=offset)


@contextmanager
def open_searcher(*collections: CollectionFolder) -> Iterator[Searches]:
    """What searches a collection, or several as one; raises LedgerLost if one has lost its ledger."""
    for each in collections:
        each.check_ledger()
    with ExitStack() as stack:
        searchers = [stack.enter_context(Searcher(each.index_folder)) for each in collections]
        if len(searchers) == 1:
            yield searchers[0]
        else:
            yield Several(dict(zip(names_of(collections), searchers, strict=True)))
