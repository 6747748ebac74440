"""Upkeep of the archive's files: recovery at the start of a run, merging of segments during it."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

from sterna.archive.manifest import Segment
from sterna.archive.segments import SegmentStore, choose_merges
from sterna.archive.warc import WarcStore
from sterna.errors import DamagedSegment, SternaError
from sterna.home.ledger.interface import Ledger, LedgerDesk
from sterna.model import Hold
from sterna.web.clock import Clock
from sterna.web.politeness import TOTAL, Limits

LOOK_SECONDS = 5.0
REST_SECONDS = 600.0  # after merging failed for another reason than a damaged segment
READER_GRACE_SECONDS = 120.0  # a query that began before a merge may still read the old segments

_log = logging.getLogger(__name__)


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
    for name in segments.sweep({segment.name for segment in ledger.segments()}):
        _log.info("%s is not in the ledger, and was moved to the folder 'aside'", name)
    if warc:
        warc.recover(ledger.warc_positions())


def sign_of_age(ledger: Ledger, segments: SegmentStore) -> str:
    """Why the ledger must be an older one, such as a copy that was put back; "" if nothing says so.

    A crash leaves one batch uncommitted: unknown segments with more than that were named by a later ledger.
    """
    batch = ledger.batch()
    for name in segments.unknown({segment.name for segment in ledger.segments()}):
        if (later := segments.last_batch(name)) > batch + 1:
            return f"its ledger ends with batch {batch:,}, but segments/{name} has batch {later:,}"
    return ""


async def keep_merging(ledger: LedgerDesk, segments: SegmentStore, *, clock: Clock) -> None:
    """Merges small segments until cancelled; the ledger's thread only exchanges their names.

    A damaged segment is left out; if a merge fails for another reason, its segments are, for a while.
    """
    damaged, resting = set[str](), dict[str, float]()  # names, and until when
    with ThreadPoolExecutor(1) as thread:
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                now = clock.now()
                without = damaged.union(name for name, until in resting.items() if until > now)
                try:
                    await merge(ledger, segments, clock=clock, thread=thread, without=without)
                except MergeFailed as failed:
                    error = failed.error
                    if isinstance(error, DamagedSegment) and error.path.name in failed.names:
                        damaged.add(error.path.name)
                        _log.warning("%s", error)
                        continue
                    resting |= dict.fromkeys(failed.names, now + REST_SECONDS)
                    _log.warning("%s are not merged for a while: %s", _some(failed.names), error)
                except SternaError as error:
                    _log.warning("small segments are not merged for a while: %s", error)
                    await asyncio.sleep(REST_SECONDS)
        finally:
            segments.stop()  # a process that hangs would keep the thread, which is joined now


def _some(names: Sequence[str]) -> str:
    return f"{names[0]} and {len(names) - 1} other segments"


class MergeFailed(Exception):
    """A merge of these segments failed with this error."""

    def __init__(self, names: Sequence[str], error: SternaError) -> None:
        super().__init__(names, error)
        self.names, self.error = names, error


async def merge(
    ledger: LedgerDesk,
    segments: SegmentStore,
    *,
    clock: Clock,
    thread: Executor,
    without: Collection[str] = (),
) -> int:
    """Merges what is worth merging now, but for some segments; returns the number of new ones.

    Raises MergeFailed at the first group that cannot be merged.
    """

    async def replace(group: Sequence[Segment]) -> None:
        merged = await asyncio.get_running_loop().run_in_executor(thread, segments.merge, group)
        await ledger.do(lambda ledger: ledger.replace_segments(group, merged, now=clock.now()))

    named = await ledger.do(lambda ledger: ledger.segments())
    groups = choose_merges([segment for segment in named if segment.name not in without])
    for group in groups:
        try:
            await replace(group)
        except SternaError as error:
            raise MergeFailed([segment.name for segment in group], error) from error
    before = clock.now() - READER_GRACE_SECONDS
    for name in await ledger.do(lambda ledger: ledger.forget_retired(before=before)):
        segments.remove(name)
    return len(groups)
