"""The interface of transports: a call to a host, and its reply, which may be a long stream."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from sterna.errors import LineBroken, WireError
from sterna.model import Record

REPLY_SECONDS = 60.0  # for a reply that is read whole, even if its bytes come one by one

Op = Literal["discover", "pages", "hello", "order", "acknowledge"]
PUBLIC: frozenset[Op] = frozenset({"discover", "pages"})  # fetched by GET, without a session


class Call(Record, frozen=True):
    """One call to a host: the operation, and the sealed or signed message."""

    op: Op
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a call; its chunks raise LineBroken if the connection breaks."""

    chunks: AsyncIterator[bytes]
    seconds: float  # until the first byte
    max_age: float | None = None  # seconds for which it may be cached, if the other side says so


class Transport(Protocol):
    """Carries calls; raises Refused if the reply is a problem, LineBroken if there is no connection."""

    def exchange(self, address: str, call: Call) -> AbstractAsyncContextManager[Reply]:
        """Sends the call, and streams its reply; leaving the context ends the call."""

    async def close(self) -> None: ...


async def read_whole(chunks: AsyncIterator[bytes], *, most: int, seconds: float = REPLY_SECONDS) -> bytes:
    """The whole reply; raises WireError as soon as it exceeds `most` bytes, LineBroken after `seconds`."""
    data = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in chunks:
                data += chunk
                if len(data) > most:
                    raise WireError("too-large", f"the reply exceeds {most} bytes")
    except TimeoutError:
        raise LineBroken(f"the reply was not complete within {seconds:g} seconds") from None
    return bytes(data)
