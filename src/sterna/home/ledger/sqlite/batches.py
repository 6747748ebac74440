"""Batches: their numbers, and which of their pages were stored before."""

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain

from sterna.home.ledger.sqlite.tally import add_to_tally

CHUNK = 256  # pages in one statement
NAME = "batches"  # their number among the tallies


def last_batch(db: sqlite3.Connection) -> int:
    row = db.execute("SELECT amount FROM tally WHERE name = ?", (NAME,)).fetchone()
    return int(row[0]) if row else 0


def count_batch(db: sqlite3.Connection, number: int) -> None:
    """Makes this the last batch; it must be the next one, or followers would miss or double rows."""
    last = last_batch(db)
    if number != last + 1:
        raise ValueError(f"batch {number} after batch {last}")
    add_to_tally(db, {NAME: 1})


def stored_pages(db: sqlite3.Connection, pages: Sequence[tuple[str, int]]) -> set[tuple[str, int]]:
    """Those of the pages, each a site and a fingerprint, that are in the ledger already."""
    found: set[tuple[str, int]] = set()
    for start in range(0, len(pages), CHUNK):
        some = pages[start : start + CHUNK]
        found.update(db.execute(stored_sql(len(some)), list(chain.from_iterable(some))))
    return found


@cache
def stored_sql(count: int) -> str:
    """The statement for so many pages; a plain join may begin with `page`, and read all of it."""
    return (
        f"WITH asked (origin, mark) AS (VALUES {', '.join(['(?, ?)'] * count)})"  # noqa: S608
        " SELECT asked.origin, mark FROM asked"
        " CROSS JOIN site ON site.origin = asked.origin"
        " CROSS JOIN page ON page.site_id = site.id AND page.fingerprint = mark"
    )
