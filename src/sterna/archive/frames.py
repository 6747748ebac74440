"""Messages and Arrow tables as frames between processes, of which one may lie."""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from sterna.errors import StorageError

FRAME_BYTES = 16 << 20  # of Arrow's columns in one frame, unless a single row has more
_SPARE_ROWS = 1 << 20  # of columns that need no bytes, beyond one row for each bit of a frame

T = TypeVar("T")


# --- messages


def packed(message: object) -> bytes:
    """The message for unpacked(); it may have paths."""
    return msgspec.msgpack.encode(message, enc_hook=_to_text)


def unpacked(frame: bytes, kind: type[T]) -> T:
    """The message in a frame; StorageError if it is malformed."""
    try:
        return msgspec.msgpack.decode(frame, type=kind, dec_hook=_from_text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StorageError(f"a confined process sent a malformed answer: {error}") from error


def _to_text(value: Any) -> str:
    if not isinstance(value, Path):
        raise TypeError(f"no message has values of {type(value)}")
    return str(value)


def _from_text(kind: type, value: Any) -> Any:
    if kind is not Path:
        raise TypeError(f"no message has values of {kind}")
    return Path(value)


# --- tables


def frames_of(tables: Iterable[pa.Table]) -> Iterator[bytes]:
    """The tables as Arrow streams, in pieces of bounded size."""
    for table in tables:
        rows = max(1, table.num_rows * FRAME_BYTES // max(table.nbytes, 1))
        for start in range(0, table.num_rows, rows):
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, table.schema) as stream:
                stream.write_table(table.slice(start, rows))
            yield out.getvalue().to_pybytes()


def table_of(frame: bytes, schema: pa.Schema) -> pa.Table:
    """The table in a frame; StorageError unless it is whole, and has this schema."""
    table = read_table(frame)
    if not table.schema.equals(schema):
        raise StorageError(f"a confined process sent the columns {table.schema.names}, asked {schema.names}")
    return table


def read_table(frame: bytes) -> pa.Table:
    """The table in a frame, whatever its columns; StorageError unless it is whole.

    It takes no more memory than the frame: nothing in it is compressed.
    """
    try:
        for message in pa.ipc.MessageReader.open_stream(frame):
            if message.type != "schema" and _is_compressed(message.metadata.to_pybytes(), message.type):
                raise StorageError("a confined process sent a compressed table")
        with pa.ipc.open_stream(frame) as stream:
            table = stream.read_all()
        if table.num_rows > 8 * len(frame) + _SPARE_ROWS:
            raise StorageError(f"a confined process sent {table.num_rows:,} rows in {len(frame):,} bytes")
        table.validate(full=True)
    except (pa.ArrowException, OSError, struct.error) as error:
        raise StorageError(f"a confined process sent a malformed table: {error}") from error
    return table


def _is_compressed(message: bytes, kind: str) -> bool:
    """True if the head of this batch (a flatbuffer, see Arrow's Message.fbs) names a compression."""
    header = _reference(message, _field(message, _reference(message, 0), 2))
    if kind == "dictionary":
        header = _reference(message, _field(message, header, 1))  # its values
    return bool(_field(message, header, 3))


def _reference(data: bytes, at: int) -> int:
    (ahead,) = struct.unpack_from("<I", data, at)
    return int(at + ahead)


def _field(data: bytes, table: int, number: int) -> int:
    """Where this field of a table lies; 0 if the table lacks it."""
    (back,) = struct.unpack_from("<i", data, table)
    (size,) = struct.unpack_from("<H", data, table - back)
    place = 4 + 2 * number
    if place >= size:
        return 0
    (ahead,) = struct.unpack_from("<H", data, table - back + place)
    return table + int(ahead) if ahead else 0
