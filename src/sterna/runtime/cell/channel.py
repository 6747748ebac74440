"""The host's end of a cell's socket: framed messages with bounds, a deadline for each, and a named end.

Whatever comes out of a cell is treated as a stranger's: its size, its form, what it claims.
"""

import asyncio
import socket
from collections import deque
from typing import Protocol

from sterna.errors import SternaError
from sterna.runtime.cell.frame import cut_frames
from sterna.runtime.cell.jail import JailLimits
from sterna.runtime.cell.pool import CellUsage, Death

CHUNK_BYTES = 1024 * 1024


class Process(Protocol):
    """A process at the other end of a socket; `runtime.cell.pool.Cell` is one."""

    socket: socket.socket

    async def wait(self) -> Death:
        """How it ended."""

    def kill(self) -> None:
        """Ends it at once."""

    def usage(self) -> CellUsage:
        """What it has used until now."""


class Starter(Protocol):
    """Starts such processes; `runtime.cell.pool.Forker` is one."""

    async def start(self, *, limits: JailLimits, is_jailed: bool) -> Process:
        """A new process; JailError if none can be started, or none with a jail."""


class CellEnded(SternaError):
    """The process at the other end is over; `death` says why."""

    def __init__(self, death: Death) -> None:
        super().__init__(f"{death.ended}: {death.detail}")
        self.death = death


class Channel:
    """Frames to and from one process. Any failure ends the process and raises CellEnded."""

    def __init__(self, process: Process, *, most_bytes: int) -> None:
        self._process = process
        self._most_bytes = most_bytes  # of one frame that comes from it
        # Both streams are set by open(); what was received is changed by receive() only.
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._received = bytearray()  # of a frame that is not whole yet
        self._frames: deque[bytes] = deque()
        self._is_closed = False

    async def open(self) -> None:
        """Connects the streams to the process's socket."""
        self._reader, self._writer = await asyncio.open_unix_connection(
            sock=self._process.socket, limit=CHUNK_BYTES
        )

    def usage(self) -> CellUsage:
        """What the process has used until now."""
        return self._process.usage()

    @property
    def is_at_end(self) -> bool:
        """True once the process has closed its end and all of its frames were received."""
        return self._is_closed or not self._reader or (self._reader.at_eof() and not self._frames)

    def write(self, frame: bytearray) -> None:
        """Queues a frame; does nothing if the process is gone, which receive() reports."""
        if self._writer and not self._writer.is_closing():
            self._writer.write(frame)

    async def receive(self, *, seconds: float) -> bytes:
        """The next frame, which must come within `seconds`."""
        if not self._frames:
            try:
                async with asyncio.timeout(seconds):
                    await self._fill()
            except TimeoutError:
                detail = f"killed: no answer within {seconds:g} seconds"
                raise await self.kill(Death(ended="wall_seconds", detail=detail)) from None
            except (EOFError, OSError):
                raise await self._bury() from None
            except ValueError as error:
                raise await self.condemn(str(error)) from error
        return self._frames.popleft()

    async def _fill(self) -> None:
        if not self._reader:
            raise EOFError
        while not self._frames:
            data = await self._reader.read(CHUNK_BYTES)
            if not data:
                raise EOFError
            self._received += data
            self._frames.extend(cut_frames(self._received, most_bytes=self._most_bytes))

    async def condemn(self, detail: str) -> CellEnded:
        """Ends a process that breaks the protocol; returns the error to raise."""
        return await self.kill(Death(ended="violation", detail=f"invalid answer: {detail}"))

    async def kill(self, death: Death) -> CellEnded:
        """Ends the process for this reason; returns the error to raise."""
        await self.close()
        return CellEnded(death)

    async def close(self) -> None:
        """Ends the process, unless it is over."""
        if not self._is_closed:
            self._is_closed = True
            self._process.kill()
            await self._process.wait()
            self._disconnect()

    async def _bury(self) -> CellEnded:
        self._is_closed = True
        death = await self._process.wait()
        self._disconnect()
        return CellEnded(death)

    def _disconnect(self) -> None:
        if self._writer:
            self._writer.transport.abort()
        self._process.socket.close()
