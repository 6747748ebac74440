"""Asking again before the time: sites whose robots.txt failed, sites that are held, pages that failed."""

import sqlite3
from collections.abc import Collection

from sterna.home.ledger.sqlite.database import Part
from sterna.home.ledger.sqlite.frontier import free_at, put_back
from sterna.web.urls import fingerprint, site_of

# What may have passed by now; what a page or robots.txt says of itself has not.
_PASSING = ("connect", "timeout", "network", "empty", "truncated", "dns", "tls", "protocol", "proxy")
_FAILED = (
    f"(page.error IN ({', '.join(map(repr, _PASSING))}) OR page.error LIKE 'http%'"
    " OR page.status = 429 OR page.status >= 500)"
)


class Retries(Part):
    """See `AskingAgain`."""

    def ask_again(self, urls: Collection[str], *, now: float) -> None:
        with self._database.transaction() as db:
            for url in urls:
                row = db.execute("SELECT id FROM site WHERE origin = ?", (site_of(url),)).fetchone()
                if row:
                    _requalify(db, "id = ?", row[0], now=now)
                    one_page = f"page.site_id = ? AND page.fingerprint = ? AND {_FAILED}"
                    put_back(db, one_page, (row[0], fingerprint(url)))

    def requalify(self, *, now: float) -> None:
        with self._database.transaction() as db:
            _requalify(db, "?", 1, now=now)

    def retry(self, *, now: float, least_pause: float) -> int:
        with self._database.transaction() as db:
            # The pause after the last request is politeness, and stays.
            db.execute(
                "UPDATE hold SET until = min(until, ?1 + max(?2, coalesce("
                "(SELECT delay_seconds FROM site WHERE origin = substr(key, length('site ') + 1)), 0)))"
                " WHERE key LIKE 'site %'",
                (now, least_pause),
            )
            _requalify(db, "?", 1, now=now)
            db.execute("UPDATE frontier SET not_before = 0 WHERE not_before > ?", (now,))
            db.execute("UPDATE part SET turn = ?1 WHERE turn > ?1 AND visit IS NULL", (now,))
            return put_back(db, _FAILED, ())


def _requalify(db: sqlite3.Connection, condition: str, value: int, *, now: float) -> None:
    """Ends the wait for the robots.txt of these sites, whose failures in a row still count."""
    rows = db.execute(
        f"SELECT id, origin FROM site WHERE {condition} AND robots_state = 'disqualified'"  # noqa: S608
        " AND robots_retry_at > ?",
        (value, now),
    ).fetchall()
    db.executemany("UPDATE site SET robots_retry_at = 0 WHERE id = ?", [(site_id,) for site_id, _ in rows])
    db.executemany(
        "UPDATE part SET turn = ?2 WHERE site_id = ?1 AND turn > ?2 AND visit IS NULL",
        [(site_id, free_at(db, site_id, origin, now)) for site_id, origin in rows],
    )
