"""Counts the pages that link to each URL, part by part of the archive, over as many snapshots as that takes.

Only links of the newest version of a page count: each page once for each URL, links to itself not at all.
Among rows from before batches existed, a page whose links are in two parts may count twice; the count is only
a weight.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sterna.archive.arrivals import arrivals
from sterna.archive.disk import begin_file, storage_errors
from sterna.archive.manifest import Snapshot
from sterna.search.documents import mark_of
from sterna.search.inbound import HEAD, MAGIC, MAX_COUNT, NAME, Inbound, looked_up

_MAX_ROWS = 2_000_000  # of counts that are not summed yet
_COUNTS = pa.schema([("number", pa.uint64()), ("count", pa.int64())])
_VERSIONS = pa.schema([("number", pa.uint64()), ("fetched", pa.int64())])
_COLUMNS = {
    "page": ("url", "fetched", "again", "batch"),
    "link": ("from_url", "to_url", "fetched", "batch"),
}
_NONE_WHOLE = -1


class LinkCount:
    """The count in progress; `batch` and `seconds` are those of the last finished one.

    Only the indexer's thread changes it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.batch = Inbound(folder).batch
        self.seconds = 0.0
        self._begun: _Count | None = None

    def go_on(self, snapshot: Snapshot, *, stop: threading.Event, until: float) -> bool:
        """Continues the count, or begins one; True if it was finished and written."""
        count = self._begun or _Count(snapshot.batch)
        if not count.go_on(snapshot, stop=stop, until=until):
            self._begun = None if count.is_lost else count
            return False
        write_counts(self._folder, count.result(), batch=count.upto)
        self.batch, self.seconds, self._begun = count.upto, count.seconds, None
        return True


class _Count:
    def __init__(self, upto: int) -> None:
        self.upto = upto
        self.seconds = 0.0
        self.is_lost = False  # it stopped where it cannot continue
        self._done = {"page": -1, "link": -1}  # the last batch of each table that was counted completely
        self._versions = _VERSIONS.empty_table()
        self._newest: tuple[memoryview, memoryview] | None = None  # when each of them was fetched last
        self._counts = _COUNTS.empty_table()

    def go_on(self, snapshot: Snapshot, *, stop: threading.Event, until: float) -> bool:
        began = time.monotonic()
        try:
            for table, add in (("page", self._note_versions), ("link", self._add_links)):
                paths, columns = snapshot.tables.get(table, ()), _COLUMNS[table]
                for rows, whole in _whole(paths, after=self._done[table], upto=self.upto, columns=columns):
                    self.is_lost = whole == _NONE_WHOLE
                    self._done[table] = max(whole, self._done[table])
                    add(rows)
                    if stop.is_set() or time.monotonic() > until:
                        return False
            return True
        finally:
            self.seconds += time.monotonic() - began

    def result(self) -> pa.Table:
        """Each number once, sorted, with its count."""
        return _summed(self._counts).sort_by("number")

    def _note_versions(self, rows: pa.Table) -> None:
        """Notes which pages came more than once, and when."""
        again = rows.filter(pc.fill_null(rows["again"], True))
        numbers = [mark_of(url) for url in again["url"].to_pylist()]
        versions = [pa.array(numbers, pa.uint64()), again["fetched"].cast(pa.int64())]
        self._versions = pa.concat_tables([self._versions, pa.table(versions, schema=_VERSIONS)])

    def _add_links(self, rows: pa.Table) -> None:
        if self._newest is None:
            newest = self._versions.group_by("number").aggregate([("fetched", "max")]).sort_by("number")
            self._newest = _viewed(newest["number"], "Q"), _viewed(newest["fetched_max"], "q")
        self._counts = pa.concat_tables([self._counts, _linked(rows, self._newest)])
        if self._counts.num_rows > _MAX_ROWS:
            self._counts = _summed(self._counts)


def _whole(
    paths: Sequence[Path], *, after: int, upto: int, columns: Sequence[str]
) -> Iterator[tuple[pa.Table, int]]:
    """The rows in complete batches, each time with the last of these batches.

    Batch 0, from before batches existed, has no size limit: it comes in parts, none of which is complete.
    """
    held = None
    for rows in arrivals(paths, after=after, upto=upto, columns=columns):
        joined = rows if held is None else pa.concat_tables([held, rows])
        last = joined["batch"][-1].as_py()
        if last == 0:
            yield joined, _NONE_WHOLE
            continue
        begin = joined.num_rows - pc.sum(pc.equal(joined["batch"], last)).as_py()
        held = joined.slice(begin)
        if begin:
            yield joined.slice(0, begin), last - 1
    if held is not None:
        yield held, upto


def _viewed(column: pa.ChunkedArray, kind: str) -> memoryview:
    array = pc.fill_null(column, 0).combine_chunks()
    values = array.buffers()[1]
    if values is None or not len(array):
        return memoryview(b"").cast(kind)  # type: ignore[call-overload,no-any-return]
    view = memoryview(values)[: 8 * (array.offset + len(array))].cast(kind)  # type: ignore[call-overload]
    return view[array.offset :]  # type: ignore[no-any-return]


def _linked(rows: pa.Table, newest: tuple[memoryview, memoryview]) -> pa.Table:
    """How many pages of these rows link to each number."""
    rows = rows.filter(pc.and_(pc.is_valid(rows["from_url"]), pc.is_valid(rows["to_url"])))
    sources = rows["from_url"].combine_chunks().dictionary_encode()
    targets = rows["to_url"].combine_chunks().dictionary_encode()
    source_numbers = [mark_of(url) for url in sources.dictionary.to_pylist()]
    target_numbers = pa.array([mark_of(url) for url in targets.dictionary.to_pylist()], pa.uint64())
    versions = pa.array([looked_up(number, *newest) for number in source_numbers], pa.int64())
    fetched = rows["fetched"].cast(pa.int64()).combine_chunks()
    is_newest = pc.fill_null(pc.equal(versions.take(sources.indices), fetched), True)
    is_of_others = pc.not_equal(
        pa.array(source_numbers, pa.uint64()).take(sources.indices), target_numbers.take(targets.indices)
    )
    pairs = pa.table({"from": sources.indices, "to": targets.indices}).filter(
        pc.and_(is_newest, is_of_others)
    )
    counts = pairs.group_by(["from", "to"]).aggregate([]).group_by("to").aggregate([("from", "count")])
    numbers = target_numbers.take(counts["to"].combine_chunks())
    return pa.table([numbers, counts["from_count"]], schema=_COUNTS)


def _summed(counts: pa.Table) -> pa.Table:
    sums = counts.group_by("number").aggregate([("count", "sum")])
    return pa.table([sums["number"], sums["count_sum"]], schema=_COUNTS)


def write_counts(folder: Path, counts: pa.Table, *, batch: int) -> None:
    """Replaces the file that `inbound` reads; `counts` has each number once, sorted."""
    bounded = pc.min_element_wise(counts["count"], MAX_COUNT).cast(pa.uint32())
    begun = folder / f"{NAME}.tmp"
    with storage_errors(folder):
        with begin_file(begun) as file:
            file.write(HEAD.pack(MAGIC, batch, counts.num_rows))
            for column, width in ((counts["number"], 8), (bounded, 4)):
                array = column.combine_chunks()
                if len(array):
                    begin = array.offset * width
                    file.write(memoryview(array.buffers()[1])[begin : begin + width * len(array)])
        begun.replace(folder / NAME)
