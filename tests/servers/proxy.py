"""A small forward proxy on a loopback port that notes what went through it."""

import asyncio
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_CHUNK_BYTES = 1 << 16


class ForwardProxy:
    """Passes on requests in absolute form and tunnels (CONNECT); one request a connection."""

    def __init__(self) -> None:
        self.requests: list[str] = []  # method and target of each
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # one for each open connection

    @property
    def url(self) -> str:
        assert self._server
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
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
        try:
            await self._pass_on(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one of the two left, or the test is over
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, _, fields = head.partition(b"\r\n")
        method, target, version = first.decode("ascii").split(" ")
        self.requests.append(f"{method} {target}")
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        there, back = await asyncio.open_connection(url.hostname, url.port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\nX-Proxy: tunnel\r\n\r\n")
        else:
            back.write(f"{method} {url.path} {version}\r\nConnection: close\r\n".encode() + fields)
        try:
            done = [asyncio.create_task(_pour(reader, back)), asyncio.create_task(_pour(there, writer))]
            await asyncio.wait(done, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.cancel()
        finally:
            back.close()


async def _pour(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(_CHUNK_BYTES):
        sink.write(data)
        await sink.drain()
