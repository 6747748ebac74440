"""The interface of whatever carries calls to a host: a question, and an answer that may be long."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from sterna.errors import WireError
from sterna.model import Record

Op = Literal["discover", "hello", "order", "acknowledge"]


class Call(Record, frozen=True):
    """One question to a host: what is asked of it, and the sealed or signed message."""

    op: Op
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; the chunks end with the answer, and raise LineBroken where the line broke."""

    chunks: AsyncIterator[bytes]
    seconds: float  # until the answer began
    max_age: float | None = None  # for how long it may be kept, where the other side says so


class Transport(Protocol):
    """Carries calls; raises Refused where a problem is the answer, LineBroken where there is no line."""

    def exchange(self, address: str, call: Call) -> AbstractAsyncContextManager[Answer]:
        """Asks, and gives the answer as it comes; leaving the context ends the call."""

    async def close(self) -> None: ...


async def read_whole(chunks: AsyncIterator[bytes], *, most: int) -> bytes:
    """The whole answer; WireError as soon as it is longer than it may be."""
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > most:
            raise WireError("too-large", f"an answer of more than {most} bytes")
        parts.append(chunk)
    return b"".join(parts)
