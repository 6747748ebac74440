"""The values of a result, from DuckDB's types to those of JSON and to text."""

import json
import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]


def as_plain(value: Any) -> Plain:  # noqa: PLR0911 - one line for each kind of value
    """The value as JSON can hold it: times in ISO 8601, bytes in hex, no NaN."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime() | date() | time():
            return value.isoformat().replace("+00:00", "Z")
        case bytes():
            return value.hex()
        case list() | tuple():
            return [as_plain(each) for each in value]
        case dict():
            return {as_text(key): as_plain(each) for key, each in value.items()}
        case _:
            return str(value)


def as_text(value: Any) -> str:
    """The value in one cell: nothing for NULL, JSON for what has parts."""
    plain = as_plain(value)
    if isinstance(plain, str):
        return plain
    return "" if plain is None else json.dumps(plain, ensure_ascii=False)
