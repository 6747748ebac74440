"""What a parcel takes in memory at home until it is stored, estimated from its bytes before they are decoded.

Small objects take up to fifty times their bytes. The figures are those of CPython on 64 bits, and of what the
ledger makes of a URL.
"""

import msgspec

from sterna.web.weight import VALUE_BYTES, objects_in, weight_of_facts
from sterna.wire.problems import array_length, is_array, size_of

# Of a whole parcel: with the window of its stream, and all that home holds besides, less than 400 MB
# (`bench.memory`).
MAX_WEIGHT_BYTES = 72 * 1024 * 1024
_ROW, _ITEM = b"\0", b"\n"


def weight_of_column(column: msgspec.Raw, count: int) -> int:
    """What the values of `count` rows take, without what texts say."""
    return 0 if is_empty(column) else VALUE_BYTES * count


def weight_of_nested(column: msgspec.Raw, count: int) -> int:
    """The same of a column with any number of texts in each row, joined or not."""
    if is_empty(column):
        return 0
    data = bytes(memoryview(column))
    if is_array(column):
        return VALUE_BYTES * objects_in(data, most=MAX_WEIGHT_BYTES // VALUE_BYTES)
    return VALUE_BYTES * (count + data.count(_ROW) + data.count(_ITEM) + 1)


def weight_of_state(added: msgspec.Raw, removed: msgspec.Raw) -> int:
    """What a change of the crawler's own facts takes, besides its bytes."""
    return weight_of_facts(array_length(added), array_length(removed))


def paths_in(column: msgspec.Raw, count: int) -> int:
    """At least how many links of `count` rows are of the site, whose name they get."""
    return 0 if is_empty(column) else count + bytes(memoryview(column)).count(b"\n/")


def is_empty(column: msgspec.Raw) -> bool:
    return size_of(column) == 1 or bytes(memoryview(column)[:2]) == b"\xc4\0"
