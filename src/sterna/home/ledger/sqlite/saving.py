"""A crawler's progress at a site, out of the ledger and into another one."""

import sqlite3
from array import array

from sterna.crawler.pack import SavedProgress
from sterna.home.ledger.interface import WHOLE
from sterna.home.ledger.sqlite.links import add_targets, ids_of_sites, lengthen
from sterna.home.ledger.sqlite.lookup import Lookup
from sterna.home.ledger.sqlite.rank import depth_of, priority_of
from sterna.home.ledger.sqlite.states import read_state, write_state
from sterna.model import Target
from sterna.web.urls import fingerprint


def read_progress(db: sqlite3.Connection, site_id: int, origin: str) -> SavedProgress:
    """What the crawler remembers of the site, what it still has to fetch there, and what it has seen."""
    waiting = db.execute(
        "SELECT url, rank, referrer, kind, hops, attempts, not_before FROM frontier"
        " WHERE site_id = ? AND part = ? ORDER BY rank, fingerprint",
        (site_id, WHOLE),
    )
    frontier = tuple(
        Target(
            origin + path,
            depth_of(rank),
            lengthen(referrer, origin),
            kind,
            hops,
            attempts,
            not_before,
            priority_of(rank),
        )
        for path, rank, referrer, kind, hops, attempts, not_before in waiting
    )
    seen = db.execute("SELECT fingerprint FROM known WHERE site_id = ? ORDER BY fingerprint", (site_id,))
    return SavedProgress(
        state=read_state(db, site_id, WHOLE),
        frontier=frontier,
        seen=array("q", (mark for (mark,) in seen)).tobytes(),
    )


def restore_progress(
    db: sqlite3.Connection, lookup: Lookup, origin: str, progress: SavedProgress, *, now: float
) -> None:
    """Has the next visit to the site go on from there; of what the ledger knows already nothing changes."""
    site_id = ids_of_sites(db, [origin])[origin]
    seen = array("q")
    seen.frombytes(progress.seen)
    waiting = {fingerprint(target.url) for target in progress.frontier}
    # Looked up before `known` is changed here: the lookup sees what was committed last.
    add_targets(db, lookup, [(WHOLE, progress.frontier)], now=now)
    db.executemany(
        "INSERT INTO known VALUES (?, ?, 1, 0) ON CONFLICT DO NOTHING",
        [(site_id, mark) for mark in seen if mark not in waiting],
    )
    write_state(db, site_id, WHOLE, progress.state)
