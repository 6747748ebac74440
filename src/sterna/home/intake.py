"""Intake: writes the rows of parcels to the archive and commits them to the ledger, each parcel once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field

import msgspec

from sterna.archive.manifest import Batch, Original, WarcPosition
from sterna.archive.segments import SegmentStore
from sterna.archive.warc import WarcStore
from sterna.archive.warc_records import is_revisit, original_of
from sterna.errors import ParcelRefused
from sterna.home.facts import Emitted
from sterna.home.ledger.interface import Ledger, LedgerDesk
from sterna.home.ledger.records import Change, Disposal, Standing
from sterna.home.ledger.versions import Fate, as_judged, fate_of, standing_after, tombstone_of
from sterna.model import REQUISITES, Page, Parcel, Target, Usage
from sterna.web.clock import Clock

MAX_BATCH = 256
MAX_URLS = 100_000  # of a batch, after which it is full: the ledger needs 300 bytes of memory for each
QUEUE_ROOM = 1024

OnStep = Callable[[str], None]
Drain = Callable[[], Awaitable[None]]
Admit = Callable[[Target], bool]
_Queued = tuple[Parcel, asyncio.Future[None]]  # a parcel, and its commit


async def never_full() -> None:
    """The drain of those who take everything at once."""


@dataclass(eq=False, repr=False)
class Intake:
    """Commits parcels of many visits together: one segment, one transaction, one flush to disk."""

    ledger: LedgerDesk
    segments: SegmentStore
    _: KW_ONLY
    warc: WarcStore | None
    clock: Clock
    admit_outlink: Admit
    on_commit: Callable[[tuple[Parcel, ...]], None]
    on_step: OnStep
    admit_requisite: Admit = lambda target: False
    crawler: str = "default"
    drain: Drain = never_full  # awaited after each commit: who takes the pages holds the crawl back
    _queue: asyncio.Queue[_Queued] = field(default_factory=lambda: asyncio.Queue(QUEUE_ROOM))

    async def take(self, parcel: Parcel) -> None:
        """Returns when the parcel is committed; raises ParcelRefused if its lease is no longer in force."""
        done = asyncio.get_running_loop().create_future()
        await self._queue.put((parcel, done))
        await done

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._commit(await self._next_batch())  # and does not keep it while there is no other
            await self.drain()

    async def _next_batch(self) -> list[_Queued]:
        batch = [await self._queue.get()]
        urls = _url_count(batch[0][0])
        while len(batch) < MAX_BATCH and urls < MAX_URLS and not self._queue.empty():
            batch.append(self._queue.get_nowait())
            urls += _url_count(batch[-1][0])
        return batch

    async def _commit(self, batch: list[_Queued]) -> None:
        parcels = [parcel for parcel, _ in batch]
        try:
            disposals, new = await self.ledger.do(lambda ledger: self._store(ledger, parcels))
        except Exception as error:
            # No parcel of the batch is acknowledged, and intake ends: the files may now be ahead of the
            # ledger, and recovery at the next start removes the difference.
            for _, done in batch:
                _settle(done, error)
            raise
        if new:
            self.on_commit(new)
        for (parcel, done), disposal in zip(batch, disposals, strict=True):
            is_stored = disposal in (Disposal.NEW, Disposal.STORED)
            refusal = (
                f"parcel {parcel.number} of visit {parcel.visit} to {parcel.site} (epoch {parcel.epoch})"
            )
            _settle(done, None if is_stored else ParcelRefused(f"{refusal} was refused: {disposal}"))

    def _store(self, ledger: Ledger, parcels: list[Parcel]) -> tuple[list[Disposal], tuple[Parcel, ...]]:
        """The disposal of each parcel, and the parcels stored now; runs in the ledger's thread."""
        self.on_step("received")
        disposals = _judge(ledger, parcels)
        new = tuple(
            self._admitted(parcel)
            for parcel, disposal in zip(parcels, disposals, strict=True)
            if disposal is Disposal.NEW
        )
        if new:
            # What pages need is in the WARC files alone: tables, events and search are about pages.
            pages = [parcel for parcel in new if parcel.part != REQUISITES]
            sorting = _Sorting(ledger.standings(set(_keys(pages))))
            new = tuple(parcel if parcel.part == REQUISITES else sorting.sorted(parcel) for parcel in new)
            facts = Emitted(new, crawler=self.crawler, received=self.clock.now())
            new = tuple(map(_with_unreadable, new, facts.unreadable))
            batch = sorting.batch(number=ledger.batch() + 1, crawler=self.crawler)
            segments = self.segments.write_pages(sorting.rows, facts=facts, batch=batch)
            needed = [(each.site, page) for each in new if each.part == REQUISITES for page in each.pages]
            positions, originals = self._archive(ledger, [*sorting.rows, *needed])
            self.on_step("archived")
            change = Change(
                parcels=new,
                segments=tuple(segments),
                warc=positions,
                originals=originals,
                batch=batch.number,
            )
            ledger.commit(change, now=self.clock.now())
            self.on_step("committed")
        return disposals, new

    def _archive(
        self, ledger: Ledger, site_pages: Sequence[tuple[str, Page]]
    ) -> tuple[tuple[WarcPosition, ...], tuple[tuple[str, int, Original], ...]]:
        """Appends raw responses to the WARC files; returns what grew, and what revisits may refer to now."""
        if self.warc is None:
            return (), ()
        pages = [(site, page, page.raw) for site, page in site_pages if page.raw and page.is_kept]
        before = ledger.originals({(site, page.fingerprint) for site, page, _ in pages if page.is_unchanged})
        known = [before.get((site, page.fingerprint)) for site, page, _ in pages]
        positions = self.warc.append([page for _, page, _ in pages], known)
        new = (
            (site, page.fingerprint, original_of(page, raw))
            for (site, page, raw), original in zip(pages, known, strict=True)
            if 200 <= page.status < 300 and not is_revisit(page, raw, original)
        )
        return tuple(positions), tuple(new)

    def _admitted(self, parcel: Parcel) -> Parcel:
        """The parcel without outlinks that home does not admit."""
        admits = self.admit_requisite if parcel.part == REQUISITES else self.admit_outlink
        return msgspec.structs.replace(parcel, outlinks=tuple(filter(admits, parcel.outlinks)))


