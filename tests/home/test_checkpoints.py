"""The log is carried over beside the writer, and does not grow without bound."""

import sqlite3
from pathlib import Path

from sterna.home.sqlite.checkpoints import MOST_FRAMES
from sterna.home.sqlite.database import Database


def fill(database: Database, rounds: int) -> None:
    for number in range(rounds):
        with database.transaction() as db:
            rows = [(f"{number}-{row}", "x" * 1_000) for row in range(2_000)]
            db.executemany("INSERT INTO setting VALUES (?, ?)", rows)


def test_log_stays_short_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    database = Database(path)

    fill(database, 60)

    assert path.with_name("ledger.sqlite-wal").stat().st_size < 2 * 4096 * MOST_FRAMES
    database.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM setting").fetchone() == (120_000,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
