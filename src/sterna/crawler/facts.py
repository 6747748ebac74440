"""Facts, the records that rules work on: as Python data, on the wire, and as JSON for people.

On the wire a fact is msgpack: its template, then a list of values (an ordered fact) or a map of slots.
Symbols are an extension type, so that the symbol `a` and the string "a" stay different, as in CLIPS.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from sterna.errors import UsageError
from sterna.model import Record

SYMBOL_CODE = 1  # of msgpack's extension types
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1

# What CLIPS reads as one symbol. "?x" is a variable; a "<" ends a symbol unless it begins it.
_SYMBOL = re.compile(r"(?!\$?\?)[^\s\x00-\x1f\x7f\"();&|~]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INSTANCE_NAME = re.compile(r"\[.*\]")


class Symbol(Record, frozen=True):
    """A symbol of CLIPS, different from the string with the same letters."""

    name: str


TRUE, FALSE = Symbol("TRUE"), Symbol("FALSE")

Value = str | int | float | Symbol
Values = tuple[Value, ...]
Slots = tuple[tuple[str, Value | Values], ...]


class Fact(Record, frozen=True):
    """An ordered fact or, if `slots` is not None, one with named slots; a multislot is a tuple."""

    template: str
    values: Values = ()
    slots: Slots | None = None


def is_symbol(text: str) -> bool:
    """True if CLIPS reads the text as one symbol."""
    if not _SYMBOL.fullmatch(text) or "<" in text[1:]:
        return False
    return not _NUMBER.fullmatch(text) and not _INSTANCE_NAME.fullmatch(text)


# -- on the wire -------------------------------------------------------------------------------------------


def encode(fact: Fact) -> bytes:
    """The fact as it travels; ValueError if CLIPS cannot represent it."""
    _check_name(fact.template)
    if fact.slots is None:
        return _ENCODER.encode([fact.template, _packed_slot(fact.values)])
    slots = {_check_name(name): _packed_slot(value) for name, value in fact.slots}
    if len(slots) != len(fact.slots):
        raise ValueError(f"the fact {fact.template!r} has a duplicate slot")
    return _ENCODER.encode([fact.template, slots])


def decode(data: bytes) -> Fact:
    """The fact in these bytes; ValueError if they are malformed."""
    try:
        template, contents = _WIRE.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"malformed fact: {error}") from error
    _check_name(template)
    if isinstance(contents, list):
        return Fact(template, tuple(map(_checked, contents)))
    slots = ((_check_name(name), _unpacked_slot(value)) for name, value in contents.items())
    return Fact(template, slots=tuple(slots))


def encode_value(value: Value | Values) -> bytes:
    """The bytes of a value, or of a tuple of values, outside a fact."""
    return _ENCODER.encode(_packed_slot(value))


def decode_value(data: bytes) -> Value | Values:
    """The value that `encode_value` wrote; ValueError if the bytes are malformed."""
    try:
        return _unpacked_slot(_WIRE_VALUE.decode(data))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"malformed value: {error}") from error


def _packed_slot(value: Value | Values) -> object:
    return [_packed(each) for each in value] if type(value) is tuple else _packed(value)


def _packed(value: object) -> object:
    checked = _checked(value)
    return msgspec.msgpack.Ext(SYMBOL_CODE, checked.name.encode()) if type(checked) is Symbol else checked


def _unpacked_slot(value: object) -> Value | Values:
    return tuple(map(_checked, value)) if type(value) is list else _checked(value)


def _extension(code: int, data: memoryview) -> Symbol:
    if code != SYMBOL_CODE:
        raise ValueError(f"a fact has no values of msgpack extension type {code}")
    return Symbol(str(data, "utf-8"))


def _checked(value: object) -> Value:
    """The value if CLIPS can represent it; true and false become symbols."""
    check = _CHECKS.get(type(value))
    if check is None:
        raise ValueError(f"a fact has no values of type {type(value).__name__}")
    return check(value)


def _checked_text(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"{_short(text)} contains a NUL character, which CLIPS cannot represent")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{_short(text)} contains half a surrogate pair") from None
    return text


def _checked_symbol(symbol: Symbol) -> Symbol:
    _checked_text(symbol.name)
    return symbol


def _checked_integer(value: int) -> int:
    if not MIN_INTEGER <= value <= MAX_INTEGER:
        raise ValueError(f"{value} is too large: integers of a fact have 64 bits")
    return value


_CHECKS: dict[type, Callable[[Any], Value]] = {
    str: _checked_text,
    int: _checked_integer,
    float: float,
    bool: lambda value: TRUE if value else FALSE,
    Symbol: _checked_symbol,
}


@lru_cache(maxsize=1024)
def _check_name(name: str) -> str:
    if not is_symbol(name) or "::" in name:
        raise ValueError(f"{_short(name)} is not a valid name of a template or slot: use a symbol of CLIPS")
    return _checked_text(name)


def _short(text: str) -> str:
    return ascii(text if len(text) <= 40 else text[:40] + "...")


_ENCODER = msgspec.msgpack.Encoder()
_WIRE = msgspec.msgpack.Decoder(tuple[str, list[object] | dict[str, object]], ext_hook=_extension)
_WIRE_VALUE = msgspec.msgpack.Decoder(ext_hook=_extension)


# -- as TOML and JSON --------------------------------------------------------------------------------------


def fact_of(data: object) -> Fact:
    """The fact described by TOML or JSON data; UsageError if they are invalid.

    The data are `{"template": "topic", "values": ["health"]}`, or have `"slots": {"name": "health"}`. A
    symbol is `{"symbol": "x"}`, a number that JSON lacks `{"float": "nan"}`.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("template"), str):
        raise UsageError(
            f'a fact needs a template, as in {{template = "topic", values = ["health"]}}, not {data!r}'
        )
    unknown = sorted(map(str, data.keys() - {"template", "values", "slots"}))
    if unknown or ("values" in data and "slots" in data):
        what = f"has an unknown key {unknown[0]!r}" if unknown else "has both values and slots"
        raise UsageError(f"the fact {data['template']!r} {what}: give a template, and either values or slots")
    try:
        slots = data.get("slots")
        if "slots" not in data:
            fact = Fact(data["template"], _values_of(data.get("values", ())))
        elif isinstance(slots, Mapping):
            named = (
                (str(name), _values_of(value) if isinstance(value, list | tuple) else _value_of(value))
                for name, value in slots.items()
            )
            fact = Fact(data["template"], slots=tuple(named))
        else:
            raise ValueError("its slots must be a table of names and values")
        encode(fact)
    except ValueError as error:
        raise UsageError(f"the fact {data['template']!r} is invalid: {error}") from error
    return fact


