"""The small HTTP/1.1 server under the hostile and the synthetic one: listen, read requests, send replies."""

import asyncio
import contextlib
import errno
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.client import responses
from types import TracebackType
from typing import Self, TypeVar, cast
from urllib.parse import parse_qsl

T = TypeVar("T")

_MAX_HEAD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked for; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    address: str  # the server's own, which the client chose
    connection: int  # the same for all requests of one connection

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.target.partition("?")[2], keep_blank_values=True))


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent back; a Content-Length among the headers is sent as it is, even if it lies."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


# Sends what it likes, and says whether the connection may live on.
Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[bool]]


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """The first lines of a reply, with the empty one that ends them."""
    lines = [
        f"HTTP/1.1 {status} {responses.get(status, 'Unheard Of')}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def send(request: Request, writer: asyncio.StreamWriter, reply: Reply) -> bool:
    """Send a whole reply; the connection lives on if its length was told truly."""
    has_body = request.method != "HEAD" and reply.status not in {204, 304}
    headers = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(reply.body))}
    headers |= reply.headers
    writer.write(head(reply.status, headers) + (reply.body if has_body else b""))
    await writer.drain()
    return headers["Content-Length"] == str(len(reply.body))


class Listener:
    """Hears one port on some loopback addresses and passes each request to `answer`."""

    def __init__(
        self,
        answer: Answer,
        *,
        addresses: Sequence[str] = ("127.0.0.1",),
        port: int = 0,
        on_close: Callable[[int], None] = lambda connection: None,
    ) -> None:
        self.port = port
        self._answer = answer
        self._on_close = on_close
        self._addresses = addresses
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()  # one for each open connection
        self._connections = 0  # ever opened

    async def __aenter__(self) -> Self:
        self.port = await self._listen_anywhere() if self.port == 0 else await self._listen(self.port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _listen_anywhere(self) -> int:
        for _ in range(20):
            # The first address takes any free port, which may be taken on one of the others.
            try:
                return await self._listen(0)
            except OSError as error:
                self._close()
                if error.errno != errno.EADDRINUSE:
                    raise
        raise OSError(errno.EADDRINUSE, "no port is free on all addresses at once")

    async def _listen(self, port: int) -> int:
        for address in self._addresses:
            server = await asyncio.start_server(
                self._serve, address, port, limit=_MAX_HEAD_BYTES, backlog=1024
            )
            self._servers.append(server)
            port = server.sockets[0].getsockname()[1]
        return port

    def _close(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections += 1
        connection = self._connections
        try:
            await self._converse(reader, writer, connection=connection)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # the client left or talks nonsense: nobody is there to be told
        except asyncio.CancelledError:
            pass  # the server ends; start_server would print a task that was cancelled
        finally:
            self._tasks.discard(task)
            self._on_close(connection)
            writer.close()

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, connection: int
    ) -> None:
        is_open = True
        while is_open:
            raw = await reader.readuntil(b"\r\n\r\n")
            request = _parse(raw, address=writer.get_extra_info("sockname")[0], connection=connection)
            is_open = await self._answer(request, writer)
            is_open = is_open and request.headers.get("connection", "").lower() != "close"


def _parse(raw: bytes, *, address: str, connection: int) -> Request:
    first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Request(method, target, headers, address, connection)


@contextmanager
def in_thread(server: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Run a server on a loop of its own, for tests whose client blocks or is another process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    stack = contextlib.AsyncExitStack()
    try:
        yield asyncio.run_coroutine_threadsafe(stack.enter_async_context(server), loop).result(30)
    finally:
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


class ListeningServer:
    """A server around a listener: entered where a loop runs, or run in a thread of its own."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    @property
    def port(self) -> int:
        return self._listener.port

    async def __aenter__(self) -> Self:
        await self._listener.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._listener.__aexit__(kind, error, trace)

    def run_in_thread(self) -> AbstractContextManager[Self]:
        """The same server for a test that blocks, or whose client is another process."""
        return in_thread(cast("AbstractAsyncContextManager[Self]", self))
