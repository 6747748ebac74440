"""Trust in hosts: their scores, and the pages that were checked."""

from collections.abc import Sequence

from msgspec.structs import astuple

from sterna.home.ledger.records import WHOLE, SampleRow, TrustRow
from sterna.home.ledger.sqlite.database import Database, add_to_tally, select
from sterna.home.ledger.sqlite.frontier import put_back
from sterna.model import Usage

KEPT_SECONDS = 180 * 24 * 3600.0  # for samples: older ones hardly count


class SqliteTrustBook:
    """See `TrustBook`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def row(self, site: str) -> TrustRow | None:
        with self._database.reading() as db:
            return next(iter(select(db, TrustRow, "trust WHERE site = ?", site)), None)

    def rows(self) -> list[TrustRow]:
        with self._database.reading() as db:
            return select(db, TrustRow, "trust ORDER BY site")

    def set(self, row: TrustRow, samples: Sequence[SampleRow] = ()) -> None:
        with self._database.transaction() as db:
            db.execute("INSERT OR REPLACE INTO trust VALUES (?, ?, ?, ?, ?, ?)", astuple(row))
            db.executemany("INSERT OR REPLACE INTO sample VALUES (?, ?, ?, ?, ?, ?)", map(astuple, samples))
            db.execute("DELETE FROM sample WHERE site = ? AND at < ?", (row.site, row.at - KEPT_SECONDS))

    def forget(self, site: str) -> bool:
        with self._database.transaction() as db:
            db.execute("DELETE FROM sample WHERE site = ?", (site,))
            # Otherwise the ban for its lie would stay in force.
            db.execute("UPDATE host SET failed_until = 0 WHERE site = ?", (site,))
            return db.execute("DELETE FROM trust WHERE site = ?", (site,)).rowcount > 0

    def samples(self, site: str) -> list[SampleRow]:
        with self._database.reading() as db:
            return select(db, SampleRow, "sample WHERE site = ? ORDER BY at DESC, url", site)

    def count(self, site: str, usage: Usage) -> None:
        with self._database.transaction() as db:
            db.execute(
                "UPDATE site SET requests = requests + ?, bytes_received = bytes_received + ?"
                " WHERE origin = ?",
                (usage.requests, usage.bytes_received, site),
            )
            add_to_tally(db, {"requests": usage.requests, "bytes_received": usage.bytes_received})

    def put_back(self, site: str, *, since: float, now: float) -> int:
        with self._database.transaction() as db:
            row = db.execute("SELECT id FROM site WHERE origin = ?", (site,)).fetchone()
            if row is None:
                return 0
            (site_id,) = row
            moved = put_back(db, "page.site_id = ? AND fetched >= ?", (site_id, since))
            db.execute(
                "UPDATE page SET etag = '', modified = '', digest = x'', likeness = x''"
                " WHERE site_id = ? AND fetched >= ?",
                (site_id, since),
            )
            db.execute(
                "UPDATE part SET turn = ? WHERE site_id = ? AND part = ? AND turn IS NULL AND visit IS NULL",
                (now, site_id, WHOLE),
            )
            return moved
