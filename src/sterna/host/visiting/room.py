"""The room that visits share at a host: slots for crawlers at work, streams to homes, bytes for parcels."""

import asyncio
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

from sterna.errors import Refused, StorageError, VisitDamaged
from sterna.host.files import make_folder, write_private
from sterna.host.policy.policy import HostLimits
from sterna.host.visiting.logbook import Logbook, Saved
from sterna.host.visiting.progress import Step
from sterna.wire.compression import squeezing_bytes

SPARE_STREAMS = 4  # in addition to those of visits under way: for finished visits and broken connections
RETRY_SECONDS = 30.0
DIGEST_BYTES = 16  # before each parcel on the disk
LEAST_BYTES = squeezing_bytes(1, memory_bytes=1)


class Slots:
    """Slots of visits, in a number that may change while they are taken; first come, first served."""

    def __init__(self, count: Callable[[], int], *, within: "Slots | None" = None) -> None:
        """Whoever has a slot also has one of those `within` which these are, if they are given."""
        self._count = count
        self._within = within
        # Both are changed in the loop's thread, by the methods here alone.
        self.holders: set[object] = set()
        self._waiting: deque[tuple[asyncio.Future[None], object]] = deque()

    def take_now(self, holder: object) -> bool:
        """True if it has a slot, or one was free and nobody was waiting for it."""
        is_free = not self._waiting and len(self.holders) < self._count()
        if holder not in self.holders and not is_free:
            return False
        if self._within and not self._within.take_now(holder):
            return False
        self.holders.add(holder)
        return True

    async def take(self, holder: object) -> None:
        """Waits for a slot, unless it has one."""
        if self.take_now(holder):
            return
        await self._take_own(holder)
        if self._within:
            try:
                await self._within.take(holder)
            except asyncio.CancelledError:
                self.leave(holder)
                raise

    async def _take_own(self, holder: object) -> None:
        turn = asyncio.get_running_loop().create_future(), holder
        self._waiting.append(turn)
        self.hand_out()
        try:
            await turn[0]
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.remove(turn)
            else:  # it had just been given one
                self.leave(holder)
            raise

    def leave(self, holder: object) -> None:
        """Gives its slot, if it has one, to another visit."""
        self.holders.discard(holder)
        if self._within:
            self._within.leave(holder)
        self.hand_out()

    def hand_out(self) -> None:
        """Gives free slots to those who wait; to be called after their number has grown, too."""
        while self._waiting and len(self.holders) < self._count():
            turn, holder = self._waiting.popleft()
            if not turn.done():
                self.holders.add(holder)
                turn.set_result(None)


