"""Trips to a host that may lie, and what comes home of them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import pytest
from msgspec.structs import replace
from tests.clocks import StillClock
from tests.home.away import lying
from tests.home.away.lying import (
    ENDPOINT,
    Distort,
    LyingHost,
    parcels,
)
from tests.transport.serving import MemoryTransport, Said

from sterna.errors import HostGone
from sterna.home.away.courier import Courier, TripRequest
from sterna.home.away.events import Fault
from sterna.home.away.line import Lines
from sterna.home.away.patience import Patience
from sterna.home.away.trip import Trip
from sterna.home.ledger.interface import Ledger, LedgerDesk
from sterna.home.ledger.records import Estimate, HostRow, Out, OutboxRow, OwnerRow
from sterna.home.progress import Progress
from sterna.model import Parcel, State, Target, Visit
from sterna.transport.interface import Call, Transport
from sterna.wire.discovery import Offer
from sterna.wire.handshake import Session
from sterna.wire.keys import Identity

HOME = Identity(bytes([1]) * 32)
QUICK = Patience(silence_seconds=0.3, stop_seconds=2.0, tries=3)
SOON_SECONDS = 30.0

T = TypeVar("T")
Shape = Callable[[Visit, Session], Awaitable[Visit]]


class ForgetfulLedger:
    """Stands for a ledger in tests of the line: it takes what a trip writes, and knows of nothing."""

    bytes_sent = bytes_received = 0  # that the last trip noted

    def write_out(self, row: OutboxRow, luggage: bytes) -> None:
        pass

    def mark_out(
        self,
        visit: str,
        state: Out,
        *,
        now: float,
        bytes_sent: int = 0,
        bytes_received: int = 0,
        reason: str = "",
    ) -> Out:
        self.bytes_sent, self.bytes_received = bytes_sent, bytes_received
        return state

    def lose(self, visit: str, *, now: float, reason: str = "") -> bool:
        return True

    def estimate(self, site: str, *, with_subtrees: bool = False) -> Estimate:
        return Estimate()

    def waiting(self, site: str, part: str, *, kinds: Collection[str]) -> list[Target]:
        return []

    def state(self, site: str) -> State:
        return State()

    def set_luggage(self, visit: str, luggage: bytes) -> None:
        pass

    def host_row(self, site: str) -> HostRow | None:
        return None

    def owner_row(self, site: str) -> OwnerRow | None:
        return None

    def set_owner(self, row: OwnerRow) -> None:
        pass


class FreeDesk(LedgerDesk):
    """Calls its ledger at once."""

    def __init__(self, ledger: object) -> None:
        super().__init__(cast(Ledger, ledger), cast(Executor, None))

    async def do(self, call: Callable[[Ledger], T]) -> T:
        return call(self.ledger)


async def send_whole(visit: Visit, session: Session) -> Visit:
    """Sends a visit as it is, whatever was granted."""
    return visit


class PlainCourier(Courier):
    """A courier that writes nothing down and sends visits as a test says."""

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Any,
        patience: Patience = QUICK,
        shape: Shape = send_whole,
        identity: Identity = HOME,
        lines: list[str] | None = None,
        level: int = 0,
        noted: ForgetfulLedger | None = None,
        **fields: Any,
    ) -> None:
        line = Lines(transport, identity, home="lab", clock=clock, patience=patience, **fields)
        self.lines = line
        desk = FreeDesk(noted or ForgetfulLedger())
        super().__init__(lambda: line, desk, clock=clock, progress=Progress(began=0.0), level=level)
        self._shape = shape
        self._log = lines if lines is not None else []

    async def shape(self, visit: Visit, offer: Offer, session: Session) -> Visit:
        return await self._shape(visit, session)

    def note_line(self, site: str, line: str) -> None:
        self._log.append(line)

    async def carry(
        self,
        visit: Visit,
        offer: Offer,
        *,
        deliver: Callable[[Parcel], Awaitable[None]],
        stop: asyncio.Event | None = None,
        resume_from: int = 0,
    ) -> Trip:
        """The trip; raises its failure."""

        async def blame(fault: Fault) -> None:
            pass

        request = TripRequest(
            visit=visit, offer=offer, is_live_only=offer.is_live_only, resume_from=resume_from
        )
        trip = await self.travel(request, deliver=deliver, stop=stop or asyncio.Event(), blame=blame)
        if trip.failure:
            raise trip.failure
        return trip


@dataclass
class Delivered:
    """Where parcels go; a test may have one refused."""

    parcels: list[Parcel] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    failure: Exception | None = None

    async def __call__(self, parcel: Parcel) -> None:
        if self.failure:
            raise self.failure
        assert parcel.arrival
        self.parcels.append(as_sent(parcel))
        self.sizes.append(parcel.arrival.size_bytes)

    @property
    def numbers(self) -> list[int]:
        return [parcel.number for parcel in self.parcels]


def as_sent(parcel: Parcel) -> Parcel:
    """The parcel without what home added to it: its arrival, and starts of the visit that were missed."""
    return replace(parcel, arrival=None, checkpoint=replace(parcel.checkpoint, again=()))


@dataclass
class Outing:
    """A home, a host that may lie, and what comes of it."""

    host: LyingHost
    visit: Visit = field(default_factory=lying.visit)
    delivered: Delivered = field(default_factory=Delivered)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    patience: Patience = QUICK
    clock: StillClock = field(default_factory=StillClock)
    lines: list[str] = field(default_factory=list)
    noted: ForgetfulLedger = field(default_factory=ForgetfulLedger)
    answer: Callable[[Call], Awaitable[Said]] | None = None  # instead of the host's

    def __post_init__(self) -> None:
        self.clock.time = lying.NOW

    def courier(self, **fields: Any) -> PlainCourier:
        return PlainCourier(
            MemoryTransport({ENDPOINT: self.answer or self.host.answer}),
            clock=self.clock,
            patience=self.patience,
            lines=self.lines,
            noted=self.noted,
            **fields,
        )

    async def go(self, *, resume_from: int = 0, offer: Offer | None = None, **fields: Any) -> Trip:
        async with asyncio.timeout(SOON_SECONDS):
            return await self.courier(**fields).carry(
                self.visit,
                offer or self.host.offer,
                deliver=self.delivered,
                stop=self.stop,
                resume_from=resume_from,
            )

    async def gone(self, **fields: Any) -> str:
        """Why the host is gone."""
        with pytest.raises(HostGone) as error:
            await self.go(**fields)
        assert "\n" not in str(error.value)
        self.assert_true()
        return str(error.value)

    def assert_true(self) -> None:
        """What was delivered is the beginning of what the host has, each parcel once."""
        assert self.delivered.parcels == self.host.parcels[: len(self.delivered.parcels)]


def lying_by(distort: Distort, **fields: Any) -> Outing:
    return Outing(LyingHost(parcels(), distort=distort, **fields))
