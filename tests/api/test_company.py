"""The process that follows a crawl, from inside: when it ends, and what it says."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import Change
from sterna.home.ledger.sqlite.ledger import SqliteLedger

# A follower that takes each batch and says so, or never comes back.
PROGRAM = """
import os, signal, sys, threading
from pathlib import Path
from sterna.api import followers
from sterna.api.followers import Company
from sterna.cli.lines import say_json
from sterna.home.folder import CollectionFolder

followers.STOP_SECONDS = 0.3
folder, parent, kind = sys.argv[1:]

class One:
    batch = 0
    def __enter__(self): return self
    def __exit__(self, *_): print("closed", flush=True)
    def is_left(self, batch): return self.batch < batch
    def catch_up(self, snapshot, *, stop):
        if kind == "hangs":
            print("hangs", flush=True)
            threading.Event().wait()
        if kind == "breaks":
            raise TypeError("out of order")
        if kind == "slow" and not stop.wait(4):
            return
        self.batch = snapshot.batch

collection = CollectionFolder(Path(folder))
company = Company("storage", collection, One, say=say_json, parent=int(parent) or os.getppid())
signal.signal(signal.SIGTERM, lambda *_: company.stop())
is_good = company.run()
sys.exit(0 if is_good else 1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A collection with two batches, of which nobody has seen anything."""
    collection = CollectionFolder(tmp_path / "c")
    with collection.open_for_crawl():
        ledger = SqliteLedger(collection.ledger_path)
        for number in (1, 2):
            ledger.commit(Change(parcels=(), batch=number), now=1.0)
        ledger.close()
    return collection.folder


def start(folder: Path, kind: str, *, parent: int = 0) -> subprocess.Popen[str]:
    """With this process for its parent, unless another is named."""
    command = [sys.executable, "-c", PROGRAM, str(folder), str(parent), kind]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_it_catches_up_and_ends_when_its_input_is_closed(folder: Path) -> None:
    process = start(folder, "good")
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out.split()) == (0, ["closed"])


def test_it_tells_what_is_left_after_the_end_of_the_crawl(folder: Path) -> None:
    process = start(folder, "slow")
    out, _ = process.communicate(timeout=30)
    said = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert said[0] == {"left": 2}


def test_without_its_parent_it_ends_at_once_though_its_input_is_open(folder: Path) -> None:
    process = start(folder, "good", parent=os.getppid())
    assert process.wait(30) == 0
    process.communicate()


def test_whoever_hangs_does_not_keep_it(folder: Path) -> None:
    process = start(folder, "hangs")
    assert process.stdout
    assert process.stdout.readline() == "hangs\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 1
    process.communicate()


def test_whoever_breaks_ends_with_a_word_and_a_code(folder: Path) -> None:
    process = start(folder, "breaks")
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    assert '{"warning":"storage ended: TypeError: out of order"}' in out.splitlines()
