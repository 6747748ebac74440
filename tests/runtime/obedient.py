"""A reader that does what a body tells it to, within less memory than usual; run as a script."""

import os
import time

from sterna.runtime import reader

MAX_MEMORY_BYTES = 256 * 1024**2


def read(body: bytes) -> reader.Outcome:
    """Hangs or dies if it is asked to."""
    if b"please hang" in body:
        time.sleep(600)
    if b"please die" in body:
        os.abort()
    return _read_well(body)


if __name__ == "__main__":
    _read_well = reader.read
    reader.read = read
    reader.MAX_MEMORY_BYTES = MAX_MEMORY_BYTES
    reader.main()
