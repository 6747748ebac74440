"""What is known of the hosts of sites."""

import sqlite3

from sterna.home.ledger.interface import HostRow


class HostRows:
    """Reads and writes them; that a site has none waits for the next commit, and costs no flush of its own.

    Most sites have none, and whoever forgets it in a crash asks once more.
    """

    def __init__(self) -> None:
        self._unwritten: dict[str, HostRow] = {}  # changed by put() and write_rest()

    @property
    def has_unwritten(self) -> bool:
        return bool(self._unwritten)

    def get(self, db: sqlite3.Connection, site: str) -> HostRow | None:
        if site in self._unwritten:
            return self._unwritten[site]
        row = db.execute(
            "SELECT site, checked_at, offer, key, until, failed_until, reason, priority FROM host"
            " WHERE site = ?",
            (site,),
        ).fetchone()
        return HostRow(**dict(zip(HostRow.__struct_fields__, row, strict=True))) if row else None

    def put(self, row: HostRow) -> bool:
        """True if it can wait; a key that is pinned cannot."""
        can_wait = not (row.offer or row.key)
        if can_wait:
            self._unwritten[row.site] = row
        else:
            self._unwritten.pop(row.site, None)
        return can_wait

    def write_rest(self, db: sqlite3.Connection) -> None:
        """Writes what waits; inside a transaction."""
        for row in self._unwritten.values():
            write_host(db, row)
        self._unwritten.clear()


def write_host(db: sqlite3.Connection, row: HostRow) -> None:
    """Notes what is known of a host; a priority is not its own to change."""
    values = (row.site, row.checked_at, row.offer, row.key, row.until, row.failed_until, row.reason)
    db.execute(
        "INSERT INTO host (site, checked_at, offer, key, until, failed_until, reason)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET checked_at = excluded.checked_at,"
        " offer = excluded.offer, key = excluded.key, until = excluded.until,"
        " failed_until = excluded.failed_until, reason = excluded.reason",
        values,
    )


def write_priority(db: sqlite3.Connection, site: str, priority: int) -> None:
    """Notes how soon the site is to be visited again, whether it has a host or not."""
    db.execute(
        "INSERT INTO host VALUES (?, 0, NULL, '', 0, 0, '', ?)"
        " ON CONFLICT DO UPDATE SET priority = excluded.priority",
        (site, priority),
    )
