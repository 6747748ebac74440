"""Compaction: merges small segments while the crawl goes on, and removes what was merged."""

import asyncio
from concurrent.futures import Executor
from functools import partial

from sterna.archive.segments import SegmentStore, choose_merges
from sterna.home.ledger.interface import Ledger
from sterna.web.clock import Clock

LOOK_SECONDS = 5.0
READER_GRACE_SECONDS = 120.0  # a query that began before a merge may still read the old segments


class Compaction:
    """Merging runs in a thread of its own; the ledger's thread only exchanges the names."""

    def __init__(
        self,
        ledger: Ledger,
        segments: SegmentStore,
        *,
        clock: Clock,
        ledger_thread: Executor,
        thread: Executor,
    ) -> None:
        self._ledger = ledger
        self._segments = segments
        self._clock = clock
        self._ledger_thread = ledger_thread
        self._thread = thread

    async def run(self) -> None:
        """Looks for work until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.merge_once()

    async def merge_once(self) -> int:
        """Merges what is worth merging now; tells how many new segments there are."""
        loop = asyncio.get_running_loop()
        groups = choose_merges(await loop.run_in_executor(self._ledger_thread, self._ledger.segments))
        for group in groups:
            merged = await loop.run_in_executor(self._thread, self._segments.merge, group)
            exchange = partial(self._ledger.replace_segments, group, merged, now=self._clock.now())
            await loop.run_in_executor(self._ledger_thread, exchange)
        await self._remove_retired()
        return len(groups)

    async def _remove_retired(self) -> None:
        before = self._clock.now() - READER_GRACE_SECONDS
        names = await asyncio.get_running_loop().run_in_executor(
            self._ledger_thread, lambda: self._ledger.forget_retired(before=before)
        )
        for name in names:
            self._segments.remove(name)