@dataclass(eq=False, repr=False)
class _Sorting:
    """What becomes of the pages of a batch, one after the other: the rows that are written of them."""

    standings: dict[tuple[str, int], Standing]  # before the batch; changed by sorted()
    # Changed by sorted().
    rows: list[tuple[str, Page]] = field(default_factory=list)
    _visits: list[str] = field(default_factory=list)
    _again: list[bool] = field(default_factory=list)

    def sorted(self, parcel: Parcel) -> Parcel:
        """The parcel with its wanted pages counted: whether an unchanged one is wanted, no visit knows."""
        pages = tuple(self._page(parcel, page) for page in parcel.pages)
        kept = sum(page.is_kept for page in pages if _is_good(page))
        return msgspec.structs.replace(
            parcel, pages=pages, usage=msgspec.structs.replace(parcel.usage, kept=kept)
        )

    def batch(self, *, number: int, crawler: str) -> Batch:
        """The batch of these rows. Its number is taken only by the commit: a crash leaves no gap."""
        return Batch(number=number, crawler=crawler, visits=tuple(self._visits), again=tuple(self._again))

    def _page(self, parcel: Parcel, page: Page) -> Page:
        key = parcel.site, page.fingerprint
        before = self.standings.get(key)
        page = as_judged(page, before)
        fate = fate_of(page, before)
        # Of an unchanged page there may be a WARC record.
        if page.is_unchanged or fate in (Fate.VERSION, Fate.TOMBSTONE):
            self.rows.append((parcel.site, tombstone_of(page) if fate is Fate.TOMBSTONE else page))
            self._visits.append(parcel.visit)
            self._again.append(before is not None)
        self.standings[key] = standing_after(page, before)
        return page


def _with_unreadable(parcel: Parcel, count: int) -> Parcel:
    """The parcel, with its unreadable facts counted as errors."""
    usage = parcel.usage.plus(Usage(errors={"unreadable_fact": count})) if count else parcel.usage
    return msgspec.structs.replace(parcel, usage=usage)


def _keys(parcels: Iterable[Parcel]) -> Iterator[tuple[str, int]]:
    return ((parcel.site, page.fingerprint) for parcel in parcels for page in parcel.pages)


def _is_good(page: Page) -> bool:
    return not page.error and (page.status == 304 or 200 <= page.status < 300)


def _judge(ledger: Ledger, parcels: list[Parcel]) -> list[Disposal]:
    """The ledger's disposals; a parcel that is twice in the batch counts as stored the second time."""
    seen: set[tuple[str, int]] = set()
    disposals: list[Disposal] = []
    for parcel in parcels:
        disposal, key = ledger.judge(parcel), (parcel.visit, parcel.number)
        disposals.append(Disposal.STORED if disposal is Disposal.NEW and key in seen else disposal)
        seen.add(key)
    return disposals


def _site_pages(parcels: Sequence[Parcel]) -> list[tuple[str, Page]]:
    return [(parcel.site, page) for parcel in parcels for page in parcel.pages]


def _url_count(parcel: Parcel) -> int:
    return len(parcel.checkpoint.found) + len(parcel.outlinks)


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error:
        done.set_exception(error)
    else:
        done.set_result(None)
