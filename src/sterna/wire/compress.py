"""Compression of a visit's parcels: one zstd stream, so that a page costs what is new in it."""

import zstandard

from sterna.errors import WireError

WINDOW_LOG = 27  # the last 128 MiB are remembered
MAX_LEVEL = 19
# Pages of one site have much in common: with longer matches these levels make 2 to 3 % less of them, as fast.
_LAZY_LEVELS, _LAZY = range(6, 13), {"min_match": 6, "ldm_min_match": 128}
# So little is given to the decompressor at once because it gives back all that is in it: four bytes can stand
# for a block of 128 KiB, so these for 16 MiB.
SIP_BYTES = 512


class Squeezer:
    """Compresses one stream; each call's result can be read without the next."""

    def __init__(self, level: int = 3) -> None:
        level = min(max(level, 1), MAX_LEVEL)
        parameters = zstandard.ZstdCompressionParameters.from_level(
            level,
            window_log=WINDOW_LOG,
            enable_ldm=True,
            write_checksum=False,  # whoever seals the stream sees to that
            write_content_size=False,
            **(_LAZY if level in _LAZY_LEVELS else {}),
        )
        self._stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()

    def add(self, data: bytes) -> bytes:
        """The compressed form of what comes next, flushed."""
        return self._stream.compress(data) + self._stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)


class Unsqueezer:
    """Decompresses one stream that others made, and never gives out more than it is told."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._stream = zstandard.ZstdDecompressor(max_window_size=2**WINDOW_LOG).decompressobj()

    def add(self, data: bytes, *, max_bytes: int) -> bytes:
        """What this piece holds; WireError if that is more than `max_bytes`, or the piece is no zstd."""
        room = min(max_bytes, self._left)
        pieces: list[bytes] = []
        try:
            for at in range(0, len(data), SIP_BYTES):
                pieces.append(self._stream.decompress(data[at : at + SIP_BYTES]))
                room -= len(pieces[-1])
                if room < 0:
                    raise WireError("too-large", "a stream that holds more than was agreed")
        except zstandard.ZstdError as error:
            raise WireError("malformed", "a stream that is not compressed as it should be") from error
        if self._stream.unused_data:
            raise WireError("malformed", "a compressed stream that goes on after its end")
        whole = b"".join(pieces)
        self._left -= len(whole)
        return whole
