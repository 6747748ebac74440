"""How many pages link to each page: a small file beside the index, replaced as a whole, read by mmap.

It is not part of the index because these counts change while a page does not. They only weigh pages: if the
file is missing or damaged, all pages weigh the same until `link_count` writes it again. A search needs no
pyarrow.
"""

import mmap
import struct
from bisect import bisect_left
from pathlib import Path

NAME = "inbound"
MAGIC = b"sterna-inbound-1"
# Magic, the last batch that was counted, how many entries; then all URL numbers, then all counts.
HEAD = struct.Struct("<16sqQ")
MAX_COUNT = 2**32 - 1


def read_batch(folder: Path) -> int:
    """The last batch whose links were counted; -1 if the file is missing or damaged."""
    try:
        with (folder / NAME).open("rb") as file:
            magic, batch, _ = HEAD.unpack(file.read(HEAD.size))
    except (OSError, struct.error):
        return -1
    return int(batch) if magic == MAGIC else -1


class Inbound:
    """The counts of one file, which stays mapped as long as this object lives."""

    def __init__(self, numbers: memoryview, counts: memoryview) -> None:
        self._numbers = numbers
        self._counts = counts

    @classmethod
    def read(cls, folder: Path) -> "Inbound":
        """The counts as they are now; none if the file is missing or damaged."""
        try:
            with (folder / NAME).open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # ValueError: the file is empty
            return cls.none()
        view = memoryview(mapped)
        if len(view) < HEAD.size:
            return cls.none()
        magic, _, count = HEAD.unpack(view[: HEAD.size])
        if magic != MAGIC or len(view) != HEAD.size + 12 * count:
            return cls.none()
        middle = HEAD.size + 8 * count
        return cls(view[HEAD.size : middle].cast("Q"), view[middle:].cast("I"))

    @classmethod
    def none(cls) -> "Inbound":
        """No counts at all."""
        return cls(memoryview(b"").cast("Q"), memoryview(b"").cast("I"))

    def of(self, number: int) -> int:
        """How many pages link to the URL with this number."""
        at = bisect_left(self._numbers, number)
        return self._counts[at] if at < len(self._numbers) and self._numbers[at] == number else 0


def stamp(folder: Path) -> tuple[int, int]:
    """Changes when the file is replaced."""
    try:
        state = (folder / NAME).stat()
    except OSError:
        return (0, 0)
    return (state.st_ino, state.st_mtime_ns)
