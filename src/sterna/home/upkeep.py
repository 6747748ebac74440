"""Upkeep of the archive's files: recovery at the start of a run, merging of segments during it."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import KW_ONLY, dataclass

from sterna.archive.manifest import Segment
from sterna.archive.segments import SegmentStore, choose_merges
from sterna.archive.warc import WarcStore
from sterna.home.ledger.interface import Ledger, LedgerDesk
from sterna.model import Hold
from sterna.web.clock import Clock
from sterna.web.politeness import TOTAL, Limits

LOOK_SECONDS = 5.0
READER_GRACE_SECONDS = 120.0  # a query that began before a merge may still read the old segments


def recover(
    ledger: Ledger,
    segments: SegmentStore,
    *,
    warc: WarcStore | None,
    limits: Limits,
    delay_seconds: float,
    now: float,
) -> None:
    """Restores the archive to the ledger's last commit; visits that were under way here are lost."""
    if ledger.recover(now=now, least_pause=delay_seconds):
        # The interval of the slowest rate: requests may have been made just before the crash, uncommitted.
        rates = [rate.requests for rate in (limits.address, limits.domain, limits.total) if rate.requests]
        ledger.hold([Hold(TOTAL, now + (1.0 / min(rates) if rates else 0.0))])
    for name in ledger.forget_retired(before=now):
        segments.remove(name)
    segments.sweep({segment.name for segment in ledger.segments()})
    if warc:
        warc.recover(ledger.warc_positions())


@dataclass(eq=False, repr=False)
class Compaction:
    """Merges small segments in a thread of its own; the ledger's thread only exchanges their names."""

    ledger: LedgerDesk
    segments: SegmentStore
    _: KW_ONLY
    clock: Clock
    thread: Executor

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.merge_once()

    async def merge_once(self) -> int:
        """Merges what is worth merging now; returns the number of new segments."""
        groups = choose_merges(await self.ledger.do(lambda ledger: ledger.segments()))
        for group in groups:
            await self._merge(group)
        before = self.clock.now() - READER_GRACE_SECONDS
        for name in await self.ledger.do(lambda ledger: ledger.forget_retired(before=before)):
            self.segments.remove(name)
        return len(groups)

    async def _merge(self, group: Sequence[Segment]) -> None:
        loop = asyncio.get_running_loop()
        merged = await loop.run_in_executor(self.thread, self.segments.merge, group)
        await self.ledger.do(lambda ledger: ledger.replace_segments(group, merged, now=self.clock.now()))
