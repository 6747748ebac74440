"""The parcels of a visit as files, kept until home has them; who would add one too many waits."""

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path

from sterna.errors import StorageError


class Room:
    """The bytes that all spools of a host may take together."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        # Changed by spools alone, in the loop's thread.
        self.taken_bytes = 0
        self.freed = asyncio.Event()


class Spool:
    """One visit's parcels, numbered from 1; a file holds one."""

    def __init__(self, folder: Path, *, most_bytes: int, room: Room) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._room = room
        # All of these are changed in the loop's thread, by put(), acknowledge() and delete().
        self._sizes: dict[int, int] = {}
        self.last = 0  # the highest number that was ever put
        self.acknowledged = 0
        self.kept_bytes = 0
        self.total_bytes = 0  # of all that were ever put
        self._is_over = False
        try:
            folder.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise StorageError(f"{folder} cannot be made: {error.strerror}") from error

    def has_room(self, size: int) -> bool:
        """True if a parcel of this size can be put now; an empty spool takes any, so that things go on."""
        if not self.kept_bytes:
            return True
        is_within = self.kept_bytes + size <= self._most_bytes
        return is_within and self._room.taken_bytes + size <= self._room.most_bytes

    async def wait_for_room(self, size: int) -> None:
        """Returns when a parcel of this size can be put."""
        while not self.has_room(size):
            self._room.freed.clear()
            await self._room.freed.wait()

    async def put(self, number: int, data: bytes) -> None:
        """Keeps a parcel; the caller has waited for its room."""
        self._take(number, len(data))
        try:
            await asyncio.to_thread(self._path(number).write_bytes, data)
        except OSError as error:
            self._free(number)
            with suppress(OSError):
                self._path(number).unlink(missing_ok=True)  # half of it may be there
            raise StorageError(f"{self._folder} cannot keep a parcel: {error.strerror}") from error
        self.last = max(self.last, number)
        self.total_bytes += len(data)

    async def read(self, number: int) -> bytes | None:
        """The parcel; None if it is not kept any more."""
        if number not in self._sizes:
            return None
        try:
            return await asyncio.to_thread(self._path(number).read_bytes)
        except FileNotFoundError:  # acknowledged meanwhile
            return None

    def acknowledge(self, number: int) -> None:
        """Home has this parcel and all before it for good."""
        self.acknowledged = max(self.acknowledged, min(number, self.last))
        for each in [each for each in self._sizes if each <= self.acknowledged]:
            self._free(each)
            self._path(each).unlink(missing_ok=True)

    def delete(self) -> None:
        """Gives up whatever is left, and the folder."""
        self._is_over = True
        for number in list(self._sizes):
            self._free(number)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _take(self, number: int, size: int) -> None:
        self._sizes[number] = size
        self.kept_bytes += size
        self._room.taken_bytes += size

    def _free(self, number: int) -> None:
        size = self._sizes.pop(number)
        self.kept_bytes -= size
        self._room.taken_bytes -= size
        self._room.freed.set()

    def _path(self, number: int) -> Path:
        return self._folder / str(number)
