"""How many pages link to each page: a small file beside the index, replaced as a whole, read in place.

It lies outside the index because a page's weight changes while the page stays as it is. It is a weight only:
where the file is missing or damaged, every page weighs the same until it is counted anew.
"""

import mmap
import struct
from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.archive.disk import storage_errors

if TYPE_CHECKING:
    import pyarrow as pa

_NAME = "inbound"
_MAGIC = b"sterna-inbound-1"
_HEAD = struct.Struct("<16sqQ")  # magic, the batch up to which was counted, how many numbers
_MAX_COUNT = 2**32 - 1


def write(folder: Path, counts: "pa.Table", *, batch: int) -> None:
    """Replaces the file; `counts` has each `number` once, sorted, with its `count`."""
    import pyarrow as pa  # noqa: PLC0415 - who only searches does without
    import pyarrow.compute as pc  # noqa: PLC0415

    bounded = pc.min_element_wise(counts["count"], _MAX_COUNT).cast(pa.uint32())
    begun = folder / f"{_NAME}.tmp"
    with storage_errors(folder):
        with begun.open("wb") as file:
            file.write(_HEAD.pack(_MAGIC, batch, counts.num_rows))
            for column, width in ((counts["number"], 8), (bounded, 4)):
                array = column.combine_chunks()
                if len(array):
                    begin = array.offset * width
                    file.write(memoryview(array.buffers()[1])[begin : begin + width * len(array)])
        begun.replace(folder / _NAME)


def read_batch(folder: Path) -> int:
    """Up to which batch links were counted; -1: never, or nobody knows."""
    try:
        with (folder / _NAME).open("rb") as file:
            magic, batch, _ = _HEAD.unpack(file.read(_HEAD.size))
    except (OSError, struct.error):
        return -1
    return int(batch) if magic == _MAGIC else -1


class Inbound:
    """The counts of one file; the mapping lives as long as this."""

    def __init__(self, numbers: memoryview, counts: memoryview) -> None:
        self._numbers = numbers
        self._counts = counts

    @classmethod
    def read(cls, folder: Path) -> "Inbound":
        """The counts as they are now; none where the file cannot be read."""
        try:
            with (folder / _NAME).open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # ValueError: it is empty
            return cls.none()
        view = memoryview(mapped)
        if len(view) < _HEAD.size:
            return cls.none()
        magic, _, count = _HEAD.unpack(view[: _HEAD.size])
        if magic != _MAGIC or len(view) != _HEAD.size + 12 * count:
            return cls.none()
        middle = _HEAD.size + 8 * count
        return cls(view[_HEAD.size : middle].cast("Q"), view[middle:].cast("I"))

    @classmethod
    def none(cls) -> "Inbound":
        """No counts at all."""
        return cls(memoryview(b"").cast("Q"), memoryview(b"").cast("I"))

    def of(self, number: int) -> int:
        """How many pages link to the URL of this number."""
        at = bisect_left(self._numbers, number)
        return self._counts[at] if at < len(self._numbers) and self._numbers[at] == number else 0


def stamp(folder: Path) -> tuple[int, int]:
    """Changes when the file is replaced."""
    try:
        state = (folder / _NAME).stat()
    except OSError:
        return (0, 0)
    return (state.st_ino, state.st_mtime_ns)
