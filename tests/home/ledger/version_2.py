"""A ledger of format 2, as an earlier Sterna wrote it: its tables, and a crawl that is half done."""

import sqlite3
from pathlib import Path
from typing import Any

from sterna.web.urls import fingerprint

SITE = "https://a.example"

TABLES = """
CREATE TABLE setting (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE site (
    id INTEGER PRIMARY KEY,
    origin TEXT NOT NULL UNIQUE,
    is_seed INTEGER NOT NULL DEFAULT 0,
    may_be_private INTEGER NOT NULL DEFAULT 0,
    delay_seconds REAL NOT NULL DEFAULT 0,
    robots_state TEXT NOT NULL DEFAULT 'unknown',
    robots_tried_at REAL NOT NULL DEFAULT 0,
    robots_failures INTEGER NOT NULL DEFAULT 0,
    robots_retry_at REAL NOT NULL DEFAULT 0,
    robots_rules BLOB NOT NULL DEFAULT x'',
    robots_reason TEXT NOT NULL DEFAULT '',
    pages INTEGER NOT NULL DEFAULT 0,
    requests INTEGER NOT NULL DEFAULT 0,
    bytes_received INTEGER NOT NULL DEFAULT 0,
    errors INTEGER NOT NULL DEFAULT 0
);

-- A part is on lease while it has a visit, and idle while it has neither a visit nor a turn.
CREATE TABLE part (
    site_id INTEGER NOT NULL,
    part TEXT NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0,
    visit TEXT,
    parcel INTEGER NOT NULL DEFAULT 0,
    turn REAL,
    PRIMARY KEY (site_id, part)
) WITHOUT ROWID;
CREATE INDEX part_turn ON part (turn) WHERE turn IS NOT NULL;
CREATE INDEX part_visit ON part (visit) WHERE visit IS NOT NULL;

CREATE TABLE known (
    site_id INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    is_done INTEGER NOT NULL,
    depth INTEGER NOT NULL,
    PRIMARY KEY (site_id, fingerprint)
) WITHOUT ROWID;

CREATE TABLE frontier (
    site_id INTEGER NOT NULL,
    part TEXT NOT NULL,
    depth INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    url TEXT NOT NULL,
    referrer TEXT NOT NULL,
    kind TEXT NOT NULL,
    hops INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    not_before REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (site_id, part, depth, fingerprint)
) WITHOUT ROWID;

CREATE TABLE page (
    site_id INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    url TEXT NOT NULL,
    status INTEGER NOT NULL,
    error TEXT NOT NULL,
    depth INTEGER NOT NULL,
    fetched REAL NOT NULL,
    etag TEXT NOT NULL,
    modified TEXT NOT NULL,
    digest BLOB NOT NULL,
    has_raw INTEGER NOT NULL,
    PRIMARY KEY (site_id, fingerprint)
) WITHOUT ROWID;

CREATE TABLE visit (
    id TEXT PRIMARY KEY,
    site_id INTEGER NOT NULL,
    part TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    place TEXT NOT NULL,
    began REAL NOT NULL,
    over REAL,
    ended TEXT,
    parcels INTEGER NOT NULL DEFAULT 0,
    pages INTEGER NOT NULL DEFAULT 0,
    requests INTEGER NOT NULL DEFAULT 0,
    bytes_received INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE hold (
    key TEXT PRIMARY KEY,
    until REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE block (name TEXT PRIMARY KEY) WITHOUT ROWID;

CREATE TABLE segment (
    name TEXT PRIMARY KEY,
    tbl TEXT NOT NULL,
    rows INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    tier INTEGER NOT NULL,
    retired_at REAL
) WITHOUT ROWID;

CREATE TABLE warc (
    name TEXT PRIMARY KEY,
    committed_bytes INTEGER NOT NULL,
    is_open INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE tally (
    name TEXT PRIMARY KEY,
    amount INTEGER NOT NULL
) WITHOUT ROWID;
"""

ROWS: dict[str, list[tuple[Any, ...]]] = {
    "setting": [("options", "{}")],
    "known": [
        (1, fingerprint(f"{SITE}/"), 1, 0),
        (1, fingerprint(f"{SITE}/near"), 0, 1),
        (1, fingerprint(f"{SITE}/far"), 0, 7),
    ],
    "frontier": [
        (1, "/", 7, fingerprint(f"{SITE}/far"), "/far", "/", "page", 0, 2, 0.0),
        (1, "/", 1, fingerprint(f"{SITE}/near"), "/near", "/", "page", 0, 0, 0.0),
    ],
    "page": [(1, fingerprint(f"{SITE}/"), "/", 200, "", 0, 5.0, '"1"', "", b"d", 0)],
    "part": [(1, "/", 1, None, 1, 10.0)],
    "visit": [("v1", 1, "/", 1, "here", 5.0, 6.0, "budget", 1, 1, 2, 300)],
    "segment": [("0.page.parquet", "page", 1, 10, 0, None)],
    "tally": [("pages", 1), ("pending", 2), ("requests", 2), ("sites", 1), ("visits", 1)],
}


def write(path: Path) -> None:
    """A site with one page fetched and two URLs waiting, in the file's own words."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(TABLES)
    db.execute("INSERT INTO site (id, origin, is_seed, pages, requests) VALUES (1, ?, 1, 1, 2)", (SITE,))
    for table, rows in ROWS.items():
        marks = ", ".join("?" * len(rows[0]))
        db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    db.execute("PRAGMA user_version = 2")
    db.commit()
    db.close()
