"""Where the crawl stands: counters, and a row for each site and visit."""

import sqlite3

from sterna.home.ledger.interface import Counts, SiteRow, VisitRow
from sterna.home.ledger.sqlite.batches import NAME as BATCHES
from sterna.home.ledger.sqlite.tally import read_tally


def read_counts(db: sqlite3.Connection, *, now: float) -> Counts:
    tally = read_tally(db)
    tally.pop(BATCHES, None)
    turn = db.execute("SELECT min(turn) FROM part WHERE turn IS NOT NULL").fetchone()[0]
    return Counts(
        sites=tally.pop("sites", 0),
        leased=count(db, "SELECT count(*) FROM part WHERE visit IS NOT NULL"),
        away=count(db, "SELECT count(*) FROM outbox WHERE over_at IS NULL"),
        waiting_sites=count(db, "SELECT count(*) FROM part WHERE turn > ?", now),
        visits=tally.pop("visits", 0),
        pending=tally.pop("pending", 0),
        pages=tally.pop("pages", 0),
        round_pages=tally.pop("round_pages", 0),
        requests=tally.pop("requests", 0),
        bytes_received=tally.pop("bytes_received", 0),
        unchanged=tally.pop("unchanged", 0),
        redirects=tally.pop("redirects", 0),
        kept=tally.pop("kept", 0),
        cpu_seconds=tally.pop("cpu_us", 0) / 1e6,
        next_turn=turn,
        errors={name.removeprefix("error "): amount for name, amount in sorted(tally.items())},
    )


def read_sites(db: sqlite3.Connection) -> list[SiteRow]:
    rows = db.execute(
        "SELECT origin, pages, requests, bytes_received, errors, robots_state, robots_failures,"
        " robots_retry_at, robots_reason, (SELECT min(turn) FROM part WHERE site_id = site.id)"
        " FROM site ORDER BY id"
    )
    return [SiteRow(**dict(zip(SiteRow.__struct_fields__, row, strict=True))) for row in rows]


def read_visits(db: sqlite3.Connection) -> list[VisitRow]:
    rows = db.execute(
        "SELECT visit.id, origin, part, epoch, place, began, over, ended, parcels, visit.pages,"
        " visit.requests, visit.bytes_received, kept, cpu_seconds"
        " FROM visit JOIN site ON site.id = site_id ORDER BY began"
    )
    return [VisitRow(**dict(zip(VisitRow.__struct_fields__, row, strict=True))) for row in rows]


def count(db: sqlite3.Connection, sql: str, *values: float) -> int:
    return int(db.execute(sql, values).fetchone()[0])
