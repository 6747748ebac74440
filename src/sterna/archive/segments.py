"""Parquet segments: written once, whole or not at all, merged into larger ones, swept when unknown.

A segment is written under a temporary name, synced, renamed, and its folder synced; only then may its name
go into the manifest. A file that is not in the manifest does not exist for readers; `sweep` removes it at the
next start.

A segment may lack columns of its table: fields that none of its pages has are not written, and earlier
versions did not know them. To whoever reads it or merges it they are NULL.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sterna.archive.disk import OnStep, ignore_step, make_folder, new_id, storage_errors, sync_folder
from sterna.archive.manifest import Segment
from sterna.archive.rows import MORE, SCHEMAS, FactRow, fact_table, link_table, page_table
from sterna.errors import StorageError
from sterna.model import Page

# A row group, which a merge holds in memory and a query reads or skips, has about this size uncompressed.
GROUP_BYTES = 16 << 20

_SUFFIX = ".parquet"
_TEMPORARY = ".tmp"

# Dictionaries pay where values repeat within a segment; for texts and unique URLs they only cost time.
_DICTIONARIES = {
    "page": [
        *("site", "status", "error", "content_type", "language", "depth", "referrer"),
        *("keywords.list.element", "headers.key_value.key", "headers.key_value.value"),
        "extracts.key_value.key",
    ],
    "link": ["from_url", "to_url", "rel"],
    "fact": ["crawler", "site", "visit", "template"],
}
_OPTIONS = {"compression": "zstd", "write_page_checksum": True}


def use_system_memory() -> None:
    """Lets Arrow give back what it no longer needs; its own allocator keeps 100 MB for the next segment."""
    pa.set_memory_pool(pa.system_memory_pool())


class SegmentStore:
    """The folder of segments; which of them exist is the manifest's to say."""

    def __init__(
        self, folder: Path, *, on_step: OnStep = ignore_step, make_id: Callable[[], str] = new_id
    ) -> None:
        self._folder = folder
        self._on_step = on_step
        self._make_id = make_id
        make_folder(folder)

    def write_pages(
        self, site_pages: Sequence[tuple[str, Page]], *, facts: Sequence[FactRow] = ()
    ) -> list[Segment]:
        """The durable segments of these pages, their links and facts; none where there are no rows."""
        tables = {
            "page": _without_empty(page_table(site_pages)),
            "link": link_table(site_pages),
            "fact": fact_table(facts),
        }
        written: list[Segment] = []
        try:
            for table, rows in tables.items():
                if rows.num_rows:
                    written.append(self._write(table, [rows], schema=rows.schema))
        except StorageError:
            # Space matters most when the disk is full; the sweep would only come at the next start.
            for segment in written:
                with suppress(StorageError):
                    self.remove(segment.name)
            raise
        return written

    def merge(self, segments: Sequence[Segment]) -> Segment:
        """One durable segment of the next tier with the rows of all; the caller removes the old ones."""
        if len({segment.table for segment in segments}) != 1:
            raise ValueError("a merge needs segments of one table")
        table = segments[0].table
        paths = [self.path(segment.name) for segment in segments]
        schema = _common_schema(table, paths)
        tier = max(segment.tier for segment in segments) + 1
        return self._write(table, _gathered(_row_groups(paths, schema)), schema=schema, tier=tier)

    def sweep(self, known: Collection[str]) -> list[str]:
        """Removes what a crash left: temporary files and segments that the manifest does not know."""
        with storage_errors(self._folder):
            found = sorted(path.name for path in self._folder.iterdir() if _is_ours(path.name))
        unknown = [name for name in found if name not in known]
        for name in unknown:
            self.remove(name)
        return unknown

    def path(self, name: str) -> Path:
        """Where the segment of this name lies."""
        return self._folder / name

    def remove(self, name: str) -> None:
        """Removes the file, if it is there."""
        with storage_errors(self._folder):
            self.path(name).unlink(missing_ok=True)

    def _write(self, table: str, rows: Iterable[pa.Table], *, schema: pa.Schema, tier: int = 0) -> Segment:
        name = f"{self._make_id()}.{table}{_SUFFIX}"
        return write_segment(self._folder, name, rows=rows, schema=schema, tier=tier, on_step=self._on_step)


def write_segment(
    folder: Path,
    name: str,
    *,
    rows: Iterable[pa.Table],
    schema: pa.Schema,
    tier: int = 0,
    on_step: OnStep = ignore_step,
) -> Segment:
    """The segment `<id>.<table>.parquet`, durable; after an error there is nothing under that name."""
    table = name.split(".")[-2]
    temporary = folder / (name + _TEMPORARY)
    try:
        with storage_errors(folder):
            row_count = _write_file(temporary, table, rows=rows, schema=schema, on_step=on_step)
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


def _write_file(
    path: Path, table: str, *, rows: Iterable[pa.Table], schema: pa.Schema, on_step: OnStep
) -> int:
    row_count = 0
    with path.open("xb") as file:
        on_step("segment-begun")
        with pq.ParquetWriter(file, schema, use_dictionary=_DICTIONARIES[table], **_OPTIONS) as writer:
            for part in rows:
                writer.write_table(part, row_group_size=_group_rows(part))
                row_count += part.num_rows
        file.flush()
        os.fsync(file.fileno())
    return row_count


def _group_rows(rows: pa.Table) -> int:
    """How many of these rows make a group of GROUP_BYTES."""
    return int(max(1, rows.num_rows * GROUP_BYTES // max(rows.nbytes, 1)))


def _without_empty(pages: pa.Table) -> pa.Table:
    """The table without those of its fields that no page has."""
    return pages.drop_columns([name for name in MORE if pages[name].null_count == pages.num_rows])


def _common_schema(table: str, paths: Sequence[Path]) -> pa.Schema:
    """The columns that any of the files has."""
    names: set[str] = set()
    for path in paths:
        with _damage_named(path):
            names.update(pq.read_schema(path).names)
    return pa.schema([field for field in SCHEMAS[table] if field.name in names])


def _row_groups(paths: Sequence[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    for path in paths:
        with _damage_named(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups):
                yield _filled(file.read_row_group(group), schema)


def _filled(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with every column of the schema."""
    present = set(rows.column_names)
    columns = [
        rows[field.name] if field.name in present else pa.nulls(rows.num_rows, field.type) for field in schema
    ]
    return pa.table(columns, schema=schema)


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise StorageError(f"segment '{path}' is damaged ({reason}): restore it from a copy") from error


def _gathered(groups: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in groups of about GROUP_BYTES, so that merged segments do not keep the crumbs."""
    pending: list[pa.Table] = []
    size_bytes = 0
    for group in groups:
        pending.append(group)
        size_bytes += group.nbytes
        if size_bytes >= GROUP_BYTES:
            yield pa.concat_tables(pending)
            pending, size_bytes = [], 0
    if pending:
        yield pa.concat_tables(pending)


def _is_ours(name: str) -> bool:
    return name.removesuffix(_TEMPORARY).endswith(tuple(f".{table}{_SUFFIX}" for table in SCHEMAS))
