"""Searches an index, also while it is written or replaced by a rebuilt one."""

import threading
import time
from pathlib import Path
from typing import Self

from sterna.archive.disk import clean
from sterna.errors import IndexUnusable, command
from sterna.search import generations, inbound, schema
from sterna.search.inbound import Inbound
from sterna.search.queries import Composed, Composer, ParsedQuery, parse
from sterna.search.ranking import MAX_HITS, IndexView, rank, show
from sterna.search.results import Found, Hit
from sterna.search.schema import ANALYSES, PLAIN
from sterna.search.snippets import Snippets
from sterna.toml import stamp

LOOK_SECONDS = 0.3  # between two checks for changes
_TRIES = 3  # to open an index, which may be replaced at that moment

_SOME = "no page has all of these words; these have some of them"
_NOTHING = "the query contains nothing that can be searched for"
_DEEP = f"only the first {MAX_HITS:,} hits are available"


class Searcher:
    """Searches for any number of threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Guards the next two; analyzers have state while they work.
        self._lock = threading.Lock()
        self._analyzers = {name: schema.make_analyzer(name) for name in ANALYSES}
        self._view: IndexView | None = None
        self._likenesses: dict[int, int | None] = {}  # a cache that all searches fill

    def __enter__(self) -> Self:
        with generations.index_errors(self._folder):
            self._current()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._view = None

    def search(self, words: str, *, limit: int = 10, offset: int = 0) -> Found:
        """The hits from `offset` on; every text is a valid query."""
        began = time.perf_counter()
        limit, offset = max(0, limit), max(0, offset)
        parsed = parse(words)
        with generations.index_errors(self._folder):
            view = self._current()
            with self._lock:
                composed = view.composer.compose(parsed)
            hits, total, is_exact, notes = _found(view, parsed, composed, limit=limit, offset=offset)
        return Found(
            words=clean(words),
            hits=hits,
            total=total,
            is_exact=is_exact,
            offset=offset,
            limit=limit,
            seconds=time.perf_counter() - began,
            note="; ".join(notes),
            is_partial=_SOME in notes,
        )

    def page_count(self) -> int:
        with generations.index_errors(self._folder):
            return max(0, self._current().searcher.num_docs - 1)  # one document is the position

    def _current(self) -> IndexView:
        """The index as it is now or was at most LOOK_SECONDS ago."""
        with self._lock:
            if self._view is None or time.monotonic() - self._view.checked_at >= LOOK_SECONDS:
                self._view = self._reopen(self._view)
            return self._view

    def _reopen(self, before: IndexView | None) -> IndexView:
        for _ in range(_TRIES - 1):
            try:
                return self._open(before)
            except (ValueError, OSError):
                before = None  # it may have been replaced meanwhile
        return self._open(before)

    def _open(self, before: IndexView | None) -> IndexView:
        generation = generations.current(self._folder)
        if generation is None:
            folder = self._folder
            raise IndexUnusable(f"{folder} has no search index yet: run '{command('index', folder.parent)}'")
        is_kept = before is not None and before.generation == generation
        if before is not None and is_kept and before.index_stamp in (None, generations.stamp_of(generation)):
            index, index_stamp = before.index, before.index_stamp
        else:
            index, index_stamp = generations.open_index(generation)
            if index_stamp is None:
                index.config_reader("commit")
            schema.register_analyzers(index)
        searcher = index.searcher()
        present = [name for name in ANALYSES if searcher.doc_freq(schema.ANALYSIS, name)]
        names = dict.fromkeys([*present, PLAIN])
        seen = stamp(self._folder / inbound.NAME)
        is_same = before is not None and before.inbound_stamp == seen
        return IndexView(
            generation=generation,
            index=index,
            index_stamp=index_stamp,
            searcher=searcher,
            composer=Composer(index.schema, {name: self._analyzers[name] for name in names}),
            inbound=before.inbound if before is not None and is_same else Inbound(self._folder),
            inbound_stamp=seen,
            likenesses=self._likenesses,
            checked_at=time.monotonic(),
        )


def _found(
    view: IndexView, parsed: ParsedQuery, composed: Composed, *, limit: int, offset: int
) -> tuple[tuple[Hit, ...], int, bool, list[str]]:
    """The hits, their total, whether that is exact, and notes for the user."""
    notes = list(parsed.notes)
    if composed.lost:
        notes.append("not searched: " + ", ".join(f"'{word[:40]}'" for word in composed.lost[:5]))
    if composed.every is None:
        return (), 0, True, [*notes, *([_NOTHING] if parsed.terms else [])]
    count = min(offset + limit, MAX_HITS)
    kept, total, is_exact = rank(view, composed.every, count=count)
    if not total and composed.some is not None:
        kept, total, is_exact = rank(view, composed.some, count=count)
        notes += [_SOME] if total else []
    if offset + limit > MAX_HITS and total > MAX_HITS:
        notes.append(_DEEP)
    words = [term.text for term in parsed.terms if not term.is_excluded]
    snippets = Snippets(view.searcher, view.index.schema, composed.wanted, words)
    return tuple(show(view, each, snippets) for each in kept[offset:count]), total, is_exact, notes
