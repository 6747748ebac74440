"""Parquet segments: written once, whole or not at all, merged into larger ones, set aside when unknown.

A segment is written under a temporary name, synced, renamed, and its folder synced; only then may its name
go into the manifest. Readers ignore a file that is not in the manifest; `sweep` moves it to the collection's
folder `aside` at the next start. Each segment has a label, from which a lost manifest can be made anew.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sterna.archive.disk import (
    ASIDE,
    TEMPORARY,
    OnStep,
    ignore_step,
    make_folder,
    new_id,
    path_in,
    set_aside,
    storage_errors,
)
from sterna.archive.manifest import NO_ORIGIN, TABLES, Batch, Contents, FactRow, Label, Origin, Segment
from sterna.errors import StorageError
from sterna.model import Page

if TYPE_CHECKING:
    import pyarrow as pa

    from sterna.runtime.cell.confined import Confined

FAN_IN = 16  # segments that are merged into one
MAX_SEGMENT_BYTES = 512 << 20  # of a merged one
_MOST_GROWTH = (
    4  # times its inputs that a merged one may take: another version may have compressed them better
)
_SPARE_BYTES = 1 << 20
_SUFFIX = ".parquet"
ENDINGS = tuple(f".{table}{_SUFFIX}" for table in TABLES)  # of the names of segments


class Facts(Protocol):
    """Facts to be stored; they may be made as they are iterated."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[FactRow]: ...


class SegmentStore:
    """The folder of segments; the manifest decides which of them count."""

    def __init__(
        self,
        folder: Path,
        *,
        origin: Origin = NO_ORIGIN,
        confined: "Confined | None" = None,
        on_step: OnStep = ignore_step,
        make_id: Callable[[], str] = new_id,
    ) -> None:
        """With `confined` its processes read segments; without it this one does."""
        self._folder = folder
        self._confined = confined
        self._origin = origin
        self._on_step = on_step
        self._make_id = make_id
        make_folder(folder)

    def write_pages(
        self,
        site_pages: Sequence[tuple[str, Page]],
        *,
        facts: Facts = (),
        batch: Batch | None = None,
    ) -> list[Segment]:
        """The durable segments of these pages, their links and facts; none for tables without rows.

        Facts are taken one by one as they are written: there may be a million.
        """
        from sterna.archive.parquet import fact_tables, tables_of  # noqa: PLC0415 - see there

        written: list[Segment] = []
        try:
            tables = tables_of(site_pages, batch)
            sizes = {name: rows.num_rows for name, rows in tables.items()} | {"fact": len(facts)}
            counts = tuple(sizes.get(name, 0) for name in TABLES)
            contents = ((batch.number, counts),) if batch else ()
            for table, rows in tables.items():
                written.append(self.write(table, [rows], schema=rows.schema, contents=contents))
            if facts:
                schema, parts = fact_tables(facts, batch)
                written.append(self.write("fact", parts, schema=schema, contents=contents))
        except StorageError:
            # Space matters most when the disk is full; the sweep would only come at the next start.
            for segment in written:
                with suppress(StorageError):
                    self.remove(segment.name)
            raise
        return written

    def merge(self, segments: Sequence[Segment]) -> Segment:
        """One durable segment of the next tier with all rows, in the order of their batches; removes none.

        StorageError if it would have other rows than they, or take much more room.
        """
        if len({segment.table for segment in segments}) != 1:
            raise ValueError("a merge needs segments of one table")
        table, tier = segments[0].table, max(segment.tier for segment in segments) + 1
        paths = [self.path(segment.name) for segment in segments]
        if self._confined:
            from sterna.archive import confined  # noqa: PLC0415 - see there

            schema, rows, contents = confined.merged(self._confined, table, paths)
        else:
            from sterna.archive.parquet import contents_of, merged  # noqa: PLC0415 - see there

            (schema, rows), contents = merged(table, paths), contents_of(paths)
        expected = sum(segment.rows for segment in segments)
        with storage_errors(self._folder):
            size_bytes = sum(path.stat().st_size for path in paths)
        names = ", ".join(segment.name for segment in segments)
        whole = self.write(
            table,
            _no_more_than(expected, rows, what=f"a merge of {names}"),
            schema=schema,
            tier=tier,
            contents=contents,
            most_bytes=_MOST_GROWTH * size_bytes + _SPARE_BYTES,
        )
        if whole.rows != expected:
            self.remove(whole.name)
            raise StorageError(f"a merge of {names} has {whole.rows:,} rows: the old segments stay")
        return whole

    def sweep(self, known: Collection[str]) -> list[str]:
        """Sets aside what a crash left: temporary files and segments that the manifest does not know."""
        unknown = self.unknown(known)
        for name in unknown:
            set_aside(self.path(name), self._folder.parent / ASIDE)
        return unknown

    def unknown(self, known: Collection[str]) -> list[str]:
        """The names of segments and of temporary ones that are not among the known."""
        with storage_errors(self._folder):
            found = sorted(path.name for path in self._folder.iterdir())
        ours = [name for name in found if name.removesuffix(TEMPORARY).endswith(ENDINGS)]
        return [name for name in ours if name not in known]

    def last_batch(self, name: str) -> int:
        """The highest batch of a segment, as its footer says; 0 if it has none or cannot be read."""
        if self._confined:
            from sterna.archive import confined  # noqa: PLC0415 - see there

            return confined.last_batch(self._confined, self.path(name))
        from sterna.archive.parquet import last_batch  # noqa: PLC0415 - see there

        return last_batch(self.path(name))

    def rows(self, name: str, columns: Sequence[str]) -> Iterator[Iterator[tuple[Any, ...]]]:
        """The values of these columns of a segment, in bounded pieces; None where it lacks a column."""
        if self._confined:
            from sterna.archive import confined  # noqa: PLC0415 - see there

            return confined.rows_of(self._confined, self.path(name), columns)
        from sterna.archive.parquet import rows_of  # noqa: PLC0415 - see there

        return rows_of(self.path(name), columns)

    def arrivals(
        self, names: Sequence[str], *, after: int, upto: int, columns: Sequence[str]
    ) -> "Iterator[pa.Table]":
        """The rows of these segments that came with the batches after < batch <= upto, in their order."""
        paths = list(map(self.path, names))
        if self._confined:
            from sterna.archive import confined  # noqa: PLC0415 - see there

            return confined.arrivals(self._confined, paths, after=after, upto=upto, columns=columns)
        from sterna.archive.arrivals import arrivals  # noqa: PLC0415 - see there

        return arrivals(paths, after=after, upto=upto, columns=columns)

    def path(self, name: str) -> Path:
        return path_in(self._folder, name)

    def stop(self) -> None:
        """Ends the processes that read for it: what other threads read fails, and so do later reads."""
        if self._confined:
            self._confined.kill()

    def remove(self, name: str) -> None:
        with storage_errors(self._folder):
            self.path(name).unlink(missing_ok=True)

    def write(
        self,
        table: str,
        rows: "Iterable[pa.Table]",
        *,
        schema: "pa.Schema",
        tier: int = 0,
        contents: Contents = (),
        most_bytes: int | None = None,
    ) -> Segment:
        """A durable segment of these rows; StorageError if it would take more than `most_bytes`."""
        from sterna.archive.parquet import write_segment  # noqa: PLC0415 - see there

        name = f"{self._make_id()}.{table}{_SUFFIX}"
        origin = self._origin
        label = Label(collection=origin.collection, options=origin.options, contents=contents)
        return write_segment(
            self._folder,
            name,
            rows=rows,
            schema=schema,
            tier=tier,
            label=label,
            most_bytes=most_bytes,
            on_step=self._on_step,
        )


