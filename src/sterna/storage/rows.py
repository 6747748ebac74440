"""Values of an answer: as a driver takes them, and as a row that waits keeps them."""

import json
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from sterna.query.terminal import as_plain

Row = tuple[Any, ...]

_SAME_EVERYWHERE: frozenset[type] = frozenset({type(None), bool, int, float, str, bytes})
_SAME_IN_POSTGRES = _SAME_EVERYWHERE | {list, datetime, date, time, timedelta, Decimal, UUID}


def bindable(rows: Sequence[Row], *, kind: str) -> Sequence[Row]:
    """The rows as the driver of this kind of database takes them.

    What has parts becomes JSON; lists stay lists in PostgreSQL, which has arrays. SQLite has neither times
    nor decimals: they become text as its functions read it, and numbers.
    """
    same = _SAME_IN_POSTGRES if kind == "postgresql" else _SAME_EVERYWHERE
    columns = list(zip(*rows, strict=True))
    is_changed = False
    for number, column in enumerate(columns):
        if not set(map(type, column)) <= same:
            columns[number] = tuple(each if type(each) in same else _plain(each) for each in column)
            is_changed = True
    return list(zip(*columns, strict=True)) if is_changed else rows


def _plain(value: Any) -> Any:
    match value:
        case list() | tuple() | dict():
            return json.dumps(as_plain(value), ensure_ascii=False)
        case datetime():
            return value.isoformat(sep=" ")
        case date() | time():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case bytearray() | memoryview():
            return bytes(value)
        case _:
            return str(value)


# -- rows that wait ------------------------------------------------------------------------------------------

_READERS: dict[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "decimal": Decimal,
    "bytes": bytes.fromhex,
    "list": list,
    "parts": dict,
}


def as_json(row: dict[str, Any]) -> str:
    """A row as text, from which `from_json` makes the same again; what JSON lacks has its kind with it."""
    return json.dumps({name: _tagged(value) for name, value in row.items()})


def from_json(text: str) -> dict[str, Any]:
    """The row that `as_json` wrote."""
    return {name: _untagged(value) for name, value in json.loads(text).items()}


def _tagged(value: Any) -> Any:  # noqa: PLR0911 - one line for each kind of value
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return {"list": as_plain(list(value))}
        case dict():
            return {"parts": as_plain(value)}
        case bytes() | bytearray():
            return {"bytes": value.hex()}
        case Decimal():
            return {"decimal": str(value)}
        case datetime() | date() | time():
            return {type(value).__name__: value.isoformat()}
        case _:
            return str(value)


def _untagged(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    return _READERS[kind](content)
