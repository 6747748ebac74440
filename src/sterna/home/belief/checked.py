"""Sends crawlers to hosts, and has what they bring checked, if need be before it is used.

It stands between the outbox and whoever carries visits out at hosts, so that neither of them knows of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from random import Random, SystemRandom
from typing import TypeVar

from msgspec.structs import replace

from sterna.errors import HostGone, LineBroken, ParcelRefused, Refused, WireError
from sterna.home.away.line import Traffic
from sterna.home.away.outbox import Sender
from sterna.home.away.trip import Shape, as_it_is
from sterna.home.belief.check import Check, Here, Report
from sterna.home.belief.quarantine import Stay, WaitingRoom
from sterna.home.ledger.trust import SampleRow, TrustBook, TrustRow
from sterna.home.progress import Progress
from sterna.model import Parcel, Visit
from sterna.trust.sampling import sample_count
from sterna.trust.score import Belief, Score, alone_seconds, belief, counted, succeeded
from sterna.trust.witness import Witness
from sterna.web.clock import Clock
from sterna.wire.discovery import Offer
from sterna.wire.handshake import Session

SHOWN = 3  # pages that are named where a host lied
MAX_DETAIL = 300
_OVER = (HostGone, WireError, Refused, LineBroken)  # by which a visit at a host ends before its time

T = TypeVar("T")
Deliver = Callable[[Parcel, int], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What checking works with."""

    here: Here
    book: TrustBook
    room: WaitingRoom
    clock: Clock
    thread: Executor  # the ledger's
    progress: Progress
    warn: Callable[[str], None] = lambda line: None
    is_strict: bool = False  # all results wait, and every visit is sampled as an unknown host's
    random: Random = field(default_factory=SystemRandom)  # nobody but home knows what it samples


@dataclass(slots=True)
class _Trip:
    """A visit at a host, while it is under way."""

    visit: Visit  # as it was sent
    offer: Offer
    witness: Witness
    belief: Belief
    stay: Stay | None  # None: what comes is used at once
    is_whole: bool


