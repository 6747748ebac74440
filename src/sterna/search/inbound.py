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


class Inbound:
    """The counts of one file, which stays mapped as long as this object lives."""

    def __init__(self, folder: Path) -> None:
        """The counts as they are now; none if the file is missing or damaged."""
        self.batch = -1  # the last batch whose links were counted
        self._numbers = self._counts = memoryview(b"")
        try:
            with (folder / NAME).open("rb") as file:
                view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            magic, batch, count = HEAD.unpack(view[: HEAD.size])
        except (OSError, ValueError, struct.error):  # ValueError: the file is empty
            return
        if magic == MAGIC and len(view) == HEAD.size + 12 * count:
            middle = HEAD.size + 8 * count
            self._numbers, self._counts = view[HEAD.size : middle].cast("Q"), view[middle:].cast("I")
            self.batch = int(batch)

    def of(self, number: int) -> int:
        """How many pages link to the URL with this number."""
        return looked_up(number, self._numbers, self._counts) or 0


def looked_up(number: int, numbers: memoryview, values: memoryview) -> int | None:
    """The value that stands where the number stands among the sorted numbers."""
    at = bisect_left(numbers, number)
    return values[at] if at < len(numbers) and numbers[at] == number else None
