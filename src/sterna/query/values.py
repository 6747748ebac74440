"""Python values that DuckDB takes and gives, as msgpack, each with its type."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Integral, Real
from typing import Any
from uuid import UUID

import msgspec

from sterna.web.weight import objects_in

MOST_VALUES = 5_000_000  # of rows that travel together

Row = tuple[Any, ...]


def packed_rows(rows: Sequence[Row]) -> bytes:
    """The rows for unpacked_rows(); a value of another type becomes a text."""
    columns = list(zip(*rows, strict=True))
    for number, column in enumerate(columns):
        if not set(map(type, column)) <= _PLAIN:
            columns[number] = tuple(_tagged(value, other=str) for value in column)
    return _packed(list(zip(*columns, strict=True)))


def unpacked_rows(data: bytes) -> list[Row]:
    """The rows, each value of the type that it had; ValueError if they are malformed, or too many values."""
    try:
        rows: list[Row] = _decoded(data, list[Row])
    except _MALFORMED as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return rows


def packed_values(values: Mapping[str, object]) -> bytes:
    """Named values for unpacked_values(); TypeError if one has another type."""
    return _packed([(name, _tagged(value, other=_refuse)) for name, value in values.items()])


def unpacked_values(data: bytes) -> dict[str, Any]:
    return dict(_decoded(data, list[tuple[str, Any]]))


def _refuse(value: object) -> Any:
    raise TypeError(f"values of {type(value).__qualname__} are not taken: give a number, text, time or list")


def _tagged(value: Any, *, other: Callable[[object], Any]) -> Any:
    if type(value) in _PLAIN or (type(value) is int and _LEAST <= value <= _MOST):
        return value
    for code, (kind, write, _, _) in _TAGS.items():
        if isinstance(value, kind):
            parts = write(value)
            if isinstance(parts, list):
                parts = [_tagged(part, other=other) for part in parts]
            return msgspec.msgpack.Ext(code, _packed(parts))
    return other(value)


def _decoded(data: bytes, kind: Any) -> Any:
    left = MOST_VALUES

    def counted(part: bytes | memoryview) -> bytes | memoryview:
        """Before they are made: an object of one byte takes fifty."""
        nonlocal left
        left -= objects_in(part, most=left)
        if left < 0:
            raise ValueError(f"more than {MOST_VALUES:,} values")
        return part

    def value(code: int, part: memoryview) -> Any:
        _, _, form, read = _TAGS[code]
        found = msgspec.msgpack.decode(counted(part), ext_hook=value)
        if type(found) is not form:  # bytes would become a list of as many numbers, which nobody counted
            raise TypeError(f"a value that is written as {form.__name__} came as {type(found).__name__}")
        return read(found)

    return msgspec.msgpack.decode(counted(data), type=kind, ext_hook=value)


def _decimal(text: str) -> Decimal:
    number = Decimal(text)
    if number.is_finite() and abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError("a number has too many digits")
    return number


def _pairs(value: dict[Any, Any]) -> list[Any]:
    return [part for pair in value.items() for part in pair]


def _dict(parts: list[Any]) -> dict[Any, Any]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _spans(value: timedelta) -> tuple[int, int, int]:
    return value.days, value.seconds, value.microseconds


_packed = msgspec.msgpack.Encoder().encode
_PLAIN: frozenset[type] = frozenset({type(None), bool, float, str, bytes})
_LEAST, _MOST = -(2**63), 2**64 - 1  # of msgpack's numbers
_MOST_DIGITS = 1_000  # DuckDB has 38
_MALFORMED = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError
)  # fmt: skip
# How values of a type are written by what msgpack has, as which type, and read. A datetime is a date, too.
_TAGS: dict[int, tuple[type, Callable[[Any], Any], type, Callable[[Any], Any]]] = {
    1: (Integral, lambda number: str(int(number)), str, int),
    2: (list, list, list, list),
    3: (tuple, list, list, tuple),
    4: (dict, _pairs, list, _dict),
    5: (datetime, datetime.isoformat, str, datetime.fromisoformat),
    6: (date, date.isoformat, str, date.fromisoformat),
    7: (time, time.isoformat, str, time.fromisoformat),
    8: (timedelta, _spans, list, lambda spans: timedelta(*spans)),
    9: (Decimal, str, str, _decimal),
    10: (UUID, str, str, UUID),
    11: (str, str, str, str),
    12: (bytes | bytearray | memoryview, bytes, bytes, bytes),  # type: ignore[dict-item]
    13: (Real, float, float, float),
}
