"""Upkeep of the archive's files: recovery at the start of a run, merging of segments during it."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

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


async def keep_merging(ledger: LedgerDesk, segments: SegmentStore, *, clock: Clock) -> None:
    """Merges small segments until cancelled; the ledger's thread only exchanges their names."""
    with ThreadPoolExecutor(1) as thread:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await merge(ledger, segments, clock=clock, thread=thread)


async def merge(ledger: LedgerDesk, segments: SegmentStore, *, clock: Clock, thread: Executor) -> int:
    """Merges what is worth merging now; returns the number of new segments."""

    async def replace(group: Sequence[Segment]) -> None:
        merged = await asyncio.get_running_loop().run_in_executor(thread, segments.merge, group)
        await ledger.do(lambda ledger: ledger.replace_segments(group, merged, now=clock.now()))

    groups = choose_merges(await ledger.do(lambda ledger: ledger.segments()))
    for group in groups:
        await replace(group)
    before = clock.now() - READER_GRACE_SECONDS
    for name in await ledger.do(lambda ledger: ledger.forget_retired(before=before)):
        segments.remove(name)
    return len(groups)
