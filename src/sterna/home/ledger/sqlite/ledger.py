"""The ledger on SQLite: settings, holds, counters; a lease is in `leasing`, storing a parcel in `storing`."""

import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from sterna.archive.manifest import Segment, WarcPosition
from sterna.crawler.pack import SavedProgress
from sterna.errors import StorageError
from sterna.home.ledger.interface import (
    WHOLE,
    Change,
    Counts,
    Disposal,
    Estimate,
    HostRow,
    InboxRow,
    Lease,
    Out,
    OutboxRow,
    SiteFact,
    SiteRow,
    VisitRow,
)
from sterna.home.ledger.sqlite import outbox, standing
from sterna.home.ledger.sqlite.batches import last_batch, stored_pages
from sterna.home.ledger.sqlite.database import Database
from sterna.home.ledger.sqlite.hosts import HostRows, write_host, write_priority
from sterna.home.ledger.sqlite.leasing import Leasing, read_holds
from sterna.home.ledger.sqlite.links import add_targets, ids_of_sites
from sterna.home.ledger.sqlite.promises import keep_promises
from sterna.home.ledger.sqlite.receipts import read_receipts, write_receipt
from sterna.home.ledger.sqlite.saving import read_progress, restore_progress
from sterna.home.ledger.sqlite.states import read_facts, read_state, write_state
from sterna.home.ledger.sqlite.storing import Storing, add_holds, write_warc
from sterna.home.ledger.sqlite.subtrees import read_estimate
from sterna.home.ledger.sqlite.tally import add_to_tally, read_tally
from sterna.home.ledger.sqlite.trust import SqliteTrustBook
from sterna.model import Hold, Parcel, State, Target
from sterna.web.politeness import site_key
from sterna.web.robots import NEVER


