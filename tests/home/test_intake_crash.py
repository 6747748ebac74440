"""Intake is killed between archive and ledger, before and after: rows and state are stored once."""

import signal
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.forking import Forked
from tests.home.ledger.ledger_suite import SITE

from sterna.archive.segments import SegmentStore
from sterna.home.ledger.sqlite.ledger import SqliteLedger

STEPS = ["received", "segment-begun", "segment-renamed", "archived", "committed"]


def bring(folder: Path, step: str, site: str = SITE) -> int:
    """How the process ended that brought a parcel, and was to die at this step."""
    with Forked([sys.executable, "-m", "tests.home.bringing", str(folder), site, step]) as bringing:
        return bringing.wait(60)


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
