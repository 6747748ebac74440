"""The WARC files of a collection as far as they are committed: found, read record by record, and copied.

Records are copied as they lie on the disk, compressed; nothing is packed anew.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from sterna.archive.manifest import WarcPosition
from sterna.errors import StorageError, UsageError
from sterna.export.members import members
from sterna.export.progress import Progress
from sterna.export.records import Heads, read_heads
from sterna.model import Record

_CHUNK_BYTES = 1 << 20
_OPEN = ".open"  # what the name of a file that a crawl still writes ends with

Wants = Callable[[str], bool]  # whether records of a URL are wanted
Write = Callable[[bytes], object]


class WarcFile(Record, frozen=True):
    """A file of the collection: its final name, where it lies, and how much of it is committed."""

    name: str
    folder: Path
    committed_bytes: int

    def open(self) -> BinaryIO:
        """The file, whatever it is called now: a crawl may be about to rename it."""
        for path in (self.folder / self.name, self.folder / (self.name + _OPEN), self.folder / self.name):
            try:
                file = path.open("rb")
            except FileNotFoundError:
                continue
            self._check_size(file)
            return file
        raise StorageError(f"'{self.folder / self.name}' is gone: put it back and run the same command again")

    def _check_size(self, file: BinaryIO) -> None:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes < self.committed_bytes:
            file.close()
            raise StorageError(
                f"'{file.name}' has lost data: it holds {size_bytes} of {self.committed_bytes} bytes;"
                " restore it from a copy"
            )


class Entry(Record, frozen=True):
    """A record as it lies in a file or in a copy, which has the digest of its compressed bytes."""

    heads: Heads
    offset: int
    length: int
    digest: str = ""


def find(folder: Path, positions: Sequence[WarcPosition]) -> tuple[list[WarcFile], list[str]]:
    """The files that are there, and the names of those that their owner took away."""
    files, missing = [], []
    for position in positions:
        is_there = any((folder / name).is_file() for name in (position.name, position.name + _OPEN))
        if is_there:
            files.append(WarcFile(position.name, folder, position.committed_bytes))
        else:
            missing.append(position.name)
    return files, missing


def check(files: Sequence[WarcFile], *, folder: Path) -> None:
    """UsageError where there is nothing to export."""
    if not files:
        raise UsageError(
            f"{folder} has no WARC files, which a crawl writes with --warc: visit the pages again"
            f" by 'sterna crawl --into {folder} --warc --refresh 1s'"
        )


def entries(file: WarcFile, *, progress: Progress) -> Iterator[Entry]:
    """The records of a file, in their order."""
    with file.open() as stream:
        for member in members(stream, end=file.committed_bytes):
            yield Entry(read_heads(member.beginning), member.offset, member.length)
            progress.advance(member.length)


def copy_whole(file: WarcFile, write: Write, *, progress: Progress) -> None:
    """Writes the committed part of a file."""
    with file.open() as stream:
        for piece in _pieces(stream, 0, file.committed_bytes):
            write(piece)
            progress.advance(len(piece))


def copy_wanted(file: WarcFile, write: Write, *, wants: Wants, progress: Progress) -> Iterator[Entry]:
    """Writes the records of wanted URLs, and tells where each of them lies in the copy.

    What describes the file itself comes first, unless nothing of the file is wanted.
    """
    offset = 0
    with file.open() as stream:
        waiting: Entry | None = None
        for entry in entries(file, progress=progress):
            if entry.heads.kind == "warcinfo":
                waiting = entry
                continue
            if not wants(entry.heads.url):
                continue
            for each in [waiting, entry] if waiting else [entry]:
                yield Entry(each.heads, offset, each.length, _copy(stream, each, write))
                offset += each.length
            waiting = None


def _copy(stream: BinaryIO, entry: Entry, write: Write) -> str:
    hasher = hashlib.sha256()
    for piece in _pieces(stream, entry.offset, entry.length):
        hasher.update(piece)
        write(piece)
    return f"sha256:{hasher.hexdigest()}"


def _pieces(stream: BinaryIO, offset: int, length: int) -> Iterator[bytes]:
    end = offset + length
    while offset < end:
        piece = os.pread(stream.fileno(), min(_CHUNK_BYTES, end - offset), offset)
        if not piece:
            raise StorageError(
                f"'{stream.name}' became shorter while it was read: run the same command again"
            )
        yield piece
        offset += len(piece)
