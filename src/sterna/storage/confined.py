"""Queries of rules run by a confined process: chunks of rows come from there, and are checked.

Columns of simple types come as Arrow tables, all other rows as msgpack, in which values that it lacks are
tagged with their type: they are the values that DuckDB gives.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from sterna.archive.confined import frames_of, packed, read_table, unpacked
from sterna.archive.manifest import Snapshot
from sterna.errors import StorageError
from sterna.model import Record
from sterna.runtime.cell.confined import Confined
from sterna.storage import chunks
from sterna.storage.chunks import Chunk
from sterna.storage.config import RuleSpec
from sterna.storage.rows import ColumnRows, Row

_HERE = __name__


class _Question(Record, frozen=True):
    rule: RuleSpec
    steps: tuple[int, ...]
    tables: dict[str, tuple[str, ...]]  # the files of a snapshot
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
        rows = ColumnRows(read_table(part.table)) if part.table else unpacked_rows(part.rows)
        if part.step not in steps:
            raise StorageError(f"a confined process sent step {part.step} of a rule, asked {steps}")
        yield Chunk(part.step, part.batch, part.columns, rows)


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
    tables = {name: tuple(map(str, paths)) for name, paths in snapshot.tables.items()}
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
    tables = {name: tuple(map(Path, paths)) for name, paths in asked.tables.items()}
    return Snapshot(tables=tables, batch=asked.batch)


# --- rows as msgpack

_PLAIN: frozenset[type] = frozenset({type(None), bool, float, str, bytes})
_LEAST, _MOST = -(2**63), 2**64 - 1  # of msgpack's numbers


def packed_rows(rows: Sequence[Row]) -> bytes:
    """The rows for unpacked_rows()."""
    columns = list(zip(*rows, strict=True))
    for number, column in enumerate(columns):
        if not set(map(type, column)) <= _PLAIN:
            columns[number] = tuple(map(_tagged, column))
    return packed(list(zip(*columns, strict=True)))


def unpacked_rows(data: bytes) -> list[Row]:
    """The rows, each value of the type that it had; StorageError if they are malformed."""
    try:
        return _ROWS.decode(data)
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise StorageError(f"a confined process sent malformed rows: {error}") from error


def _tagged(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN or (kind is int and _LEAST <= value <= _MOST):
        return value
    for code, (tagged, write, _) in _TAGS.items():
        if kind is tagged:
            return msgspec.msgpack.Ext(code, packed(write(value)))
    return str(value)


def _value(code: int, data: memoryview) -> Any:
    _, _, read = _TAGS[code]
    return read(_ANY.decode(data))


def _parts(value: timedelta) -> tuple[int, int, int]:
    return value.days, value.seconds, value.microseconds


# How values of a type are written by what msgpack has, and read.
_TAGS: dict[int, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    1: (int, str, int),
    2: (list, lambda values: [_tagged(value) for value in values], list),
    3: (tuple, lambda values: [_tagged(value) for value in values], tuple),
    4: (dict, lambda value: [(_tagged(key), _tagged(each)) for key, each in value.items()], dict),
    5: (datetime, datetime.isoformat, datetime.fromisoformat),
    6: (date, date.isoformat, date.fromisoformat),
    7: (time, time.isoformat, time.fromisoformat),
    8: (timedelta, _parts, lambda parts: timedelta(*parts)),
    9: (Decimal, str, Decimal),
    10: (UUID, str, UUID),
}
_ANY = msgspec.msgpack.Decoder(Any, ext_hook=_value)
_ROWS = msgspec.msgpack.Decoder(list[tuple[Any, ...]], ext_hook=_value)
