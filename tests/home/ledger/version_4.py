"""A ledger of format 4, as an earlier Sterna wrote it: format 3 with a host, and a crawler sent there."""

import sqlite3
from pathlib import Path

from tests.home.ledger import version_3
from tests.home.ledger.version_3 import SITE

TABLES = """
CREATE TABLE host (
    site TEXT PRIMARY KEY,
    checked_at REAL NOT NULL,
    offer BLOB,
    key TEXT NOT NULL,
    until REAL NOT NULL,
    failed_until REAL NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE outbox (
    visit TEXT PRIMARY KEY,
    site TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    key TEXT NOT NULL,
    state TEXT NOT NULL,
    written_at REAL NOT NULL,
    sent_at REAL,
    over_at REAL,
    order_bytes INTEGER NOT NULL,
    bytes_sent INTEGER NOT NULL,
    bytes_received INTEGER NOT NULL,
    is_live_only INTEGER NOT NULL,
    reason TEXT NOT NULL,
    luggage BLOB
);
CREATE INDEX outbox_state ON outbox (state) WHERE over_at IS NULL;

CREATE TABLE inbox (
    visit TEXT NOT NULL,
    number INTEGER NOT NULL,
    received_at REAL NOT NULL,
    size_bytes INTEGER NOT NULL,
    taken_at REAL NOT NULL,
    PRIMARY KEY (visit, number)
) WITHOUT ROWID;

ALTER TABLE page ADD COLUMN likeness BLOB NOT NULL DEFAULT x'';
"""


def write(path: Path) -> None:
    """What format 3 had, and a host whose key is pinned."""
    version_3.write(path)
    db = sqlite3.connect(path)
    db.executescript(TABLES)
    db.execute("INSERT INTO host VALUES (?, 3.0, x'7b7d', 'ed25519:k', 90.0, 0.0, '')", (SITE,))
    db.execute(
        "INSERT INTO outbox VALUES ('v1', ?, ?, 'ed25519:k', 'returned', 5.0, 5.0, 6.0, 9, 10, 20,"
        " 0, '', NULL)",
        (SITE, f"{SITE}/sterna"),
    )
    db.execute("INSERT INTO inbox VALUES ('v1', 1, 5.5, 20, 6.0)")
    db.execute("PRAGMA user_version = 4")
    db.commit()
    db.close()
