"""Intake is killed between archive and ledger, before and after: rows and state are stored once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.home.ledger.ledger_suite import SITE

import sterna
from sterna.archive.segments import SegmentStore
from sterna.home.ledger.sqlite.ledger import SqliteLedger

STEPS = ["received", "segment-begun", "segment-renamed", "archived", "committed"]

# Brings the same parcel whatever its lease; dies at the step, without a word, the first time it comes to it.
BRINGING = """
import asyncio, os, signal, sys
sys.modules.update(numpy=None, pandas=None)  # as the command does
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from sterna.archive.segments import SegmentStore
from sterna.crawler.facts import Fact, encode
from sterna.home.intake import Intake
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.ledger.interface import LedgerDesk
from sterna.model import Ended, Page, Parcel, StateChange, Target, Usage
from sterna.web.clock import SystemClock
from sterna.web.urls import fingerprint

folder, site, fatal = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def on_step(name):
    if name == fatal:
        os.kill(os.getpid(), signal.SIGKILL)

async def main(site):
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
        visit=leases[0].visit, site=site, part="/", epoch=leases[0].epoch, number=1,
        pages=(Page(url=url, fingerprint=fingerprint(url), depth=0, fetched=1.0, status=200),),
        rows=(fact, encode(Fact("clinic", ("B",)))), state=StateChange(added=((1, fact),), memory=b"m"),
        usage=Usage(pages=1, kept=1), ended=Ended.FINISHED,
    )
    with ThreadPoolExecutor(1) as thread:
        intake = Intake(
            LedgerDesk(ledger, thread), segments, warc=None, clock=SystemClock(), admit_outlink=bool,
            on_commit=lambda parcels: None, on_step=on_step,
        )
        running = asyncio.create_task(intake.run())
        await intake.take(parcel)
        running.cancel()

asyncio.run(main(site))
"""


def bring(folder: Path, step: str, site: str = SITE) -> int:
    env = {**os.environ, "PYTHONPATH": str(Path(sterna.__file__).parent.parent)}
    return subprocess.run(
        [sys.executable, "-c", BRINGING, str(folder), site, step], env=env, check=False
    ).returncode


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step_rows_and_state_are_stored_once(tmp_path: Path, step: str) -> None:
    assert bring(tmp_path, step) == -signal.SIGKILL, f"intake never came to {step}"
    assert bring(tmp_path, "never") == 0
    ledger, store = SqliteLedger(tmp_path / "ledger"), SegmentStore(tmp_path / "segments")
    segments = ledger.segments()
    assert {path.name for path in (tmp_path / "segments").iterdir()} == {each.name for each in segments}
    assert sorted(each.table for each in segments) == ["fact", "page"]
    (fact,) = [each for each in segments if each.table == "fact"]
    data = pq.read_table(store.path(fact.name))["data"].to_pylist()
    assert data == ['{"template": "clinic", "values": ["A"]}', '{"template": "clinic", "values": ["B"]}']
    assert ([number for number, _ in ledger.state(SITE).facts], ledger.state(SITE).memory) == ([1], b"m")
    assert (ledger.counts(now=1.0).kept, ledger.counts(now=1.0).pages) == (1, 1)
    assert (ledger.batch(), batches(ledger, store)) == (1, {"fact": [1, 1], "page": [1]})


def test_killed_again_and_again_batches_have_neither_gap_nor_double(tmp_path: Path) -> None:
    for number, step in enumerate(("archived", "committed", "segment-renamed", "committed")):
        assert bring(tmp_path, step, f"https://s{number}.example") == -signal.SIGKILL, f"never came to {step}"
    for number in range(2):
        assert bring(tmp_path, f"never {number}", "https://s0.example") == 0
    ledger, store = SqliteLedger(tmp_path / "ledger"), SegmentStore(tmp_path / "segments")
    assert (ledger.batch(), ledger.counts(now=1.0).pages) == (4, 4)
    assert batches(ledger, store) == {"fact": [1, 1, 2, 2, 3, 3, 4, 4], "page": [1, 2, 3, 4]}


def batches(ledger: SqliteLedger, store: SegmentStore) -> dict[str, list[int]]:
    """Those of all rows, by table."""
    found: dict[str, list[int]] = {}
    for segment in ledger.segments():
        rows = pq.read_table(store.path(segment.name))
        found.setdefault(segment.table, []).extend(rows["batch"].to_pylist())
    return {table: sorted(numbers) for table, numbers in sorted(found.items())}
