"""The log is copied into the tables beside the writer, and does not grow without bound."""

import sqlite3
import time
from pathlib import Path

import pytest

from sterna.home.ledger.sqlite import database as module
from sterna.home.ledger.sqlite.database import Checkpoints, Database

FRAMES = 1_000  # a sixteenth of what a ledger may have in its log, so that the test writes less
MOST_BYTES = FRAMES * 4096


@pytest.fixture(autouse=True)
def short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.MOST_BYTES == module.MOST_FRAMES * 4096 >= 16 * MOST_BYTES
    monkeypatch.setattr(module, "MOST_FRAMES", FRAMES)
    monkeypatch.setattr(module, "MOST_BYTES", MOST_BYTES)
    monkeypatch.setattr(module, "LOG_BYTES", MOST_BYTES // 8)


def fill(database: Database, rounds: int) -> None:
    for number in range(rounds):
        with database.transaction() as db:
            rows = [(f"{number}-{row}", "x" * 1_000) for row in range(500)]
            db.executemany("INSERT INTO setting VALUES (?, ?)", rows)


def test_log_stays_short_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    database = Database(path)

    fill(database, 25)

    assert path.with_name("ledger.sqlite-wal").stat().st_size < 2 * MOST_BYTES
    database.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM setting").fetchone() == (12_500,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_writer_waits_for_a_slow_disk_before_the_log_is_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Checkpoints._copy
    log = tmp_path / "ledger.sqlite-wal"
    deadline = time.monotonic() + 2.0
    sizes = list[int]()

    def slowly(self: Checkpoints) -> None:
        while log.stat().st_size < 2 * MOST_BYTES and time.monotonic() < deadline:
            time.sleep(0.01)
        sizes.append(log.stat().st_size)
        copy(self)

    monkeypatch.setattr(Checkpoints, "_copy", slowly)
    database = Database(tmp_path / "ledger.sqlite")

    fill(database, 20)

    assert max(sizes) < 1.5 * MOST_BYTES
    database.close()
