"""Examines segments row by row: what of a file is good, whose it is, and what its batches are.

Rows belong to *units*, each of which lies in one segment that counts: the batch, or for rows from before
batches existed the row itself. So two files with the same unit hold the same rows, and one of them is a copy.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sterna.archive.manifest import NO_LABEL, Label
from sterna.archive.parquet import damage_named, label_of
from sterna.archive.rows import BATCH, OPTIONAL, SCHEMAS
from sterna.errors import DamagedSegment
from sterna.model import Record

_PIECE_ROWS = 256  # of a damaged row group, read one piece after the other up to the damage
_HASH_BITS = 2**62 - 1
_MAGIC, _LEAST_BYTES = b"PAR1", 12


class Examined(Record, frozen=True, kw_only=True):
    """A file among the segments, and what is good of it."""

    name: str
    table: str
    size_bytes: int = 0
    damage: str = ""  # "": it is whole
    label: Label = NO_LABEL
    units: dict[int, int] = msgspec.field(default_factory=dict)  # the good rows, by unit
    lost_rows: int | None = 0  # None: nobody knows

    @property
    def rows(self) -> int:
        return sum(self.units.values())


def is_cut(path: Path) -> bool:
    """True if a file is missing, or does not end as a Parquet file does; this costs next to nothing."""
    try:
        with path.open("rb") as file:
            return (
                file.seek(0, os.SEEK_END) < _LEAST_BYTES
                or os.pread(file.fileno(), 4, file.tell() - 4) != _MAGIC
            )
    except OSError:
        return True


def damage_of(path: Path) -> str:
    """Why a segment cannot be read completely; "" if it can. All of it is read."""
    return examine(path).damage


def examine(path: Path) -> Examined:
    """Reads all of a file; what cannot be read, or fails its checksum, is damage."""
    table = path.name.split(".")[-2]
    found: list[str] = []
    units: Counter[int] = Counter()
    try:
        size_bytes = path.stat().st_size
        with damage_named(path):
            footer = pq.read_metadata(path)
            complaint = _complaint(footer.schema.to_arrow_schema(), table)
    except (OSError, DamagedSegment) as error:
        reason = error.reason if isinstance(error, DamagedSegment) else error.strerror
        return Examined(name=path.name, table=table, damage=reason or str(error), lost_rows=None)
    if complaint:
        return Examined(name=path.name, table=table, damage=complaint, lost_rows=0)
    for rows in good_rows(path, damage=found):
        units.update(units_of(rows, table).to_pylist())
    return Examined(
        name=path.name,
        table=table,
        size_bytes=size_bytes,
        damage=found[0] if found else "",
        label=label_of(footer),
        units=dict(units),
        lost_rows=max(footer.num_rows - units.total(), 0),
    )


def good_rows(path: Path, *, damage: list[str] | None = None) -> Iterator[pa.Table]:
    """The rows that pass their checksums, in pieces; reasons why others do not are added to `damage`."""
    with damage_named(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            try:
                yield file.read_row_group(group)
            except (pa.ArrowException, OSError) as error:
                if damage is not None:
                    damage.append(str(error).splitlines()[0])
                yield from _beginning(file, group)


def _beginning(file: pq.ParquetFile, group: int) -> Iterator[pa.Table]:
    """The rows of a row group before the first damaged page of any column."""
    try:
        for rows in file.iter_batches(_PIECE_ROWS, row_groups=[group], use_threads=False):
            yield pa.Table.from_batches([rows])
    except (pa.ArrowException, OSError):
        return


def chosen_rows(path: Path, table: str, *, units: Collection[int]) -> Iterator[pa.Table]:
    """The good rows of these units."""
    wanted = pa.array(units, pa.int64())
    for rows in good_rows(path):
        chosen = rows.filter(pc.is_in(units_of(rows, table), wanted))
        if chosen.num_rows:
            yield chosen


def units_of(rows: pa.Table, table: str) -> pa.ChunkedArray:
    """The unit of each row: a batch, or a negative number made from what the row says."""
    if BATCH in rows.column_names:
        batches = pc.fill_null(rows[BATCH], 0)
        if pc.all(pc.greater(batches, 0), min_count=0).as_py():
            return batches
    else:
        batches = pa.chunked_array([pa.nulls(rows.num_rows, pa.int64()).fill_null(0)])
    names = [name for name in _keys(table) if name in rows.column_names]
    values = zip(*(rows[name].cast(_plain(rows[name].type)).to_pylist() for name in names), strict=True)
    marks = [
        batch if batch > 0 else -1 - (hash(row) & _HASH_BITS)
        for batch, row in zip(batches.to_pylist(), values, strict=True)
    ]
    return pa.chunked_array([pa.array(marks, pa.int64())])


def _keys(table: str) -> Sequence[str]:
    return ("url", "fetched", "digest") if table == "page" else [
        name for name in SCHEMAS[table].names if name not in OPTIONAL[table]
    ]  # fmt: skip


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _complaint(schema: pa.Schema, table: str) -> str:
    """Why a Parquet file is no segment of this table; "" if it is one."""
    for field in SCHEMAS[table]:
        if field.name in schema.names and schema.field(field.name).type != field.type:
            return f"it is no segment: its column {field.name!r} is of another type"
        if field.name not in schema.names and field.name not in OPTIONAL[table]:
            return f"it is no segment: it has no column {field.name!r}"
    return ""
