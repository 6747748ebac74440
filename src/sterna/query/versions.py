"""The newest version of each page, and its links, without grouping what was stored only once.

A row whose `again` is False came for a URL that was never stored before. So a URL has more than one version
only if one of its rows says otherwise, or says nothing, as those of earlier Sternas do. Versions are in order
by the time they were fetched, then by their batch and their place. The others are left out in three ways:

- A collection without second versions is the files themselves, and costs what they cost.
- For one query it is best to compare each row with those that came again for its URL.
  That is right if all of them were fetched after whatever came first, as in a crawl that was refreshed.
- For more queries, or where that is not so, the outdated rows are noted by their place, which takes a second
  on a million pages, and are then left out at little cost (`outdated`).

A window over all columns is shorter but holds every text in memory: 66 s against 1.0 s on 300,000 pages.
"""

from enum import Enum, auto

import duckdb

from sterna.archive.manifest import UNWANTED
from sterna.query.scan import FILE, ROW, Scan, Within

SCHEMA = "sterna"  # of internal tables
# A tombstone ends a page: it is in the history, and makes the earlier versions outdated.
IS_VERSION = f"error IS DISTINCT FROM '{UNWANTED}'"


class Way(Enum):
    """How outdated rows are left out."""

    NONE_IS = auto()
    BY_URL = auto()
    BY_PLACE = auto()


_ANY = "SELECT 1 FROM {rows} WHERE again IS DISTINCT FROM false LIMIT 1"
_FIRST_AGAIN = "SELECT min(fetched) FROM {rows} WHERE again IS DISTINCT FROM false"
_FIRST_AFTER = "SELECT 1 FROM {rows} WHERE NOT again AND fetched >= $first LIMIT 1"
_VERSIONS = """
    CREATE OR REPLACE TABLE {schema}.version AS
    WITH
        candidate AS (SELECT DISTINCT url FROM {rows} WHERE again IS DISTINCT FROM false),
        stored AS MATERIALIZED (
            SELECT url, fetched, coalesce(batch, 0) AS batch, {file} AS file, {row} AS row
            FROM {placed} SEMI JOIN candidate USING (url)
        ),
        several AS (SELECT url FROM stored GROUP BY url HAVING count(*) > 1)
    SELECT *, row_number() OVER newest_first AS age
    FROM stored SEMI JOIN several USING (url)
    WINDOW newest_first AS (
        PARTITION BY url ORDER BY fetched DESC NULLS LAST, batch DESC, file DESC, row DESC
    )
"""
_OUTDATED = (
    "CREATE OR REPLACE TABLE {schema}.outdated AS SELECT file, row FROM {schema}.version WHERE age > 1",
    # Two versions of one time and batch cannot be told apart by their links: those of both count.
    "CREATE OR REPLACE TABLE {schema}.outdated_link AS SELECT url, fetched, batch FROM {schema}.version"
    " GROUP BY ALL HAVING min(age) > 1",
    "DROP TABLE {schema}.version",
)


def find_way(connection: duckdb.DuckDBPyConnection, pages: Scan) -> Way:
    """The way for one query."""
    rows = pages.rows(connection)
    if connection.execute(_ANY.format(rows=rows)).fetchone() is None:
        return Way.NONE_IS
    (first,) = connection.execute(_FIRST_AGAIN.format(rows=rows)).fetchone() or (None,)
    late = connection.execute(_FIRST_AFTER.format(rows=rows), {"first": first}).fetchone()
    return Way.BY_URL if first is not None and late is None else note_outdated(connection, pages)


def note_outdated(connection: duckdb.DuckDBPyConnection, pages: Scan) -> Way:
    """The way for many queries."""
    rows, placed = pages.rows(connection), pages.rows(connection, with_place=True)
    connection.execute(_VERSIONS.format(rows=rows, placed=placed, schema=SCHEMA, file=FILE, row=ROW))
    for statement in _OUTDATED:
        connection.execute(statement.format(schema=SCHEMA))
    found = connection.execute(f"SELECT 1 FROM {SCHEMA}.outdated LIMIT 1").fetchone()  # noqa: S608
    return Way.BY_PLACE if found else Way.NONE_IS


def newest_pages(columns: str, placed: str, way: Way) -> str:
    """The rows that are not outdated."""
    if way is Way.BY_PLACE:
        join = f"ANTI JOIN {SCHEMA}.outdated ON stored.{FILE} = outdated.file AND stored.{ROW} = outdated.row"
    else:
        join = _newer(
            placed,
            f"newer_url = stored.url AND row(newer_fetched, newer_batch, newer_file, newer_row)"
            f" > row(stored.fetched, coalesce(stored.batch, 0), stored.{FILE}, stored.{ROW})",
        )
    if way is Way.BY_PLACE:
        return f"SELECT {columns} FROM {placed} AS stored {join} WHERE stored.{IS_VERSION}"  # noqa: S608 - our own names
    return f"SELECT {columns} FROM {placed} AS stored {join} AND stored.{IS_VERSION}"  # noqa: S608


def newest_links(columns: str, rows: str, placed: str, way: Way) -> str:
    """The links of the pages that are not outdated."""
    if way is Way.BY_PLACE:
        join = (
            f"ANTI JOIN {SCHEMA}.outdated_link AS outdated ON stored.from_url = outdated.url"
            " AND stored.fetched = outdated.fetched AND coalesce(stored.batch, 0) = outdated.batch"
        )
    else:
        join = _newer(
            placed,
            "newer_url = stored.from_url AND row(newer_fetched, newer_batch)"
            " > row(stored.fetched, coalesce(stored.batch, 0))",
        )
    return f"SELECT {columns} FROM {rows} AS stored {join}"  # noqa: S608


def _newer(placed: str, condition: str) -> str:
    """Leaves out the rows for which something newer came again.

    It is a left join: through one DuckDB hands on which URL is wanted, and through an anti join it does not.
    """
    columns = (
        "url AS newer_url, fetched AS newer_fetched, coalesce(batch, 0) AS newer_batch,"
        f" {FILE} AS newer_file, {ROW} AS newer_row"
    )
    came_again = f"SELECT {columns} FROM {placed} WHERE again IS DISTINCT FROM false"  # noqa: S608
    return f"LEFT JOIN ({came_again}) ON {condition} WHERE newer_url IS NULL"


# --- events: a page was created, updated or deleted

# Only conclusive responses count: success, gone, and tombstones. A URL with one stored version can only have
# been created; the versions of the others are sorted.
_EVENTS = """
    WITH
        candidate AS (
            SELECT DISTINCT url FROM {placed} WHERE ({within}) AND again IS DISTINCT FROM false
        ),
        told AS (
            SELECT *, status BETWEEN 200 AND 299 AND {is_version} AS is_good, coalesce(batch, 0) AS number
            FROM {placed} WHERE status BETWEEN 200 AND 299 OR status IN (404, 410) OR NOT ({is_version})
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
    """The query for the events of this part; `placed` are all rows with their positions."""
    part, earlier = within.condition(), within.earlier_condition()
    return _EVENTS.format(
        placed=placed, within=part, earlier=earlier, file=FILE, row=ROW, is_version=IS_VERSION
    )
