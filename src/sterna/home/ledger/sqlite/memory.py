"""The state of crawlers between visits: their own facts, by number, and their memory."""

import sqlite3
from array import array

from sterna.crawler.pack import SavedProgress
from sterna.home.ledger.records import WHOLE, SiteFact
from sterna.home.ledger.sqlite.database import Part
from sterna.home.ledger.sqlite.frontier import add_targets, ids_of_sites, target_of
from sterna.model import State, StateChange
from sterna.web.urls import fingerprint


class Memory(Part):
    """The state of crawlers between their visits."""

    def state(self, site: str) -> State:
        with self._database.reading() as db:
            row = db.execute("SELECT id FROM site WHERE origin = ?", (site,)).fetchone()
            return read_state(db, row[0], WHOLE) if row else State()

    def set_state(self, site: str, state: State) -> None:
        with self._database.transaction() as db:
            _write_state(db, ids_of_sites(db, [site])[site], state)

    def forget_states(self) -> None:
        with self._database.transaction() as db:
            db.execute("DELETE FROM crawler_fact")
            db.execute("DELETE FROM crawler_memory")

    def progress(self, site: str) -> SavedProgress:
        with self._database.reading() as db:
            row = db.execute("SELECT id FROM site WHERE origin = ?", (site,)).fetchone()
            if row is None:
                return SavedProgress()
            (site_id,) = row
            waiting = db.execute(
                "SELECT url, rank, referrer, kind, hops, attempts, not_before FROM frontier"
                " WHERE site_id = ? AND part = ? ORDER BY rank, fingerprint",
                (site_id, WHOLE),
            )
            seen = db.execute("SELECT fingerprint FROM known WHERE site_id = ? ORDER BY fingerprint", row)
            return SavedProgress(
                state=read_state(db, site_id, WHOLE),
                frontier=tuple(target_of(site, each) for each in waiting),
                seen=array("q", (mark for (mark,) in seen)).tobytes(),
            )

    def restore(self, site: str, progress: SavedProgress, *, now: float) -> None:
        with self._database.transaction() as db:
            (site_id,) = ids_of_sites(db, [site]).values()
            seen = memoryview(progress.seen).cast("q")
            waiting = {fingerprint(target.url) for target in progress.frontier}
            # Before `known` changes below: the lookup sees the last commit only.
            add_targets(db, self._database.lookup, [(WHOLE, progress.frontier)], now=now)
            db.executemany(
                "INSERT INTO known VALUES (?, ?, 1, 0) ON CONFLICT DO NOTHING",
                [(site_id, mark) for mark in seen if mark not in waiting],
            )
            _write_state(db, site_id, progress.state)

    def facts(self) -> list[SiteFact]:
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT origin, number, data FROM crawler_fact JOIN site ON site.id = site_id"
                " ORDER BY site_id, part, number"
            )
            return [SiteFact(*row) for row in rows]


def read_state(db: sqlite3.Connection, site_id: int, part: str) -> State:
    facts = db.execute(
        "SELECT number, data FROM crawler_fact WHERE site_id = ? AND part = ? ORDER BY number",
        (site_id, part),
    ).fetchall()
    memory = db.execute(
        "SELECT data FROM crawler_memory WHERE site_id = ? AND part = ?", (site_id, part)
    ).fetchone()
    return State(tuple(facts), memory[0] if memory else b"")


def change_state(db: sqlite3.Connection, site_id: int, part: str, change: StateChange) -> None:
    db.executemany(
        "DELETE FROM crawler_fact WHERE site_id = ? AND part = ? AND number = ?",
        ((site_id, part, number) for number in change.removed),
    )
    db.executemany(
        "INSERT OR REPLACE INTO crawler_fact VALUES (?, ?, ?, ?)",
        ((site_id, part, number, data) for number, data in change.added),
    )
    if change.memory is not None:
        db.execute("INSERT OR REPLACE INTO crawler_memory VALUES (?, ?, ?)", (site_id, part, change.memory))


def _write_state(db: sqlite3.Connection, site_id: int, state: State) -> None:
    for table in ("crawler_fact", "crawler_memory"):
        db.execute(f"DELETE FROM {table} WHERE site_id = ? AND part = ?", (site_id, WHOLE))  # noqa: S608
    change_state(db, site_id, WHOLE, StateChange(added=state.facts, memory=state.memory or None))
