"""How much a parcel may hold, told before anything is made of it: a host can write whatever it likes."""

import msgspec

from sterna.errors import WireError
from sterna.model import Record
from sterna.wire.records import MAX_PAGES, PageColumns
from sterna.wire.target_columns import MAX_TARGETS, TargetColumns
from sterna.wire.weighing import array_length, is_array, size_of

MAX_ROWS = 1_000_000  # facts that rules send home, or a crawler holds, in one parcel
MAX_LISTS_BYTES = 8 * 1024 * 1024  # of a column with any number of texts in a row, where these are not joined
MAX_USAGE_BYTES = 256 * 1024

_LISTS = frozenset({"keywords", "headings", "headers", "extracts"})
_EMPTY = msgspec.Raw(b"\x90")


class _Parts(Record, frozen=True):
    """A parcel of which nothing is decoded yet."""

    visit: msgspec.Raw
    part: msgspec.Raw
    epoch: msgspec.Raw
    number: msgspec.Raw
    pages: msgspec.Raw = _EMPTY
    unchanged: msgspec.Raw = _EMPTY
    unchanged_at: msgspec.Raw = _EMPTY
    found: msgspec.Raw = _EMPTY
    done: msgspec.Raw = _EMPTY
    again: msgspec.Raw = _EMPTY
    outlinks: msgspec.Raw = _EMPTY
    state: msgspec.Raw = _EMPTY
    rows: msgspec.Raw = _EMPTY
    usage: msgspec.Raw = _EMPTY


class _StateParts(Record, frozen=True):
    added: msgspec.Raw = _EMPTY
    removed: msgspec.Raw = _EMPTY


def _unread(kind: type[Record]) -> "msgspec.msgpack.Decoder[msgspec.Struct]":
    """A decoder of the same columns that leaves all but their count as it is."""
    fields = [(name, msgspec.Raw, _EMPTY) for name in kind.__struct_fields__[1:]]
    made = msgspec.defstruct(f"_{kind.__name__}Parts", [("count", int, 0), *fields], array_like=True)
    return msgspec.msgpack.Decoder(made)


_PARTS = msgspec.msgpack.Decoder(_Parts)
_STATE = msgspec.msgpack.Decoder(_StateParts)
_PAGES, _TARGETS = _unread(PageColumns), _unread(TargetColumns)


def weigh_parcel(data: bytes) -> None:
    """WireError if a parcel is more than it may be; what is no parcel at all the decoder refuses."""
    parts = _PARTS.decode(data)
    _weigh_columns(_PAGES.decode(parts.pages), most=MAX_PAGES, what="pages")
    targets = [_TARGETS.decode(each) for each in (parts.found, parts.again, parts.outlinks)]
    for columns in targets:
        _weigh_columns(columns, most=MAX_TARGETS, what="URLs")
    if sum(columns.count for columns in targets) > MAX_TARGETS:  # type: ignore[attr-defined]
        raise WireError("malformed", f"more than {MAX_TARGETS:,} URLs in a parcel")
    state = _STATE.decode(parts.state)
    if max(map(array_length, (parts.rows, state.added, state.removed))) > MAX_ROWS:
        raise WireError("malformed", f"more than {MAX_ROWS:,} facts in a parcel")
    if size_of(parts.usage) > MAX_USAGE_BYTES:
        raise WireError("malformed", "more kinds of errors than there are")


def _weigh_columns(columns: msgspec.Struct, *, most: int, what: str) -> None:
    count: int = columns.count  # type: ignore[attr-defined]
    if not 0 <= count <= most:
        raise WireError("malformed", f"{count} {what} in a parcel")
    for name in columns.__struct_fields__[1:]:
        column = getattr(columns, name)
        if array_length(column) > count:
            raise WireError("malformed", f"a column of {array_length(column)} rows among others of {count}")
        if name in _LISTS and is_array(column) and size_of(column) > MAX_LISTS_BYTES:
            raise WireError("malformed", f"{size_of(column):,} bytes of {name} in a parcel")
