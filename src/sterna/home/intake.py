"""Intake: writes the rows of parcels to the archive and commits them to the ledger, each parcel once."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from sterna.archive.manifest import Batch, FactRow, WarcPosition
from sterna.archive.segments import SegmentStore
from sterna.archive.warc import WarcStore
from sterna.errors import ParcelRefused
from sterna.home.facts import emitted
from sterna.home.ledger.interface import LedgerDesk
from sterna.home.ledger.records import Change, Disposal
from sterna.model import Page, Parcel, Target
from sterna.web.clock import Clock

MAX_BATCH = 256
MAX_URLS = 100_000  # of a batch, after which it is full: the ledger needs 300 bytes of memory for each
QUEUE_ROOM = 1024

OnStep = Callable[[str], None]
Admit = Callable[[Target], bool]
_Key = tuple[str, int]  # of a page: its site and its fingerprint


class _Queued(msgspec.Struct, frozen=True):
    parcel: Parcel
    done: asyncio.Future[None]


class Intake:
    """Commits parcels of many visits together: one segment, one transaction, one flush to disk."""

    def __init__(
        self,
        ledger: LedgerDesk,
        segments: SegmentStore,
        *,
        warc: WarcStore | None,
        clock: Clock,
        admit_outlink: Admit,
        on_commit: Callable[[tuple[Parcel, ...]], None],
        on_step: OnStep,
        crawler: str = "default",
    ) -> None:
        self._desk = ledger
        self._ledger = ledger.ledger  # used in the ledger's thread only
        self._segments = segments
        self._warc = warc
        self._clock = clock
        self._admit_outlink = admit_outlink
        self._on_commit = on_commit
        self._on_step = on_step
        self._crawler = crawler
        self._queue: asyncio.Queue[_Queued] = asyncio.Queue(QUEUE_ROOM)

    async def take(self, parcel: Parcel) -> None:
        """Returns when the parcel is committed; raises ParcelRefused if its lease is no longer in force."""
        done = asyncio.get_running_loop().create_future()
        await self._queue.put(_Queued(parcel, done))
        await done

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            batch = [await self._queue.get()]
            urls = _url_count(batch[0].parcel)
            while len(batch) < MAX_BATCH and urls < MAX_URLS and not self._queue.empty():
                batch.append(self._queue.get_nowait())
                urls += _url_count(batch[-1].parcel)
            await self._commit(batch)

    async def _commit(self, batch: list[_Queued]) -> None:
        parcels = [queued.parcel for queued in batch]
        try:
            disposals, new = await self._desk.do(lambda ledger: self._store(parcels))
        except Exception as error:
            # No parcel of the batch is acknowledged, and intake ends: the files may now be ahead of the
            # ledger, and recovery at the next start removes the difference.
            for queued in batch:
                _settle(queued.done, error)
            raise
        if new:
            self._on_commit(new)
        for queued, disposal in zip(batch, disposals, strict=True):
            refusal = (
                None if disposal in (Disposal.NEW, Disposal.STORED) else _refusal(queued.parcel, disposal)
            )
            _settle(queued.done, refusal)

    def _store(self, parcels: list[Parcel]) -> tuple[list[Disposal], tuple[Parcel, ...]]:
        """The disposal of each parcel, and the parcels stored now; runs in the ledger's thread."""
        self._on_step("received")
        disposals = self._judge(parcels)
        taken = [
            self._taken(parcel)
            for parcel, disposal in zip(parcels, disposals, strict=True)
            if disposal is Disposal.NEW
        ]
        new = tuple(parcel for parcel, _ in taken)
        if new:
            site_pages = [(parcel.site, page) for parcel in new for page in parcel.pages]
            facts = [fact for _, facts in taken for fact in facts]
            batch = self._batch(new)
            segments = self._segments.write_pages(site_pages, facts=facts, batch=batch)
            positions = self._write_warc(page for _, page in site_pages)
            self._on_step("archived")
            change = Change(
                parcels=new,
                segments=tuple(segments),
                warc=positions,
                batch=batch.number,
            )
            self._ledger.commit(change, now=self._clock.now())
            self._on_step("committed")
        return disposals, new

    def _judge(self, parcels: list[Parcel]) -> list[Disposal]:
        """The ledger's disposals; a parcel that is twice in the batch counts as stored the second time."""
        seen: set[tuple[str, int]] = set()
        disposals: list[Disposal] = []
        for parcel in parcels:
            disposal, key = self._ledger.judge(parcel), (parcel.visit, parcel.number)
            disposals.append(Disposal.STORED if disposal is Disposal.NEW and key in seen else disposal)
            seen.add(key)
        return disposals

    def _taken(self, parcel: Parcel) -> tuple[Parcel, list[FactRow]]:
        """The parcel without outlinks that home does not admit, and its facts; unreadable ones are errors."""
        wanted = tuple(target for target in parcel.outlinks if self._admit_outlink(target))
        facts, unreadable = emitted(parcel, crawler=self._crawler, received=self._clock.now())
        parcel = msgspec.structs.replace(parcel, outlinks=wanted)
        return (_with_errors(parcel, unreadable) if unreadable else parcel), facts

    def _batch(self, parcels: Sequence[Parcel]) -> Batch:
        """The next batch. Its number is taken only by the commit: a crash leaves no gap."""
        pages = [(parcel.site, page.fingerprint) for parcel in parcels for page in parcel.pages]
        known = self._ledger.stored(set(pages))
        return Batch(
            number=self._ledger.batch() + 1,
            crawler=self._crawler,
            visits=tuple(parcel.visit for parcel in parcels for _ in parcel.pages),
            again=tuple(_come_again(pages, known)),
        )

    def _write_warc(self, pages: Iterable[Page]) -> tuple[WarcPosition, ...]:
        raw = [page for page in pages if page.raw and page.is_kept]
        return tuple(self._warc.append(raw)) if self._warc and raw else ()


def _come_again(pages: Iterable[_Key], known: set[_Key]) -> Iterator[bool]:
    """For each page, whether it was known or is among those before it."""
    seen = set(known)
    for page in pages:
        yield page in seen
        seen.add(page)


def _url_count(parcel: Parcel) -> int:
    return len(parcel.checkpoint.found) + len(parcel.outlinks)


def _with_errors(parcel: Parcel, unreadable: int) -> Parcel:
    errors = Counter(parcel.usage.errors)
    errors["unreadable_fact"] += unreadable
    usage = msgspec.structs.replace(parcel.usage, errors=dict(errors))
    return msgspec.structs.replace(parcel, usage=usage)


def _refusal(parcel: Parcel, disposal: Disposal) -> ParcelRefused:
    return ParcelRefused(
        f"parcel {parcel.number} of visit {parcel.visit} to {parcel.site} (epoch {parcel.epoch})"
        f" was refused: {disposal}"
    )


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error:
        done.set_exception(error)
    else:
        done.set_result(None)
