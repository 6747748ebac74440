"""A pool of reader processes: hands bodies out, takes documents back, replaces a reader that broke."""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress

from sterna.errors import JailError, ReadError
from sterna.model import Record
from sterna.runtime.cell.channel import CellEnded, Channel, Starter
from sterna.runtime.cell.frame import framed, message_decoder
from sterna.runtime.cell.jail import JailLimits
from sterna.runtime.cell.pool import Death, Forker
from sterna.runtime.reader import MAX_OUTCOME_BYTES, MAX_TASK_BYTES, Outcome
from sterna.web.document import Document, Fetched

ENTRY = "sterna.runtime.reader:serve"
LIMITS = JailLimits(memory_bytes=2 * 1024**3, cpu_seconds=math.inf)
READ_SECONDS = 60.0
RESTART_SECONDS = 1.0
MAX_WAITING = 16  # bodies that wait in front of one reader


class Readers(AbstractAsyncContextManager["Readers"]):
    """Reads responses in other processes, which it owns and starts with start() or the first response."""

    def __init__(
        self,
        count: int,
        *,
        is_jailed: bool = False,
        entry: str = ENTRY,
        starter: Starter | None = None,
        limits: JailLimits = LIMITS,
        seconds: float = READ_SECONDS,
    ) -> None:
        # Without a jail, no wrapper either: it would only delay the first page.
        self._forker = Forker(entry, wrapper=None if is_jailed else ())  # starts with its first process
        self._starter: Starter = starter or self._forker
        self._is_jailed = is_jailed
        self._limits = limits
        self._workers = [_Reader(self._open, seconds) for _ in range(count)]
        self._room = asyncio.Semaphore(count * MAX_WAITING)
        # Both are changed by begin() and the task that it starts.
        self._starting: asyncio.Task[None] | None = None
        self._has_started = False

    async def __aexit__(self, *_: object) -> None:
        if self._starting:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        for worker in self._workers:
            await worker.close()
        await self._forker.close()

    def begin(self) -> None:
        """Begins to start the processes, unless they run: some crawls have all their pages read elsewhere."""
        if not self._has_started and (self._starting is None or self._starting.done()):
            self._starting = asyncio.create_task(self._start())

    async def start(self) -> None:
        """Returns when the processes run; JailError if they cannot be started."""
        self.begin()
        assert self._starting
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        for worker in self._workers:
            await worker.start()
        self._has_started = True

    async def _open(self) -> Channel[Outcome]:
        process = await self._starter.start(limits=self._limits, is_jailed=self._is_jailed)
        return await Channel.open(process, _read_outcome, most_bytes=MAX_OUTCOME_BYTES)

    async def read(self, fetched: Fetched) -> Document:
        """The document of a response; ReadError if it is unreadable."""
        try:
            frame = framed(fetched, most_bytes=MAX_TASK_BYTES)
        except ValueError as error:
            raise ReadError("parser", str(error)) from error
        del fetched
        if not self._has_started:
            await self.start()
        async with self._room:
            outcome = await min(self._workers, key=lambda worker: len(worker.jobs)).submit(frame)
        if outcome.document is None:
            raise ReadError(outcome.kind, outcome.detail)
        return outcome.document

    def peak_memory_bytes(self) -> int:
        """The sum of the peak resident memory of the readers that run now."""
        return sum(worker.channel.memory_bytes(is_peak=True) for worker in self._workers if worker.channel)


class _Job(Record, frozen=True):
    frame: bytearray
    done: asyncio.Future[Outcome]


class _Reader:
    """One process and the jobs it has, which it answers in their order."""

    def __init__(self, open_channel: Callable[[], Awaitable[Channel[Outcome]]], seconds: float) -> None:
        self._open_channel = open_channel
        self._seconds = seconds
        # All of these are changed in the loop's thread, by submit() and the watching task.
        self.jobs: deque[_Job] = deque()
        self.channel: Channel[Outcome] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._has_jobs = asyncio.Event()
        self._is_alone = False  # while its first job is tried again, later ones wait

    async def start(self) -> None:
        if self._watch is None:
            self.channel = await self._open_channel()
            self._watch = asyncio.create_task(self._take_outcomes())

    async def close(self) -> None:
        if self._watch:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        for job in self.jobs:
            job.done.cancel()
        self.jobs.clear()
        if self.channel:
            await self.channel.close()

    async def submit(self, frame: bytearray) -> Outcome:
        job = _Job(frame, asyncio.get_running_loop().create_future())
        self.jobs.append(job)
        self._has_jobs.set()
        if self.channel and not self._is_alone:
            self.channel.write(frame)
        return await job.done

    async def _take_outcomes(self) -> None:
        while True:
            if not self.jobs:
                self._has_jobs.clear()
                await self._has_jobs.wait()
                if self.channel and self.channel.is_at_end:  # it died idle
                    with suppress(JailError):  # receiving from the dead one reports it to the caller
                        await self._replace(self.jobs)
            assert self.channel
            try:
                outcome = await self.channel.receive(seconds=self._seconds)
            except CellEnded as error:
                outcome = await self._try_again(error.death)
            job = self.jobs.popleft()
            if not job.done.done():
                job.done.set_result(outcome)

    async def _try_again(self, death: Death) -> Outcome:
        """The outcome of the first job, alone in a new process: a job behind it may have broken the last."""
        self._is_alone = True
        try:
            channel = await self._replace([self.jobs[0]])
            try:
                outcome = await channel.receive(seconds=self._seconds)
            except CellEnded as error:
                death = error.death
                outcome = Outcome(kind="parser", detail=self._words(death))
                await self._replace([])
        except JailError as error:  # memory may be short for a while; the next job tries again
            detail = f"{self._words(death)}, and no other could be started: {error}"
            outcome = Outcome(kind="parser", detail=detail)
            await asyncio.sleep(RESTART_SECONDS)
        self._is_alone = False
        assert self.channel
        for job in list(self.jobs)[1:]:
            self.channel.write(job.frame)
        return outcome

    async def _replace(self, jobs: Iterable[_Job]) -> Channel[Outcome]:
        """Starts another process and gives it these jobs."""
        channel = self.channel = await self._open_channel()
        for job in jobs:
            channel.write(job.frame)
        return channel

    def _words(self, death: Death) -> str:
        if death.ended == "wall_seconds":
            return f"not read within {self._seconds:g} seconds"
        return f"the reader died ({death.ended}: {death.detail})"


_read_outcome: Callable[[bytes], Outcome] = message_decoder(Outcome)
