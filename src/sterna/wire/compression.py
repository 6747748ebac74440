"""Compression of a visit's parcels: one zstd stream, so that a page costs what is new in it."""

from functools import lru_cache

import zstandard

from sterna.errors import WireError

WINDOW_LOG = 27  # the last 128 MiB are remembered
LEAST_WINDOW_LOG = 19
SMALL_WINDOW_LOG = 23  # below it a lower level saves more than a larger window does
MAX_LEVEL = 19
SMALL_LEVELS = (3, 1)  # that need little memory besides the window
# Pages of one site have much in common: with longer matches these levels make 2 to 3 % less of them, as fast.
_LAZY_LEVELS, _LAZY = range(6, 13), {"min_match": 6, "ldm_min_match": 128}
_BUFFER_BYTES = 1024 * 1024  # of input and output, about
# The decompressor unpacks all of its input at once, and four bytes can stand for a block of 128 KiB: these
# become 16 MiB at most.
SIP_BYTES = 512


def squeezing_bytes(level: int, *, memory_bytes: int = 0) -> int:
    """About how much memory a long stream takes within the limit `memory_bytes` (0: none)."""
    return _chosen(min(max(level, 1), MAX_LEVEL), memory_bytes)[1]


@lru_cache(maxsize=256)
def _chosen(level: int, memory_bytes: int) -> tuple[zstandard.ZstdCompressionParameters, int]:
    """The best parameters within this memory (0: no limit) and their size; the smallest if none fits."""
    choices = [(level, window) for window in range(WINDOW_LOG, SMALL_WINDOW_LOG - 1, -1)]
    for small in SMALL_LEVELS:
        if small <= level:
            choices += [(small, window) for window in range(WINDOW_LOG, LEAST_WINDOW_LOG - 1, -1)]
    for each, window in choices:
        parameters = zstandard.ZstdCompressionParameters.from_level(
            each,
            window_log=window,
            enable_ldm=True,
            write_checksum=False,  # the seal of the stream is a better one
            write_content_size=False,
            **(_LAZY if each in _LAZY_LEVELS else {}),
        )
        # The memory of a stream, within 10 %: window, table of long matches, tables, buffers.
        tables = 6 * 2**parameters.hash_log + 4 * 2**parameters.chain_log
        size = int(2**parameters.window_log * (1 + 1 / 16) + tables + _BUFFER_BYTES)
        if not memory_bytes or size <= memory_bytes:
            break
    return parameters, size


class Squeezer:
    """Compresses one stream; each call's result can be read without the next."""

    def __init__(self, level: int = 3, *, memory_bytes: int = 0) -> None:
        """Takes a smaller window or a lower level to stay within `memory_bytes` (0: no limit)."""
        parameters, _ = _chosen(min(max(level, 1), MAX_LEVEL), memory_bytes)
        self._stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()

    def add(self, data: bytes) -> bytes:
        """The compressed form of what comes next, flushed."""
        return self._stream.compress(data) + self._stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)


class Unsqueezer:
    """Decompresses an untrusted stream, and never returns more than its limit."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._stream = zstandard.ZstdDecompressor(max_window_size=2**WINDOW_LOG).decompressobj()

    def add(self, data: bytes, *, max_bytes: int) -> bytearray:
        """What this piece unpacks to; WireError if that is more than `max_bytes`, or not valid zstd."""
        room = min(max_bytes, self._left)
        whole = bytearray()
        try:
            for at in range(0, len(data), SIP_BYTES):
                piece = self._stream.decompress(data[at : at + SIP_BYTES])
                if len(whole) + len(piece) > room:
                    raise WireError("too-large", "the stream unpacks to more than was agreed")
                whole += piece
        except zstandard.ZstdError as error:
            raise WireError("malformed", "the stream is not valid zstd") from error
        if self._stream.unused_data:
            raise WireError("malformed", "the compressed stream continues after its end")
        self._left -= len(whole)
        return whole
