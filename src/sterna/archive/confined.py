"""Segments read by a confined process, which parses Parquet; here come Arrow tables, which are checked.

The functions are those of `archive/parquet` and `archive/arrivals`; the works at the end are what runs there.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from sterna.archive import parquet
from sterna.archive.arrivals import arrivals as arrivals_here
from sterna.archive.frames import frames_of, packed, table_of, unpacked
from sterna.archive.manifest import Contents
from sterna.archive.rows import SCHEMAS
from sterna.errors import SternaError
from sterna.model import Record
from sterna.runtime.cell.confined import Confined

MERGE_SECONDS = 300.0
FOOTER_SECONDS = 60.0
_HERE = __name__
_log = logging.getLogger(__name__)


class _Merge(Record, frozen=True):
    table: str
    paths: tuple[Path, ...]


class _Merging(Record, frozen=True):
    names: tuple[str, ...]  # of the columns
    contents: Contents


class _Rows(Record, frozen=True):
    path: Path
    columns: tuple[str, ...]


class _Arrivals(Record, frozen=True):
    paths: tuple[Path, ...]
    after: int
    upto: int
    columns: tuple[str, ...]


# --- for the process that asks


def merged(
    confined: Confined, table: str, paths: Sequence[Path]
) -> tuple[pa.Schema, Iterator[pa.Table], Contents]:
    """The columns and rows of parquet.merged(), and what the labels of these files say together."""
    asked = packed(_Merge(table, _whole(paths)))
    frames = confined.stream(f"{_HERE}:merged_frames", asked, seconds=MERGE_SECONDS)
    try:
        said = unpacked(next(frames, b""), _Merging)
        schema = pa.schema([field for field in SCHEMAS[table] if field.name in said.names])
    except BaseException:
        frames.close()
        raise
    return schema, (table_of(frame, schema) for frame in frames), said.contents


def last_batch(confined: Confined, path: Path) -> int:
    """The highest batch of a file; 0 if it has none or cannot be read: its process may die of it, or hang."""
    asked = packed(path.absolute())
    try:
        return unpacked(confined.call(f"{_HERE}:last_batch_frame", asked, seconds=FOOTER_SECONDS), int)
    except SternaError as error:
        _log.warning("%s is taken as damaged: %s", path, error)
        return 0


def rows_of(confined: Confined, path: Path, columns: Sequence[str]) -> Iterator[Iterator[tuple[Any, ...]]]:
    """The values of these columns, in bounded pieces; None where the file lacks a column."""
    schema = parquet.schema_of(path, columns)
    for frame in confined.stream(f"{_HERE}:rows_frames", packed(_Rows(path.absolute(), tuple(columns)))):
        whole = table_of(frame, schema)
        yield zip(*(whole[name].to_pylist() for name in columns), strict=True)


def arrivals(
    confined: Confined, paths: Sequence[Path], *, after: int, upto: int, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """The rows of the batches after < batch <= upto, in the order of their batches, in bounded pieces."""
    if not paths or after >= upto:
        return
    schema = parquet.schema_of(paths[0], columns)
    asked = _Arrivals(_whole(paths), after, upto, tuple(columns))
    for frame in confined.stream(f"{_HERE}:arrivals_frames", packed(asked)):
        yield table_of(frame, schema)


def _whole(paths: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(path.absolute() for path in paths)


# --- works


def merged_frames(request: bytes) -> Iterator[bytes]:
    asked = unpacked(request, _Merge)
    schema, tables = parquet.merged(asked.table, asked.paths)
    yield packed(_Merging(tuple(schema.names), parquet.contents_of(asked.paths)))
    yield from frames_of(tables)


def last_batch_frame(request: bytes) -> Iterator[bytes]:
    yield packed(parquet.last_batch(unpacked(request, Path)))


def rows_frames(request: bytes) -> Iterator[bytes]:
    asked = unpacked(request, _Rows)
    yield from frames_of(parquet.tables_in(asked.path, asked.columns))


def arrivals_frames(request: bytes) -> Iterator[bytes]:
    asked = unpacked(request, _Arrivals)
    yield from frames_of(
        arrivals_here(asked.paths, after=asked.after, upto=asked.upto, columns=asked.columns)
    )
