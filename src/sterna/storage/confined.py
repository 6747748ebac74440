"""Queries of rules run by a confined process: chunks of rows come from there, and are checked.

Columns of simple types come as Arrow tables, all other rows as msgpack.
"""

from collections.abc import Collection, Generator, Iterator, Sequence
from pathlib import Path

import msgspec

from sterna.archive.frames import frames_of, packed, read_table, unpacked
from sterna.archive.manifest import Snapshot
from sterna.errors import StorageError
from sterna.model import Record
from sterna.query.values import packed_rows, unpacked_rows
from sterna.runtime.cell.confined import Confined
from sterna.storage import chunks
from sterna.storage.chunks import Chunk
from sterna.storage.config import RuleSpec
from sterna.storage.rows import ARROW_TYPES, ColumnRows, Row

_HERE = __name__


class _Question(Record, frozen=True):
    rule: RuleSpec
    steps: tuple[int, ...]
    tables: dict[str, tuple[Path, ...]]  # the files of a snapshot
    batch: int
    after: int
    upto: int
    in_columns: tuple[int, ...] = ()


class _Part(Record, frozen=True):
    step: int
    batch: int
    columns: tuple[str, ...]
    table: bytes  # Arrow's, or none
    rows: bytes


def read_chunks(
    confined: Confined,
    rule: RuleSpec,
    steps: Sequence[int],
    *,
    snapshot: Snapshot,
    after: int,
    upto: int,
    in_columns: Collection[int] = (),
) -> Generator[Chunk]:
    """The chunks of chunks.read_chunks(); the next one is read while a database stores this one."""
    question = _question(rule, steps, snapshot, after=after, upto=upto, in_columns=in_columns)
    for frame in confined.stream(f"{_HERE}:chunk_frames", packed(question)):
        part = unpacked(frame, _Part)
        if part.step not in steps:
            raise StorageError(f"a confined process sent step {part.step} of a rule, asked {steps}")
        if not after < part.batch <= upto:
            raise StorageError(
                f"a confined process sent batch {part.batch}, asked for those from {after + 1} to {upto}"
            )
        yield Chunk(part.step, part.batch, part.columns, _rows_of(part))


def _rows_of(part: _Part) -> Sequence[Row]:
    if part.table:
        table = read_table(part.table)
        if table.column_names != list(part.columns) or not set(table.schema.types) <= ARROW_TYPES:
            raise StorageError(f"a confined process sent columns {table.schema.names} of other types")
        return ColumnRows(table)
    try:
        rows = unpacked_rows(part.rows)
    except ValueError as error:
        raise StorageError(f"a confined process sent malformed rows: {error}") from error
    if any(len(row) != len(part.columns) for row in rows):
        raise StorageError(f"a confined process sent rows of other columns than {part.columns}")
    return rows


def columns_of(confined: Confined, rule: RuleSpec, step: int, *, snapshot: Snapshot) -> tuple[str, ...]:
    """The columns of a query's answer; QueryError if it is malformed."""
    question = _question(rule, [step], snapshot, after=snapshot.batch, upto=snapshot.batch)
    return unpacked(confined.call(f"{_HERE}:columns_frame", packed(question)), tuple[str, ...])


def _question(
    rule: RuleSpec,
    steps: Sequence[int],
    snapshot: Snapshot,
    *,
    after: int,
    upto: int,
    in_columns: Collection[int] = (),
) -> _Question:
    tables = {name: tuple(path.absolute() for path in paths) for name, paths in snapshot.tables.items()}
    return _Question(rule, tuple(steps), tables, snapshot.batch, after, upto, tuple(in_columns))


# --- works


def chunk_frames(request: bytes) -> Iterator[bytes]:
    asked = unpacked(request, _Question)
    found = chunks.read_chunks(
        asked.rule,
        asked.steps,
        snapshot=_snapshot(asked),
        after=asked.after,
        upto=asked.upto,
        in_columns=asked.in_columns,
    )
    for chunk in found:
        part = _Part(chunk.step, chunk.batch, chunk.columns, b"", b"")
        if isinstance(chunk.rows, ColumnRows):
            for table in frames_of([chunk.rows.table]):
                yield packed(msgspec.structs.replace(part, table=table))
        else:
            yield packed(msgspec.structs.replace(part, rows=packed_rows(chunk.rows)))


def columns_frame(request: bytes) -> Iterator[bytes]:
    asked = unpacked(request, _Question)
    yield packed(chunks.columns_of(asked.rule, asked.steps[0], snapshot=_snapshot(asked)))


def _snapshot(asked: _Question) -> Snapshot:
    return Snapshot(tables=asked.tables, batch=asked.batch)
