"""Segments as Parquet: tables of pages, links and facts written and merged; all of Arrow that a crawl needs.

Loaded with the first segment that is written: Arrow takes a while, in which a crawl can be on its way.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from sterna.archive.disk import TEMPORARY, OnStep, ignore_step, storage_errors, sync_folder
from sterna.archive.manifest import NO_LABEL, Batch, Contents, FactRow, Label, Segment
from sterna.archive.rows import BATCH, OPTIONAL, SCHEMAS, fact_table, link_table, page_table
from sterna.errors import DamagedSegment, StorageError
from sterna.model import Page

# A row group, which a merge holds in memory and a query reads or skips, has about this size uncompressed.
GROUP_BYTES = 16 << 20
_ROWS_AT_ONCE = 5_000  # as Python values
_CHARS_AT_ONCE = 4_000_000  # of facts

_LABEL = b"sterna"  # its key among the metadata of a file
_MOST = 2**63 - 1
_EARLY = (0, 0)  # of rows without a batch

# Dictionaries pay where values repeat within a segment; for texts and unique URLs they only cost time.
_DICTIONARIES = {
    "page": [
        *("site", "status", "error", "content_type", "language", "depth", "referrer"),
        *("keywords.list.element", "headers.key_value.key", "headers.key_value.value"),
        *("extracts.key_value.key", "visit", "crawler", BATCH),
    ],
    "link": ["from_url", "to_url", "rel", "crawler", BATCH],
    "fact": ["crawler", "site", "visit", "template", BATCH],
}
# Statistics hold copies of the least and the greatest value. Of long texts they are of no use, and cost six
# times the memory of the text while it is written.
_LONG = {"title", "description", "text", "html", "data"}
_STATISTICS = {
    table: [field.name for field in schema if field.name not in _LONG and not pa.types.is_nested(field.type)]
    for table, schema in SCHEMAS.items()
}
_OPTIONS: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}


# Arrow's own allocator would keep 100 MB for the next segment.
pa.set_memory_pool(pa.system_memory_pool())


def tables_of(site_pages: Sequence[tuple[str, Page]], batch: Batch | None = None) -> dict[str, pa.Table]:
    """The rows of these pages and of their links, by table; empty tables and columns are left out."""
    kept = {}
    for name, rows in (("page", page_table(site_pages, batch)), ("link", link_table(site_pages, batch))):
        if rows.num_rows:
            kept[name] = rows.drop_columns(_empty_columns(name, rows))
    return kept


def fact_tables(facts: Iterable[FactRow], batch: Batch | None = None) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """The rows of these facts, a row group at a time, and their columns."""
    without = [] if batch else [BATCH]
    schema = pa.schema([field for field in SCHEMAS["fact"] if field.name not in without])
    parts = (fact_table(some, batch).drop_columns(without) for some in _portions(facts))
    return schema, gathered(parts, least_bytes=GROUP_BYTES)


def _portions(facts: Iterable[FactRow]) -> Iterator[list[FactRow]]:
    """Some of the facts after the other, as many as are held as Python values."""
    portion, chars = list[FactRow](), 0
    for fact in facts:
        portion.append(fact)
        chars += len(fact.data)
        if len(portion) >= _ROWS_AT_ONCE or chars >= _CHARS_AT_ONCE:
            yield portion
            portion, chars = [], 0
    if portion:
        yield portion


def _empty_columns(table: str, rows: pa.Table) -> list[str]:
    return [column for column in OPTIONAL[table] if rows[column].null_count == rows.num_rows]


def write_segment(
    folder: Path,
    name: str,
    *,
    rows: Iterable[pa.Table],
    schema: pa.Schema,
    tier: int = 0,
    label: Label = NO_LABEL,
    most_bytes: int | None = None,
    on_step: OnStep = ignore_step,
) -> Segment:
    """The segment `<id>.<table>.parquet`, durable; after an error there is nothing under that name.

    StorageError if it would take more than `most_bytes`.
    """
    table = name.split(".")[-2]
    label = msgspec.structs.replace(label, table=table, tier=tier)
    temporary = folder / (name + TEMPORARY)
    row_count = 0
    try:
        with storage_errors(folder):
            with temporary.open("xb") as file:
                on_step("segment-begun")
                with pq.ParquetWriter(
                    file,
                    schema,
                    use_dictionary=_DICTIONARIES[table],
                    **({"write_statistics": _STATISTICS[table]} | _OPTIONS),
                ) as writer:
                    for part in rows:
                        group_rows = max(1, part.num_rows * GROUP_BYTES // max(part.nbytes, 1))
                        writer.write_table(part, row_group_size=group_rows)
                        row_count += part.num_rows
                        _check_size(file, most_bytes)
                    writer.add_key_value_metadata({_LABEL: msgspec.json.encode(label)})
                _check_size(file, most_bytes)  # with its footer
                file.flush()
                os.fsync(file.fileno())
            size_bytes = temporary.stat().st_size
            on_step("segment-written")
            temporary.rename(folder / name)
            sync_folder(folder)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    on_step("segment-renamed")
    return Segment(name, table, row_count, size_bytes, tier)


def _check_size(file: BinaryIO, most_bytes: int | None) -> None:
    if most_bytes is not None and file.tell() > most_bytes:
        raise StorageError(f"{file.name} would take more than {most_bytes:,} bytes")


def merged(table: str, paths: Iterable[Path]) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """The columns that any of the files has, and their rows in the order of their first batches."""
    names: set[str] = set()
    first_batches = {}  # names would do, but for clocks that are set back
    for path in paths:
        with damage_named(path):
            footer = pq.read_metadata(path)
        names.update(footer.schema.to_arrow_schema().names)
        first_batches[path] = min((low for low, _ in batches_of(footer)), default=0)
    schema = pa.schema([field for field in SCHEMAS[table] if field.name in names])
    groups = _row_groups(sorted(first_batches, key=first_batches.__getitem__), schema)
    return schema, gathered(groups, least_bytes=GROUP_BYTES)  # so that there are no tiny groups


def _row_groups(paths: Sequence[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    for path in paths:
        with damage_named(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups):
                yield filled(file.read_row_group(group), schema)


def filled(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with every column of the schema."""
    present = set(rows.column_names)
    columns = [
        rows[field.name] if field.name in present else pa.nulls(rows.num_rows, field.type) for field in schema
    ]
    return pa.table(columns, schema=schema)


