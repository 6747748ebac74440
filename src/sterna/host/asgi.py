"""The host as an ASGI application, and uvicorn to run it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Protocol

import h11

from sterna.host.calls import HostRequest, Reply
from sterna.web.http_app import Message, Receive, Send
from sterna.web.http_server import make_server, serve_until_signalled

STALL_SECONDS = 120.0  # within which a client must read some bytes
GRACE_SECONDS = 15  # for visits to end
MAX_CONNECTIONS = 512
KEEP_ALIVE_SECONDS = 30
HEAD_SECONDS = 20.0  # to receive the head of a request


class Served(Protocol):
    """The host of a site, or of many: `Service`, `Sites`."""

    async def restore(self) -> None: ...

    async def respond(self, request: HostRequest) -> Reply: ...

    async def watch(self) -> None: ...

    def stop(self) -> None: ...

    async def close(self) -> None: ...


class _Gone(Exception):
    """The client went away."""


def asgi_app(service: Served) -> Callable[[Message, Receive, Send], Awaitable[None]]:
    async def answer(scope: Message, receive: Receive, send: Send) -> None:
        """Answers one request; returns silently if the client goes away."""
        assert scope["type"] == "http"
        announced = _header(scope, b"content-length")
        request = HostRequest(
            scope["method"],
            scope["path"],
            _body(receive),
            announced=int(announced) if announced.isdigit() else None,
            if_none_match=_header(scope, b"if-none-match").decode("latin-1"),
            host=_header(scope, b"host").decode("latin-1"),
        )
        try:
            reply = await service.respond(request)
            fields = [
                (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in reply.fields()
            ]
            await send({"type": "http.response.start", "status": reply.status, "headers": fields})
            if isinstance(reply.body, bytes):
                await send({"type": "http.response.body", "body": reply.body})
            else:
                await _stream(reply.body, receive, send)
        except (_Gone, h11.LocalProtocolError):  # the second if it broke off within its body
            return

    return answer


def _header(scope: Message, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        if chunk := message.get("body", b""):
            yield chunk
        if not message.get("more_body", False):
            return


async def _stream(body: AsyncIterator[bytes], receive: Receive, send: Send) -> None:
    """Sends the stream as fast as the client reads it; ends it when the client leaves or stalls."""
    pump = asyncio.create_task(_pump(body, send))
    gone = asyncio.create_task(_wait_until_gone(receive))
    try:
        await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (pump, gone):
            task.cancel()
        results = await asyncio.gather(pump, gone, return_exceptions=True)
    if isinstance(results[0], Exception) and not isinstance(results[0], TimeoutError):
        raise results[0]


async def _pump(body: AsyncIterator[bytes], send: Send) -> None:
    async with aclosing(body) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            async with asyncio.timeout(STALL_SECONDS):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body"})


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def serve(
    service: Served, *, listener: socket.socket, on_ready: Callable[[], None] = lambda: None
) -> None:
    """Serves on the socket until SIGTERM or SIGINT; then visits pause, and their streams end."""
    server = make_server(
        asgi_app(service),
        head_seconds=HEAD_SECONDS,
        connections=MAX_CONNECTIONS,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
        grace_seconds=GRACE_SECONDS,
    )
    watching = asyncio.create_task(service.watch())
    try:
        await service.restore()
        await serve_until_signalled(server, listener, on_ready=on_ready, on_stop=service.stop)
    finally:
        watching.cancel()
        await service.close()
