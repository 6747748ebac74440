"""Searches an index, also while it is written, or replaced by one that was made anew."""

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tantivy import Index

from sterna.archive.disk import clean
from sterna.errors import IndexUnusable
from sterna.model import Record
from sterna.search import generations, inbound, schema
from sterna.search.analysis import ANALYSES, PLAIN, make_analyzer, register
from sterna.search.inbound import Inbound
from sterna.search.queries import Composed, Composer
from sterna.search.ranking import MAX_HITS, State, rank, show
from sterna.search.results import Found, Hit
from sterna.search.snippets import Snippets
from sterna.search.wording import Asked, parse

LOOK_SECONDS = 0.3  # between two looks at what is new
_TRIES = 3  # at an index that is replaced while it is opened

_SOME = "no page has all of these words; these have some of them"
_NOTHING = "there is nothing to look for in these words"
_DEEP = f"only the first {MAX_HITS:,} hits can be looked at"


class _View(Record, frozen=True, kw_only=True, gc=True):
    """An index as it was at the last look."""

    generation: Path
    index: Index
    state: State
    stamp: tuple[int, int]  # of the counts of links
    composer: Composer
    looked_at: float


class Searcher:
    """Answers the searches of any number of threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()  # of the two below; analyzers keep a state while they work
        self._analyzers = {name: make_analyzer(name) for name in ANALYSES}
        self._view: _View | None = None
        self._likenesses: dict[int, int | None] = {}  # filled by searches, whichever

    def __enter__(self) -> Self:
        with generations.index_errors(self._folder):
            self._look()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._view = None

    def search(self, words: str, *, limit: int = 10, offset: int = 0) -> Found:
        """The hits from `offset` on; any text is searched somehow."""
        began = time.perf_counter()
        limit, offset = max(0, limit), max(0, offset)
        asked = parse(words)
        with generations.index_errors(self._folder):
            view = self._look()
            with self._lock:
                composed = view.composer.compose(asked)
            hits, total, is_exact, notes = _found(view.state, asked, composed, limit=limit, offset=offset)
        return Found(
            words=clean(words),
            hits=hits,
            total=total,
            is_exact=is_exact,
            offset=offset,
            limit=limit,
            seconds=time.perf_counter() - began,
            note="; ".join(notes),
        )

    def page_count(self) -> int:
        """How many pages can be found."""
        with generations.index_errors(self._folder):
            return max(0, self._look().state.searcher.num_docs - 1)  # one document is the position

    def _look(self) -> _View:
        """The index as it is now, or was a moment ago."""
        with self._lock:
            if self._view is None or time.monotonic() - self._view.looked_at >= LOOK_SECONDS:
                self._view = self._opened(self._view)
            return self._view

    def _opened(self, before: _View | None) -> _View:
        for _ in range(_TRIES - 1):
            try:
                return self._open(before)
            except (ValueError, OSError):
                before = None  # it may have been replaced between two looks
        return self._open(before)

    def _open(self, before: _View | None) -> _View:
        generation = generations.current(self._folder)
        if generation is None:
            folder = self._folder
            raise IndexUnusable(
                f"{folder} holds no search index yet: 'sterna index {folder.parent}' makes it"
            )
        if before is not None and before.generation == generation:
            index = before.index
        else:
            index = Index.open(str(generation))
            index.config_reader("commit")
            register(index)
        searcher = index.searcher()
        present = [name for name in ANALYSES if searcher.doc_freq(schema.ANALYSIS, name)]
        names = dict.fromkeys([*present, PLAIN])
        stamp = inbound.stamp(self._folder)
        is_same = before is not None and before.stamp == stamp
        counts = before.state.inbound if before is not None and is_same else Inbound.read(self._folder)
        return _View(
            generation=generation,
            index=index,
            state=State(searcher, index.schema, counts, self._likenesses),
            stamp=stamp,
            composer=Composer(index.schema, {name: self._analyzers[name] for name in names}),
            looked_at=time.monotonic(),
        )


def _found(
    state: State, asked: Asked, composed: Composed, *, limit: int, offset: int
) -> tuple[tuple[Hit, ...], int, bool, list[str]]:
    """The hits, how many there are, whether that is exact, and what is to be said about it."""
    notes = list(asked.notes)
    if composed.lost:
        notes.append("not searched: " + ", ".join(f"'{word[:40]}'" for word in composed.lost[:5]))
    if composed.every is None:
        return (), 0, True, [*notes, *([_NOTHING] if asked.terms else [])]
    count = min(offset + limit, MAX_HITS)
    ranked = rank(state, composed.every, count=count)
    if not ranked.total and composed.some is not None:
        ranked = rank(state, composed.some, count=count)
        notes += [_SOME] if ranked.total else []
    if offset + limit > MAX_HITS and ranked.total > MAX_HITS:
        notes.append(_DEEP)
    words = [term.text for term in asked.terms if not term.is_excluded]
    snippets = Snippets(state.searcher, state.fields, composed.wanted, words)
    return show(state, ranked, snippets, offset=offset, limit=limit), ranked.total, ranked.is_exact, notes
