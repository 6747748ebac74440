"""The WARC files of a collection as far as they are committed: found, read record by record, and copied.

Records are copied as they lie on the disk, compressed; nothing is packed anew.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from sterna.archive.manifest import WarcPosition
from sterna.archive.warc import OPEN
from sterna.archive.warc_scan import members
from sterna.errors import StorageError, command
from sterna.export.progress import ExportProgress
from sterna.model import Record

_CHUNK_BYTES = 1 << 20
_SPACE = re.compile(r"[;\s]")

Wants = Callable[[str], bool]  # whether records of a URL are wanted
Write = Callable[[bytes], object]


class WarcFile(Record, frozen=True):
    """A file of the collection: its final name, its folder, and its committed length."""

    name: str
    folder: Path
    committed_bytes: int

    def open(self) -> BinaryIO:
        """The file under its open or final name: a crawl may rename it at any time."""
        for path in (self.folder / self.name, self.folder / (self.name + OPEN), self.folder / self.name):
            try:
                file = path.open("rb")
            except FileNotFoundError:
                continue
            size_bytes = os.fstat(file.fileno()).st_size
            if size_bytes >= self.committed_bytes:
                return file
            file.close()
            raise StorageError(
                f"'{path}' has lost data: it holds {size_bytes} of {self.committed_bytes} bytes;"
                f" run '{command('repair', self.folder.parent)}'"
            )
        raise StorageError(f"'{self.folder / self.name}' is gone: put it back and run the same command again")


class Heads(Record, frozen=True, kw_only=True):
    """What is used of a record and of the response in it."""

    kind: str
    url: str
    date: str
    payload_digest: str | None
    status: str
    http_fields: dict[str, str]
    block_start: int  # of the response body, or of the block if there is no response

    @property
    def mime(self) -> str | None:
        """The media type of a response, without parameters; None if it has none."""
        stated = self.http_fields.get("content-type")
        return _SPACE.split(stated, maxsplit=1)[0].strip() if stated else stated


class WarcEntry(Record, frozen=True):
    """The position of a record in a file, or in a copy with the digest of its compressed bytes."""

    heads: Heads
    offset: int
    length: int
    digest: str = ""


def find(folder: Path, positions: Sequence[WarcPosition]) -> tuple[list[WarcFile], list[str]]:
    """The files that exist, and the names of those that were removed."""
    files, missing = [], []
    for position in positions:
        if any((folder / name).is_file() for name in (position.name, position.name + OPEN)):
            files.append(WarcFile(position.name, folder, position.committed_bytes))
        else:
            missing.append(position.name)
    return files, missing


def entries(file: WarcFile, *, progress: ExportProgress) -> Iterator[WarcEntry]:
    with file.open() as stream:
        for offset, length, beginning in members(stream, end=file.committed_bytes):
            yield WarcEntry(read_heads(beginning), offset, length)
            progress.done += length


def copy_whole(file: WarcFile, write: Write, *, progress: ExportProgress) -> None:
    """Writes the committed part of a file."""
    with file.open() as stream:
        for piece in _pieces(stream, 0, file.committed_bytes):
            write(piece)
            progress.done += len(piece)


def copy_wanted(
    file: WarcFile, write: Write, *, wants: Wants | None, progress: ExportProgress
) -> Iterator[WarcEntry]:
    """Writes the records of wanted URLs (None: of all), and tells where each of them lies in the copy.

    What describes the file itself comes first, unless nothing of the file is wanted.
    """
    offset = 0
    with file.open() as stream:
        waiting: WarcEntry | None = None
        for entry in entries(file, progress=progress):
            if entry.heads.kind == "warcinfo":
                waiting = entry
                continue
            if wants and not wants(entry.heads.url):
                continue
            for each in [waiting, entry] if waiting else [entry]:
                hasher = hashlib.sha256()
                for piece in _pieces(stream, each.offset, each.length):
                    hasher.update(piece)
                    write(piece)
                yield WarcEntry(each.heads, offset, each.length, f"sha256:{hasher.hexdigest()}")
                offset += each.length
            waiting = None


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


# --- heads of records, read as the common tools read them


def read_heads(beginning: bytes) -> Heads:
    _, fields, start = _head(beginning, 0)
    status_line = ""
    http_fields: dict[str, str] = {}
    if "msgtype=response" in fields.get("content-type", ""):
        status_line, http_fields, start = _head(beginning, start)
    return Heads(
        kind=fields.get("warc-type", ""),
        url=fields.get("warc-target-uri", ""),
        date=fields.get("warc-date", ""),
        payload_digest=fields.get("warc-payload-digest"),
        status=status_line.partition(" ")[2].strip().partition(" ")[0],
        http_fields=http_fields,
        block_start=start,
    )


def _head(data: bytes, start: int) -> tuple[str, dict[str, str], int]:
    """First line, fields (in lower case, the first of each name) and end of the head that starts there."""
    lines = _lines(data, start)
    first, end = next(lines, ("", start))
    fields: dict[str, str] = {}
    name = ""  # of the field that a continuation line would add to
    for line, after in lines:
        end = after
        if not line:
            break
        if line[0] in " \t":
            if name:
                fields[name] += line
            continue
        key, colon, value = line.partition(":")
        key = key.rstrip(" \t").lower()
        name = key if colon and key not in fields else ""
        if name:
            fields[name] = value.lstrip()
    return first, fields, end


def _lines(data: bytes, start: int) -> Iterator[tuple[str, int]]:
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        try:
            line = data[start:end].decode()
        except UnicodeDecodeError:
            line = data[start:end].decode("latin-1")
        yield line.rstrip(), end
        start = end
