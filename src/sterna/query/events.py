"""Web events as visits found them: a page was created, updated or deleted."""

from sterna.query.scan import FILE, ROW
from sterna.query.within import Within

# Only answers that say something of the page count: a good one, or that it is gone. A URL that was stored
# once can only have been created; the others are put in order.
_EVENTS = """
    WITH
        candidate AS (
            SELECT DISTINCT url FROM {placed} WHERE ({within}) AND again IS DISTINCT FROM false
        ),
        told AS (
            SELECT *, status BETWEEN 200 AND 299 AS is_good, coalesce(batch, 0) AS number
            FROM {placed} WHERE status BETWEEN 200 AND 299 OR status IN (404, 410)
        ),
        compared AS (
            SELECT *, lag(is_good) OVER in_order AS was_good, lag(digest) OVER in_order AS digest_before
            FROM (SELECT * FROM told WHERE {earlier}) SEMI JOIN candidate USING (url)
            WINDOW in_order AS (PARTITION BY url ORDER BY fetched, number, {file}, {row})
        )
    SELECT url, site, 'created' AS kind, fetched, status, digest,
        NULL::VARCHAR AS digest_before, visit
    FROM (SELECT * FROM told WHERE is_good AND ({within})) ANTI JOIN candidate USING (url)
    UNION ALL
    SELECT url, site,
        CASE WHEN NOT is_good THEN 'deleted' WHEN was_good THEN 'updated' ELSE 'created' END,
        fetched, status, CASE WHEN is_good THEN digest END, CASE WHEN was_good THEN digest_before END, visit
    FROM compared
    WHERE ({within}) AND CASE
        WHEN NOT is_good THEN coalesce(was_good, false)
        WHEN was_good THEN digest IS DISTINCT FROM digest_before
        ELSE true
    END
"""


def events(placed: str, within: Within) -> str:
    """The query that tells what happened to the pages of the part, given all rows with their places."""
    return _EVENTS.format(
        placed=placed,
        within=within.condition(),
        earlier=within.earlier_condition(),
        file=FILE,
        row=ROW,
    )
