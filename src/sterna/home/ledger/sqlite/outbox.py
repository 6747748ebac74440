"""Hosts of sites, crawlers that were sent there, and what came back."""

import sqlite3
from collections.abc import Collection

from msgspec.structs import astuple, replace

from sterna.home.ledger.records import (
    UNDER_WAY,
    Estimate,
    HostRow,
    InboxRow,
    Out,
    OutboxRow,
    OwnerRow,
    Subtree,
)
from sterna.home.ledger.sqlite.database import Part, add_to_tally, select
from sterna.home.ledger.sqlite.frontier import free_at
from sterna.model import Arrival, Ended, Parcel

_COUNTED = (
    "(SELECT o.*, coalesce(parcels, 0) AS parcels, coalesce(pages, 0) AS pages,"
    " coalesce(v.bytes_received, 0) AS fetched_bytes FROM outbox o LEFT JOIN visit v ON v.id = o.visit)"
)
VISITS = 20  # the latest ones, from which the cost of a page is estimated
LEAST_PAGES = 10  # of such a visit
# The part of a stored URL, which begins with its path: the same as `web.urls.part_of`.
_PATH = "CASE instr(url, '?') WHEN 0 THEN url ELSE substr(url, 1, instr(url, '?') - 1) END"
_SECOND_SLASH = "instr(substr(path, 2), '/')"
_PART = f"CASE {_SECOND_SLASH} WHEN 0 THEN '/' ELSE substr(path, 1, {_SECOND_SLASH} + 1) END"


