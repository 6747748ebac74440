"""Indexes the pages of the archive, batch after batch, each exactly once.

The position, which is the last batch that is completely in the index, is a document of the index and goes
into the same commit as the pages. So after a crash the index holds exactly the batches that its position
says. Each URL has one document, its newest version; a page that is gone is deleted, other failures change
nothing.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Self

import pyarrow as pa
from tantivy import Index, IndexWriter

from sterna.archive.arrivals import arrivals
from sterna.archive.manifest import Snapshot
from sterna.search import generations, schema
from sterna.search.documents import PageRow, make_document, make_position, mark_of
from sterna.search.link_count import LinkCount

HEAP_BYTES = 64_000_000
COMMIT_SECONDS = 4.0  # each commit makes a segment; many small ones slow merges and searches
COMMIT_SHARE = 10  # committing takes at most a tenth of the time
WORK_SECONDS = 30.0  # with one snapshot, whose files compaction may remove
COUNT_SHARE = 50  # counting links takes at most a fiftieth of the time
NOTHING = -1  # the position of an empty index; batch 0 is from before batches existed

_COLUMNS = PageRow.__struct_fields__
_NO_KIND = "none"  # no document is of this kind


class Indexer:
    """The only writer of an index; `batch` is its position."""

    def __init__(self, folder: Path, *, is_anew: bool = False) -> None:
        self._folder = folder
        self._is_anew = is_anew
        self._open = ExitStack()
        # Changed only by the thread that calls catch_up.
        self._taken = NOTHING  # the last batch that the writer has completely
        self._committed = NOTHING
        self._pending = 0  # changes since the last commit
        self._committed_at = 0.0
        self._commit_seconds = 0.0
        self._links = LinkCount(folder)
        self._counted_at = 0.0
        if is_anew:
            self._links.batch = NOTHING
        self._last: tuple[float, Snapshot, threading.Event] | None = None  # of catch_up
        self.pages = 0  # rows that were read

    def __enter__(self) -> Self:
        try:
            self._open.enter_context(generations.writing(self._folder))
            self._generation = self._find_generation()
            with generations.index_errors(self._folder):
                self._index = Index(schema.make_schema(), path=str(self._generation))
                self._index.config_reader("manual")
                schema.register_analyzers(self._index)
                self._writer: IndexWriter | None = self._index.writer(HEAP_BYTES, 1)
                self._begin_operations()
                self._index.reload()
                position = generations.position_of(self._index, folder=self._folder)
            self._taken = self._committed = NOTHING if position is None else position
            if position is None:
                self._pending = 1
                self.commit()
                if not self._is_anew:
                    generations.publish(self._generation)
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._writer is not None:
                self.commit()
                self._count_the_rest()
        finally:
            self._writer = None  # cancels merges in progress; the next writer begins them again
            self._open.close()

    @property
    def batch(self) -> int:
        """The last batch that can be searched completely."""
        return self._committed if self._pending else self._taken

    def is_left(self, batch: int) -> bool:
        """Whether batches are left that closing it, which commits, does not complete."""
        return self._taken < batch

    def catch_up(self, snapshot: Snapshot, *, stop: threading.Event) -> None:
        """Indexes new batches; ends early, after a whole batch, at `stop` or after WORK_SECONDS."""
        if snapshot.batch < self._committed:
            raise generations.unusable(self._folder, "it is ahead of the archive")
        self._last = time.monotonic(), snapshot, stop
        until = time.monotonic() + WORK_SECONDS
        try:
            with generations.index_errors(self._folder):
                is_whole = self._take_arrivals(snapshot, stop=stop, until=until)
        except BaseException:
            self._roll_back()
            raise
        if not is_whole or stop.is_set() or self._is_due():
            self.commit()
        is_due = time.monotonic() - self._counted_at >= COUNT_SHARE * self._links.seconds
        if is_whole and is_due and not stop.is_set():
            self._count(snapshot, stop=stop, until=until)

    def settle(self) -> None:
        """Commits, counts the remaining links and waits for merges; nothing can be added afterwards."""
        self.commit()
        self._count_the_rest()
        if self._writer is not None:
            with generations.index_errors(self._folder):
                self._writer.wait_merging_threads()
            self._writer = None

    def publish(self) -> None:
        """Replaces the old index by this rebuilt one."""
        self.commit()
        generations.publish(self._generation)

    # -- pages ---------------------------------------------------------------------------------------------

    def _find_generation(self) -> Path:
        if self._is_anew:
            return generations.begin(self._folder)
        found = generations.current(self._folder)
        generations.sweep(self._folder, keep=found)
        if found is None:
            return generations.begin(self._folder)
        if not found.is_dir():
            raise generations.unusable(self._folder, "its files are missing")
        return found

    def _take_arrivals(self, snapshot: Snapshot, *, stop: threading.Event, until: float) -> bool:
        """True if the writer has everything up to the snapshot's batch."""
        newest: dict[int, int] = {}
        paths = snapshot.tables.get("page", ())
        for rows in arrivals(paths, after=self._taken, upto=snapshot.batch, columns=_COLUMNS):
            for batch, part in _by_batch(rows):
                if batch > self._taken + 1:
                    self._taken = batch - 1  # batches in between have no pages or are indexed
                    if stop.is_set() or time.monotonic() > until:
                        return False
                    if self._is_due():
                        self.commit()
                if batch == 0 and stop.is_set():
                    self._roll_back()
                    return False
                self._take(part, newest if batch == 0 else None)
        self._taken = snapshot.batch
        return True

    def _take(self, rows: pa.Table, newest: dict[int, int] | None) -> None:
        """Gives rows of one batch to the writer; those of batch 0 come unordered, with `newest`."""
        assert self._writer is not None
        columns = [rows[name].cast(pa.int64()) if name == "fetched" else rows[name] for name in _COLUMNS]
        for values in zip(*(column.to_pylist() for column in columns), strict=True):
            self.pages += 1
            row = PageRow(*values)
            is_wanted = row.is_wanted
            if is_wanted is None:
                continue
            if newest is not None:
                number, fetched = mark_of(row.url), row.fetched or 0
                if newest.get(number, fetched) > fetched:
                    continue
                newest[number] = fetched
            if row.again is not False:
                self._writer.delete_documents_by_term(schema.URL, row.url)
            if is_wanted:
                self._writer.add_document(make_document(row))
            self._pending += 1

    # -- commits -------------------------------------------------------------------------------------------

    def _is_due(self) -> bool:
        pause = max(COMMIT_SECONDS, COMMIT_SHARE * self._commit_seconds)
        return bool(self._pending) and time.monotonic() - self._committed_at >= pause

    def commit(self) -> None:
        """Makes the pages that the writer has searchable, together with the position."""
        if not self._pending or self._writer is None:
            return
        began = time.monotonic()
        with generations.index_errors(self._folder):
            self._writer.delete_documents_by_term(schema.KIND, schema.POSITION)
            self._writer.add_document(make_position(self._taken))
            self._writer.commit()
        self._committed, self._pending = self._taken, 0
        self._committed_at = time.monotonic()
        self._commit_seconds = self._committed_at - began

    def _begin_operations(self) -> None:
        """Gives the writer a first operation that may be lost.

        tantivy (0.27) gives the first operation after opening the number of the last commit, and a merge that
        begins at that moment takes it for a committed one: half of all such deletions never happened.
        """
        assert self._writer is not None
        self._writer.delete_documents_by_term(schema.KIND, _NO_KIND)

    def _roll_back(self) -> None:
        if self._writer is not None:
            with generations.index_errors(self._folder):
                self._writer.rollback()
                self._begin_operations()
        self._taken, self._pending = self._committed, 0

    # -- links ---------------------------------------------------------------------------------------------

    def _count(self, snapshot: Snapshot, *, stop: threading.Event, until: float) -> None:
        if self._links.batch < self._taken and self._links.go_on(snapshot, stop=stop, until=until):
            self._counted_at = time.monotonic()

    def _count_the_rest(self) -> None:
        """At the end, unless `stop` is set; the files of the last snapshot must still exist."""
        if self._last is None:
            return
        seen_at, snapshot, stop = self._last
        if self._taken == snapshot.batch and not stop.is_set():
            self._count(snapshot, stop=stop, until=seen_at + 2 * WORK_SECONDS)


def _by_batch(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    begin = 0
    for batch, same in groupby(rows["batch"].to_pylist()):
        end = begin + sum(1 for _ in same)
        yield batch, rows.slice(begin, end - begin)
        begin = end
