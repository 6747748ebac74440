"""Crawlers that were sent to hosts, and what came back from there."""

import sqlite3
from collections.abc import Collection
from typing import Any

from sterna.home.ledger.interface import UNDER_WAY, InboxRow, Out, OutboxRow
from sterna.home.ledger.sqlite.links import free_at
from sterna.home.ledger.sqlite.tally import add_to_tally
from sterna.model import Arrival, Ended, Parcel

_ROW = (
    "SELECT o.visit, o.site, endpoint, key, state, written_at, sent_at, over_at, order_bytes, bytes_sent,"
    " o.bytes_received, is_live_only, reason, coalesce(parcels, 0), coalesce(pages, 0),"
    " coalesce(v.bytes_received, 0) FROM outbox o LEFT JOIN visit v ON v.id = o.visit"
)


def write_out(db: sqlite3.Connection, row: OutboxRow, luggage: bytes) -> None:
    """Notes a crawler that is about to leave."""
    db.execute(
        "INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            row.visit,
            row.site,
            row.endpoint,
            row.key,
            row.state,
            row.written_at,
            row.sent_at,
            row.over_at,
            row.order_bytes,
            row.bytes_sent,
            row.bytes_received,
            row.is_live_only,
            row.reason,
            luggage,
        ),
    )


def mark_out(
    db: sqlite3.Connection,
    visit: str,
    state: Out,
    *,
    now: float,
    bytes_sent: int = 0,
    bytes_received: int = 0,
    reason: str = "",
) -> Out:
    """Notes what became of a crawler; one that is over stays as it is, but for bytes that are told late."""
    db.execute(
        "UPDATE outbox SET bytes_sent = bytes_sent + ?, bytes_received = bytes_received + ? WHERE visit = ?",
        (bytes_sent, bytes_received, visit),
    )
    add_to_tally(db, {"bytes_received": bytes_received})
    is_over = state not in UNDER_WAY
    db.execute(
        "UPDATE outbox SET state = ?, reason = ?, sent_at = coalesce(sent_at, ?), over_at = ?,"
        " luggage = CASE WHEN ? THEN NULL ELSE luggage END WHERE visit = ? AND over_at IS NULL",
        (state, reason, now if state == Out.AWAY else None, now if is_over else None, is_over, visit),
    )
    row = db.execute("SELECT state FROM outbox WHERE visit = ?", (visit,)).fetchone()
    return Out(row[0]) if row else state


def read_outbox(db: sqlite3.Connection, states: Collection[Out]) -> list[OutboxRow]:
    marks = ", ".join("?" * len(states))
    rows = db.execute(f"{_ROW} WHERE state IN ({marks}) ORDER BY written_at, o.visit", tuple(states))
    return [_outbox_row(row) for row in rows]


def read_luggage(db: sqlite3.Connection, visit: str) -> bytes:
    row = db.execute("SELECT luggage FROM outbox WHERE visit = ?", (visit,)).fetchone()
    return bytes(row[0]) if row and row[0] else b""


def add_arrival(db: sqlite3.Connection, parcel: Parcel, arrival: Arrival, *, now: float) -> None:
    """A parcel from a host is stored: so the crawler was there."""
    db.execute(
        "INSERT INTO inbox VALUES (?, ?, ?, ?, ?)",
        (parcel.visit, parcel.number, arrival.received_at, arrival.size_bytes, now),
    )
    db.execute("UPDATE visit SET place = 'host' WHERE id = ?", (parcel.visit,))
    mark_out(db, parcel.visit, Out.AWAY, now=arrival.received_at)


def write_luggage(db: sqlite3.Connection, visit: str, luggage: bytes) -> None:
    """Has a crawler that has not left yet take something else along."""
    db.execute("UPDATE outbox SET luggage = ? WHERE visit = ? AND over_at IS NULL", (luggage, visit))


def read_inbox(db: sqlite3.Connection, visit: str) -> list[InboxRow]:
    rows = db.execute(
        "SELECT visit, number, received_at, size_bytes, taken_at FROM inbox WHERE visit = ? ORDER BY number",
        (visit,),
    )
    return [InboxRow(**dict(zip(InboxRow.__struct_fields__, row, strict=True))) for row in rows]


def lose(db: sqlite3.Connection, visit: str, *, now: float, reason: str) -> bool:
    """Ends a lease whose visit will not come back."""
    mark_out(db, visit, Out.LOST, now=now, reason=reason)
    row = db.execute(
        "SELECT site_id, part, origin FROM part JOIN site ON site.id = site_id WHERE visit = ?", (visit,)
    ).fetchone()
    if row is None:
        return False
    site_id, part, origin = row
    db.execute(
        "UPDATE part SET visit = NULL, turn = ? WHERE site_id = ? AND part = ?",
        (free_at(db, site_id, origin, now), site_id, part),
    )
    db.execute("UPDATE visit SET over = ?, ended = ? WHERE id = ?", (now, Ended.LOST, visit))
    return True


def _outbox_row(row: tuple[Any, ...]) -> OutboxRow:
    fields = dict(zip(OutboxRow.__struct_fields__, row, strict=True))
    return OutboxRow(
        **{**fields, "state": Out(fields["state"]), "is_live_only": bool(fields["is_live_only"])}
    )