def _no_more_than(most: int, tables: "Iterable[pa.Table]", *, what: str) -> "Iterator[pa.Table]":
    """The tables; StorageError before one of which the rows exceed `most`."""
    rows = 0
    for table in tables:
        rows += table.num_rows
        if rows > most:
            raise StorageError(f"{what} has more than {most:,} rows: the old segments stay")
        if table.num_rows:  # even an empty one would take room in the file
            yield table


# --- which segments to merge: tiers, as in a log-structured merge tree


def choose_merges(
    segments: Sequence[Segment], *, fan_in: int = FAN_IN, max_bytes: int = MAX_SEGMENT_BYTES
) -> list[list[Segment]]:
    """The groups to merge now, each of one table and tier; none larger than `max_bytes`."""
    tiers: defaultdict[tuple[str, int], list[Segment]] = defaultdict(list)
    for segment in sorted(segments, key=lambda segment: segment.name):
        # Above half the limit a segment is full: two of its size would exceed the limit.
        if segment.size_bytes <= max_bytes // 2:
            tiers[segment.table, segment.tier].append(segment)
    return [
        group for _, tier in sorted(tiers.items()) for group in _complete(tier, fan_in, max_bytes=max_bytes)
    ]


def _complete(tier: list[Segment], fan_in: int, *, max_bytes: int) -> Iterator[list[Segment]]:
    """The groups that one more segment would make too many or too large."""
    if len(tier) < fan_in:
        return
    group: list[Segment] = []
    size_bytes = 0
    for segment in tier:
        if group and (len(group) == fan_in or size_bytes + segment.size_bytes > max_bytes):
            yield group
            group, size_bytes = [], 0
        group.append(segment)
        size_bytes += segment.size_bytes
    if len(group) == fan_in:
        yield group
