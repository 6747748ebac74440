"""What home believed of a lying host, stored: no parcel that passes may break the ledger or the archive."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from bench.fuzz_parts.home_inputs import NOW, SITE
from bench.fuzz_parts.reading import read_stream
from msgspec.structs import replace

from sterna.archive.segments import SegmentStore
from sterna.archive.warc import WarcStore
from sterna.home.dispatch import Borders
from sterna.home.intake import Intake
from sterna.home.ledger.interface import LedgerDesk
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.model import Parcel, Target
from sterna.web.clock import SystemClock


class Desk:
    """An intake over a real ledger and a real archive, with one visit that never ends."""

    def __init__(self, folder: Path) -> None:
        (folder / "segments").mkdir(parents=True)
        self._thread = ThreadPoolExecutor(1)
        self._ledger = SqliteLedger(folder / "ledger.sqlite")
        self._ledger.seed([Target(f"{SITE}/")], now=NOW)
        (self._lease,) = self._ledger.lease(["v1"], now=NOW, pages=10**9, max_depth=64)
        self._intake = Intake(
            LedgerDesk(self._ledger, self._thread),
            SegmentStore(folder / "segments"),
            warc=WarcStore(folder / "warc", software="fuzz"),
            clock=SystemClock(),
            admit_outlink=Borders("any", seed_sites=[SITE], blocked=[]).admits,
            on_commit=lambda parcels: None,
            on_step=lambda step: None,
        )
        self._number = 0

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._intake.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self._thread.shutdown()

    async def take(self, chance: Random) -> str:
        """Reads a stream, and stores whatever was believed of it; anything that is raised here is a fault."""
        believed, word = read_stream(chance)
        for parcel in believed:
            await self._intake.take(self._as_leased(parcel))
        return f"{word}, {len(believed)} stored" if believed else word

    def _as_leased(self, parcel: Parcel) -> Parcel:
        self._number += 1
        lease = self._lease
        return replace(
            parcel, visit=lease.visit, part=lease.part, epoch=lease.epoch, number=self._number, ended=None
        )
