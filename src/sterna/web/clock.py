"""The clock, passed in so that tests and the simulator can control it."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The wall time, and a way to wait."""

    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The wall time at the start plus the monotonic time since: it never jumps while a crawl runs."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return self._offset + time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