def rows_of(path: Path, columns: Sequence[str]) -> Iterator[Iterator[tuple[Any, ...]]]:
    """The values of these columns, in pieces of some thousand rows; None where the file lacks a column."""
    for rows in tables_in(path, columns):
        yield zip(*(rows[name].to_pylist() for name in columns), strict=True)


def tables_in(path: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """These columns, NULL where the file lacks one, in pieces of some thousand rows."""
    schema = schema_of(path, columns)
    with damage_named(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        present = set(file.schema_arrow.names)
        wanted = [name for name in columns if name in present]
        for rows in file.iter_batches(_ROWS_AT_ONCE, columns=wanted):
            yield filled(pa.Table.from_batches([rows]), schema)


def schema_of(path: Path, columns: Sequence[str]) -> pa.Schema:
    """These columns of the table that a segment is of."""
    return pa.schema([SCHEMAS[path.name.split(".")[-2]].field(name) for name in columns])


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turns errors of reading a segment into a DamagedSegment that names it."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DamagedSegment(path, reason) from error


def gathered(parts: Iterable[pa.Table], *, least_bytes: int, least_rows: int = _MOST) -> Iterator[pa.Table]:
    """The same rows in tables that are complete as soon as they have so many bytes or rows."""
    pending: list[pa.Table] = []
    rows = size_bytes = 0
    for part in parts:
        pending.append(part)
        rows, size_bytes = rows + len(part), size_bytes + part.nbytes
        if rows >= least_rows or size_bytes >= least_bytes:
            yield pa.concat_tables(pending)
            pending, rows, size_bytes = [], 0, 0
    if pending:
        yield pa.concat_tables(pending)


# --- what a segment says of itself in its footer


def label_of(metadata: pq.FileMetaData) -> Label:
    """The label; an empty one if there is none, as in files of earlier releases, or it is malformed."""
    try:
        return msgspec.json.decode((metadata.metadata or {}).get(_LABEL, b"{}"), type=Label)
    except msgspec.MsgspecError:
        return NO_LABEL


def contents_of(paths: Iterable[Path]) -> Contents:
    """What the labels of these files say of their batches, together."""
    contents: dict[int, tuple[int, ...]] = {}
    for path in paths:
        with damage_named(path):
            contents.update(label_of(pq.read_metadata(path)).contents)
    return tuple(sorted(contents.items()))


def batches_of(metadata: pq.FileMetaData) -> list[tuple[int, int]]:
    """The lowest and the highest batch of each row group."""
    groups = range(metadata.num_row_groups)
    for position in range(metadata.num_columns):  # a nested column is several here
        if metadata.schema.column(position).path == BATCH:
            return [_range(metadata.row_group(group), position) for group in groups]
    return [_EARLY for _ in groups]


def last_batch(path: Path) -> int:
    """The highest batch of a file; 0 if it has none or cannot be read."""
    try:
        with damage_named(path):
            return max((high for _, high in batches_of(pq.read_metadata(path)) if high < _MOST), default=0)
    except DamagedSegment:
        return 0


def _range(group: pq.RowGroupMetaData, column: int) -> tuple[int, int]:
    said = group.column(column).statistics
    if said is None or not said.has_null_count:
        return 0, _MOST
    if said.null_count == group.num_rows:
        return _EARLY
    if not said.has_min_max:
        return 0, _MOST
    return 0 if said.null_count else said.min, said.max
