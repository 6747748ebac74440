"""The rows that came into the archive after a batch, in the order of their commits.

Merged segments may hold batches that lie between those of another one: a segment that was too large to be
merged was left out, or a clock was set back and its name sorted wrong. So rows wait until no row group that
is still to be read can hold an earlier one.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sterna.archive.parquet import batches_of, damage_named, filled, schema_of
from sterna.archive.rows import BATCH


class _Group(NamedTuple):
    """A row group; they are read in the order of these fields."""

    low: int
    file: int
    group: int
    high: int
    rows: int


def arrivals(paths: Sequence[Path], *, after: int, upto: int, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of the batches after < batch <= upto, in the order of their batches, in bounded pieces.

    Row groups that lie outside are not read. Columns that a file lacks are NULL, except `batch`: rows without
    one are of batch 0, so that `after=-1` includes them.
    """
    wanted = [*(name for name in columns if name != BATCH), BATCH]
    held: pa.Table | None = None  # sorted by batch
    for group in _groups(paths, after=after, upto=upto):
        if held is not None:
            count_ready = pc.sum(pc.less_equal(held[BATCH], group.low), min_count=0).as_py()
            if count_ready:
                yield held.slice(0, count_ready).select(columns)
            held = held.slice(count_ready)
        rows = _within(_read(paths[group.file], group.group, columns=wanted), after=after, upto=upto)
        held = _sorted(pa.concat_tables([held, rows])) if held is not None and held.num_rows else rows
    if held is not None and held.num_rows:
        yield held.select(columns)


def count(paths: Sequence[Path], *, after: int, upto: int) -> int:
    """The number of rows of arrivals(); of most files only the footer is read."""
    total = 0
    for group in _groups(paths, after=after, upto=upto):
        if after < group.low and group.high <= upto:
            total += group.rows
        else:
            rows = _read(paths[group.file], group.group, columns=[BATCH])
            total += _within(rows, after=after, upto=upto).num_rows
    return total


def _groups(paths: Sequence[Path], *, after: int, upto: int) -> list[_Group]:
    if after >= upto:
        return []
    return sorted(
        _Group(low, file, group, high, rows)
        for file, path in enumerate(paths)
        for group, (low, high, rows) in enumerate(_ranges(path))
        if after < high and low <= upto
    )


# A follower comes twice a second, and a segment is written once.
@lru_cache(maxsize=4096)
def _ranges(path: Path) -> tuple[tuple[int, int, int], ...]:
    """The lowest and the highest batch of each row group, and how many rows it has."""
    with damage_named(path):
        footer = pq.read_metadata(path)
    return tuple(
        (low, high, footer.row_group(group).num_rows) for group, (low, high) in enumerate(batches_of(footer))
    )


def _read(path: Path, group: int, *, columns: Sequence[str]) -> pa.Table:
    """These columns of a row group, sorted by batch, as nearly all are already."""
    schema = schema_of(path, columns)
    with damage_named(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        present = set(file.schema_arrow.names)
        rows = file.read_row_group(group, columns=[name for name in columns if name in present])
    rows = filled(rows, schema)
    return _sorted(rows.set_column(len(columns) - 1, BATCH, pc.fill_null(rows[BATCH], 0)))


def _within(rows: pa.Table, *, after: int, upto: int) -> pa.Table:
    is_within = pc.and_(pc.greater(rows[BATCH], after), pc.less_equal(rows[BATCH], upto))
    return rows if pc.all(is_within, min_count=0).as_py() else rows.filter(is_within)


def _sorted(rows: pa.Table) -> pa.Table:
    batches = rows[BATCH].combine_chunks()
    if pc.all(pc.less_equal(batches[:-1], batches[1:]), min_count=0).as_py():
        return rows
    return rows.take(pc.sort_indices(batches))
