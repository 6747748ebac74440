"""Columns: the values of many records side by side, so that repetition compresses well.

An empty column stands for the same empty value in each row.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress
from operator import sub
from typing import TypeVar

import msgspec

from sterna.errors import WireError
from sterna.web.weight import weight_of, weight_of_utf8
from sterna.wire.problems import is_array

ROW, ITEM = "\0", "\n"  # between rows, and between the texts of one row

# Joined, unless a text holds the separator.
Texts = str | tuple[str, ...]
Lists = str | tuple[tuple[str, ...], ...]
Numbers = tuple[int, ...]
Rows = TypeVar("Rows", bound=Sequence[object])

MAX_ITEMS = 1_000_000  # in a column of lists
JOINED_BYTES = 1024 * 1024  # of memory; more travel one by one: an emoji would make all of the column wide
_STR_HEADS = {0xD9: 2, 0xDA: 3, 0xDB: 5}  # bytes before a text of more than 31 bytes
_RAWS = msgspec.msgpack.Decoder(tuple[msgspec.Raw, ...])


def weight_of_texts(column: msgspec.Raw) -> int:
    """The memory that a column of texts, not yet decoded, takes with its rows."""
    if not is_array(column):
        return 2 * _weight_of_text(column)  # the column, and its rows cut out of it
    return sum(map(_weight_of_text, _RAWS.decode(column)))


def weight_of_lists(column: msgspec.Raw) -> int:
    """The same of texts that may be nested: the heads of lists count as texts."""
    return 2 * _weight_of_text(column) if not is_array(column) else weight_of_utf8(bytes(column))


def _weight_of_text(text: msgspec.Raw) -> int:
    view = memoryview(text)
    return weight_of_utf8(bytes(view[_STR_HEADS.get(view[0], 1) :]))


def pack_texts(texts: Sequence[str]) -> Texts:
    if sum(map(len, texts)) > JOINED_BYTES:
        return tuple(texts)
    joined = ROW.join(texts)
    if weight_of([joined]) > JOINED_BYTES or joined.count(ROW) >= max(len(texts), 1):
        return tuple(texts)
    return joined if joined.strip(ROW) else ""


def unpack_texts(column: Texts, count: int) -> Sequence[str]:
    """The texts of `count` rows; WireError if the column has another number of rows."""
    if column == "":
        return [""] * count
    return _rows(column, count) if isinstance(column, str) else counted(column, count)


def pack_lists(lists: Sequence[Sequence[str]]) -> Lists:
    if all(text and ROW not in text and ITEM not in text for texts in lists for text in texts):
        joined = ROW.join(map(ITEM.join, lists))
        return joined if joined.strip(ROW) else ""
    return tuple(map(tuple, lists))


def unpack_lists(column: Lists, count: int) -> Sequence[tuple[str, ...]]:
    if column == "":
        return [()] * count
    if isinstance(column, str):
        if column.count(ITEM) > MAX_ITEMS:
            raise WireError("malformed", f"more than {MAX_ITEMS:,} texts in a column")
        return [tuple(row.split(ITEM)) if row else () for row in _rows(column, count)]
    return counted(column, count)


def _rows(joined: str, count: int) -> list[str]:
    # Counted before they are split: each row becomes an object, and may be a single byte here.
    if joined.count(ROW) + 1 != count:
        raise WireError("malformed", f"a column of {joined.count(ROW) + 1} rows among others of {count}")
    return joined.split(ROW)


def pack_numbers(numbers: Sequence[int]) -> Numbers:
    return tuple(numbers) if any(numbers) else ()


def unpack_numbers(column: Numbers, count: int, *, least: int, most: int, name: str) -> Sequence[int]:
    """The numbers of `count` rows; WireError if one is out of range."""
    numbers = counted(column, count) if column else [0] * count
    if count and (min(numbers) < least or max(numbers) > most):
        raise WireError("malformed", f"a {name} is out of range ({least} to {most})")
    return numbers


def pack_flags(flags: Iterable[bool], *, usual: bool) -> bytes:
    """A flag for each row; an empty column where all have the usual value."""
    column = bytes(flags)
    return column if (not usual) in column else b""


def unpack_flags(column: bytes, count: int, *, usual: bool) -> Sequence[bool]:
    return [flag != 0 for flag in counted(column, count)] if column else [usual] * count


def pack_some(values: Sequence[bytes], size: int) -> tuple[bytes, bytes]:
    """Which rows have a value of this size, and these values joined."""
    whole = [value for value in values if len(value) == size]
    return (bytes(len(value) == size for value in values) if whole else b""), b"".join(whole)


def unpack_some(flags: bytes, joined: bytes, size: int, *, count: int) -> list[bytes]:
    """The values of `count` rows, empty where a row has none."""
    if len(flags) not in (0, count) or len(joined) != size * flags.count(1):
        raise WireError("malformed", f"{len(joined)} bytes in a column of {count} rows")
    values = [b""] * count
    places = range(count) if flags.count(1) == count else compress(range(count), map((1).__eq__, flags))
    for at, place in zip(range(0, len(joined), size), places, strict=True):
        values[place] = joined[at : at + size]
    return values


def pack_places(places: Iterable[int]) -> bytes:
    """Distinct positions in a list as differences: the high byte of each, then the next byte of each."""
    ordered = sorted(places)
    steps = [struct.pack(">I", step) for step in map(sub, ordered, [-1, *ordered])]
    return b"".join(bytes(step[plane] for step in steps) for plane in range(4))


def unpack_places(column: bytes, limit: int) -> list[int]:
    """The positions; WireError if one repeats or is not below the limit."""
    count, rest = divmod(len(column), 4)
    if rest or count > limit:
        raise WireError("malformed", f"{len(column)} bytes of places")
    if not count:
        return []
    planes = interleaved([column[at : at + count] for at in range(0, len(column), count)])
    steps = struct.unpack(f">{count}I", planes)
    places = list(accumulate(steps, initial=-1))[1:]
    if not all(steps) or places[-1] >= limit:
        raise WireError("malformed", f"a place repeats, or is not below {limit}")
    return places


def interleaved(planes: Sequence[bytes]) -> bytes:
    """The first byte of each plane, then the second of each."""
    whole = bytearray(len(planes) * len(planes[0]))
    for at, plane in enumerate(planes):
        whole[at :: len(planes)] = plane
    return bytes(whole)


def counted(rows: Rows, count: int) -> Rows:
    """The rows; WireError if their number is not `count`."""
    if len(rows) != count:
        raise WireError("malformed", f"a column of {len(rows)} rows among others of {count}")
    return rows
