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


GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def serve(stack: AsyncExitStack) -> int:
    """The port of a server that ends with the stack."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4 * CONNECTIONS)
    server = make_server(
        app, head_seconds=30.0, connections=CONNECTIONS, keep_alive_seconds=30, grace_seconds=1
    )
    await stack.enter_async_context(serving(server, listener))
    return int(listener.getsockname()[1])


async def open_line(
    stack: AsyncExitStack, port: int, sent: bytes, number: int = 0
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection from an address of this number, on which these bytes were sent; closed with the stack."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.1.{number}", 0))
    stack.callback(writer.close)
    writer.write(sent)
    await writer.drain()
    return reader, writer


@pytest.mark.parametrize("sent", [b"GET / HT", POST])
async def test_slow_heads_and_bodies_of_one_address_keep_nobody_out(sent: bytes) -> None:
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        port = await serve(stack)
        slow = [await open_line(stack, port, sent) for _ in range(2 * CONNECTIONS)]
        for _ in range(3):
            line, _ = await open_line(stack, port, GET)
            assert (await line.readline()).startswith(ANSWER)
        assert await slow[0][0].read() == b""  # the oldest was closed
        assert not slow[-1][0].at_eof()


@pytest.mark.parametrize("sent", [b"GET / HT", POST])
async def test_slow_heads_and_bodies_of_many_addresses_keep_nobody_out(sent: bytes) -> None:
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        port = await serve(stack)
        slow = [await open_line(stack, port, sent, number) for number in range(3 * CONNECTIONS)]
        for _ in range(3):
            line = await open_line(stack, port, GET)
            assert (await line[0].readline()).startswith(ANSWER)
        assert await slow[0][0].read() == b""  # the oldest was closed
        assert not slow[-1][0].at_eof()


async def test_address_with_the_most_slow_heads_loses_them_first() -> None:
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        port = await serve(stack)
        single = [await open_line(stack, port, b"GET / HT", number) for number in range(CONNECTIONS - 8)]
        many = [await open_line(stack, port, b"GET / HT", CONNECTIONS) for _ in range(7)]
        for number in range(4):
            await open_line(stack, port, GET, 100 + number)
        assert [await reader.read() for reader, _ in many[:4]] == [b""] * 4
        assert not single[0][0].at_eof()


async def test_client_with_a_slow_line_is_served_while_slow_heads_come() -> None:
    """A crowd takes all places once while it sends its head, and again and again while it sends its body."""
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        port = await serve(stack)
        for number in range(CONNECTIONS):
            await open_line(stack, port, b"GET / HT", number)
        line, writer = await open_line(stack, port, POST[:20], 200)
        for number in range(CONNECTIONS // 2):
            await open_line(stack, port, b"GET / HT", number)
        writer.write(POST[20:] + b"half")
        await writer.drain()
        for number in range(3 * CONNECTIONS):
            await open_line(stack, port, b"GET / HT", number)
        writer.write(b" done")
        assert (await line.readline()).startswith(ANSWER)


async def test_kept_connection_answers_again_while_others_wait() -> None:
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        reader, writer = await open_line(stack, await serve(stack), b"")
        for _ in range(3):
            writer.write(GET)
            assert (await reader.readuntil(b"ok")).startswith(ANSWER)
