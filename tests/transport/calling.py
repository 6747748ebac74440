"""A home's line to hosts on this machine, for tests and benches."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sterna.transport.http import HttpConfig, HttpTransport
from sterna.transport.interface import Call
from sterna.web.clock import SystemClock
from sterna.web.dns import DnsResolver


@asynccontextmanager
async def line_to_hosts() -> AsyncIterator[HttpTransport]:
    clock = SystemClock()
    resolver = DnsResolver(clock)
    line = HttpTransport(HttpConfig(), resolver=resolver, clock=clock)
    line.let_private("127.0.0.1")
    try:
        yield line
    finally:
        await line.close()
        await resolver.close()


async def whole(line: HttpTransport, address: str, call: Call) -> bytes:
    """All of the answer to a call."""
    async with line.exchange(address, call) as answer:
        return b"".join([chunk async for chunk in answer.chunks])
