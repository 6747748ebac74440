"""The base of a spec's tables: how fields are read and checked, and how an error names them."""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, NamedTuple, TypeVar, get_type_hints

import msgspec

from sterna.errors import SpecError, UsageError, one_line

_SHOWN_LENGTH = 60
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*(B|kB|KB|MB|GB|KiB|MiB|GiB)")
_UNITS = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30
}  # fmt: skip


class FieldError(SpecError):
    """An invalid field of a spec; `field` is its dotted name."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(one_line(f"{field} {problem}"))
        self.field = field


class Each(NamedTuple):
    """A check of a field, or of each item of a list: the value is wrong if `test` raises or returns False."""

    test: Callable[[Any], object]  # may raise UsageError
    allowed: str = ""  # what the value must be, if `test` returns False

    @classmethod
    def match(cls, pattern: str, allowed: str) -> "Each":
        compiled = re.compile(pattern, re.ASCII)
        return cls(lambda text: compiled.fullmatch(text) is not None, allowed)

    def check(self, field: str, value: object) -> None:
        """Raises FieldError if the value, or an item of it, is wrong."""
        for item in value if isinstance(value, tuple) else (value,):
            try:
                is_right = self.test(item)
            except UsageError as error:
                raise FieldError(field, f"is invalid: {error}") from error
            if is_right is False:
                raise wrong(field, item, self.allowed)


class SpecTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a spec; its fields are converted and checked when it is created.

    A field is declared once: `Annotated[type, Meta(description=what is allowed), Each(check)] = default`.
    """

    is_nested: ClassVar[bool] = True  # in a spec, under the name of its class

    def __post_init__(self) -> None:
        for name, hint in _hints(type(self)).items():
            value = _read(self.name_of(name), getattr(self, name), hint)
            msgspec.structs.force_setattr(self, name, value)
        self.check()

    def check(self) -> None:
        """Raises FieldError where fields contradict each other."""

    @classmethod
    def name_of(cls, field: str) -> str:
        return f"{cls.__name__.lower()}.{field}" if cls.is_nested else field


_T = TypeVar("_T", bound=SpecTable)


def table_of(kind: type[_T], data: object) -> _T:
    """A table from plain data; FieldError if a name is unknown or missing, or a value is invalid."""
    if not isinstance(data, Mapping):
        raise wrong(kind.__name__.lower(), data, "a table")
    _check_names(kind, data, everything=list(names_of(kind)))
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in data:
            raise FieldError(kind.name_of(field.name), f"is missing: must be {_allowed(field.type)}")
    return kind(**data)


def names_of(kind: type[SpecTable]) -> Iterator[str]:
    """The dotted names of all fields, including those of nested tables."""
    for name, hint in _hints(kind).items():
        yield kind.name_of(name)
        if _is_table(hint):
            yield from names_of(hint)


def wrong(field: str, found: object, allowed: str) -> FieldError:
    return FieldError(field, f"is {shown(found)}: must be {allowed}")


def shown(value: object) -> str:
    """A value for an error message: as written in TOML, and short."""
    try:
        text = str(value) if isinstance(value, float) else msgspec.json.encode(value).decode()
    except (TypeError, UnicodeEncodeError):
        text = ascii(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


def _check_names(kind: type[SpecTable], data: Mapping[object, object], *, everything: list[str]) -> None:
    hints = _hints(kind)
    for name, value in data.items():
        if name not in hints:
            raise _unknown(kind, str(name), everything)
        inner = hints[str(name)]
        if _is_table(inner) and isinstance(value, Mapping):
            _check_names(inner, value, everything=everything)


def _unknown(kind: type[SpecTable], name: str, everything: list[str]) -> FieldError:
    near = difflib.get_close_matches(name, _hints(kind), n=1)
    # A key below a table's header belongs to that table, even if its author meant it for another.
    elsewhere = [known for known in everything if known.rpartition(".")[2] == name]
    if elsewhere:
        advice = f"did you mean {elsewhere[0]}" + ("" if "." in elsewhere[0] else ", above all tables")
    elif near:
        advice = f"did you mean {kind.name_of(near[0])}"
    else:
        advice = f"known are {', '.join(_hints(kind))}"
    return FieldError(kind.name_of(name), f"is not a field of a spec: {advice}")


def _read(field: str, value: object, hint: Any) -> object:
    if _is_table(hint):
        return value if isinstance(value, hint) else table_of(hint, value)
    if isinstance(value, str) and field.endswith("_bytes"):
        value = _size(value)
    if isinstance(value, set | frozenset):  # its order, and so the crawler's bytes, would differ per run
        raise wrong(field, value, _allowed(hint))
    try:
        read: object = msgspec.convert(value, hint)
        msgspec.msgpack.encode(read)
    except (msgspec.ValidationError, UnicodeEncodeError, OverflowError, TypeError) as error:
        raise wrong(field, value, _allowed(hint)) from error
    for each in hint.__metadata__[1:]:
        each.check(field, read)
    return read


def _size(text: str) -> int | str:
    """The bytes of a size such as "64 MB"; the text itself if it is not a size."""
    found = _SIZE.fullmatch(text.strip())
    return int(float(found[1]) * _UNITS[found[2]]) if found else text


def _allowed(hint: Any) -> str:
    return str(hint.__metadata__[0].description)


@cache
def _hints(kind: type[SpecTable]) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in kind.__struct_fields__}


def _is_table(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, SpecTable)
