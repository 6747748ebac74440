"""The tables of a spec: how their fields are read, and how a wrong one is named."""

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, TypeVar, get_type_hints

import msgspec

from sterna.errors import SpecError

_SHOWN_LENGTH = 60
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*(B|kB|KB|MB|GB|KiB|MiB|GiB)")
_UNITS = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30
}  # fmt: skip


class FieldError(SpecError):
    """A field of a spec that cannot be; `field` is its dotted name."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a spec; when it is made, its fields are checked and brought to one form."""

    table: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name, hint in _hints(type(self)).items():
            value = _read(self.name_of(name), getattr(self, name), hint)
            msgspec.structs.force_setattr(self, name, value)
        self.check()

    def check(self) -> None:
        """Raises FieldError where values do not go together."""

    @classmethod
    def name_of(cls, field: str) -> str:
        """The dotted name of a field."""
        return f"{cls.table}.{field}" if cls.table else field


_P = TypeVar("_P", bound=Part)


def part_of(kind: type[_P], data: object) -> _P:
    """A part from plain data; FieldError where a name is unknown or missing, or a value cannot be."""
    if not isinstance(data, Mapping):
        raise wrong(kind.table, data, "a table")
    _check_names(kind, data, everything=list(names_of(kind)))
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in data:
            raise FieldError(kind.name_of(field.name), f"is missing: must be {_allowed(field.type)}")
    return kind(**data)


def names_of(kind: type[Part]) -> Iterator[str]:
    """The dotted names of all fields, those of tables within it too."""
    for name, hint in _hints(kind).items():
        yield kind.name_of(name)
        if _is_part(hint):
            yield from names_of(hint)


def wrong(field: str, found: object, allowed: str) -> FieldError:
    """The error that says what was found and what is allowed."""
    return FieldError(field, f"is {shown(found)}: must be {allowed}")


def shown(value: object) -> str:
    """A value as an error message shows it: as it is written in TOML, and short."""
    try:
        text = str(value) if isinstance(value, float) else msgspec.json.encode(value).decode()
    except (TypeError, UnicodeEncodeError):
        text = ascii(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


def _check_names(kind: type[Part], data: Mapping[object, object], *, everything: list[str]) -> None:
    hints = _hints(kind)
    for name, value in data.items():
        if name not in hints:
            raise _unknown(kind, str(name), everything)
        inner = hints[str(name)]
        if _is_part(inner) and isinstance(value, Mapping):
            _check_names(inner, value, everything=everything)


def _unknown(kind: type[Part], name: str, everything: list[str]) -> FieldError:
    near = difflib.get_close_matches(name, _hints(kind), n=1)
    # A name below a table's head belongs to that table, even if its author meant it for another.
    elsewhere = [known for known in everything if known.rpartition(".")[2] == name]
    if elsewhere:
        advice = f"did you mean {elsewhere[0]}" + ("" if "." in elsewhere[0] else ", above all tables")
    elif near:
        advice = f"did you mean {kind.name_of(near[0])}"
    else:
        advice = f"known are {', '.join(_hints(kind))}"
    return FieldError(kind.name_of(name), f"is no field of a spec: {advice}")


def _read(field: str, value: object, hint: Any) -> object:
    if _is_part(hint):
        return value if isinstance(value, hint) else part_of(hint, value)
    if isinstance(value, str) and field.endswith("_bytes"):
        value = _size(value)
    if isinstance(value, set | frozenset):  # whose order differs from run to run, and a crawler must not
        raise wrong(field, value, _allowed(hint))
    try:
        read: object = msgspec.convert(value, hint)
        msgspec.msgpack.encode(read)
    except (msgspec.ValidationError, UnicodeEncodeError, OverflowError, TypeError) as error:
        raise wrong(field, value, _allowed(hint)) from error
    return read


def _size(text: str) -> int | str:
    """The bytes in a size such as "64 MB"; the text itself if it is none."""
    found = _SIZE.fullmatch(text.strip())
    return int(float(found[1]) * _UNITS[found[2]]) if found else text


def _allowed(hint: Any) -> str:
    return str(hint.__metadata__[0].description)


@cache
def _hints(kind: type[Part]) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in kind.__struct_fields__}


def _is_part(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Part)
