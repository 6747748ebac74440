"""Searches several indexes as one, for any number of threads.

Their hits are merged by score, as each index weighs its words: a word that is rare in one collection counts
for more there. Of a URL that several have, the newest version is shown, at the best of their places.
"""

import time
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from sterna.search.ranking import MAX_HITS
from sterna.search.results import Found, Hit, Searches


class Several:
    """The searchers of collections, by their names."""

    def __init__(self, searchers: Mapping[str, Searches]) -> None:
        self._searchers = searchers

    def search(self, words: str, *, limit: int = 10, offset: int = 0) -> Found:
        """The hits from `offset` on; each says which collection it is from."""
        began = time.perf_counter()
        limit, offset = max(0, limit), max(0, offset)
        wanted = min(offset + limit, MAX_HITS)
        found = {name: each.search(words, limit=wanted) for name, each in self._searchers.items()}
        # One that has only some of the words counts where no other has all of them.
        whole = {name: each for name, each in found.items() if each.hits and not each.is_partial}
        counted = whole or found
        hits = [replace(hit, collection=name) for name, each in counted.items() for hit in each.hits]
        merged = list(_merged(hits))
        notes = dict.fromkeys(each.note for each in counted.values() if each.note)
        return Found(
            words=next(iter(found.values())).words,
            hits=tuple(merged[offset:wanted]),
            total=sum(each.total for each in counted.values()) - (len(hits) - len(merged)),
            is_exact=all(each.is_exact and each.total <= len(each.hits) for each in counted.values()),
            offset=offset,
            limit=limit,
            seconds=time.perf_counter() - began,
            note="; ".join(notes),
        )

    def page_count(self) -> int:
        return sum(each.page_count() for each in self._searchers.values())


def _merged(hits: list[Hit]) -> Iterator[Hit]:
    """In the order of their scores, each URL once, in its newest version."""
    newest: dict[str, Hit] = {}
    for hit in hits:
        if hit.url not in newest or hit.fetched > newest[hit.url].fetched:
            newest[hit.url] = hit
    for hit in sorted(hits, key=lambda each: -each.score):
        if shown := newest.pop(hit.url, None):
            yield replace(shown, score=hit.score)
