"""Reading short answers in one piece."""

from collections.abc import AsyncIterator

from sterna.errors import WireError


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