class Checked:
    """A sender whose results were checked, or are checked when they have come: see `outbox.Sender`."""

    def __init__(self, sender: Sender, means: Means) -> None:
        self._sender = sender
        self._means = means

    async def carry_out(
        self,
        visit: Visit,
        offer: Offer,
        *,
        deliver: Deliver,
        stop: asyncio.Event,
        resume_from: int = 0,
        traffic: Traffic | None = None,
        shape: Shape = as_it_is,
    ) -> object:
        """As the sender does; HostGone, too, if the host lied, or what it brought could not be checked.

        Nothing of that is used then, or, if it was used already, it is visited again.
        """
        trip = await self._begin(visit, offer, resume_from)

        async def take(parcel: Parcel, size_bytes: int) -> None:
            trip.witness.see(parcel)
            if trip.stay:
                await trip.stay.add(parcel, size_bytes)
            else:
                await deliver(parcel, size_bytes)

        async def shaped(whole: Visit, session: Session) -> Visit:
            trip.visit = await shape(whole, session)
            return trip.visit

        send = partial(
            self._sender.carry_out,
            visit,
            offer,
            deliver=take,
            resume_from=max(resume_from, trip.stay.last + 1 if trip.stay and trip.stay.last else 0),
            traffic=traffic,
            shape=shaped,
        )
        try:
            return await self._travel(trip, send, deliver=partial(_deliver, deliver, resume_from), stop=stop)
        except (*_OVER, ParcelRefused):
            if trip.stay:
                trip.stay.leave()
            raise
        finally:
            if trip.stay:
                trip.stay.close()  # what still waits there is for the next run

    async def _begin(self, visit: Visit, offer: Offer, resume_from: int) -> _Trip:
        """Refused if the host lied not long ago."""
        means = self._means
        row = await self._row(offer)
        now = means.clock.now()
        if row.until > now and not resume_from:
            raise Refused("untrusted", "it lied about its pages", retry_after=row.until - now)
        of = belief(_score(row), now)
        waits = means.room.has(visit.id) if resume_from else means.is_strict or not of.is_trusted
        stay = await means.room.open(visit.id) if waits else None
        trip = _Trip(visit, offer, Witness(means.random), of, stay, is_whole=resume_from <= 1 or waits)
        for each in stay.parcels() if stay else ():
            trip.witness.see(each.parcel)
        return trip

    async def _travel(
        self, trip: _Trip, send: Callable[..., Awaitable[object]], *, deliver: Deliver, stop: asyncio.Event
    ) -> object:
        """Has the visit made, then checked, and what waited for that delivered."""
        result: object = None
        failure: HostGone | WireError | Refused | LineBroken | None = None
        if not (trip.stay and trip.stay.is_proven):
            try:
                result = await self._send(trip, send, stop)
            except _OVER as error:
                if not trip.witness.pages:
                    raise
                failure = error  # what came before it is no worse
        if trip.stay and failure is None:
            await trip.stay.prove()
        await self._settle(trip, deliver=deliver, stop=stop)
        if failure:
            raise failure
        return result

    async def _send(self, trip: _Trip, send: Callable[..., Awaitable[object]], stop: asyncio.Event) -> object:
        """Calls the crawler back when the run is stopped, or when nothing more can wait here."""
        room, halt = self._means.room, asyncio.Event()

        async def watch(event: asyncio.Event) -> None:
            await event.wait()
            halt.set()

        events = [stop, room.full] if trip.stay else [stop]
        watches = [asyncio.create_task(watch(event)) for event in events]
        try:
            return await send(stop=halt)
        finally:
            for each in watches:
                each.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    # -- after the end -----------------------------------------------------------------------------------

    async def _settle(self, trip: _Trip, *, deliver: Deliver, stop: asyncio.Event) -> None:
        report = await self._check(trip, stop)
        if report.bad:
            await self._throw_away(trip, report)
        if trip.stay is None:
            return
        if report.seen < _least(report, is_stopped=stop.is_set()):
            line = f"what the host of {trip.visit.site} brought cannot be checked ({_reasons(report)})"
            self._means.warn(f"{line}: it is not used; to use it all the same: --check none")
            raise HostGone(line)
        waiting = trip.stay.parcels()
        while (each := await asyncio.to_thread(next, waiting, None)) is not None:
            await deliver(each.parcel, each.size_bytes)
        trip.stay.leave()

    async def _check(self, trip: _Trip, stop: asyncio.Event) -> Report:
        """Checks some pages, and notes what that says of the host."""
        means, witness = self._means, trip.witness
        count = sample_count(trip.belief, witness.checkable, is_strict=means.is_strict)
        check = Check(
            trip.visit,
            witness,
            trip.offer,
            here=means.here,
            clock=means.clock,
            is_whole=trip.is_whole,
            is_strict=means.is_strict,
        )
        report = await check.run(count, stop)
        if report.findings:
            await self._note(trip, report)
        means.progress.checked += len(report.findings)
        means.progress.requests += report.usage.requests
        means.progress.bytes_received += report.usage.bytes_received
        return report

    async def _note(self, trip: _Trip, report: Report) -> None:
        now, site = self._means.clock.now(), trip.visit.site
        row = await self._row(trip.offer)
        score = counted(_score(row), good=report.good, bad=len(report.bad), now=now)
        until = now + alone_seconds(score) if report.bad else row.until
        new = replace(row, good=score.good, bad=score.bad, at=now, until=until)
        samples = [
            SampleRow(
                visit=trip.visit.id,
                url=each.url,
                site=site,
                verdict=each.verdict,
                at=now,
                detail=each.detail[:MAX_DETAIL],
            )
            for each in report.findings
        ]

        def note() -> None:
            self._means.book.set(new, samples)
            self._means.book.count(site, report.usage)

        await self._in_thread(note)

    async def _throw_away(self, trip: _Trip, report: Report) -> None:
        """Raises HostGone; what was used already is visited again."""
        means, site = self._means, trip.visit.site
        if trip.stay is None and trip.witness.earliest is not None:
            since = trip.witness.earliest
            await self._in_thread(partial(means.book.put_back, site, since=since, now=means.clock.now()))
        said = "; ".join(f"{each.url}: {each.detail[:MAX_DETAIL]}" for each in report.bad[:SHOWN])
        means.warn(
            f"the host of {site} lied: {len(report.bad)} of {len(report.findings)} pages that were checked"
            f" are not what the site shows ({said}); what it brought is fetched from here"
        )
        raise HostGone(f"it lied about {len(report.bad)} of {len(report.findings)} pages that were checked")

    # -- the ledger --------------------------------------------------------------------------------------

    async def _row(self, offer: Offer) -> TrustRow:
        """What is known of the host; a new key has earned nothing."""
        row = await self._in_thread(partial(self._means.book.row, offer.site))
        if row is None:
            return TrustRow(site=offer.site, key=offer.key)
        if row.key == offer.key:
            return row
        score = succeeded(_score(row))
        return replace(row, key=offer.key, good=score.good, bad=score.bad)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._means.thread, call)


def _score(row: TrustRow) -> Score:
    return Score(row.good, row.bad, row.at)


async def _deliver(deliver: Deliver, first: int, parcel: Parcel, size_bytes: int) -> None:
    """Delivers what an earlier run did not."""
    if parcel.number >= first:
        await deliver(parcel, size_bytes)


def _least(report: Report, *, is_stopped: bool) -> int:
    """How many of the pages must be readable from here: half of those that were asked for in time."""
    wanted = len(report.findings)
    asked = 1 if is_stopped else wanted - report.late
    return min(wanted, max((asked + 1) // 2, 1))


def _reasons(report: Report) -> str:
    reasons = dict.fromkeys(each.detail for each in report.findings)
    return ", ".join(reasons)
