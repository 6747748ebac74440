"""A pool of reader processes: hands bodies out, takes documents back, replaces a reader that broke."""

import asyncio
import sys
from collections import deque
from types import TracebackType

import msgspec

from sterna.errors import ReadError
from sterna.model import Record, Target
from sterna.runtime.memory import peak_memory_bytes
from sterna.runtime.reader import Outcome, Task
from sterna.web.document import Answer, Document

READ_SECONDS = 60.0
RESTART_SECONDS = 1.0
MAX_WAITING = 16  # bodies that wait in front of one reader
CHUNK_BYTES = 1024 * 1024
# -P keeps the working directory off the path: what lies there is nobody's to run.
DEFAULT_COMMAND = (sys.executable, "-P", "-m", "sterna.runtime.reader")


class _Job(Record, frozen=True):
    frame: bytearray
    done: asyncio.Future[Outcome]


class Readers:
    """Reads answers in other processes, which start when they are needed; an async context manager."""

    def __init__(
        self, count: int, *, command: tuple[str, ...] = DEFAULT_COMMAND, seconds: float = READ_SECONDS
    ) -> None:
        self._workers = [_Reader(command, seconds) for _ in range(count)]
        self._encoder = msgspec.msgpack.Encoder()
        self._room = asyncio.Semaphore(count * MAX_WAITING)
        self._starting = asyncio.Lock()
        self._has_started = False

    async def __aenter__(self) -> "Readers":
        return self

    async def start(self) -> None:
        """Starts the processes, unless they run: a crawl that has all its pages read elsewhere needs none."""
        async with self._starting:
            if not self._has_started:
                for worker in self._workers:
                    await worker.start()
                self._has_started = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            await worker.close()

    async def read(self, answer: Answer, *, target: Target | None = None, sift: bytes = b"") -> Document:
        """The document of an answer, sifted as told; ReadError if it cannot be read."""
        depth, referrer = (target.depth, target.referrer) if target else (0, "")
        frame = bytearray(4)
        self._encoder.encode_into(Task(answer, depth, referrer, sift), frame, 4)
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
        del answer
        if not self._has_started:
            await self.start()
        async with self._room:
            outcome = await min(self._workers, key=_Reader.load).submit(frame)
        if outcome.document is None:
            raise ReadError(outcome.kind, outcome.detail)
        return outcome.document

    def peak_memory_bytes(self) -> int:
        """The largest resident memory of the readers that run now, added up."""
        return sum(worker.peak_memory_bytes() for worker in self._workers)


class _Reader:
    """One process and the jobs it has; jobs are answered in their order."""

    def __init__(self, command: tuple[str, ...], seconds: float) -> None:
        self._command = command
        self._seconds = seconds
        # All of these are changed in the loop's thread, by submit() and the watching task.
        self._jobs: deque[_Job] = deque()
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._decoder = msgspec.msgpack.Decoder(Outcome)
        self._has_jobs = asyncio.Event()
        self._received = bytearray()  # of frames that are not whole yet

    async def start(self) -> None:
        await self._spawn()
        self._watch = asyncio.create_task(self._take_answers())

    async def close(self) -> None:
        if self._watch:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        for job in self._jobs:
            job.done.cancel()
        self._jobs.clear()
        await self._end()

    def load(self) -> int:
        return len(self._jobs)

    def peak_memory_bytes(self) -> int:
        if self._process is None or self._process.returncode is not None:
            return 0
        return peak_memory_bytes(self._process.pid)

    async def submit(self, frame: bytearray) -> Outcome:
        job = _Job(frame, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._has_jobs.set()
        self._send(job)
        return await job.done

    def _send(self, job: _Job) -> None:
        if self._process and self._process.stdin and not self._process.stdin.is_closing():
            self._process.stdin.write(job.frame)

    async def _take_answers(self) -> None:
        while True:
            if not self._jobs:
                self._has_jobs.clear()
                await self._has_jobs.wait()
                await self._revive()
            for outcome in await self._answers():
                job = self._jobs.popleft()
                if not job.done.done():
                    job.done.set_result(outcome)

    async def _revive(self) -> None:
        """A reader that died while it had nothing to do is nobody's fault: another gets its job."""
        assert self._process
        assert self._process.stdout
        if not self._process.stdout.at_eof():
            return
        try:
            await self._spawn()
        except OSError:
            return  # asking the dead one for an answer tells it to whoever waits
        for job in self._jobs:
            self._send(job)

    async def _answers(self) -> list[Outcome]:
        """The answers to the first jobs; if the process dies over one, that is its answer."""
        try:
            async with asyncio.timeout(self._seconds):
                return [self._decoder.decode(frame) for frame in await self._frames()]
        except TimeoutError:
            detail = f"not read within {self._seconds:g} seconds"
        except (EOFError, ConnectionError, msgspec.MsgspecError):
            detail = "the reader died"
        await self._end()
        try:
            await self._spawn()
        except OSError as error:  # memory may be short for a while; the next job tries again
            detail = f"{detail}, and no other could be started: {error}"
            await asyncio.sleep(RESTART_SECONDS)
        for job in list(self._jobs)[1:]:
            self._send(job)
        return [Outcome(kind="parser", detail=detail)]

    async def _frames(self) -> list[bytes]:
        """All that are there, at least one: while we were busy with other things, several may have come."""
        assert self._process
        assert self._process.stdout
        while True:
            data = await self._process.stdout.read(CHUNK_BYTES)
            if not data:
                raise EOFError
            self._received += data
            frames = _cut_frames(self._received)
            if frames:
                return frames

    async def _spawn(self) -> None:
        self._received.clear()
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=CHUNK_BYTES,
            start_new_session=True,
        )

    async def _end(self) -> None:
        if self._process and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


def _cut_frames(received: bytearray) -> list[bytes]:
    """Takes the whole frames off the front of what was received."""
    frames: list[bytes] = []
    start = 0
    while len(received) - start >= 4:
        end = start + 4 + int.from_bytes(received[start : start + 4], "big")
        if end > len(received):
            break
        frames.append(bytes(received[start + 4 : end]))
        start = end
    del received[:start]
    return frames
