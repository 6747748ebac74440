"""The counters of the whole collection, kept as they change: counting rows would read them all."""

import sqlite3
from collections.abc import Mapping


def add_to_tally(db: sqlite3.Connection, amounts: Mapping[str, int]) -> None:
    """Adds to the counters of the whole collection."""
    db.executemany(
        "INSERT INTO tally VALUES (?, ?) ON CONFLICT DO UPDATE SET amount = amount + excluded.amount",
        [(name, amount) for name, amount in amounts.items() if amount],
    )


def read_tally(db: sqlite3.Connection) -> dict[str, int]:
    return dict(db.execute("SELECT name, amount FROM tally").fetchall())
