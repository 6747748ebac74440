"""Python values that DuckDB takes and gives, as msgpack, each with its type."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Integral, Real
from typing import Any
from uuid import UUID

import msgspec

Row = tuple[Any, ...]


def packed_rows(rows: Sequence[Row]) -> bytes:
    """The rows for unpacked_rows(); a value of another type becomes a text."""
    columns = list(zip(*rows, strict=True))
    for number, column in enumerate(columns):
        if not set(map(type, column)) <= _PLAIN:
            columns[number] = tuple(_tagged(value, other=str) for value in column)
    return _packed(list(zip(*columns, strict=True)))


def unpacked_rows(data: bytes) -> list[Row]:
    """The rows, each value of the type that it had; ValueError if they are malformed."""
    try:
        return _ROWS.decode(data)
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise ValueError(str(error)) from error


def packed_values(values: Mapping[str, object]) -> bytes:
    """Named values for unpacked_values(); TypeError if one has another type."""
    return _packed([(name, _tagged(value, other=_refuse)) for name, value in values.items()])


def unpacked_values(data: bytes) -> dict[str, Any]:
    return dict(_ANY.decode(data))


def _refuse(value: object) -> Any:
    raise TypeError(f"values of {type(value).__qualname__} are not taken: give a number, text, time or list")


def _tagged(value: Any, *, other: Callable[[object], Any]) -> Any:
    if type(value) in _PLAIN or (type(value) is int and _LEAST <= value <= _MOST):
        return value
    for code, (kind, write, _) in _TAGS.items():
        if isinstance(value, kind):
            parts = write(value)
            if isinstance(parts, list):
                parts = [_tagged(part, other=other) for part in parts]
            return msgspec.msgpack.Ext(code, _packed(parts))
    return other(value)


def _value(code: int, data: memoryview) -> Any:
    _, _, read = _TAGS[code]
    return read(_ANY.decode(data))


def _pairs(value: dict[Any, Any]) -> list[Any]:
    return [part for pair in value.items() for part in pair]


def _dict(parts: list[Any]) -> dict[Any, Any]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _spans(value: timedelta) -> tuple[int, int, int]:
    return value.days, value.seconds, value.microseconds


_packed = msgspec.msgpack.Encoder().encode
_PLAIN: frozenset[type] = frozenset({type(None), bool, float, str, bytes})
_LEAST, _MOST = -(2**63), 2**64 - 1  # of msgpack's numbers
# How values of a type are written by what msgpack has, and read. A datetime is a date, too.
_TAGS: dict[int, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    1: (Integral, lambda number: str(int(number)), int),
    2: (list, list, list),
    3: (tuple, list, tuple),
    4: (dict, _pairs, _dict),
    5: (datetime, datetime.isoformat, datetime.fromisoformat),
    6: (date, date.isoformat, date.fromisoformat),
    7: (time, time.isoformat, time.fromisoformat),
    8: (timedelta, _spans, lambda spans: timedelta(*spans)),
    9: (Decimal, str, Decimal),
    10: (UUID, str, UUID),
    11: (str, str, str),
    12: (bytes | bytearray | memoryview, bytes, bytes),  # type: ignore[dict-item]
    13: (Real, float, float),
}
_ANY: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Any, ext_hook=_value)
_ROWS = msgspec.msgpack.Decoder(list[Row], ext_hook=_value)
