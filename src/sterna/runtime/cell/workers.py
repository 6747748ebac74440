"""A pool of cells that answer one task after the other: hands tasks out, replaces a cell that broke."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, TypeVar

from sterna.errors import JailError, SternaError
from sterna.model import Record
from sterna.runtime.cell.channel import CellEnded, Channel, Starter
from sterna.runtime.cell.jail import JailLimits
from sterna.runtime.cell.pool import Death, Forker

RESTART_SECONDS = 1.0
MAX_WAITING = 16  # tasks that wait in front of one cell

_Answer = TypeVar("_Answer")


class TaskFailed(SternaError):
    """No cell answered a task: it broke two of them, the second one alone, or none could be started."""


class Manner(Record, frozen=True, kw_only=True):
    """What runs in the cells of a pool, and within which bounds."""

    entry: str
    limits: JailLimits
    seconds: float  # for one task
    most_bytes: int  # of one answer
    is_jailed: bool | None = None  # None: if this machine can


class Workers(Generic[_Answer], AbstractAsyncContextManager[Any]):
    """Has tasks answered in cells, which it owns and starts with start() or the first task."""

    def __init__(
        self,
        count: int,
        manner: Manner,
        *,
        decode: Callable[[bytes], _Answer],
        starter: Starter | None = None,
    ) -> None:
        # Without a jail, no wrapper either: it would only delay the first task.
        wrapper = () if manner.is_jailed is False else None
        self._forker = Forker(manner.entry, wrapper=wrapper)  # starts with its first cell
        self._starter: Starter = starter or self._forker
        self._manner = manner
        self._decode = decode
        self._workers = [_Worker(self._open, manner.seconds) for _ in range(count)]
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
        """Begins to start the cells, unless they run: some crawls have all their pages read elsewhere."""
        if not self._has_started and (self._starting is None or self._starting.done()):
            self._starting = asyncio.create_task(self._start())

    async def start(self) -> None:
        """Returns when the cells run; JailError if they cannot be started."""
        self.begin()
        assert self._starting
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        for worker in self._workers:
            await worker.start()
        self._has_started = True

    async def _open(self) -> Channel[_Answer]:
        manner = self._manner
        process = await self._starter.start(limits=manner.limits, is_jailed=manner.is_jailed)
        return await Channel.open(process, self._decode, most_bytes=manner.most_bytes)

    async def answer(self, frame: bytearray) -> _Answer:
        """The answer to a task; TaskFailed if there is none, JailError if the cells cannot be started."""
        if not self._has_started:
            await self.start()
        async with self._room:
            return await min(self._workers, key=lambda worker: len(worker.jobs)).submit(frame)

    def peak_memory_bytes(self) -> int:
        """The sum of the peak resident memory of the cells that run now."""
        return sum(worker.channel.memory_bytes(is_peak=True) for worker in self._workers if worker.channel)


class _Job(Generic[_Answer]):
    __slots__ = ("done", "frame")

    def __init__(self, frame: bytearray) -> None:
        self.frame = frame
        self.done: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()


class _Worker(Generic[_Answer]):
    """One cell and the jobs it has, which it answers in their order."""

    def __init__(self, open_channel: Callable[[], Awaitable[Channel[_Answer]]], seconds: float) -> None:
        self._open_channel = open_channel
        self._seconds = seconds
        # All of these are changed in the loop's thread, by submit() and the watching task.
        self.jobs: deque[_Job[_Answer]] = deque()
        self.channel: Channel[_Answer] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._has_jobs = asyncio.Event()
        self._is_alone = False  # while its first job is tried again, later ones wait

    async def start(self) -> None:
        if self._watch is None:
            self.channel = await self._open_channel()
            self._watch = asyncio.create_task(self._take_answers())

    async def close(self) -> None:
        if self._watch:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        for job in self.jobs:
            job.done.cancel()
        self.jobs.clear()
        if self.channel:
            await self.channel.close()

    async def submit(self, frame: bytearray) -> _Answer:
        job: _Job[_Answer] = _Job(frame)
        self.jobs.append(job)
        self._has_jobs.set()
        if self.channel and not self._is_alone:
            self.channel.write(frame)
        return await job.done

    async def _take_answers(self) -> None:
        while True:
            if not self.jobs:
                self._has_jobs.clear()
                await self._has_jobs.wait()
                if self.channel and self.channel.is_at_end:  # it died idle
                    with suppress(JailError):  # receiving from the dead one reports it to the caller
                        await self._replace(self.jobs)
            assert self.channel
            answer: _Answer | TaskFailed
            try:
                answer = await self.channel.receive(seconds=self._seconds)
            except CellEnded as error:
                answer = await self._try_again(error.death)
            done = self.jobs.popleft().done
            if done.done():
                continue
            if isinstance(answer, TaskFailed):
                done.set_exception(answer)
            else:
                done.set_result(answer)
            del answer, done  # they may be large, and the next job may be long in coming

    async def _try_again(self, death: Death) -> _Answer | TaskFailed:
        """The answer to the first job, alone in a new cell: a job behind it may have broken the last."""
        self._is_alone = True
        answer: _Answer | TaskFailed
        try:
            channel = await self._replace([self.jobs[0]])
            try:
                answer = await channel.receive(seconds=self._seconds)
            except CellEnded as error:
                death = error.death
                answer = TaskFailed(self._words(death))
                await self._replace([])
        except JailError as error:  # memory may be short for a while; the next job tries again
            answer = TaskFailed(f"{self._words(death)}, and no other could be started: {error}")
            await asyncio.sleep(RESTART_SECONDS)
        self._is_alone = False
        assert self.channel
        for job in list(self.jobs)[1:]:
            self.channel.write(job.frame)
        return answer

    async def _replace(self, jobs: Iterable[_Job[_Answer]]) -> Channel[_Answer]:
        """Starts another cell and gives it these jobs."""
        channel = self.channel = await self._open_channel()
        for job in jobs:
            channel.write(job.frame)
        return channel

    def _words(self, death: Death) -> str:
        if death.ended == "wall_seconds":
            return f"no answer within {self._seconds:g} seconds"
        return f"its process died ({death.ended}: {death.detail})"
