"""The records of a compressed WARC file, one gzip member each: where they lie, and how they begin."""

import zlib
from collections.abc import Iterator
from typing import BinaryIO

from sterna.errors import StorageError
from sterna.model import Record

_CHUNK_BYTES = 1 << 16
# What of a record is kept to read its heads: more than any server's head that was let in.
_BEGINNING_BYTES = 1 << 20
_GZIP_WBITS = 31


class Member(Record, frozen=True):
    """A record as it lies in its file, and its first bytes, uncompressed."""

    offset: int
    length: int
    beginning: bytes


class _Reader:
    """The bytes of a file up to an end, which may lie before the file's own."""

    def __init__(self, file: BinaryIO, *, end: int) -> None:
        self._file = file
        self._end = end
        self.position = 0  # up to which it was read
        self.pending = b""  # read, and not yet used

    def next(self) -> bytes:
        if self.pending:
            data, self.pending = self.pending, b""
            return data
        data = self._file.read(min(_CHUNK_BYTES, self._end - self.position))
        self.position += len(data)
        return data


def members(file: BinaryIO, *, end: int) -> Iterator[Member]:
    """The records of a file that is read from its beginning, up to its committed length `end`."""
    reader = _Reader(file, end=end)
    offset = 0
    while offset < end:
        try:
            beginning = _inflated(reader)
        except zlib.error as error:
            raise _damaged(file, offset, str(error)) from error
        if beginning is None:
            raise _damaged(file, offset, "it ends too early")
        length = reader.position - len(reader.pending) - offset
        yield Member(offset, length, beginning)
        offset += length


def _inflated(reader: _Reader) -> bytes | None:
    """The beginning of the member that starts here, which is read to its end; None where it has no end."""
    inflater = zlib.decompressobj(_GZIP_WBITS)
    beginning = bytearray()
    while not inflater.eof:
        data = inflater.unconsumed_tail or reader.next()
        piece = inflater.decompress(data, _CHUNK_BYTES)
        if not data and not piece:
            return None
        if len(beginning) < _BEGINNING_BYTES:
            beginning += piece
    reader.pending = inflater.unused_data
    return bytes(beginning)


def content(file: BinaryIO, *, offset: int, length: int, max_bytes: int) -> bytes:
    """A whole record, uncompressed, or its first `max_bytes`."""
    file.seek(offset)
    return zlib.decompressobj(_GZIP_WBITS).decompress(file.read(length), max_bytes)


def _damaged(file: BinaryIO, offset: int, reason: str) -> StorageError:
    return StorageError(f"'{file.name}' is damaged at byte {offset:,} ({reason}): restore it from a copy")
