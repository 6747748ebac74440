"""The inquiry into a visit at a host: its parcels are witnessed, quarantined if need be, and checked."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random, SystemRandom

from msgspec.structs import replace

from sterna.crawler.rules import remember, uses
from sterna.errors import HostGone, Refused
from sterna.home.belief.check import Check, Here, Report
from sterna.home.belief.quarantine import HeldVisit, Quarantine
from sterna.home.ledger.interface import Ledger, LedgerDesk
from sterna.home.ledger.records import SampleRow, TrustRow
from sterna.home.progress import Progress
from sterna.model import State, Target, Visit
from sterna.trust.refusals import RefusalWitness
from sterna.trust.runs import RunWitness
from sterna.trust.sampling import Witness, sample_count
from sterna.trust.score import Belief, Score, alone_seconds, belief, counted, succeeded
from sterna.web.clock import Clock
from sterna.wire.discovery import Offer

SHOWN = 3  # pages named in a warning
MAX_DETAIL = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiries:
    """Opens inquiries; their shared settings and collaborators."""

    here: Here
    ledger: LedgerDesk
    quarantine: Quarantine
    clock: Clock
    progress: Progress
    warn: Callable[[str], None] = lambda line: None
    is_strict: bool = False  # treats every host as an unknown one: results are held, samples are large
    random: Random = field(default_factory=SystemRandom)  # hosts must not predict the sample

    async def open(
        self, visit: Visit, offer: Offer, *, is_resumed: bool, waiting: Sequence[Target] = ()
    ) -> "Inquiry":
        """Raises Refused if the host was caught lying recently.

        `waiting`: what the ledger has of a resumed visit, and what is not done yet.
        """
        row = await self.row(offer)
        now = self.clock.now()
        if row.until > now and not is_resumed:
            raise Refused("untrusted", "the host reported false pages", retry_after=row.until - now)
        of = belief(_score(row), now)
        is_held = self.quarantine.has(visit.id) if is_resumed else self.is_strict or not of.is_trusted
        held = await self.quarantine.open(visit.id) if is_held else None
        state = visit.state
        if is_resumed and not held:  # the ledger has the state of the parcels that are not seen here
            state = await self.ledger.do(lambda ledger: ledger.state(visit.site))
        witness = witness_of(visit, state, self.random)
        witness.resume(waiting)
        for each in held.parcels() if held else ():
            witness.see(each.parcel)
        return Inquiry(self, offer, of, held, witness)

    async def row(self, offer: Offer) -> TrustRow:
        """The trust score of the host; a new key does not inherit good marks."""
        row = await self.ledger.do(lambda ledger: ledger.trust.row(offer.site))
        if row is None:
            return TrustRow(site=offer.site, key=offer.key)
        if row.key == offer.key:
            return row
        score = succeeded(_score(row))
        return replace(row, key=offer.key, good=score.good, bad=score.bad)


def witness_of(visit: Visit, state: State, random: Random) -> Witness:
    """The witness of a visit, whose crawler has this state before the next parcel."""
    rules = visit.crawler.program.rules
    has_memory, asks = remember(rules), uses(rules, "request")
    runs = refusals = None
    if rules and not (has_memory and asks):  # in which order requests were judged is not known here
        runs = RunWitness(random, state, has_memory=has_memory)
    if asks:
        refusals = RefusalWitness(random, visit.starts, state, has_memory=has_memory)
    return Witness(random, runs=runs, refusals=refusals)


@dataclass(eq=False, repr=False)
class Inquiry:
    """The inquiry into one visit; used by one task."""

    _inquiries: Inquiries
    _offer: Offer
    _belief: Belief
    held: HeldVisit | None  # the parcels wait there until they are checked; None: they are used at once
    witness: Witness  # sees every parcel as its host sent it

    @property
    def full(self) -> asyncio.Event | None:
        """Set while quarantine is full; None if nothing is held."""
        return self._inquiries.quarantine.full if self.held else None

    async def judge(self, visit: Visit, *, is_whole: bool, stop: asyncio.Event) -> HostGone | None:
        """Checks some pages and stores the result; returns the error if the visit must not be used.

        Pages that are in use already are then put back into the frontier.
        """
        report = await self._check(visit, is_whole=is_whole, stop=stop)
        if report.bad:
            return await self._reject(visit, report)
        if self.held and report.seen < _least(report, is_stopped=stop.is_set()):
            reasons = ", ".join(dict.fromkeys(each.detail for each in report.findings))
            line = f"cannot check the pages from the host of {visit.site} ({reasons})"
            self._inquiries.warn(f"{line}: they are discarded; to use them unchecked, use --check none")
            return HostGone(line)
        return None

    async def _check(self, visit: Visit, *, is_whole: bool, stop: asyncio.Event) -> Report:
        inquiries, witness = self._inquiries, self.witness
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
        inquiries.progress.checked += len(report.findings)
        inquiries.progress.count(report.usage)
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
        since, now = self.witness.earliest, inquiries.clock.now()
        if self.held is None and since is not None:
            await inquiries.ledger.do(lambda ledger: ledger.trust.put_back(site, since=since, now=now))
        false = f"{len(report.bad)} of {len(report.findings)} checked pages"
        details = "; ".join(f"{each.url}: {each.detail[:MAX_DETAIL]}" for each in report.bad[:SHOWN])
        inquiries.warn(
            f"the host of {site} lied: {false} differ from the site ({details}); fetching its pages from here"
        )
        return HostGone(f"the host lied: {false} differ from the site")


def _score(row: TrustRow) -> Score:
    return Score(row.good, row.bad, row.at)


def _least(report: Report, *, is_stopped: bool) -> int:
    """The number of pages that must be readable from here: half of those that were requested in time."""
    wanted = len(report.findings)
    asked = 1 if is_stopped else wanted - report.late
    return min(wanted, max((asked + 1) // 2, 1))