class Streams:
    """The open streams; each has a compressor of its own, whether it is read or not."""

    def __init__(self, limits: Callable[[], HostLimits]) -> None:
        self._limits = limits
        # Both are changed by open() alone.
        self._open: Counter[str] = Counter()  # by home
        self._taken_bytes = 0

    def check(self, home: str) -> None:
        """Refused if there are too many, of this home or in all."""
        limits = self._limits()
        most = limits.crawlers_at_once + limits.queue + limits.deferred + SPARE_STREAMS
        is_full = self._open.total() >= most
        if is_full or self._open[home] >= limits.visits_of_a_home + SPARE_STREAMS:
            raise Refused("busy", "too many streams are open", retry_after=RETRY_SECONDS)

    def share(self, level: int) -> int:
        """The memory for one more stream: the first get most, and some is left for all that may follow."""
        limits = self._limits()
        # Streams of visits that do not work yet compress nothing and take no memory.
        for_others = LEAST_BYTES * max(limits.crawlers_at_once - self._open.total() - 1, 0)
        left = max(limits.compressor_bytes - self._taken_bytes - for_others, 0)
        return squeezing_bytes(level, memory_bytes=left * 3 // 4 + 1)

    @contextmanager
    def open(self, home: str, *, level: int) -> Iterator[int]:
        """Counts a stream while the context lasts; yields the bytes of memory for its compressor."""
        memory_bytes = self.share(level)
        self._open[home] += 1
        self._taken_bytes += memory_bytes
        try:
            yield memory_bytes
        finally:
            self._open[home] -= 1
            self._taken_bytes -= memory_bytes


class DiskSpace:
    """The bytes that all spools of a host may take together."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        # Changed by spools alone, in the loop's thread.
        self.taken_bytes = 0
        self.freed = asyncio.Event()


class Spool:
    """The parcels of one visit as files, numbered from 1, kept until home has them."""

    def __init__(self, folder: Path, *, most_bytes: int, space: DiskSpace, is_kept: bool = True) -> None:
        """If `is_kept`, a log beside the parcels lets the visit go on after a restart of the host."""
        self.folder = folder
        self._most_bytes = most_bytes
        self._space = space
        # All of these are changed in the loop's thread, by put(), acknowledge(), reload() and delete().
        self.log = Logbook(folder) if is_kept else None
        self._sizes: dict[int, int] = {}
        self.last = 0  # the highest number so far
        self.acknowledged = 0
        self.kept_bytes = 0
        self.total_bytes = 0  # of all parcels so far
        self._log_bytes = 0
        make_folder(folder)

    def has_room(self, size: int) -> bool:
        """True if a parcel of this size fits now; an empty spool takes any, so that the visit can go on."""
        if not self.kept_bytes:
            return True
        is_within = self.kept_bytes + size <= self._most_bytes
        return is_within and self._space.taken_bytes + size <= self._space.most_bytes

    async def wait_for_room(self, size: int) -> None:
        while not self.has_room(size):
            self._space.freed.clear()
            await self._space.freed.wait()

    async def put(self, data: bytes, step: Step) -> None:
        """Keeps a parcel; the caller has waited for room. StorageError if it cannot be written.

        The parcel can be read once both it and its step in the log are on the disk, in this order.
        """
        self._take(step.number, len(data))
        try:
            await asyncio.to_thread(self._write, data, step)
        except StorageError:
            self._free(step.number)
            raise
        self.count_log()
        self.last = step.number
        self.total_bytes += len(data)

    def _write(self, data: bytes, step: Step) -> None:
        if self.log is None:
            _write_quickly(self._path(step.number), data)
            return
        write_private(self._path(step.number), _digest(data) + data)
        self.log.append(step)

    def count_log(self) -> None:
        """Counts the log, whose size has changed, among the bytes of the host."""
        size = self.log.size_bytes if self.log else 0
        self._space.taken_bytes += size - self._log_bytes
        self._log_bytes = size

    def reload(self, saved: Saved) -> None:
        """Finds the parcels that an earlier process left; OSError if they cannot be read.

        VisitDamaged, with nothing changed, if one of them is missing.
        """
        progress, surplus = saved.progress, list[int]()
        numbers = sorted(int(path.name) for path in self.folder.iterdir() if _is_number(path.name))
        if numbers and numbers[-1] == progress.number + 1:  # not in the log, so it was never sent
            surplus.append(numbers.pop())
        while numbers and numbers[0] <= saved.tally.acknowledged:
            surplus.append(numbers.pop(0))  # a loss of power had undone its deletion
        acknowledged = numbers[0] - 1 if numbers else progress.number
        if numbers != list(range(acknowledged + 1, progress.number + 1)):
            raise VisitDamaged(f"{self.folder} is damaged: it has not all parcels up to {progress.number}")
        sizes = {number: self._path(number).stat().st_size - DIGEST_BYTES for number in numbers}
        for number in surplus:
            self._path(number).unlink()
        self.last, self.total_bytes, self.acknowledged = progress.number, progress.total_bytes, acknowledged
        for number, size in sizes.items():
            self._take(number, size)
        self.count_log()

    async def read(self, number: int) -> bytes | None:
        """The parcel; None if it is no longer kept. VisitDamaged if it is damaged, OSError if unreadable."""
        if number not in self._sizes:
            return None
        read = read_parcel if self.log else Path.read_bytes
        try:
            return await asyncio.to_thread(read, self._path(number))
        except FileNotFoundError:  # acknowledged meanwhile
            return None

    def acknowledge(self, number: int) -> None:
        """Deletes this parcel and all before it, which home has."""
        self.acknowledged = max(self.acknowledged, min(number, self.last))
        for each in [each for each in self._sizes if each <= self.acknowledged]:
            self._free(each)
            self._path(each).unlink(missing_ok=True)

    def delete(self) -> None:
        for number in list(self._sizes):
            self._free(number)
        self.log = None
        self.count_log()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _take(self, number: int, size: int) -> None:
        self._sizes[number] = size
        self.kept_bytes += size
        self._space.taken_bytes += size

    def _free(self, number: int) -> None:
        size = self._sizes.pop(number)
        self.kept_bytes -= size
        self._space.taken_bytes -= size
        self._space.freed.set()

    def _path(self, number: int) -> Path:
        return self.folder / str(number)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def read_parcel(path: Path) -> bytes:
    """A parcel of a host that keeps its visits; VisitDamaged if it is damaged."""
    data = path.read_bytes()
    if _digest(data[DIGEST_BYTES:]) != data[:DIGEST_BYTES]:
        raise VisitDamaged(f"{path} is damaged")
    return data[DIGEST_BYTES:]


def _write_quickly(path: Path, data: bytes) -> None:
    """Writes the parcel of a host that keeps no visits: it need not outlive the process."""
    try:
        path.write_bytes(data)
    except OSError as error:
        with suppress(OSError):
            path.unlink(missing_ok=True)  # it may be there in part
        raise StorageError(f"cannot write parcel to {path.parent}: {error.strerror}") from error


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()
