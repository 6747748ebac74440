"""Quarantine: parcels of untrusted hosts, on the disk until they are checked.

One file for each visit, with records of length, checksum and compressed parcel. A record that a crash cut
short does not count, and the host sends its parcel again; a whole record is as durable as a commit.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from struct import Struct
from typing import BinaryIO
from zlib import crc32

import msgspec
import zstandard

from sterna.archive.disk import ASIDE, set_aside, storage_errors, sync_folder
from sterna.archive.warc import cut_off
from sterna.model import Parcel, Record

MAX_BYTES = 1 << 30  # of all visits together: beyond it the crawlers are stopped
_HEAD = Struct(">II")  # length, checksum
_END = b"proven"  # the record after the last parcel, once the host's end was received
_MAX_RECORD_BYTES = 256 * 1024 * 1024
_LEVEL = 3


class Held(Record, frozen=True):
    """A parcel in quarantine, and its size on the network."""

    parcel: Parcel
    size_bytes: int


class Quarantine:
    """A folder with a file for each visit; called from the event loop, with I/O in threads."""

    def __init__(self, folder: Path, *, most_bytes: int = MAX_BYTES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._taken = 0  # bytes of all open visits; changed by _note()
        self.full = asyncio.Event()  # set while there is no room; changed by _note()

    def has(self, visit: str) -> bool:
        return self._path(visit).exists()

    async def open(self, visit: str) -> "HeldVisit":
        """A visit's quarantine, with the parcels of an earlier run."""
        held = HeldVisit(self._path(visit), self._note, aside=self._folder.parent / ASIDE)
        await asyncio.to_thread(held.begin)
        self._note(held.size_bytes)
        return held

    def sweep(self, visits: Collection[str]) -> None:
        """Sets all files aside except those of these visits, which are still under way."""
        if self._folder.is_dir():
            for path in sorted(self._folder.iterdir()):
                if path.name not in visits:
                    set_aside(path, self._folder.parent / ASIDE)

    def _path(self, visit: str) -> Path:
        return self._folder / visit

    def _note(self, size_bytes: int) -> None:
        self._taken += size_bytes
        if self._taken > self._most_bytes:
            self.full.set()
        else:
            self.full.clear()


class HeldVisit:
    """The quarantined parcels of one visit; used by one task."""

    def __init__(self, path: Path, note: Callable[[int], None], *, aside: Path) -> None:
        self._path = path
        self._note = note
        self._aside = aside  # the folder for a file that cannot be read
        self._file: BinaryIO | None = None
        self._unread: Iterator[Held] | None = None  # begun by next()
        # Changed by begin(), add(), prove() and leave().
        self.size_bytes = 0
        self.last = 0  # the number of the last parcel
        self.is_proven = False

    def begin(self) -> None:
        """Opens the file; what follows the last whole record, incomplete or damaged, is set aside.

        A file of another version of Sterna is set aside: its host has deleted the parcels in it.
        """
        try:
            self._open()
        except (msgspec.MsgspecError, zstandard.ZstdError):
            assert self._file
            self._file.close()
            set_aside(self._path, self._aside)
            self.last, self.is_proven, self.size_bytes = 0, False, 0
            self._open()

    def _open(self) -> None:
        with storage_errors(self._path):
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._file = self._path.open("a+b")
            sync_folder(self._path.parent)
            for end, data in self._records():
                self.is_proven = data == _END
                self.last = self.last if self.is_proven else _decoded(data).parcel.number
                self.size_bytes = end
            if self._path.stat().st_size > self.size_bytes:
                cut_off(self._path, self.size_bytes, into=self._aside)

    async def add(self, parcel: Parcel, size_bytes: int) -> None:
        """Returns when the parcel is on the disk."""
        await self._append(partial(_encoded, Held(parcel, size_bytes)))
        self.last = parcel.number

    async def prove(self) -> None:
        """Notes that the visit is complete: the host's end was received."""
        if not self.is_proven:
            await self._append(lambda: _END)
            self.is_proven = True

    def parcels(self) -> Iterator[Held]:
        """All parcels in order, read lazily."""
        for _, data in self._records():
            if data != _END:
                yield _decoded(data)

    async def next(self) -> Held | None:
        """The next parcel; None after the last."""
        self._unread = self._unread or self.parcels()
        return await asyncio.to_thread(next, self._unread, None)

    def close(self) -> None:
        """Keeps the parcels for the next run."""
        if self._file:
            self._file.close()
            self._file = None
            self._grow(-self.size_bytes)

    def leave(self) -> None:
        """Removes the parcels."""
        self.close()
        self._path.unlink(missing_ok=True)

    async def _append(self, encode: Callable[[], bytes]) -> None:
        self._grow(await asyncio.to_thread(self._write, encode))

    def _write(self, encode: Callable[[], bytes]) -> int:
        assert self._file
        record = encode()
        with storage_errors(self._path):
            self._file.write(_HEAD.pack(len(record), crc32(record)) + record)
            self._file.flush()
            os.fsync(self._file.fileno())
        return _HEAD.size + len(record)

    def _grow(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._note(size_bytes)

    def _records(self) -> Iterator[tuple[int, bytes]]:
        """The end and the content of each whole record."""
        with self._path.open("rb") as file:
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                length, checksum = _HEAD.unpack(head)
                data = file.read(length) if length <= _MAX_RECORD_BYTES else b""
                if len(data) != length or crc32(data) != checksum:
                    return
                yield file.tell(), data


def _encoded(held: Held) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL).compress(msgspec.msgpack.encode(held))


def _decoded(data: bytes) -> Held:
    return msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(data), type=Held)