def _values_of(values: object) -> Values:
    if not isinstance(values, list | tuple):
        raise ValueError("its values must be a list")
    return tuple(map(_value_of, values))


def _value_of(value: object) -> Value:
    if isinstance(value, str | int | float):
        return _checked(value)
    if isinstance(value, Mapping) and len(value) == 1:
        ((kind, text),) = value.items()
        if kind == "symbol" and isinstance(text, str):
            if not is_symbol(text):
                raise ValueError(f"{_short(text)} is not a symbol of CLIPS: give it as a text")
            return Symbol(text)
        if kind == "float" and text in ("nan", "inf", "-inf"):
            return float(text)
    raise ValueError(
        f'{value!r} is not a value: give a text, a number, true, false or {{symbol = "x"}}; lists do not nest'
    )


def to_json(fact: Fact) -> str:
    """The fact as JSON, which `fact_of` reads."""
    contents: dict[str, object] = {"template": fact.template}
    if fact.slots is None:
        contents["values"] = _shown(fact.values)
    else:
        contents["slots"] = {name: _shown(value) for name, value in fact.slots}
    # Symbols become objects one by one: there may be hundreds of thousands in a fact.
    return json.dumps(contents, ensure_ascii=False, separators=(", ", ": "), default=_shown_symbol)


def _shown(value: Value | Values) -> object:
    if isinstance(value, tuple):
        return [_shown(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def _shown_symbol(value: Symbol) -> object:
    return {"symbol": value.name} if value not in (TRUE, FALSE) else value == TRUE
