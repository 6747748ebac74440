"""The HTTP server: one slow client keeps nobody else out."""

import asyncio
import socket
from contextlib import AsyncExitStack

import pytest

from sterna.web.http_app import Message, Receive, Send
from sterna.web.http_server import make_server, serving

CONNECTIONS = 64
ANSWER = b"HTTP/1.1 200"


POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"


async def app(scope: Message, receive: Receive, send: Send) -> None:
    if scope["method"] == "POST":
        await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def open_line(stack: AsyncExitStack, port: int, sent: bytes) -> asyncio.StreamReader:
    """A connection on which these bytes were sent; it is closed with the stack."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    stack.callback(writer.close)
    writer.write(sent)
    await writer.drain()
    return reader


@pytest.mark.parametrize("sent", [b"GET / HT", POST])
async def test_slow_heads_and_bodies_of_one_address_keep_nobody_out(sent: bytes) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=4 * CONNECTIONS)
    server = make_server(
        app, head_seconds=30.0, connections=CONNECTIONS, keep_alive_seconds=30, grace_seconds=1
    )
    port = listener.getsockname()[1]
    async with asyncio.timeout(20), AsyncExitStack() as stack, serving(server, listener):
        slow = [await open_line(stack, port, sent) for _ in range(2 * CONNECTIONS)]
        for _ in range(3):
            line = await open_line(stack, port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await line.readline()).startswith(ANSWER)
        assert await slow[0].read() == b""  # the oldest was closed
        assert not slow[-1].at_eof()


async def test_kept_connection_answers_again_while_others_wait() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    server = make_server(
        app, head_seconds=30.0, connections=CONNECTIONS, keep_alive_seconds=30, grace_seconds=1
    )
    async with asyncio.timeout(20), serving(server, listener):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
        for _ in range(3):
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"ok")).startswith(ANSWER)
        writer.close()
