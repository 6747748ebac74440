"""Trips to a host that may lie, and what comes home of them."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.clocks import StillClock
from tests.home.away import lying
from tests.home.away.lying import (
    ENDPOINT,
    Distort,
    LyingHost,
    parcels,
)
from tests.transport.serving import MemoryTransport

from sterna.errors import HostGone
from sterna.home.away.sender import Away, Patience, Traffic, Trip
from sterna.model import Parcel, Visit
from sterna.wire.keys import Identity

HOME = Identity(bytes([1]) * 32)
QUICK = Patience(silence_seconds=0.3, stop_seconds=2.0, tries=3)
SOON_SECONDS = 30.0


@dataclass
class Delivered:
    """Where parcels go; a test may have one refused."""

    parcels: list[Parcel] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    failure: Exception | None = None

    async def __call__(self, parcel: Parcel, size_bytes: int) -> None:
        if self.failure:
            raise self.failure
        self.parcels.append(parcel)
        self.sizes.append(size_bytes)

    @property
    def numbers(self) -> list[int]:
        return [parcel.number for parcel in self.parcels]


@dataclass
class Outing:
    """A home, a host that may lie, and what comes of it."""

    host: LyingHost
    visit: Visit = field(default_factory=lying.visit)
    delivered: Delivered = field(default_factory=Delivered)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    patience: Patience = QUICK
    clock: StillClock = field(default_factory=StillClock)
    traffic: Traffic = field(default_factory=Traffic)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock.time = lying.NOW

    @property
    def away(self) -> Away:
        return Away(
            MemoryTransport({ENDPOINT: self.host.answer}),
            HOME,
            home="lab",
            clock=self.clock,
            patience=self.patience,
            on_line=lambda site, line: self.lines.append(line),
        )

    async def go(self, **fields: Any) -> Trip:
        async with asyncio.timeout(SOON_SECONDS):
            return await self.away.carry_out(
                self.visit,
                fields.pop("offer", self.host.offer),
                deliver=self.delivered,
                stop=self.stop,
                traffic=self.traffic,
                **fields,
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