class Outbox(Part):
    """See `HostsAndOutbox`."""

    # Negative answers wait for the next commit, to save a flush: most sites have no host. After a crash such
    # a site is asked once more. Changed by set_host() and _write_hosts().
    _unwritten: dict[str, HostRow]

    def host_row(self, site: str) -> HostRow | None:
        if site in self._unwritten:
            return self._unwritten[site]
        with self._database.reading() as db:
            return next(iter(select(db, HostRow, "host WHERE site = ?", site)), None)

    def set_host(self, row: HostRow) -> None:
        if not (row.offer or row.key):
            self._unwritten[row.site] = row
            return
        self._unwritten.pop(row.site, None)  # a pinned key cannot wait
        with self._database.transaction() as db:
            _write_host(db, row)

    def known_hosts(self, *, now: float) -> list[tuple[HostRow, bool]]:
        condition = (
            "host WHERE length(offer) > 0 AND site NOT IN (SELECT site FROM trust WHERE until > ?)"
            " AND site NOT IN (SELECT site FROM owner WHERE until > ?)"
        )
        with self._database.reading() as db:
            private = {site for (site,) in db.execute("SELECT origin FROM site WHERE may_be_private")}
            return [(row, row.site in private) for row in select(db, HostRow, condition, now, now)]

    def _write_hosts(self, db: sqlite3.Connection) -> None:
        for row in self._unwritten.values():
            _write_host(db, row)
        self._unwritten.clear()

    def forgive_hosts(self, *, and_ask: bool) -> None:
        with self._database.transaction() as db:
            self._write_hosts(db)
            db.execute(
                "UPDATE host SET failed_until = 0 WHERE failed_until > 0"
                " AND (? OR reason NOT LIKE 'closed-now%')",
                (and_ask,),
            )
            if and_ask:
                db.execute("UPDATE host SET until = 0 WHERE coalesce(length(offer), 0) = 0")

    def owner_row(self, site: str) -> OwnerRow | None:
        with self._database.reading() as db:
            return next(iter(select(db, OwnerRow, "owner WHERE site = ?", site)), None)

    def owner_rows(self) -> list[OwnerRow]:
        with self._database.reading() as db:
            return select(db, OwnerRow, "owner ORDER BY site")

    def set_owner(self, row: OwnerRow) -> None:
        with self._database.transaction() as db:
            db.execute("INSERT OR REPLACE INTO owner VALUES (?, ?, ?, ?, ?, ?)", astuple(row))

    def ask_owners(self, *, now: float, may_ask: bool) -> None:
        with self._database.transaction() as db:
            if may_ask:
                _wake_stopped(db, now=now)
            db.execute("UPDATE owner SET ask_at = iif(?, 0, until)", (may_ask,))
            db.execute("DELETE FROM owner WHERE until <= ? AND closed_until <= ?", (now, now))

    def forget_owners(self, *, now: float) -> None:
        with self._database.transaction() as db:
            _wake_stopped(db, now=now)
            db.execute("DELETE FROM owner")

    def set_priority(self, site: str, priority: int) -> None:
        with self._database.transaction() as db:
            self._write_hosts(db)
            # A site need not have a host for this.
            db.execute(
                "INSERT INTO host VALUES (?, 0, NULL, '', 0, 0, '', ?)"
                " ON CONFLICT DO UPDATE SET priority = excluded.priority",
                (site, priority),
            )

    def write_out(self, row: OutboxRow, luggage: bytes) -> None:
        with self._database.transaction() as db:
            stored = astuple(row)[: OutboxRow.__struct_fields__.index("parcels")]  # the rest is counted
            marks = ", ".join("?" * (len(stored) + 1))
            db.execute(f"INSERT INTO outbox VALUES ({marks})", (*stored, luggage))  # noqa: S608

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
            db.execute(
                "UPDATE outbox SET bytes_sent = bytes_sent + ?, bytes_received = bytes_received + ?"
                " WHERE visit = ?",
                (bytes_sent, bytes_received, visit),
            )
            add_to_tally(db, {"bytes_received": bytes_received})
            return _mark_out(db, visit, state, now=now, reason=reason)

    def outbox(self, *, states: Collection[Out] = tuple(Out)) -> list[OutboxRow]:
        with self._database.reading() as db:
            marks = ", ".join("?" * len(states))
            rows = select(
                db, OutboxRow, f"{_COUNTED} WHERE state IN ({marks}) ORDER BY written_at, visit", *states
            )
            return [replace(row, state=Out(row.state), is_live_only=bool(row.is_live_only)) for row in rows]

    def luggage(self, visit: str) -> bytes:
        with self._database.reading() as db:
            row = db.execute("SELECT luggage FROM outbox WHERE visit = ?", (visit,)).fetchone()
            return bytes(row[0]) if row and row[0] else b""

    def set_luggage(self, visit: str, luggage: bytes) -> None:
        with self._database.transaction() as db:
            db.execute("UPDATE outbox SET luggage = ? WHERE visit = ? AND over_at IS NULL", (luggage, visit))

    def estimate(self, site: str, *, with_subtrees: bool = False) -> Estimate:
        with self._database.reading() as db:
            row = db.execute(
                "SELECT id, bytes_received, requests FROM site WHERE origin = ?", (site,)
            ).fetchone()
            if row is None:
                return Estimate()
            site_id, size, requests = row
            # The quickest visit: others may have waited for a busy site, or for its hours. Small visits spend
            # most of their time on the way.
            seconds, cpu_seconds = db.execute(
                "SELECT coalesce(min((over - began) / pages), 0.0),"
                " coalesce(sum(cpu_seconds) / sum(pages), 0.0) FROM"
                " (SELECT pages, over, began, cpu_seconds FROM outbox JOIN visit ON visit.id = outbox.visit"
                " WHERE site = ? AND over IS NOT NULL AND pages >= ? ORDER BY began DESC LIMIT ?)",
                (site, LEAST_PAGES, VISITS),
            ).fetchone()
            return Estimate(
                subtrees=_subtrees(db, site_id) if with_subtrees else (),
                page_bytes=size / requests if requests else 0.0,
                page_seconds=seconds,
                page_cpu_seconds=cpu_seconds,
            )

    def inbox(self, visit: str) -> list[InboxRow]:
        with self._database.reading() as db:
            return select(db, InboxRow, "inbox WHERE visit = ? ORDER BY number", visit)

    def add_receipt(self, visit: str, site: str, data: bytes) -> None:
        with self._database.transaction() as db:
            db.execute("INSERT OR REPLACE INTO receipt VALUES (?, ?, ?)", (visit, site, data))

    def receipts(self) -> list[tuple[str, str, bytes]]:
        with self._database.reading() as db:
            return db.execute(
                "SELECT receipt.visit, receipt.site, data FROM receipt"
                " LEFT JOIN visit ON visit.id = receipt.visit ORDER BY began, receipt.visit"
            ).fetchall()


