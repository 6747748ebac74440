"""Promises to sites: what a home offers for a larger budget is that it visits them sooner again."""

import sqlite3

STEP_SECONDS = 24 * 3600.0  # by which each step of priority puts a turn ahead of others of the same time


def keep_promises(db: sqlite3.Connection, *, now: float) -> None:
    """Puts the sites whose turn is now in the order of what they were promised, before all others."""
    db.execute(
        "UPDATE part SET turn = turn - ? *"
        " (SELECT priority FROM host JOIN site ON site.origin = host.site WHERE site.id = site_id)"
        " WHERE turn = ? AND site_id IN"
        " (SELECT site.id FROM host JOIN site ON site.origin = host.site WHERE priority > 0)",
        (STEP_SECONDS, now),
    )
