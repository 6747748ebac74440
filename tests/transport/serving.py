"""The other side of a transport in tests: whatever answers calls, in memory or behind a small HTTP server."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, cast, get_args

from sterna.errors import LineBroken, Refused, WireError
from sterna.transport.interface import Call, Op, Reply, read_whole
from sterna.wire.discovery import MEDIA_TYPE, WELL_KNOWN
from sterna.wire.problems import (
    MAX_PROBLEM_BYTES,
    PROBLEM_TYPE,
    decode_problem,
    encode_problem,
    problem,
    refusal_of,
)

Body = bytes | AsyncIterator[bytes]
T = TypeVar("T")


class Cut(Exception):
    """Raised by whatever makes an answer: the line breaks here."""


class Said(Protocol):
    """What is answered; a host's Reply is one."""

    @property
    def status(self) -> int: ...
    @property
    def media_type(self) -> str: ...
    @property
    def headers(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def body(self) -> Body: ...


@dataclass(frozen=True, slots=True)
class Saying:
    """An answer of a test's own."""

    body: Body = b""
    status: int = 200
    media_type: str = MEDIA_TYPE
    headers: tuple[tuple[str, str], ...] = ()


Answerer = Callable[[Call], Awaitable[Said]]


def refusing(name: str, detail: str = "", **fields: float) -> Saying:
    """The answer of a host that says no."""
    why = problem(name, detail, **fields)
    headers = tuple(each for each in why.headers if each[0] != "Content-Type")
    return Saying(encode_problem(why), why.status, PROBLEM_TYPE, headers)


# -- in memory ---------------------------------------------------------------------------------------------


class MemoryTransport:
    """Carries calls to answerers in the same process, each under its address."""

    def __init__(self, answerers: Mapping[str, Answerer], *, silence_seconds: float = 45.0) -> None:
        self._answerers = answerers
        self._silence_seconds = silence_seconds
        self._open: set[asyncio.Future[Any]] = set()  # those that wait for an answer
        self._is_closed = False

    @asynccontextmanager
    async def exchange(self, address: str, call: Call) -> AsyncIterator[Reply]:
        answerer = self._answerers.get(address)
        if answerer is None:
            raise LineBroken(f"nobody is at {address}")
        began = asyncio.get_running_loop().time()
        said = await self._in_time(answerer(call))
        seconds = asyncio.get_running_loop().time() - began
        async with aclosing(_pieces(said.body)) as pieces:
            if not 200 <= said.status < 300:
                raise await _refusal(said, self._chunks(pieces))
            yield Reply(self._chunks(pieces), seconds=seconds, max_age=_max_age(said))

    async def close(self) -> None:
        self._is_closed = True
        for task in list(self._open):
            task.cancel()

    async def _chunks(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        while True:
            try:
                yield await self._in_time(anext(pieces))
            except StopAsyncIteration:
                return

    async def _in_time(self, waits: Awaitable[T]) -> T:
        task = asyncio.ensure_future(waits)
        self._open.add(task)
        if self._is_closed:
            task.cancel()
        try:
            async with asyncio.timeout(self._silence_seconds):
                return await task
        except Cut:
            raise LineBroken("the line was cut") from None
        except TimeoutError:
            raise LineBroken("nothing was heard") from None
        except asyncio.CancelledError:
            if self._is_closed:
                raise LineBroken("the transport was closed") from None
            raise
        finally:
            self._open.discard(task)


async def _refusal(said: Said, chunks: AsyncIterator[bytes]) -> LineBroken | Refused:
    if said.media_type == PROBLEM_TYPE:
        with contextlib.suppress(WireError):
            return refusal_of(decode_problem(await read_whole(chunks, most=MAX_PROBLEM_BYTES)))
    if said.status in (502, 503, 504):
        return LineBroken(f"status {said.status}")
    return Refused("http", f"status {said.status}")


async def _pieces(body: Body) -> AsyncGenerator[bytes, None]:
    if isinstance(body, bytes):
        yield body
        return
    async with aclosing(cast("AsyncGenerator[bytes, None]", body)) as pieces:
        async for piece in pieces:
            yield piece


def _max_age(said: Said) -> float | None:
    control = dict(said.headers).get("Cache-Control", "")
    return float(control.removeprefix("max-age=")) if control.startswith("max-age=") else None


# -- over HTTP ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request as the server had it."""

    method: str
    target: str
    headers: Mapping[str, str]  # names in lower case
    size: int  # of head and body


class HttpFace:
    """A small HTTP/1.1 server on a loopback port before an answerer; what it sends is counted."""

    def __init__(self, answerer: Answerer, *, address: str = "127.0.0.1", port: int = 0) -> None:
        self._answerer = answerer
        self._address = address
        self.port = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # one for each open connection
        self.arrived: list[Arrived] = []
        self.sent_bytes = 0
        self.connections = 0  # ever opened

    @property
    def url(self) -> str:
        return f"http://{self._address}:{self.port}"

    @property
    def open_connections(self) -> int:
        return len(self._tasks)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self._address, self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._converse(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left, or the test is over
        except Cut:
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers one request; False where the connection ends with it."""
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.arrived.append(Arrived(method, target, headers, len(head) + len(body)))
        said = await self._answerer(Call(_op(method, target), body))
        if isinstance(said.body, bytes):
            self._write(writer, _head(said, length=len(said.body)) + said.body)
            await writer.drain()
            return True
        self._write(writer, _head(said, length=None))
        return await self._stream(said.body, reader, writer)

    async def _stream(
        self, body: AsyncIterator[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Sends a stream in chunks; False if the client left before its end."""
        pump = asyncio.create_task(self._pump(body, writer))
        gone = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not pump.done():
                return False
            pump.result()
            return not gone.done()
        finally:
            for task in (pump, gone):
                task.cancel()
            await asyncio.gather(pump, gone, return_exceptions=True)

    async def _pump(self, body: AsyncIterator[bytes], writer: asyncio.StreamWriter) -> None:
        async with aclosing(_pieces(body)) as pieces:
            async for piece in pieces:
                self._write(writer, b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
        self._write(writer, b"0\r\n\r\n")
        await writer.drain()

    def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        self.sent_bytes += len(data)
        writer.write(data)


def _op(method: str, target: str) -> Op:
    is_public = method == "GET" and not target.endswith("/pages")
    name = "discover" if target == WELL_KNOWN or is_public else target.rpartition("/")[2]
    assert name in get_args(Op), target
    return cast("Op", name)


def _head(said: Said, *, length: int | None) -> bytes:
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    fields = [
        f"Content-Type: {said.media_type}",
        *(f"{name}: {value}" for name, value in said.headers),
        framing,
    ]
    return ("\r\n".join([f"HTTP/1.1 {said.status} Said", *fields]) + "\r\n\r\n").encode("latin-1")
