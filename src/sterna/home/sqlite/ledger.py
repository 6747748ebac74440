"""The ledger on SQLite: settings, holds, counters; a lease is in `leasing`, storing a parcel in `storing`."""

import sqlite3
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from sterna.archive.manifest import Segment, WarcPosition
from sterna.home.ledger import WHOLE, Change, Counts, Lease, SiteFact, SiteRow, Verdict, VisitRow
from sterna.home.sqlite.database import Database
from sterna.home.sqlite.leasing import Leasing, read_holds
from sterna.home.sqlite.links import add_targets, ids_of_sites
from sterna.home.sqlite.states import read_facts, read_state, write_state
from sterna.home.sqlite.storing import Storing, add_holds, write_warc
from sterna.home.sqlite.tally import add_to_tally, read_tally
from sterna.model import Ended, Hold, Parcel, State, Target
from sterna.web.politeness import site_key
from sterna.web.robots import NEVER


class SqliteLedger:
    """See `Ledger`; the writer is one connection, readers open their own."""

    def __init__(self, path: Path, *, is_reader: bool = False) -> None:
        self._database = Database(path, is_reader=is_reader)

    def close(self) -> None:
        self._database.close()

    def seed(self, targets: Sequence[Target], *, now: float, private_sites: Collection[str] = ()) -> int:
        with self._database.transaction() as db:
            before = read_tally(db).get("pending", 0)
            sites = add_targets(db, self._database.lookup, [(WHOLE, targets)], now=now)
            db.executemany("UPDATE site SET is_seed = 1 WHERE id = ?", [(site,) for site in sites.values()])
            db.executemany(
                "UPDATE site SET may_be_private = 1 WHERE origin = ?", [(site,) for site in private_sites]
            )
            return read_tally(db).get("pending", 0) - before

    # -- leases ------------------------------------------------------------------------------------------

    def lease(
        self,
        visits: Sequence[str],
        *,
        now: float,
        pages: int,
        max_depth: int,
        may_visit: Callable[[str], bool] = lambda site: True,
    ) -> list[Lease]:
        leases: list[Lease] = []
        with self._database.transaction() as db:
            leasing = Leasing(db, now=now, pages=pages, max_depth=max_depth)
            while len(leases) < len(visits) and (due := leasing.next_due()):
                if not may_visit(due.origin):
                    leasing.put_off(due, None)
                elif lease := leasing.lease(due, visits[len(leases)]):
                    leases.append(lease)
        return leases

    def judge(self, parcel: Parcel) -> Verdict:
        with self._database.reading() as db:
            return Storing(db, self._database.lookup, now=0.0).judge(parcel)

    def commit(self, change: Change, *, now: float) -> None:
        with self._database.transaction() as db:
            Storing(db, self._database.lookup, now=now).store(change)

    def recover(self, *, now: float, least_pause: float) -> int:
        with self._database.transaction() as db:
            rows = db.execute(
                "SELECT site_id, part, visit, origin, delay_seconds FROM part JOIN site ON site.id = site_id"
                " WHERE visit IS NOT NULL"
            ).fetchall()
            for site_id, part, visit, origin, delay in rows:
                rest = now + max(delay, least_pause)
                add_holds(db, [Hold(site_key(origin), rest)])
                db.execute(
                    "UPDATE part SET visit = NULL, turn = ? WHERE site_id = ? AND part = ?",
                    (rest, site_id, part),
                )
                db.execute("UPDATE visit SET over = ?, ended = ? WHERE id = ?", (now, Ended.LOST, visit))
            return len(rows)

    def refresh(self, *, older_than: float, now: float) -> int:
        with self._database.transaction() as db:
            db.execute(
                "DELETE FROM known WHERE is_done"
                " AND (site_id, fingerprint) NOT IN (SELECT site_id, fingerprint FROM page)"
            )
            moved = db.execute(
                "INSERT INTO frontier (site_id, part, rank, fingerprint, url, referrer, kind, hops)"
                " SELECT page.site_id, ?, known.rank, page.fingerprint, url, '', 'page', 0"
                " FROM page JOIN known USING (site_id, fingerprint) WHERE fetched < ? AND is_done",
                (WHOLE, older_than),
            ).rowcount
            db.execute(
                "UPDATE known SET is_done = 0 WHERE is_done AND (site_id, fingerprint) IN"
                " (SELECT site_id, fingerprint FROM page WHERE fetched < ?)",
                (older_than,),
            )
            db.execute(
                "UPDATE site SET robots_state = 'unknown', robots_failures = 0, robots_retry_at = 0"
                " WHERE robots_retry_at >= ?",
                (NEVER,),
            )
            if moved:
                add_to_tally(db, {"pending": moved})
                db.execute("UPDATE tally SET amount = 0 WHERE name = 'round_pages'")
        self.wake(now=now)
        return moved

    def forget_validators(self) -> None:
        with self._database.transaction() as db:
            db.execute("UPDATE page SET etag = '', modified = '', digest = x''")

    def wake(self, *, now: float) -> None:
        with self._database.transaction() as db:
            db.execute(
                "UPDATE part SET turn = ? WHERE turn IS NULL AND visit IS NULL AND EXISTS"
                " (SELECT 1 FROM frontier f WHERE f.site_id = part.site_id AND f.part = part.part)",
                (now,),
            )

    # -- what crawlers remember --------------------------------------------------------------------------

    def state(self, site: str, part: str = WHOLE) -> State:
        with self._database.reading() as db:
            row = db.execute("SELECT id FROM site WHERE origin = ?", (site,)).fetchone()
            return read_state(db, row[0], part) if row else State()

    def set_state(self, site: str, state: State, *, part: str = WHOLE) -> None:
        with self._database.transaction() as db:
            write_state(db, ids_of_sites(db, [site])[site], part, state)

    def forget_states(self) -> None:
        with self._database.transaction() as db:
            db.execute("DELETE FROM crawler_fact")
            db.execute("DELETE FROM crawler_memory")

    def facts(self) -> list[SiteFact]:
        with self._database.reading() as db:
            return read_facts(db)

    # -- the archive's manifest --------------------------------------------------------------------------

    def segments(self) -> list[Segment]:
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT name, tbl, rows, size_bytes, tier FROM segment WHERE retired_at IS NULL ORDER BY name"
            )
            return [Segment(*row) for row in rows]

    def replace_segments(self, old: Sequence[Segment], new: Segment, *, now: float) -> None:
        with self._database.transaction() as db:
            db.executemany(
                "UPDATE segment SET retired_at = ? WHERE name = ?", [(now, segment.name) for segment in old]
            )
            db.execute(
                "INSERT INTO segment VALUES (?, ?, ?, ?, ?, NULL)",
                (new.name, new.table, new.rows, new.size_bytes, new.tier),
            )

    def forget_retired(self, *, before: float) -> list[str]:
        with self._database.transaction() as db:
            rows = db.execute("DELETE FROM segment WHERE retired_at < ? RETURNING name", (before,))
            return [name for (name,) in rows.fetchall()]

    def warc_positions(self) -> list[WarcPosition]:
        with self._database.reading() as db:
            rows = db.execute("SELECT name, committed_bytes, is_open FROM warc ORDER BY name")
            return [WarcPosition(name, size, bool(is_open)) for name, size, is_open in rows]

    def set_warc_positions(self, positions: Sequence[WarcPosition]) -> None:
        with self._database.transaction() as db:
            write_warc(db, positions)

    # -- holds, blocks, settings -------------------------------------------------------------------------

    def holds(self, *, now: float) -> tuple[Hold, ...]:
        with self._database.transaction() as db:
            db.execute("DELETE FROM hold WHERE until <= ?", (now,))
            return read_holds(db, "WHERE until > ?", (now,))

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
            return _blocked(db)

    def seed_sites(self) -> frozenset[str]:
        with self._database.reading() as db:
            return frozenset(origin for (origin,) in db.execute("SELECT origin FROM site WHERE is_seed"))

    def setting(self, name: str) -> str | None:
        with self._database.reading() as db:
            row = db.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
            return row[0] if row else None

    def set_setting(self, name: str, value: str) -> None:
        with self._database.transaction() as db:
            db.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, value))

    # -- where the crawl stands --------------------------------------------------------------------------

    def counts(self, *, now: float) -> Counts:
        with self._database.reading() as db:
            tally = read_tally(db)
            turn = db.execute("SELECT min(turn) FROM part WHERE turn IS NOT NULL").fetchone()[0]
            return Counts(
                sites=tally.pop("sites", 0),
                leased=_count(db, "SELECT count(*) FROM part WHERE visit IS NOT NULL"),
                waiting_sites=_count(db, "SELECT count(*) FROM part WHERE turn > ?", now),
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

    def due_count(self, *, now: float, most: int) -> int:
        with self._database.reading() as db:
            return _count(db, "SELECT count(*) FROM (SELECT 1 FROM part WHERE turn <= ? LIMIT ?)", now, most)

    def site_rows(self) -> list[SiteRow]:
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT origin, pages, requests, bytes_received, errors, robots_state, robots_failures,"
                " robots_retry_at, robots_reason, (SELECT min(turn) FROM part WHERE site_id = site.id)"
                " FROM site ORDER BY id"
            )
            return [
                SiteRow(
                    site=origin,
                    pages=pages,
                    requests=requests,
                    bytes_received=size,
                    errors=errors,
                    robots=state,
                    robots_failures=failures,
                    robots_retry_at=retry_at,
                    reason=reason,
                    next_turn=turn,
                )
                for origin, pages, requests, size, errors, state, failures, retry_at, reason, turn in rows
            ]

    def visit_rows(self) -> list[VisitRow]:
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT visit.id, origin, part, epoch, place, began, over, ended, parcels, visit.pages,"
                " visit.requests, visit.bytes_received, kept, cpu_seconds"
                " FROM visit JOIN site ON site.id = site_id ORDER BY began"
            )
            names = VisitRow.__struct_fields__
            return [VisitRow(**dict(zip(names, row, strict=True))) for row in rows]


def _blocked(db: sqlite3.Connection) -> frozenset[str]:
    return frozenset(name for (name,) in db.execute("SELECT name FROM block"))


def _count(db: sqlite3.Connection, sql: str, *values: float) -> int:
    return int(db.execute(sql, values).fetchone()[0])
