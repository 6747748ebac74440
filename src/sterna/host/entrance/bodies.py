"""The bodies of calls as they come in: bounded in bytes and in time, and of an order only for a session."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from sterna.errors import Refused
from sterna.host.config import HostLimits
from sterna.host.entrance.sessions import Sessions
from sterna.transport.interface import Op
from sterna.wire.handshake import MAX_HELLO_BYTES, SESSION_BYTES

MAX_SMALL_BYTES = 4 * 1024
SLOWEST_BYTES = 16 * 1024  # a second, in the long run, of a body that comes in


class Bodies:
    """Reads bodies, all of them together within bounds."""

    def __init__(self, sessions: Sessions, limits: Callable[[], HostLimits]) -> None:
        self._sessions = sessions
        self._limits = limits
        self._read_bytes = 0  # of bodies that come in now; changed by read() alone

    async def read(self, op: Op, chunks: AsyncIterator[bytes], *, announced: int | None) -> bytes:
        """A call's body; Refused as soon as it is too large, too slow, or of no session.

        No stranger fills the memory: of an order only its first bytes are read unless its session is known.
        """
        most = self._most_bytes(op)
        if announced is not None and announced > most:
            raise Refused("too-large", f"{announced:,} bytes; {most:,} is the most")
        body = bytearray()
        try:
            async for chunk in self._in_time(chunks):
                self._read_bytes += len(chunk)
                body += chunk
                if len(body) > most:
                    raise Refused("too-large", f"more than {most:,} bytes")
                if self._read_bytes > 2 * self._limits().order_bytes:
                    raise Refused("busy", "too much comes in at once", retry_after=1)
                if op == "order" and len(body) - len(chunk) < SESSION_BYTES <= len(body):
                    self._sessions.find(bytes(body[:SESSION_BYTES]))
        finally:
            self._read_bytes -= len(body)
        return bytes(body)

    async def _in_time(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        began, received = time.monotonic(), 0
        while True:
            left = began + self._limits().body_seconds + received / SLOWEST_BYTES - time.monotonic()
            try:
                async with asyncio.timeout(left):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                raise Refused("malformed", "the message did not come in time") from None
            if chunk is None:
                return
            received += len(chunk)
            yield chunk

    def _most_bytes(self, op: Op) -> int:
        if op == "order":
            return self._limits().order_bytes
        return {"discover": 0, "hello": MAX_HELLO_BYTES}.get(op, MAX_SMALL_BYTES)