class SqliteLedger:
    """See `Ledger`; the writer is one connection, readers open their own."""

    def __init__(self, path: Path, *, is_reader: bool = False) -> None:
        self._database = Database(path, is_reader=is_reader)
        self._hosts = HostRows()
        self.trust = SqliteTrustBook(self._database)

    def close(self) -> None:
        if self._hosts.has_unwritten:
            with suppress(StorageError), self._database.transaction() as db:  # else sites are asked once more
                self._hosts.write_rest(db)
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
        host_pages: int = 0,
        may_visit: Callable[[str], bool] = lambda site: True,
    ) -> list[Lease]:
        leases: list[Lease] = []
        with self._database.transaction() as db:
            leasing = Leasing(
                db, now=now, pages=pages, host_pages=max(pages, host_pages), max_depth=max_depth
            )
            while len(leases) < len(visits) and (due := leasing.next_due()):
                if not may_visit(due.origin):
                    leasing.put_off(due, None)
                elif lease := leasing.lease(due, visits[len(leases)]):
                    leases.append(lease)
        return leases

    def judge(self, parcel: Parcel) -> Disposal:
        with self._database.reading() as db:
            return Storing(db, self._database.lookup, now=0.0).judge(parcel)

    def commit(self, change: Change, *, now: float) -> None:
        with self._database.transaction() as db:
            Storing(db, self._database.lookup, now=now).store(change)
            self._hosts.write_rest(db)

    def batch(self) -> int:
        with self._database.reading() as db:
            return last_batch(db)

    def stored(self, pages: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        with self._database.reading() as db:
            return stored_pages(db, sorted(pages))  # neighbours share pages of the table

    def recover(self, *, now: float, least_pause: float) -> int:
        with self._database.transaction() as db:
            rows = db.execute(
                "SELECT visit, origin, delay_seconds FROM part JOIN site ON site.id = site_id"
                " WHERE visit IS NOT NULL AND visit NOT IN"
                " (SELECT visit FROM outbox WHERE over_at IS NULL AND NOT is_live_only)"
            ).fetchall()
            for visit, origin, delay in rows:
                add_holds(db, [Hold(site_key(origin), now + max(delay, least_pause))])
                outbox.lose(db, visit, now=now, reason="home ended meanwhile, and its host keeps no visits")
            return len(rows)

    def lose(self, visit: str, *, now: float, reason: str = "") -> bool:
        with self._database.transaction() as db:
            return outbox.lose(db, visit, now=now, reason=reason)

    # -- hosts -------------------------------------------------------------------------------------------

    def host_row(self, site: str) -> HostRow | None:
        with self._database.reading() as db:
            return self._hosts.get(db, site)

    def set_host(self, row: HostRow) -> None:
        if not self._hosts.put(row):
            with self._database.transaction() as db:
                write_host(db, row)

    def forgive_hosts(self, *, and_ask: bool) -> None:
        with self._database.transaction() as db:
            self._hosts.write_rest(db)
            db.execute(
                "UPDATE host SET failed_until = 0 WHERE failed_until > 0"
                " AND (? OR reason NOT LIKE 'closed-now%')",
                (and_ask,),
            )
            if and_ask:
                db.execute("UPDATE host SET until = 0 WHERE coalesce(length(offer), 0) = 0")

    def set_priority(self, site: str, priority: int) -> None:
        with self._database.transaction() as db:
            self._hosts.write_rest(db)
            write_priority(db, site, priority)

    def write_out(self, row: OutboxRow, luggage: bytes) -> None:
        with self._database.transaction() as db:
            outbox.write_out(db, row, luggage)

    def mark_out(
        self,
        visit: str,
        state: Out,
        *,
        now: float,
        bytes_sent: int = 0,
        bytes_received: int = 0,
        reason: str = "",
    ) -> Out:
        with self._database.transaction() as db:
            return outbox.mark_out(
                db,
                visit,
                state,
                now=now,
                bytes_sent=bytes_sent,
                bytes_received=bytes_received,
                reason=reason,
            )

    def outbox(self, *, states: Collection[Out] = tuple(Out)) -> list[OutboxRow]:
        with self._database.reading() as db:
            return outbox.read_outbox(db, states)

    def luggage(self, visit: str) -> bytes:
        with self._database.reading() as db:
            return outbox.read_luggage(db, visit)

    def set_luggage(self, visit: str, luggage: bytes) -> None:
        with self._database.transaction() as db:
            outbox.write_luggage(db, visit, luggage)

    def estimate(self, site: str, *, with_subtrees: bool = False) -> Estimate:
        with self._database.reading() as db:
            return read_estimate(db, site, with_subtrees=with_subtrees)

    def inbox(self, visit: str) -> list[InboxRow]:
        with self._database.reading() as db:
            return outbox.read_inbox(db, visit)

    def add_receipt(self, visit: str, site: str, data: bytes) -> None:
        with self._database.transaction() as db:
            write_receipt(db, visit, site, data)

    def receipts(self) -> list[tuple[str, str, bytes]]:
        with self._database.reading() as db:
            return read_receipts(db)

    # -- visiting again ----------------------------------------------------------------------------------

    def refresh(self, *, older_than: float, now: float) -> int:
        with self._database.transaction() as db:
            db.execute(
                "DELETE FROM known WHERE is_done"
                " AND (site_id, fingerprint) NOT IN (SELECT site_id, fingerprint FROM page)"
            )
            moved = db.execute(
                "INSERT INTO frontier (site_id, part, rank, fingerprint, url, referrer, kind, hops, is_again)"
                " SELECT page.site_id, ?, known.rank, page.fingerprint, url, '', 'page', 0, 1"
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
        with self._database.transaction() as db:
            keep_promises(db, now=now)
        return moved

    def forget_validators(self) -> None:
        with self._database.transaction() as db:
            db.execute("UPDATE page SET etag = '', modified = '', digest = x'', likeness = x''")

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

    def progress(self, site: str) -> SavedProgress:
        with self._database.reading() as db:
            row = db.execute("SELECT id FROM site WHERE origin = ?", (site,)).fetchone()
            return read_progress(db, row[0], site) if row else SavedProgress()

    def restore(self, site: str, progress: SavedProgress, *, now: float) -> None:
        with self._database.transaction() as db:
            restore_progress(db, self._database.lookup, site, progress, now=now)

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
            return standing.read_counts(db, now=now)

    def due_count(self, *, now: float, most: int) -> int:
        with self._database.reading() as db:
            return standing.count(
                db, "SELECT count(*) FROM (SELECT 1 FROM part WHERE turn <= ? LIMIT ?)", now, most
            )

    def site_rows(self) -> list[SiteRow]:
        with self._database.reading() as db:
            return standing.read_sites(db)

    def visit_rows(self) -> list[VisitRow]:
        with self._database.reading() as db:
            return standing.read_visits(db)


def _blocked(db: sqlite3.Connection) -> frozenset[str]:
    return frozenset(name for (name,) in db.execute("SELECT name FROM block"))
