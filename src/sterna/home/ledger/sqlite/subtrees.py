"""What earlier visits teach of the next one to a site: pages by the parts of it, and what a page costs."""

import sqlite3

from sterna.home.ledger.interface import Estimate, Subtree

VISITS = 20  # the last ones, by which a page is reckoned
LEAST_PAGES = 10  # of such a visit

# The part of a stored URL, which begins with the path: see `web.parts`.
_PATH = "CASE instr(url, '?') WHEN 0 THEN url ELSE substr(url, 1, instr(url, '?') - 1) END"
_SECOND_SLASH = "instr(substr(path, 2), '/')"
_PART = f"CASE {_SECOND_SLASH} WHEN 0 THEN '/' ELSE substr(path, 1, {_SECOND_SLASH} + 1) END"


def read_estimate(db: sqlite3.Connection, site: str, *, with_subtrees: bool) -> Estimate:
    """What is known of a site; its parts only on request, for they take a look at each of its URLs."""
    row = db.execute("SELECT id, bytes_received, requests FROM site WHERE origin = ?", (site,)).fetchone()
    if row is None:
        return Estimate()
    site_id, size, requests = row
    # The quickest one: others may have waited for the site to be less busy, or for its hours. Small ones took
    # most of their time to get there.
    seconds, cpu_seconds = db.execute(
        "SELECT coalesce(min((over - began) / pages), 0.0), coalesce(sum(cpu_seconds) / sum(pages), 0.0)"
        " FROM (SELECT pages, over, began, cpu_seconds FROM outbox JOIN visit ON visit.id = outbox.visit"
        " WHERE site = ? AND over IS NOT NULL AND pages >= ? ORDER BY began DESC LIMIT ?)",
        (site, LEAST_PAGES, VISITS),
    ).fetchone()
    return Estimate(
        subtrees=_subtrees(db, site_id) if with_subtrees else (),
        page_bytes=size / requests if requests else 0.0,
        page_seconds=seconds,
        page_cpu_seconds=cpu_seconds,
    )


def _subtrees(db: sqlite3.Connection, site_id: int) -> tuple[Subtree, ...]:
    rows = db.execute(
        f"SELECT {_PART} AS part, sum(is_read), sum(NOT is_read) FROM"  # noqa: S608 - written above
        f" (SELECT {_PATH} AS path, 1 AS is_read FROM page WHERE site_id = ?1 AND error = ''"
        " AND status BETWEEN 200 AND 299"
        f" UNION ALL SELECT {_PATH}, 0 FROM frontier WHERE site_id = ?1 AND kind = 'page')"
        " GROUP BY part ORDER BY part",
        (site_id,),
    )
    return tuple(Subtree(*row) for row in rows)
