"""The host's end of a cell's socket: framed messages with bounds, a deadline for each, and a named end.

Whatever comes out of a cell is treated as a stranger's: its size, its form, what it claims.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from sterna.errors import SternaError
from sterna.runtime.cell.frame import cut_frames
from sterna.runtime.cell.jail import JailLimits
from sterna.runtime.cell.pool import Death

CHUNK_BYTES = 1024 * 1024

_Message = TypeVar("_Message")


class Process(Protocol):
    """A process at the other end of a socket; `runtime.cell.pool.Cell` is one."""

    socket: socket.socket

    async def wait(self) -> Death: ...

    def kill(self) -> None: ...

    def memory_bytes(self, *, is_peak: bool) -> int: ...


class Starter(Protocol):
    """Starts such processes; `runtime.cell.pool.Forker` is one."""

    async def start(self, *, limits: JailLimits, is_jailed: bool | None) -> Process:
        """A new process, jailed (None: if this machine can); JailError if it cannot be started like that."""


class CellEnded(SternaError):
    """The process at the other end is over; `death` says why."""

    def __init__(self, death: Death) -> None:
        super().__init__(f"{death.ended}: {death.detail}")
        self.death = death


class Channel(Generic[_Message]):
    """Frames to one process, and messages from it. Any failure ends the process and raises CellEnded."""

    def __init__(
        self,
        process: Process,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        decode: Callable[[bytes], _Message],
        most_bytes: int,
    ) -> None:
        self._process = process
        self._reader, self._writer = streams
        self._decode = decode
        self._most_bytes = most_bytes  # of one frame that comes from it
        # What was received is changed by receive() only.
        self._received = bytearray()  # of a frame that is not whole yet
        self._frames: deque[bytes] = deque()
        self._is_closed = False

    @classmethod
    async def open(
        cls, process: Process, decode: Callable[[bytes], _Message], *, most_bytes: int
    ) -> "Channel[_Message]":
        """Connects to the process's socket; `decode` raises ValueError if a message is malformed."""
        try:
            streams = await asyncio.open_unix_connection(sock=process.socket, limit=CHUNK_BYTES)
        except BaseException:
            process.kill()
            await process.wait()
            process.socket.close()
            raise
        return cls(process, streams, decode, most_bytes)

    def memory_bytes(self, *, is_peak: bool = False) -> int:
        return self._process.memory_bytes(is_peak=is_peak)

    @property
    def is_at_end(self) -> bool:
        """True once the process has closed its end and all of its frames were received."""
        return self._is_closed or (self._reader.at_eof() and not self._frames)

    def write(self, frame: bytearray) -> None:
        """Queues a frame; does nothing if the process is gone, which receive() reports."""
        if not self._writer.is_closing():
            self._writer.write(frame)

    async def receive(self, *, seconds: float) -> _Message:
        """The next message, which must come within `seconds`."""
        try:
            if not self._frames:
                async with asyncio.timeout(seconds):
                    while not self._frames:
                        data = await self._reader.read(CHUNK_BYTES)
                        if not data:
                            raise EOFError
                        self._received += data
                        self._frames.extend(cut_frames(self._received, most_bytes=self._most_bytes))
            return self._decode(self._frames.popleft())
        except TimeoutError:
            await self.close()
            detail = f"killed: no answer within {seconds:g} seconds"
            raise CellEnded(Death(ended="wall_seconds", detail=detail)) from None
        except (EOFError, OSError):
            self._is_closed = True
            death = await self._process.wait()
            self._disconnect()
            raise CellEnded(death) from None
        except ValueError as error:
            raise await self.condemn(str(error)) from error

    async def condemn(self, detail: str) -> CellEnded:
        """Ends a process that breaks the protocol; returns the error to raise."""
        await self.close()
        return CellEnded(Death(ended="violation", detail=f"invalid answer: {detail}"))

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._process.kill()
            await self._process.wait()
            self._disconnect()

    def _disconnect(self) -> None:
        self._writer.transport.abort()
        self._process.socket.close()
