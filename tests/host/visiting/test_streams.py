"""Streams are bounded in number and in memory, and nobody has nothing."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest
from tests.host.knocking import limits_of

from sterna.errors import Refused
from sterna.host.policy.policy import HostLimits
from sterna.host.visiting.room import LEAST_BYTES, SPARE_STREAMS, Streams
from sterna.wire.compression import squeezing_bytes

MIB = 1024 * 1024


class Opened:
    """Streams that were opened, with the memory that each was given."""

    def __init__(self, limits: HostLimits) -> None:
        self.streams = Streams(lambda: limits)
        self.given: list[int] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Opened":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def open(self, home: str = "ada", level: int = 9) -> Any:
        stream = self.streams.counted(self._stream, level=level, home=home)
        await self._stack.enter_async_context(aclosing(stream))  # type: ignore[type-var]
        await anext(stream)
        return stream

    async def _stream(self, memory_bytes: int) -> AsyncIterator[bytes]:
        self.given.append(memory_bytes)
        while True:
            yield b"x"


async def test_first_stream_compresses_as_well_as_can_be() -> None:
    async with Opened(HostLimits()) as opened:
        await opened.open()
        assert opened.given == [squeezing_bytes(9)]


@pytest.mark.parametrize("crawlers", [4, 100])
@pytest.mark.parametrize("level", [3, 9])
async def test_all_streams_together_stay_within_their_memory(crawlers: int, level: int) -> None:
    limits = limits_of(crawlers_at_once=crawlers, visits_of_a_home=1000)
    async with Opened(limits) as opened:
        for _ in range(crawlers + limits.queue + limits.deferred + SPARE_STREAMS):
            opened.streams.check("ada")
            await opened.open(level=level)
        at_work = opened.given[:crawlers]
        assert sum(at_work) <= limits.compressor_bytes
        assert min(at_work) >= LEAST_BYTES
        assert opened.given[0] == max(at_work) > 3 * min(at_work)
        with pytest.raises(Refused, match="too many streams"):
            opened.streams.check("bob")


async def test_stream_that_ends_gives_its_memory_back() -> None:
    async with Opened(HostLimits()) as opened:
        for _ in range(3):
            stream = await opened.open()
            await stream.aclose()
        assert opened.given == [squeezing_bytes(9)] * 3


async def test_one_home_cannot_have_all_streams() -> None:
    async with Opened(limits_of(visits_of_a_home=1)) as opened:
        for _ in range(1 + SPARE_STREAMS):
            await opened.open()
        with pytest.raises(Refused):
            opened.streams.check("ada")
        opened.streams.check("bob")
