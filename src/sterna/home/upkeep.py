"""Upkeep of the archive's files: recovery at the start of a run, merging of segments during it."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial

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
        ledger.hold([Hold(TOTAL, now + _longest_interval(limits))])
    for name in ledger.forget_retired(before=now):
        segments.remove(name)
    segments.sweep({segment.name for segment in ledger.segments()})
    if warc:
        warc.recover(ledger.warc_positions())


def _longest_interval(limits: Limits) -> float:
    """The interval of the slowest rate: requests may have been made just before the crash, uncommitted."""
    rates = [rate.requests for rate in (limits.address, limits.domain, limits.total) if rate.requests]
    return 1.0 / min(rates) if rates else 0.0


class Compaction:
    """Merges small segments in a thread of its own; the ledger's thread only exchanges their names."""

    def __init__(self, ledger: LedgerDesk, segments: SegmentStore, *, clock: Clock, thread: Executor) -> None:
        self._ledger = ledger
        self._segments = segments
        self._clock = clock
        self._thread = thread

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.merge_once()

    async def merge_once(self) -> int:
        """Merges what is worth merging now; returns the number of new segments."""
        groups = choose_merges(await self._ledger.do(lambda ledger: ledger.segments()))
        for group in groups:
            merged = await asyncio.get_running_loop().run_in_executor(
                self._thread, self._segments.merge, group
            )
            await self._ledger.do(partial(self._exchange, group, merged))
        await self._remove_retired()
        return len(groups)

    def _exchange(self, old: Sequence[Segment], new: Segment, ledger: Ledger) -> None:
        ledger.replace_segments(old, new, now=self._clock.now())

    async def _remove_retired(self) -> None:
        before = self._clock.now() - READER_GRACE_SECONDS
        for name in await self._ledger.do(lambda ledger: ledger.forget_retired(before=before)):
            self._segments.remove(name)
