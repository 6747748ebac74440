"""Knocking over real HTTP: connections that are kept, whole answers, and bytes that are not even HTTP."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

from bench.fuzz_parts.host_inputs import Knock
from bench.fuzz_parts.knocking import Said, Unclean

MAX_BODY_BYTES = 64 << 20
_HEAD = (
    b"POST /sterna/%s HTTP/1.1\r\nHost: site.test\r\n"
    b"Content-Type: application/vnd.sterna\r\nContent-Length: %d\r\n\r\n"
)


class Client:
    """One connection to a host, opened again when the host has closed it."""

    def __init__(self, port: int, *, seconds: float) -> None:
        self._port = port
        self._seconds = seconds
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._writer:
            self._writer.transport.abort()
        self._reader = self._writer = None

    async def ask(self, knock: Knock) -> Said:
        """The answer; Unclean if there is none in time, or it is no HTTP."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._ask(_HEAD % (knock.op.encode(), len(knock.body)) + knock.body)
        except TimeoutError:
            self.close()
            raise Unclean(f"no answer within {self._seconds:g} s") from None
        except (ConnectionError, asyncio.IncompleteReadError, ValueError, EOFError) as error:
            self.close()
            raise Unclean(f"the connection broke: {error!r}") from error

    async def _ask(self, request: bytes) -> Said:
        is_kept = self._writer is not None
        try:
            return await self._exchange(request)
        except (ConnectionError, EOFError):
            self.close()
            if not is_kept:  # a kept connection may have been closed meanwhile: that is the host's right
                raise
            return await self._exchange(request)

    async def _exchange(self, request: bytes) -> Said:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        reader, writer = self._reader, self._writer
        assert reader
        writer.write(request)
        # The answer may come, and the connection end, before all of a large body is taken.
        with suppress(ConnectionError):
            await writer.drain()
        said, is_last = await _answer(reader)
        if is_last:
            self.close()
        return said

    async def throw(self, raw: bytes) -> bytes:
        """Sends these bytes on a connection of their own and reads until the host has nothing more to say."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(raw)
            writer.write_eof()
            async with asyncio.timeout(self._seconds):
                return await reader.read(1 << 20)
        except TimeoutError:
            raise Unclean(f"the connection is still open after {self._seconds:g} s") from None
        except OSError:  # closed in the middle: that is the host's right
            return b""
        finally:
            writer.transport.abort()


async def _answer(reader: asyncio.StreamReader) -> tuple[Said, bool]:
    """The answer, and whether the connection ends with it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        raise EOFError(f"no head: {error.partial[:100]!r}") from error
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    status = int(first.split()[1])
    if headers.get("transfer-encoding") == "chunked":
        body = await _chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Said(status, headers.get("content-type", ""), body), headers.get("connection") == "close"


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int(await reader.readline(), 16):
        if len(body) + size > MAX_BODY_BYTES:
            raise ValueError("an answer without an end")
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return bytes(body)
