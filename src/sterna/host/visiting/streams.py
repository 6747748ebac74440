"""The streams that are open at a host: so many in all and for a home, and so much memory to compress them."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from sterna.errors import Refused
from sterna.host.config import HostLimits
from sterna.wire.compression import squeezing_bytes

SPARE_STREAMS = 4  # beyond those of visits that may be under way: of such as are over, and of cut ones
RETRY_SECONDS = 30.0
LEAST_BYTES = squeezing_bytes(1, memory_bytes=1)

OpenStream = Callable[[int], AsyncIterator[bytes]]  # with so much memory to compress it


class Streams:
    """Counts them; each has a compressor of its own, whether it is read or not."""

    def __init__(self, limits: Callable[[], HostLimits]) -> None:
        self._limits = limits
        # Both are changed by counted() alone.
        self._open: Counter[str] = Counter()  # by home
        self._taken_bytes = 0

    def check(self, home: str) -> None:
        """Refused if there are too many."""
        is_full = self._open.total() >= self._most
        if is_full or self._open[home] >= self._limits().visits_of_a_home + SPARE_STREAMS:
            raise Refused("busy", "too many streams are open", retry_after=RETRY_SECONDS)

    def share(self, level: int) -> int:
        """The bytes that one more may take: the first have most, and all that may come have something."""
        limits = self._limits()
        # Streams of visits that do not work yet compress nothing, which takes nothing.
        for_others = LEAST_BYTES * max(limits.crawlers_at_once - self._open.total() - 1, 0)
        left = max(limits.compressor_bytes - self._taken_bytes - for_others, 0)
        return squeezing_bytes(level, memory_bytes=left * 3 // 4 + 1)

    async def counted(self, open_stream: OpenStream, *, level: int, home: str) -> AsyncIterator[bytes]:
        """The stream, which counts from its first byte to its last."""
        memory_bytes = self.share(level)
        self._open[home] += 1
        self._taken_bytes += memory_bytes
        try:
            async with aclosing(open_stream(memory_bytes)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    yield chunk
        finally:
            self._open[home] -= 1
            self._taken_bytes -= memory_bytes

    @property
    def _most(self) -> int:
        limits = self._limits()
        return limits.crawlers_at_once + limits.queue + limits.deferred + SPARE_STREAMS
