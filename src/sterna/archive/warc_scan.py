"""The records of a WARC file, one gzip member each: where they lie, and which of them are damaged."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sterna.errors import StorageError, command
from sterna.model import Record

_PIECE_BYTES = 1 << 16  # inflated at once
_SEARCHED_BYTES = 1 << 20  # for the next record, at once
# Of a record, kept to read its heads: more than any response head that is accepted.
_BEGINNING_BYTES = 1 << 20
_GZIP_WBITS = 31
_MAGIC, _FIRST_WORDS = b"\x1f\x8b\x08", b"WARC/1."


class Span(NamedTuple):
    """The position of a record in its file, and how it begins."""

    offset: int
    length: int
    beginning: bytes


class Scanned(Record, frozen=True, kw_only=True):
    """A WARC file, and what is good of it."""

    size_bytes: int
    gaps: tuple[tuple[int, int], ...]  # damaged ranges, from and to
    records: int
    owner: str = ""  # the collection's id, as the file says

    @property
    def good_bytes(self) -> int:
        """How far the file is good from its beginning."""
        return self.gaps[0][0] if self.gaps else self.size_bytes

    @property
    def is_torn(self) -> bool:
        """True if good records lie behind damaged ones."""
        return bool(self.gaps) and (len(self.gaps) > 1 or self.gaps[0][1] < self.size_bytes)


def members(file: BinaryIO, *, end: int, start: int = 0) -> Iterator[Span]:
    """The records from `start` to `end`; raises StorageError at a damaged one."""
    offset = position = start  # of the member, and up to which the file was read
    file.seek(start)
    data = b""  # read, and not yet used
    while offset < end:
        inflater = zlib.decompressobj(_GZIP_WBITS)
        beginning = bytearray()
        while not inflater.eof:
            if not data:
                data = file.read(min(_PIECE_BYTES, end - position))
                position += len(data)
            try:
                piece = inflater.decompress(data, _PIECE_BYTES)
            except zlib.error as error:
                raise _damaged(file, offset, str(error)) from error
            if not data and not piece:
                raise _damaged(file, offset, "it ends too early")
            if len(beginning) < _BEGINNING_BYTES:
                beginning += piece
            data = inflater.unconsumed_tail
        data = inflater.unused_data
        length = position - len(data) - offset
        yield Span(offset, length, bytes(beginning))
        offset += length


def packed_record(file: BinaryIO, *, offset: int, length: int) -> bytes:
    """A whole record as it lies in the file."""
    file.seek(offset)
    return file.read(length)


def content(packed: bytes, *, max_bytes: int) -> bytes:
    """A whole record, uncompressed, or its first `max_bytes`; StorageError if it is damaged."""
    try:
        return zlib.decompressobj(_GZIP_WBITS).decompress(packed, max_bytes)
    except zlib.error as error:
        raise StorageError(f"a WARC record is damaged ({error})") from error


def good_members(file: BinaryIO, *, end: int) -> Iterator[Span]:
    """The records that pass their checksums; behind a damaged one the next is searched for."""
    start: int | None = 0
    while start is not None and start < end:
        try:
            for span in members(file, end=end, start=start):
                if span.beginning.startswith(_FIRST_WORDS):
                    yield span
                start = span.offset + span.length
        except StorageError:
            start = _next_member(file, start + 1, end=end)


def scan(path: Path, *, urls: list[str] | None = None) -> Scanned:
    """Reads all of a file; the URLs of responses are added to `urls`."""
    gaps: list[tuple[int, int]] = []
    position = records = 0
    owner = ""
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        for span in good_members(file, end=size_bytes):
            if span.offset > position:
                gaps.append((position, span.offset))
            position, records = span.offset + span.length, records + 1
            fields = _fields(span.beginning)
            kind = fields.get("warc-type")
            if kind == "warcinfo":
                owner = owner or _field(span.beginning, b"isPartOf")
            elif kind == "response" and urls is not None:
                urls.append(fields.get("warc-target-uri", ""))
    if position < size_bytes:
        gaps.append((position, size_bytes))
    return Scanned(size_bytes=size_bytes, gaps=tuple(gaps), records=records, owner=owner)


def _next_member(file: BinaryIO, start: int, *, end: int) -> int | None:
    """Where the next record begins, whether it is good or not; None if there is none."""
    overlap = len(_MAGIC) - 1
    while start < end:
        file.seek(start)
        data = file.read(min(_SEARCHED_BYTES, end - start))
        at = data.find(_MAGIC)
        while at >= 0:
            file.seek(start + at)
            try:
                begin = zlib.decompressobj(_GZIP_WBITS).decompress(file.read(_PIECE_BYTES), len(_FIRST_WORDS))
                if begin.startswith(_FIRST_WORDS):
                    return start + at
            except zlib.error:
                pass  # these three bytes lie within another record
            at = data.find(_MAGIC, at + 1)
        start += max(len(data) - overlap, 1)
    return None


def _fields(beginning: bytes) -> dict[str, str]:
    head = beginning.partition(b"\r\n\r\n")[0].decode("latin-1")
    pairs = (line.partition(":") for line in head.split("\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _field(block: bytes, name: bytes) -> str:
    _, found, rest = block.partition(b"\r\n" + name + b": ")
    return rest.partition(b"\r\n")[0].decode("latin-1") if found else ""


def _damaged(file: BinaryIO, offset: int, reason: str) -> StorageError:
    folder = Path(file.name).parent.parent
    return StorageError(
        f"'{file.name}' is damaged at byte {offset:,} ({reason}): run '{command('repair', folder)}'"
    )
