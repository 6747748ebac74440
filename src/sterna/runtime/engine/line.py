"""One engine's process as its host talks to it: frames both ways, with patience, bounds and a death.

Whatever comes out of an engine is looked at as a stranger's: its size, its form, what it claims.
"""

import asyncio
import socket
from typing import Protocol, TypeVar

from sterna.errors import EngineEnded
from sterna.model import Ended, StateChange
from sterna.runtime.deaths import Death
from sterna.runtime.engine.messages import (
    HEAD_BYTES,
    MAX_ANSWER_BYTES,
    MAX_FOLLOW_CHARS,
    MAX_FOLLOWS,
    MAX_LOG_LINES,
    MAX_NUMBER,
    MAX_ROW_BYTES,
    Answer,
    Over,
    Question,
    Stopped,
    Verdict,
    frame_size,
    framed,
    read_answer,
)
from sterna.runtime.jail import JailLimits

CHUNK_BYTES = 256 * 1024
STOPPED_SECONDS = 30.0  # for one that heeded a soft stop, to put its facts in order

_ENDS = frozenset({"", *Ended})
_Wanted = TypeVar("_Wanted", bound=Answer)


class Process(Protocol):
    """A process that runs an engine; `runtime.cells.Cell` is one."""

    socket: socket.socket

    async def wait(self) -> Death:
        """How it ended."""

    def kill(self) -> None:
        """Ends it at once."""


class Starter(Protocol):
    """Starts processes for engines; `runtime.cells.Forker` is one."""

    async def start(self, *, limits: JailLimits, is_jailed: bool) -> Process:
        """A new process; JailError if there can be none, or none with a jail."""


class Line:
    """Questions to an engine, and its answers; all that goes wrong ends the process and is an EngineEnded."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._received = bytearray()  # of a frame that is not whole yet
        self._is_closed = False

    async def send(self, question: Question, *, seconds: float) -> None:
        """Sends a question."""
        try:
            frame = framed(question)
        except ValueError as error:
            await self.close()
            raise EngineEnded(Ended.MEMORY_BYTES, str(error)) from error
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                await loop.sock_sendall(self._process.socket, frame)
        except TimeoutError:
            raise await self._kill(seconds) from None
        except OSError:
            raise await self._bury() from None

    async def receive(self, wanted: type[_Wanted], *, seconds: float) -> _Wanted:
        """The next answer, which must be of this kind."""
        answer = await self._next(seconds)
        if isinstance(answer, Stopped):
            answer = await self._next(STOPPED_SECONDS)
        if isinstance(answer, Over):
            await self.close()
            ended = answer.ended if answer.ended in frozenset(Ended) else Ended.CRASH
            raise EngineEnded(ended, answer.detail[:1000])
        if not isinstance(answer, wanted):
            raise await self.condemn(f"it answered with {type(answer).__name__}")
        return answer

    async def _next(self, seconds: float) -> Answer:
        try:
            async with asyncio.timeout(seconds):
                return await self._read()
        except TimeoutError:
            raise await self._kill(seconds) from None
        except (EOFError, OSError):
            raise await self._bury() from None
        except ValueError as error:
            raise await self.condemn(str(error)) from error

    async def condemn(self, detail: str) -> EngineEnded:
        """Ends a process that does not keep to the form."""
        await self.close()
        return EngineEnded(Ended.VIOLATION, f"its answer is none: {detail}")

    async def close(self) -> None:
        """Ends the process, if it has not ended."""
        if not self._is_closed:
            self._is_closed = True
            self._process.kill()
            await self._process.wait()
            self._process.socket.close()

    async def _read(self) -> Answer:
        await self._fill(HEAD_BYTES)
        end = HEAD_BYTES + frame_size(bytes(self._received[:HEAD_BYTES]), MAX_ANSWER_BYTES)
        await self._fill(end)
        frame = bytes(self._received[HEAD_BYTES:end])
        del self._received[:end]
        return read_answer(frame)

    async def _fill(self, size: int) -> None:
        loop = asyncio.get_running_loop()
        while len(self._received) < size:
            data = await loop.sock_recv(self._process.socket, CHUNK_BYTES)
            if not data:
                raise EOFError
            self._received += data

    async def _kill(self, seconds: float) -> EngineEnded:
        await self.close()
        return EngineEnded(Ended.WALL_SECONDS, f"it was killed: no answer came within {seconds:g} seconds")

    async def _bury(self) -> EngineEnded:
        self._is_closed = True
        death = await self._process.wait()
        self._process.socket.close()
        if death.ended in _ENDS:
            return EngineEnded(death.ended, death.detail)
        return EngineEnded(Ended.CRASH, f"its process is gone ({death.ended}: {death.detail})")


def check_change(change: StateChange) -> None:
    """ValueError if facts have numbers that none can have."""
    numbers = (*(number for number, _ in change.added), *change.removed)
    if numbers and not 0 < min(numbers) <= max(numbers) < MAX_NUMBER:
        raise ValueError("facts with numbers that cannot be")


def check_verdict(verdict: Verdict) -> None:
    """ValueError if a verdict claims more than any rule can have said."""
    urls = [url for url, _ in (*verdict.follow, *verdict.priorities)]
    if len(urls) > 2 * MAX_FOLLOWS or sum(map(len, urls)) > MAX_FOLLOW_CHARS:
        raise ValueError(f"{len(urls):,} URLs for one page")
    if sum(map(len, verdict.rows)) > MAX_ROW_BYTES:
        raise ValueError("too many rows for one page")
    if len(verdict.log) > MAX_LOG_LINES:
        raise ValueError("too many lines of log for one page")
    if verdict.ended not in _ENDS:
        raise ValueError(f"an end that is none: {verdict.ended[:40]!r}")
