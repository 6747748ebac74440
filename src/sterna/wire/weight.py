"""What a parcel takes in memory at home until it is stored, estimated from its bytes before they are decoded.

Small objects take up to fifty times their bytes. The figures are those of CPython on 64 bits, and of what the
ledger makes of a URL.
"""

import msgspec

from sterna.web.weight import VALUE_BYTES, weight_of_facts
from sterna.wire.problems import array_length, is_array, size_of

# Of a whole parcel: with the window of its stream, and all that home holds besides, less than 400 MB
# (`bench.memory`).
MAX_WEIGHT_BYTES = 72 * 1024 * 1024
_ROW, _ITEM = b"\0", b"\n"
_LENGTHS = {  # by the head of an object: bytes of its length, and bytes beside that and the contents
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
    0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
}  # fmt: skip
_FIXED = {  # the size of what follows the head; what is in lists and maps counts for itself
    0xC0: 0, 0xC1: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
    0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
    0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4,
}  # fmt: skip


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


def objects_in(data: bytes, *, most: int) -> int:
    """The number of objects in valid msgpack, those in lists and maps included; not counted beyond `most`."""
    at = count = 0
    while at < len(data) and count <= most:
        head = data[at]
        count += 1
        at += 1
        if 0xA0 <= head < 0xC0:
            at += head & 0x1F
        elif length := _LENGTHS.get(head):
            at += length[0] + length[1] + int.from_bytes(data[at : at + length[0]], "big")
        else:
            at += _FIXED.get(head, 0)
    return count
