"""`sterna host` for measurements: it compresses as hard as home asks, or, as `stored`, not at all.

A host that people run bounds the level, and always compresses: nothing speaks for anything else there. Two of
the four kinds of the Crawlets paper send their pages as they are, so here they do, in zstd's own raw blocks:
home reads them as it reads every stream. Call: stored|any ARGUMENTS-OF-STERNA.
"""

import sys

from sterna.wire import stream

BLOCK_BYTES = 128 * 1024
# RFC 8878, 3.1.1: magic number, no content size, no checksum; a window of 2**27.
FRAME_HEADER = bytes.fromhex("28b52ffd 00 88")


class Stored:
    """Stands for the compressor; level and all are ignored."""

    def __init__(self, level: int = 0, *, memory_bytes: int = 0) -> None:
        self._head = FRAME_HEADER

    def add(self, data: bytes) -> bytes:
        """The data in raw blocks, which is type 0: a header of three bytes with the size, and the bytes."""
        pieces = [self._head]
        self._head = b""
        for start in range(0, len(data), BLOCK_BYTES):
            piece = data[start : start + BLOCK_BYTES]
            pieces += [(len(piece) << 3).to_bytes(3, "little"), piece]
        return b"".join(pieces)


def main() -> None:
    kind = sys.argv.pop(1)
    if kind == "stored":
        stream.Squeezer = Stored
    from sterna.cli import run  # noqa: PLC0415 - after what it composes was changed

    run()


if __name__ == "__main__":
    main()
