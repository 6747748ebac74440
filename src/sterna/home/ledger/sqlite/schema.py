"""The tables of the embedded ledger.

`known` is small and clustered by site, because every link of every page is looked up in it. The text of a URL
is in `frontier` until it is fetched and in `page` afterwards. The frontier is ordered by rank (see `lookup`).
"""

VERSION = 7

# Files are named after these columns, and a ledger may come from somebody else: a name with a slash would
# be a file outside of the collection.
_NAMES = (("segment", "name"), ("warc", "name"), ("outbox", "visit"))
_IS_WRONG = "(typeof({0}) <> 'text' OR {0} IN ('', '.', '..') OR {0} GLOB '*[^0-9A-Za-z._-]*')"
WRONG_NAMES = " UNION ALL ".join(
    f"SELECT {column} FROM {table} WHERE {_IS_WRONG.format(column)}"  # noqa: S608 - names of our own schema
    for table, column in _NAMES
)
DELETE_WRONG_VISITS = f"DELETE FROM outbox WHERE {_IS_WRONG.format('visit')}"  # noqa: S608

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

# A crawler's luggage is deleted once it is neither waiting nor away.
_HOSTS = """
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
"""

_PRIORITY = """
ALTER TABLE host ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
CREATE INDEX outbox_site ON outbox (site);
"""

# Trust in a host, the pages that were checked, and the receipts that both sides signed.
_TRUST = """
CREATE TABLE trust (
    site TEXT PRIMARY KEY,
    key TEXT NOT NULL,
    good REAL NOT NULL,
    bad REAL NOT NULL,
    at REAL NOT NULL,
    until REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE sample (
    visit TEXT NOT NULL,
    url TEXT NOT NULL,
    site TEXT NOT NULL,
    verdict TEXT NOT NULL,
    at REAL NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (visit, url)
) WITHOUT ROWID;
CREATE INDEX sample_site ON sample (site, at);

CREATE TABLE receipt (
    visit TEXT PRIMARY KEY,
    site TEXT NOT NULL,
    data BLOB NOT NULL
) WITHOUT ROWID;
"""

# What owners of sites asked for, by their hosts.
_OWNERS = """
CREATE TABLE owner (
    site TEXT PRIMARY KEY,
    reason TEXT NOT NULL,
    until REAL NOT NULL,
    ask_at REAL NOT NULL,
    closed TEXT NOT NULL,
    closed_until REAL NOT NULL
) WITHOUT ROWID;
"""

# URLs of older frontiers may have been fetched before, so they are looked up in `page`.
_FETCHED_BEFORE = "ALTER TABLE frontier ADD COLUMN is_again INTEGER NOT NULL DEFAULT 1;"

TABLES = f"""
{_STATES}
{_HOSTS}
{_PRIORITY}
{_TRUST}
{_OWNERS}
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
    is_again INTEGER NOT NULL DEFAULT 1, -- fetched before
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
    likeness BLOB NOT NULL DEFAULT x'',
    is_kept INTEGER NOT NULL DEFAULT 1, -- its newest row in the archive is no tombstone
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

# Earlier releases pass over this table, so it needs no new format; without its row a page is fetched whole.
ORIGINALS = """
CREATE TABLE IF NOT EXISTS original (
    site_id INTEGER NOT NULL,
    fingerprint INTEGER NOT NULL,
    fetched REAL NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (site_id, fingerprint)
) WITHOUT ROWID;
"""

# From an older format to the next one. No rows are rewritten: without priorities a rank is a depth.
UPGRADES = {
    2: f"""
{_STATES}
ALTER TABLE known RENAME COLUMN depth TO rank;
ALTER TABLE frontier RENAME COLUMN depth TO rank;
ALTER TABLE visit ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;
ALTER TABLE visit ADD COLUMN cpu_seconds REAL NOT NULL DEFAULT 0;
""",
    3: f"""
{_HOSTS}
ALTER TABLE page ADD COLUMN likeness BLOB NOT NULL DEFAULT x'';
""",
    4: _PRIORITY + _TRUST + _FETCHED_BEFORE,
    5: _OWNERS,
    # Which pages were wanted is not known: one that was not counts as kept until it changes.
    6: "ALTER TABLE page ADD COLUMN is_kept INTEGER NOT NULL DEFAULT 1;",
}


def _empty(tables: str) -> str:
    return tables.replace("CREATE TABLE", "CREATE TEMP TABLE")


_NO_HOSTS = _empty(_HOSTS) + _PRIORITY
_NO_PROGRAMS = "CREATE TEMP VIEW visit AS SELECT *, 0 AS kept, 0.0 AS cpu_seconds FROM main.visit;"
_NO_PRIORITY = "CREATE TEMP VIEW host AS SELECT *, 0 AS priority FROM main.host;"
_NO_TOMBSTONES = "CREATE TEMP VIEW page AS SELECT *, 1 AS is_kept FROM main.page;"

# A reader may not upgrade the file; these stand for the tables and columns that an older file lacks.
VIEWS = {
    2: _NO_PROGRAMS + _empty(_STATES) + _NO_HOSTS + _empty(_TRUST) + _empty(_OWNERS) + _NO_TOMBSTONES,
    3: _NO_HOSTS + _empty(_TRUST) + _empty(_OWNERS) + _NO_TOMBSTONES,
    4: _NO_PRIORITY + _empty(_TRUST) + _empty(_OWNERS) + _NO_TOMBSTONES,
    5: _empty(_OWNERS) + _NO_TOMBSTONES,
    6: _NO_TOMBSTONES,
}
