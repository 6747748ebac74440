"""The inquiry into a visit at a host: its parcels are witnessed, held if need be, checked and judged."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random, SystemRandom

from msgspec.structs import replace

from sterna.errors import HostGone, Refused
from sterna.home.belief.check import Check, Here, Report
from sterna.home.belief.quarantine import Held, HeldVisit, Quarantine
from sterna.home.ledger.desk import LedgerDesk
from sterna.home.ledger.interface import Ledger
from sterna.home.ledger.records import SampleRow, TrustRow
from sterna.home.progress import Progress
from sterna.model import Parcel, Visit
from sterna.trust.sampling import Witness, sample_count
from sterna.trust.score import Belief, Score, alone_seconds, belief, counted, succeeded
from sterna.web.clock import Clock
from sterna.wire.discovery import Offer

SHOWN = 3  # pages named in a warning
MAX_DETAIL = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiries:
    """Opens inquiries, and notes what they find."""

    here: Here
    ledger: LedgerDesk
    quarantine: Quarantine
    clock: Clock
    progress: Progress
    warn: Callable[[str], None] = lambda line: None
    is_strict: bool = False  # every host's results are held, and every visit is sampled as an unknown host's
    random: Random = field(default_factory=SystemRandom)  # only home may know what it samples

    async def open(self, visit: Visit, offer: Offer, *, is_resumed: bool) -> "Inquiry":
        """Raises Refused if the host lied not long ago."""
        row = await self.row(offer)
        now = self.clock.now()
        if row.until > now and not is_resumed:
            raise Refused("untrusted", "it lied about its pages", retry_after=row.until - now)
        of = belief(_score(row), now)
        is_held = self.quarantine.has(visit.id) if is_resumed else self.is_strict or not of.is_trusted
        held = await self.quarantine.open(visit.id) if is_held else None
        inquiry = Inquiry(self, offer, of, held)
        for each in held.parcels() if held else ():
            inquiry.see(each.parcel)
        return inquiry

    async def row(self, offer: Offer) -> TrustRow:
        """What is known of the host; a new key has earned nothing."""
        row = await self.ledger.do(lambda ledger: ledger.trust.row(offer.site))
        if row is None:
            return TrustRow(site=offer.site, key=offer.key)
        if row.key == offer.key:
            return row
        score = succeeded(_score(row))
        return replace(row, key=offer.key, good=score.good, bad=score.bad)


class Inquiry:
    """One visit's; used by one task."""

    def __init__(self, inquiries: Inquiries, offer: Offer, of: Belief, held: HeldVisit | None) -> None:
        self._inquiries = inquiries
        self._offer = offer
        self._belief = of
        self._held = held
        self._waiting: Iterator[Held] | None = None  # begun by next_held()
        self._witness = Witness(inquiries.random)

    @property
    def is_held(self) -> bool:
        """True if parcels are quarantined until the host is believed."""
        return self._held is not None

    @property
    def last_held(self) -> int:
        """The number of the last parcel in quarantine; 0 if there is none."""
        return self._held.last if self._held else 0

    @property
    def is_proven(self) -> bool:
        """True if an earlier run saw the host's end."""
        return self._held is not None and self._held.is_proven

    @property
    def pages(self) -> int:
        return self._witness.pages

    @property
    def full(self) -> asyncio.Event | None:
        """Set while quarantine takes no more; None if nothing is held."""
        return self._inquiries.quarantine.full if self._held else None

    def see(self, parcel: Parcel) -> None:
        """Witnesses a parcel as its host sent it."""
        self._witness.see(parcel)

    async def hold(self, parcel: Parcel, size_bytes: int) -> None:
        assert self._held
        await self._held.add(parcel, size_bytes)

    async def prove(self) -> None:
        """Notes that nothing more will come."""
        if self._held:
            await self._held.prove()

    async def next_held(self) -> Held | None:
        assert self._held
        self._waiting = self._waiting or self._held.parcels()
        return await asyncio.to_thread(next, self._waiting, None)

    def discard(self) -> None:
        if self._held:
            self._held.leave()

    def close(self) -> None:
        if self._held:
            self._held.close()

    # -- judging -----------------------------------------------------------------------------------------

    async def judge(self, visit: Visit, *, is_whole: bool, stop: asyncio.Event) -> HostGone | None:
        """Checks some pages and notes the result; why nothing of the visit is to be used, if so.

        What was used already is put back into the frontier.
        """
        report = await self._check(visit, is_whole=is_whole, stop=stop)
        if report.bad:
            return await self._reject(visit, report)
        if self._held and report.seen < _least(report, is_stopped=stop.is_set()):
            line = f"what the host of {visit.site} brought cannot be checked ({_reasons(report)})"
            self._inquiries.warn(f"{line}: it is not used; to use it all the same: --check none")
            return HostGone(line)
        return None

    async def _check(self, visit: Visit, *, is_whole: bool, stop: asyncio.Event) -> Report:
        inquiries, witness = self._inquiries, self._witness
        count = sample_count(self._belief, witness.checkable, is_strict=inquiries.is_strict)
        check = Check(
            visit,
            witness,
            self._offer,
            here=inquiries.here,
            clock=inquiries.clock,
            is_whole=is_whole,
            is_strict=inquiries.is_strict,
        )
        report = await check.run(count, stop)
        if report.findings:
            await self._note(visit, report)
        progress = inquiries.progress
        progress.checked += len(report.findings)
        progress.requests += report.usage.requests
        progress.bytes_received += report.usage.bytes_received
        return report

    async def _note(self, visit: Visit, report: Report) -> None:
        now = self._inquiries.clock.now()
        row = await self._inquiries.row(self._offer)
        score = counted(_score(row), good=report.good, bad=len(report.bad), now=now)
        until = now + alone_seconds(score) if report.bad else row.until
        new = replace(row, good=score.good, bad=score.bad, at=now, until=until)
        samples = [
            SampleRow(
                visit=visit.id,
                url=each.url,
                site=visit.site,
                verdict=each.verdict,
                at=now,
                detail=each.detail[:MAX_DETAIL],
            )
            for each in report.findings
        ]

        def note(ledger: Ledger) -> None:
            ledger.trust.set(new, samples)
            ledger.trust.count(visit.site, report.usage)

        await self._inquiries.ledger.do(note)

    async def _reject(self, visit: Visit, report: Report) -> HostGone:
        inquiries, site = self._inquiries, visit.site
        since, now = self._witness.earliest, inquiries.clock.now()
        if self._held is None and since is not None:
            await inquiries.ledger.do(lambda ledger: ledger.trust.put_back(site, since=since, now=now))
        said = "; ".join(f"{each.url}: {each.detail[:MAX_DETAIL]}" for each in report.bad[:SHOWN])
        inquiries.warn(
            f"the host of {site} lied: {len(report.bad)} of {len(report.findings)} pages that were checked"
            f" differ from what the site shows ({said}); what it brought is fetched from here"
        )
        return HostGone(f"it lied about {len(report.bad)} of {len(report.findings)} pages that were checked")


def _score(row: TrustRow) -> Score:
    return Score(row.good, row.bad, row.at)


def _least(report: Report, *, is_stopped: bool) -> int:
    """How many pages must be readable from here: half of those that were asked for in time."""
    wanted = len(report.findings)
    asked = 1 if is_stopped else wanted - report.late
    return min(wanted, max((asked + 1) // 2, 1))


def _reasons(report: Report) -> str:
    return ", ".join(dict.fromkeys(each.detail for each in report.findings))
