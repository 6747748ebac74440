"""Brings a parcel to a collection, and is killed at a step of its intake.

    python -m tests.home.bringing FOLDER SITE STEP

The parcel is the same whatever its lease. It dies without a word when it first comes to the step.
"""

import asyncio
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sterna.archive.segments import SegmentStore
from sterna.crawler.facts import Fact, encode
from sterna.home.intake import Intake
from sterna.home.ledger.interface import LedgerDesk
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.model import Ended, Page, Parcel, StateChange, Target, Usage
from sterna.web.clock import SystemClock
from sterna.web.urls import fingerprint


async def bring(folder: Path, site: str, fatal: str) -> None:
    def on_step(name: str) -> None:
        if name == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    ledger, segments = SqliteLedger(folder / "ledger"), SegmentStore(folder / "segments", on_step=on_step)
    ledger.recover(now=100.0, least_pause=0.0)
    segments.sweep({segment.name for segment in ledger.segments()})
    ledger.seed([Target(site + "/")], now=1.0)
    leases = ledger.lease(["v" + fatal + site], now=200.0, pages=9, max_depth=9)
    if not leases:
        return
    site = leases[0].site
    url, fact = site + "/", encode(Fact("clinic", ("A",)))
    parcel = Parcel(
        visit=leases[0].visit,
        site=site,
        part="/",
        epoch=leases[0].epoch,
        number=1,
        pages=(Page(url=url, fingerprint=fingerprint(url), depth=0, fetched=1.0, status=200),),
        rows=(fact, encode(Fact("clinic", ("B",)))),
        state=StateChange(added=((1, fact),), memory=b"m"),
        usage=Usage(pages=1, kept=1),
        ended=Ended.FINISHED,
    )
    with ThreadPoolExecutor(1) as thread:
        intake = Intake(
            LedgerDesk(ledger, thread),
            segments,
            warc=None,
            clock=SystemClock(),
            admit_outlink=bool,
            on_commit=lambda parcels: None,
            on_step=on_step,
        )
        running = asyncio.create_task(intake.run())
        await intake.take(parcel)
        running.cancel()


if __name__ == "__main__":
    asyncio.run(bring(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
