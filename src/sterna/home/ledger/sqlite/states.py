"""What crawlers remember of each site: their own facts, by number, and their memory."""

import sqlite3

from sterna.home.ledger.interface import SiteFact
from sterna.model import State, StateChange


def read_state(db: sqlite3.Connection, site_id: int, part: str) -> State:
    """The state as the last parcel left it."""
    facts = db.execute(
        "SELECT number, data FROM crawler_fact WHERE site_id = ? AND part = ? ORDER BY number",
        (site_id, part),
    ).fetchall()
    memory = db.execute(
        "SELECT data FROM crawler_memory WHERE site_id = ? AND part = ?", (site_id, part)
    ).fetchone()
    return State(tuple(facts), memory[0] if memory else b"")


def change_state(db: sqlite3.Connection, site_id: int, part: str, change: StateChange) -> None:
    """Brings the state to what it is after a parcel."""
    db.executemany(
        "DELETE FROM crawler_fact WHERE site_id = ? AND part = ? AND number = ?",
        [(site_id, part, number) for number in change.removed],
    )
    db.executemany(
        "INSERT OR REPLACE INTO crawler_fact VALUES (?, ?, ?, ?)",
        [(site_id, part, number, data) for number, data in change.added],
    )
    if change.memory is not None:
        db.execute("INSERT OR REPLACE INTO crawler_memory VALUES (?, ?, ?)", (site_id, part, change.memory))


def write_state(db: sqlite3.Connection, site_id: int, part: str, state: State) -> None:
    """Puts this state in the place of what was there."""
    for table in ("crawler_fact", "crawler_memory"):
        db.execute(f"DELETE FROM {table} WHERE site_id = ? AND part = ?", (site_id, part))  # noqa: S608
    change_state(db, site_id, part, StateChange(added=state.facts, memory=state.memory or None))


def read_facts(db: sqlite3.Connection) -> list[SiteFact]:
    """The facts of all sites."""
    rows = db.execute(
        "SELECT origin, number, data FROM crawler_fact JOIN site ON site.id = site_id"
        " ORDER BY site_id, part, number"
    )
    return [SiteFact(*row) for row in rows]
