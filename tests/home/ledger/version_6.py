"""A ledger of format 6, as an earlier Sterna wrote it: today's, without which pages were kept."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.home.ledger import version_5

from sterna.home.ledger.sqlite import schema


def write(path: Path) -> None:
    version_5.write(path)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"{schema.UPGRADES[5]} PRAGMA user_version = 6;")