def _mark_out(db: sqlite3.Connection, visit: str, state: Out, *, now: float, reason: str = "") -> Out:
    is_over = state not in UNDER_WAY
    db.execute(
        "UPDATE outbox SET state = ?, reason = ?, sent_at = coalesce(sent_at, ?), over_at = ?,"
        " luggage = CASE WHEN ? THEN NULL ELSE luggage END WHERE visit = ? AND over_at IS NULL",
        (state, reason, now if state == Out.AWAY else None, now if is_over else None, is_over, visit),
    )
    row = db.execute("SELECT state FROM outbox WHERE visit = ?", (visit,)).fetchone()
    return Out(row[0]) if row else state


def add_arrival(db: sqlite3.Connection, parcel: Parcel, arrival: Arrival, *, now: float) -> None:
    """Notes the arrival of a parcel from a host, which shows that the crawler is there."""
    db.execute(
        "INSERT INTO inbox VALUES (?, ?, ?, ?, ?)",
        (parcel.visit, parcel.number, arrival.received_at, arrival.size_bytes, now),
    )
    db.execute("UPDATE visit SET place = 'host' WHERE id = ?", (parcel.visit,))
    _mark_out(db, parcel.visit, Out.AWAY, now=arrival.received_at)


def lose(db: sqlite3.Connection, visit: str, *, now: float, reason: str) -> bool:
    """Ends the lease of a visit that will not come back; False if it has none."""
    _mark_out(db, visit, Out.LOST, now=now, reason=reason)
    row = db.execute(
        "SELECT site_id, origin FROM part JOIN site ON site.id = site_id WHERE visit = ?", (visit,)
    ).fetchone()
    if row:
        end(db, visit, Ended.LOST, turn=free_at(db, row[0], row[1], now), now=now)
    return row is not None


def end(db: sqlite3.Connection, visit: str, ended: Ended, *, turn: float | None, now: float) -> None:
    """Ends the lease of a visit; its part gets this turn."""
    db.execute("UPDATE part SET visit = NULL, turn = ? WHERE visit = ?", (turn, visit))
    db.execute("UPDATE visit SET over = ?, ended = ? WHERE id = ?", (now, ended, visit))


def _wake_stopped(db: sqlite3.Connection, *, now: float) -> None:
    """Gives sites whose turn was put off because of their owners a turn now."""
    db.execute(
        "UPDATE part SET turn = ?1 WHERE turn > ?1 AND site_id IN"
        " (SELECT site.id FROM site JOIN owner ON owner.site = origin WHERE until > ?1)",
        (now,),
    )


def _write_host(db: sqlite3.Connection, row: HostRow) -> None:
    """Writes all but the priority, which set_priority() alone changes."""
    db.execute(
        "INSERT INTO host (site, checked_at, offer, key, until, failed_until, reason)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET checked_at = excluded.checked_at,"
        " offer = excluded.offer, key = excluded.key, until = excluded.until,"
        " failed_until = excluded.failed_until, reason = excluded.reason",
        astuple(row)[:-1],
    )


def _subtrees(db: sqlite3.Connection, site_id: int) -> tuple[Subtree, ...]:
    """Slow: a scan of all URLs of the site."""
    rows = db.execute(
        f"SELECT {_PART} AS part, sum(is_read), sum(NOT is_read) FROM"  # noqa: S608 - written above
        f" (SELECT {_PATH} AS path, 1 AS is_read FROM page WHERE site_id = ?1 AND error = ''"
        " AND status BETWEEN 200 AND 299"
        f" UNION ALL SELECT {_PATH}, 0 FROM frontier WHERE site_id = ?1 AND kind = 'page')"
        " GROUP BY part ORDER BY part",
        (site_id,),
    )
    return tuple(Subtree(*row) for row in rows)
