"""Messages and Arrow tables as frames between processes, of which one may lie."""

import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sterna.errors import StorageError
from sterna.web.weight import objects_in

FRAME_BYTES = 16 << 20  # of Arrow's columns in one frame, unless a single row has more
MOST_VALUES = 5_000_000  # of a message
_SPARE_VALUES = 1 << 20  # of columns that need no bytes, beyond one value for each bit of a frame
_MOST_REPEATED_BYTES = 256 << 20

# Each value of these has bytes of its own. Those of views and runs may share theirs: a frame could say one
# value any number of times.
_PLAIN: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_null, pa.types.is_primitive, pa.types.is_decimal, pa.types.is_fixed_size_binary,
    pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
)  # fmt: skip
_LISTS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list,
)  # fmt: skip

T = TypeVar("T")


# --- messages


def packed(message: object) -> bytes:
    """The message for unpacked(); it may have paths."""
    return msgspec.msgpack.encode(message, enc_hook=_to_text)


def unpacked(frame: bytes, kind: type[T]) -> T:
    """The message in a frame; StorageError if it is malformed, or has too many values."""
    if objects_in(frame, most=MOST_VALUES) > MOST_VALUES:  # before they are made
        raise StorageError(f"a confined process sent an answer of more than {MOST_VALUES:,} values")
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
        for piece in _pieces(table):
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, piece.schema) as stream:
                stream.write_table(piece)
            yield out.getvalue().to_pybytes()


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    if table.num_rows > 1 and table.nbytes > FRAME_BYTES:
        middle = table.num_rows // 2
        yield from _pieces(table.slice(0, middle))
        yield from _pieces(table.slice(middle))
    elif table.num_rows:
        yield table


def table_of(frame: bytes, schema: pa.Schema) -> pa.Table:
    """The table in a frame; StorageError unless it is whole, and has this schema."""
    table = read_table(frame)
    if not table.schema.equals(schema):
        raise StorageError(f"a confined process sent the columns {table.schema.names}, asked {schema.names}")
    return table


def read_table(frame: bytes) -> pa.Table:
    """The table in a frame, whatever its columns; StorageError unless it is whole.

    What it takes in memory is bounded by the frame: nothing in it is compressed, no column has more values
    than the frame has bits, and none repeats them from a dictionary beyond a limit.
    """
    try:
        for message in pa.ipc.MessageReader.open_stream(frame):
            if message.type != "schema" and _is_compressed(message.metadata.to_pybytes(), message.type):
                raise StorageError("a confined process sent a compressed table")
        with pa.ipc.open_stream(frame) as stream:
            table = stream.read_all()
            table.validate(full=True)
            most = 8 * len(frame) + _SPARE_VALUES
            for column in table.columns:
                for chunk in column.chunks:
                    _check_values(chunk, most=most)
        str(table.schema)  # names are texts
    except (pa.ArrowException, OSError, struct.error, UnicodeDecodeError) as error:
        raise StorageError(f"a confined process sent a malformed table: {error}") from error
    return table


def _check_values(values: pa.Array, *, most: int) -> None:
    """StorageError if these values, or those in them, are more than `most`, or may be repeated."""
    kind = values.type
    if len(values) > most:
        raise StorageError(f"a confined process sent {len(values):,} values in a frame")
    if isinstance(kind, pa.BaseExtensionType):
        _check_values(values.storage, most=most)
    elif pa.types.is_dictionary(kind):
        _check_values(values.dictionary, most=most)
        if values.get_total_buffer_size() and len(values) * _widest(values.dictionary) > _MOST_REPEATED_BYTES:
            raise StorageError("a confined process sent a table that repeats long values")
    elif pa.types.is_struct(kind) or pa.types.is_union(kind):
        for number in range(kind.num_fields):
            _check_values(values.field(number), most=most)
    elif pa.types.is_map(kind):
        _check_values(values.keys, most=most)
        _check_values(values.items, most=most)
    elif any(is_list(kind) for is_list in _LISTS):
        _check_values(values.values, most=most)
    elif not any(is_plain(kind) for is_plain in _PLAIN):
        raise StorageError(f"a confined process sent values of {kind}")


def _widest(dictionary: pa.Array) -> int:
    """The bytes of its longest value; only texts and bytes are taken."""
    if len(dictionary) == 0:
        return 0
    return int(pc.max(pc.binary_length(dictionary)).as_py() or 0)


def _is_compressed(message: bytes, kind: str) -> bool:
    """True if the head of this batch (a flatbuffer, see Arrow's Message.fbs) names a compression.

    Before version 5 custom metadata could name it: we send none.
    """
    root = _reference(message, 0)
    header = _reference(message, _field(message, root, 2))
    if kind == "dictionary":
        header = _reference(message, _field(message, header, 1))  # its values
    return bool(_field(message, header, 3) or _field(message, root, 4))


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
