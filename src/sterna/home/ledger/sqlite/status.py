"""Holds, blocked names, settings and counters of a crawl."""

from collections.abc import Sequence

from sterna.home.ledger.records import WHOLE, Counts, SiteRow, VisitRow
from sterna.home.ledger.sqlite.database import Part, count, read_tally, select
from sterna.home.ledger.sqlite.frontier import add_holds
from sterna.home.ledger.sqlite.pages import BATCHES
from sterna.model import Hold


class Status(Part):
    """Holds, settings and counters; see `HoldsAndSettings`."""

    def holds(self, *, now: float) -> tuple[Hold, ...]:
        with self._database.transaction() as db:
            db.execute("DELETE FROM hold WHERE until <= ?", (now,))
            return tuple(select(db, Hold, "hold"))

    def hold(self, holds: Sequence[Hold]) -> None:
        with self._database.transaction() as db:
            add_holds(db, holds)

    def block(self, names: Sequence[str]) -> None:
        with self._database.transaction() as db:
            db.executemany("INSERT OR IGNORE INTO block VALUES (?)", [(name,) for name in names])

    def unblock(self, names: Sequence[str]) -> None:
        with self._database.transaction() as db:
            db.executemany("DELETE FROM block WHERE name = ?", [(name,) for name in names])

    def blocked(self) -> frozenset[str]:
        with self._database.reading() as db:
            return frozenset(name for (name,) in db.execute("SELECT name FROM block"))

    def setting(self, name: str) -> str | None:
        with self._database.reading() as db:
            row = db.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
            return row[0] if row else None

    def set_setting(self, name: str, value: str) -> None:
        with self._database.transaction() as db:
            db.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, value))

    def counts(self, *, now: float, part: str = WHOLE) -> Counts:
        with self._database.reading() as db:
            tally = read_tally(db)
            tally.pop(BATCHES, None)
            names = [name for name in Counts.__struct_fields__ if name in tally and name != "errors"]
            numbers = {name: tally.pop(name) for name in names}
            return Counts(
                **numbers,
                leased=count(db, "SELECT count(*) FROM part WHERE visit IS NOT NULL"),
                away=count(db, "SELECT count(*) FROM outbox WHERE over_at IS NULL"),
                waiting_sites=count(db, "SELECT count(*) FROM part WHERE turn > ?", now),
                cpu_seconds=tally.pop("cpu_us", 0) / 1e6,
                next_turn=db.execute(
                    "SELECT min(turn) FROM part WHERE turn IS NOT NULL AND part = ?", (part,)
                ).fetchone()[0],
                errors={name.removeprefix("error "): amount for name, amount in sorted(tally.items())},
            )

    def site_rows(self) -> list[SiteRow]:
        with self._database.reading() as db:
            return select(
                db,
                SiteRow,
                "(SELECT origin AS site, site.*, robots_state AS robots, robots_reason AS reason,"
                " (SELECT min(turn) FROM part WHERE site_id = site.id) AS next_turn FROM site) ORDER BY id",
            )

    def visit_rows(self) -> list[VisitRow]:
        with self._database.reading() as db:
            return select(
                db,
                VisitRow,
                "(SELECT visit.*, visit.id AS visit, origin AS site"
                " FROM visit JOIN site ON site.id = site_id) ORDER BY began",
            )
