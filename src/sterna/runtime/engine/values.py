"""Conversion of values to and from CLIPS."""

from collections.abc import Callable
from typing import Any

from clips._clips import ffi, lib

from sterna.crawler.facts import Symbol, Value, Values
from sterna.errors import SternaError

Pointer = Any  # of cffi, which has no types

FLOAT, INTEGER, SYMBOL, STRING, MULTIFIELD = range(5)  # as the headers of values have them
VOID = 9
LEXEMES = lib.SYMBOL_BIT | lib.STRING_BIT
NUMBERS = lib.INTEGER_BIT | lib.FLOAT_BIT
SINGLE = LEXEMES | NUMBERS
ANY = SINGLE | lib.MULTIFIELD_BIT

_NAMES = {
    5: "an address",
    6: "the address of a fact",
    7: "an instance",
    8: "an instance's name",
    VOID: "nothing",
}


class CannotTravel(ValueError):
    """A value of CLIPS that has no meaning outside its engine."""


class RuleFault(SternaError):
    """A rule calls a native function with invalid arguments or at the wrong time."""


def text_of(pointer: Pointer) -> str:
    data: bytes = ffi.string(pointer)
    return data.decode(errors="replace")


def value_of(value: Pointer) -> Value | Values:
    """What a CLIPSValue holds; CannotTravel for addresses and the like."""
    if value.header.type != MULTIFIELD:
        return _single(value)
    return _fields(value.multifieldValue.contents, 0, value.multifieldValue.length)


def argument_of(value: Pointer) -> Value | Values:
    """What a UDFValue holds, which may be a part of a multifield."""
    if value.header.type != MULTIFIELD:
        return _single(value)
    return _fields(value.multifieldValue.contents, value.begin, value.range)


def _fields(contents: Pointer, begin: int, count: int) -> Values:
    return tuple(_single(contents + place) for place in range(begin, begin + count))


def _single(value: Pointer) -> Value:
    kind = value.header.type
    read = _READERS.get(kind)
    if read is None:
        raise CannotTravel(f"{_NAMES.get(kind, 'a value of unknown type')}, which has no meaning elsewhere")
    return read(value)


_READERS: dict[int, Callable[[Pointer], Value]] = {
    FLOAT: lambda value: float(value.floatValue.contents),
    INTEGER: lambda value: int(value.integerValue.contents),
    SYMBOL: lambda value: Symbol(text_of(value.lexemeValue.contents)),
    STRING: lambda value: text_of(value.lexemeValue.contents),
}


class Maker:
    """Makes values of one environment."""

    def __init__(self, env: Pointer) -> None:
        self._env = env
        self.fields = lib.CreateMultifieldBuilder(env, 0)  # the environment's owner disposes of it
        self._cell = ffi.new("CLIPSValue *")
        self._field = ffi.new("CLIPSValue *")

    def cell(self, value: Value | Values) -> Pointer:
        """A CLIPSValue with this in it, good until the next call."""
        self._cell.value = self.multifield(value) if type(value) is tuple else self.single(value)  # type: ignore[arg-type]
        return self._cell

    def multifield(self, values: Values) -> Pointer:
        if not values:
            return lib.EmptyMultifield(self._env)
        lib.MBReset(self.fields)
        for value in values:
            self._field.value = self.single(value)
            lib.MBAppend(self.fields, self._field)
        return lib.MBCreate(self.fields)

    def single(self, value: Value) -> Pointer:
        return _MAKERS[type(value)](self._env, value)


def _bytes(text: str) -> bytes:
    # A page may hold NUL, which would end a C string.
    return (text.replace("\0", "\ufffd") if "\0" in text else text).encode(errors="replace")


_MAKERS: dict[type, Callable[[Pointer, Any], Pointer]] = {
    str: lambda env, value: lib.CreateString(env, _bytes(value)),
    int: lib.CreateInteger,
    float: lib.CreateFloat,
    bool: lib.CreateBoolean,
    Symbol: lambda env, value: lib.CreateSymbol(env, _bytes(value.name)),
}
