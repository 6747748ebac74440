"""A ledger of format 5, as an earlier Sterna wrote it: today's, without what owners of sites asked for."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.home.ledger import version_4

from sterna.home.ledger.sqlite import schema


def write(path: Path) -> None:
    version_4.write(path)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"{schema.UPGRADES[4]} PRAGMA user_version = 5;")
