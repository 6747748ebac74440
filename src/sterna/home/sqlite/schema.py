"""The tables of the embedded ledger.

`known` is small and clustered by site, because every link of every page is looked up in it; the URL's text is
in `frontier` while it waits and in `page` once it was fetched. What waits has the order of its
rank (see `rank`).
"""

VERSION = 3

_STATES = """
CREATE TABLE crawler_fact (
    site_id INTEGER NOT NULL,
    part TEXT NOT NULL,
    number INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (site_id, part, number)
) WITHOUT ROWID;

CREATE TABLE crawler_memory (
    site_id INTEGER NOT NULL,
    part TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (site_id, part)
) WITHOUT ROWID;
"""

TABLES = f"""
{_STATES}
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
    rank INTEGER NOT NULL,
    PRIMARY KEY (site_id, fingerprint)
) WITHOUT ROWID;

CREATE TABLE frontier (
    site_id INTEGER NOT NULL,
    part TEXT NOT NULL,
    rank INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    url TEXT NOT NULL,
    referrer TEXT NOT NULL,
    kind TEXT NOT NULL,
    hops INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    not_before REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (site_id, part, rank, fingerprint)
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
    bytes_received INTEGER NOT NULL DEFAULT 0,
    kept INTEGER NOT NULL DEFAULT 0,
    cpu_seconds REAL NOT NULL DEFAULT 0
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

# From an older format to the next one. Nothing is rewritten: without priorities a rank is a depth.
UPGRADES = {
    2: f"""
{_STATES}
ALTER TABLE known RENAME COLUMN depth TO rank;
ALTER TABLE frontier RENAME COLUMN depth TO rank;
ALTER TABLE visit ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;
ALTER TABLE visit ADD COLUMN cpu_seconds REAL NOT NULL DEFAULT 0;
"""
}

# What a reader, who may not change the file, sees in its place.
VIEWS = {
    2: """
CREATE TEMP VIEW visit AS SELECT *, 0 AS kept, 0.0 AS cpu_seconds FROM main.visit;
CREATE TEMP TABLE crawler_fact (site_id, part, number, data);
CREATE TEMP TABLE crawler_memory (site_id, part, data);
"""
}
