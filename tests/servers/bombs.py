"""Bodies that are small on the wire: a quarter of a gigabyte of zeros, in three codings, and wide text."""

import struct
import zlib
from functools import cache

import brotli
import zstandard

SIZE = 1 << 28  # more than any test lets a process grow by
_BLOCK = bytes(1 << 20)
_BLOCKS = SIZE // len(_BLOCK)


@cache
def gzip_bomb() -> bytes:
    """One gzip member of about 260 kB."""
    compressor = zlib.compressobj(9, wbits=-15)
    # After a full flush a block depends on none before it, so that one can be repeated.
    block = compressor.compress(_BLOCK) + compressor.flush(zlib.Z_FULL_FLUSH)
    checksum = 0
    for _ in range(_BLOCKS):
        checksum = zlib.crc32(_BLOCK, checksum)
    start = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    return start + block * _BLOCKS + compressor.flush() + struct.pack("<II", checksum, SIZE)


@cache
def brotli_bomb() -> bytes:
    """One Brotli stream of about 2 kB."""
    compressor = brotli.Compressor(quality=3)
    parts: list[bytes] = [compressor.process(_BLOCK) for _ in range(_BLOCKS)]
    return b"".join(parts) + bytes(compressor.finish())


@cache
def zstd_bomb() -> bytes:
    """One Zstandard frame of about 8 kB, which does not tell its size."""
    compressor = zstandard.ZstdCompressor().compressobj()
    parts = [compressor.compress(_BLOCK) for _ in range(_BLOCKS)]
    return b"".join(parts) + compressor.flush()


@cache
def wide_text(size_bytes: int) -> bytes:
    """Brotli of an emoji and so many bytes of ASCII: as a str it takes four bytes for each character."""
    compressor = brotli.Compressor(quality=3)
    parts: list[bytes] = [compressor.process("\N{BIRD} ".encode())]
    parts += [compressor.process(b"tern " * 200_000) for _ in range(size_bytes // 1_000_000)]
    return b"".join(parts) + bytes(compressor.finish())
