"""A server that answers home with HTTP that is nearly right: home gets an answer, or fails cleanly."""

import asyncio
from random import Random
from types import TracebackType
from typing import Self

from bench.fuzz_parts import home_inputs
from bench.fuzz_parts.spoiling import spoil_bytes

from sterna.errors import LineBroken, Refused, WireError
from sterna.transport.http import HttpConfig, HttpTransport
from sterna.transport.interface import Call, Op, read_whole
from sterna.web.clock import SystemClock

SECONDS = 3.0  # that home waits for anything
MOST_BYTES = 64 * 1024

_FIRST = (
    *(
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 403 No",
        b"HTTP/1.1 503 Busy",
        b"HTTP/1.1 301 There",
        b"HTTP/1.1 100 Continue",
    ),
    *(
        b"HTTP/1.0 200 OK",
        b"HTTP/2 200",
        b"HTTP/1.1 999 x",
        b"HTTP/1.1 20",
        b"HTTP/1.1",
        b"",
        b"ICY 200 OK",
        b"200",
    ),
    *(b"HTTP/1.1 200 " + b"x" * 70_000, b"HTTP/1.1 -1 x", b"HTTP/1.1 204 Nothing", b"HTTP/1.1 401 Who"),
)
_FIELDS = (
    *(
        b"Content-Type: application/vnd.sterna",
        b"Content-Type: application/problem+json",
        b"Content-Type: text/html",
    ),
    *(
        b"Content-Length: 10",
        b"Content-Length: 0",
        b"Content-Length: -1",
        b"Content-Length: 99999999999999999999",
    ),
    *(b"Content-Length: 5\r\nContent-Length: 6", b"Transfer-Encoding: chunked", b"Content-Encoding: gzip"),
    *(
        b"Location: /elsewhere",
        b"Location: http://127.0.0.1:22/",
        b"Location: //evil.test/",
        b"Location: \xff",
    ),
    *(
        b"Retry-After: 10",
        b"Retry-After: -1",
        b"Retry-After: " + b"9" * 500,
        b"Retry-After: Mon, 99 Xxx 9999",
    ),
    *(
        b"Cache-Control: max-age=99999999999999",
        b"Cache-Control: no-store",
        b"Connection: close",
        b": x",
        b"no colon",
    ),
    *(
        b"X: " + b"y" * 70_000,
        b"X: \0",
        b"Set-Cookie: a=b",
        b"Transfer-Encoding: gzip, chunked",
        b"Trailer: X",
    ),
    b"\r\n".join(b"X-%d: y" % number for number in range(5_000)),
)
_BODIES = (
    *(
        b"",
        b"0123456789",
        b"x" * 200_000,
        b"5\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhel",
        b"zz\r\n",
        b"0\r\n\r\n",
        b"\x1f\x8b\x08",
    ),
    *(b"ffffffffffffffff\r\n", b"1\r\na\r\n" * 3_000 + b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"\0" * 100),
)
_OPS: tuple[Op, ...] = ("discover", "hello", "order", "acknowledge")


def answer(chance: Random) -> bytes:
    """All that is sent on a connection."""
    fields = [chance.choice(_FIELDS) for _ in range(chance.choice((0, 1, 2, 4)))]
    body = chance.choice(_BODIES) if chance.random() < 0.6 else home_inputs.refusal(chance)
    first = chance.choice(_FIRST[:4]) if chance.random() < 0.6 else chance.choice(_FIRST)
    if b"problem" in b"".join(fields) and chance.random() < 0.8:
        fields.append(b"Content-Length: %d" % len(body))
    raw = b"\r\n".join((first, *fields, b"", b"")) + body
    return spoil_bytes(raw, chance) if chance.random() < 0.2 else raw


class _Nowhere:
    async def resolve(self, hostname: str) -> tuple[str, ...]:
        return ("127.0.0.1",)

    def prefer(self, hostname: str, address: str) -> None:
        """There is one only."""


class Answering:
    """The server, and a home that calls it."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._port = 0
        self._next = b""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        config = HttpConfig(connect_seconds=SECONDS, silence_seconds=SECONDS, discover_seconds=SECONDS)
        self._transport = HttpTransport(config, resolver=_Nowhere(), clock=SystemClock())
        self._transport.let_private("host.test")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()
        assert self._server
        self._server.close()

    async def call(self, chance: Random) -> str:
        """What became of one call, in a word; anything that is raised here is a fault."""
        self._next = answer(chance)
        address, call = f"http://host.test:{self._port}", Call(chance.choice(_OPS), b"body")
        try:
            async with asyncio.timeout(4 * SECONDS), self._transport.exchange(address, call) as answered:
                await read_whole(answered.chunks, most=MOST_BYTES)
        except WireError as error:
            return error.problem
        except Refused as error:
            return f"refused: {error.problem}"
        except LineBroken:
            return "line broken"
        return "ok"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self._next)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # home has left: it had enough
        finally:
            writer.close()
