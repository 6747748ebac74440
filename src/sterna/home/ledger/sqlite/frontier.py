"""The frontier: adding new links to it, putting fetched pages back, and when their sites may be visited."""

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec.structs import astuple

from sterna.home.ledger.records import WHOLE
from sterna.home.ledger.sqlite.database import add_to_tally
from sterna.home.ledger.sqlite.lookup import (
    REQUISITE_RANK,
    Lookup,
    Row,
    best,
    chunks,
    depth_of,
    priority_of,
    rank_of,
)
from sterna.model import REQUISITES, Hold, Target
from sterna.web.politeness import site_key
from sterna.web.robots import NEVER
from sterna.web.urls import fingerprint, site_of

Key = tuple[int, int]  # site, fingerprint
Waiting = tuple[int, Target, str, str]  # rank, URL, its part, its site


def add_targets(
    db: sqlite3.Connection, lookup: Lookup, groups: Sequence[tuple[str, Sequence[Target]]], *, now: float
) -> dict[str, int]:
    """Adds URLs never seen before to the frontier, each group to its part; returns the ids of all sites."""
    by_site: defaultdict[str, list[Waiting]] = defaultdict(list)
    for part, targets in groups:
        for target in targets:
            origin = site_of(target.url)
            rank = REQUISITE_RANK if part == REQUISITES else rank_of(target)
            by_site[origin].append((rank, target, part, origin))
    site_ids = ids_of_sites(db, by_site.keys())
    nearest: dict[Key, Waiting] = {}

    def links() -> Iterator[Row]:
        """In the order of the table, since neighbours share its pages; threads look up the first."""
        for origin in sorted(by_site, key=site_ids.__getitem__):
            site_id = site_ids[origin]
            of_site = _nearest(by_site[origin])
            for mark in sorted(of_site):
                nearest[site_id, mark] = each = of_site[mark]
                yield site_id, mark, each[0]

    changes = lookup(links())
    _insert(db, [((site, mark), *nearest[site, mark]) for site, mark, _, old in changes if old is None])
    db.executemany(  # what waits as a requisite, and is linked as a page now, becomes one
        "UPDATE frontier SET part = ?1 WHERE site_id = ?2 AND part = ?3 AND rank = ?4 AND fingerprint = ?5",
        [
            (nearest[site, mark][2], site, REQUISITES, old, mark)
            for site, mark, _, old in changes
            if old == REQUISITE_RANK
        ],
    )
    nearer = [(best(rank, old), site, old, mark) for site, mark, rank, old in changes if old is not None]
    db.executemany(
        "UPDATE frontier SET rank = ?1 WHERE site_id = ?2 AND rank = ?3 AND fingerprint = ?4"
        " AND part IN (SELECT part FROM part WHERE site_id = ?2)",
        nearer,
    )
    db.executemany("UPDATE known SET rank = ?1 WHERE site_id = ?2 AND rank = ?3 AND fingerprint = ?4", nearer)
    for part, origin in {nearest[site, mark][2:] for site, mark, _, _ in changes}:
        _wake(db, site_ids[origin], origin, part, now)
    return site_ids


def _nearest(waiting: Sequence[Waiting]) -> dict[int, Waiting]:
    """Each URL once: with the lowest depth and the highest priority that it was found with."""
    nearest: dict[int, Waiting] = {}
    for each in waiting:
        mark = fingerprint(each[1].url)
        other = nearest.setdefault(mark, each)
        if other[0] != each[0]:
            first = each if depth_of(each[0]) < depth_of(other[0]) else other
            nearest[mark] = (best(each[0], other[0]), *first[1:])
    return nearest


def put_back(db: sqlite3.Connection, condition: str, values: tuple[float, ...]) -> int:
    """Moves fetched pages back into the frontier: how many. The condition is written in this package only."""
    moved = db.execute(
        "INSERT INTO frontier (site_id, part, rank, fingerprint, url, referrer, kind, hops, is_again)"  # noqa: S608
        " SELECT page.site_id, iif(known.rank = ?, ?, ?), known.rank, page.fingerprint, url, '', 'page', 0, 1"
        f" FROM page JOIN known USING (site_id, fingerprint) WHERE {condition} AND is_done",
        (REQUISITE_RANK, REQUISITES, WHOLE, *values),
    ).rowcount
    db.execute(
        "UPDATE known SET is_done = 0 WHERE is_done AND (site_id, fingerprint) IN"  # noqa: S608
        f" (SELECT site_id, fingerprint FROM page WHERE {condition})",
        values,
    )
    add_to_tally(db, {"pending": moved})
    return moved


def add_holds(db: sqlite3.Connection, holds: Sequence[Hold]) -> None:
    db.executemany(
        "INSERT INTO hold VALUES (?, ?) ON CONFLICT DO UPDATE SET until = max(until, excluded.until)",
        map(astuple, holds),
    )


def free_at(db: sqlite3.Connection, site_id: int, origin: str, now: float) -> float | None:
    """When the site may next be visited, after its hold and its disqualification; None if never."""
    row = db.execute("SELECT until FROM hold WHERE key = ?", (site_key(origin),)).fetchone()
    (retry_at,) = db.execute(
        "SELECT CASE robots_state WHEN 'disqualified' THEN robots_retry_at ELSE 0 END FROM site WHERE id = ?",
        (site_id,),
    ).fetchone()
    free_at = max(now, row[0] if row else 0.0, float(retry_at))
    return free_at if free_at < NEVER else None


def shorten(url: str, origin: str) -> str:
    """A URL as the tables store it: the path alone if it is on its own site."""
    path = url.removeprefix(origin)
    return path if path.startswith("/") else url


def target_of(origin: str, row: Sequence[Any]) -> Target:
    """The URL of a row of the frontier: url, rank, referrer, kind, hops, attempts, perhaps not_before."""
    path, rank, referrer, kind, hops, attempts, *late = row
    referrer = origin + referrer if referrer.startswith("/") else referrer
    not_before = late[0] if late else 0.0
    return Target(
        origin + path, depth_of(rank), referrer, kind, hops, attempts, not_before, priority_of(rank)
    )


def ids_of_sites(db: sqlite3.Connection, origins: Collection[str]) -> dict[str, int]:
    """The ids of these sites; new sites are added."""
    found = _select_sites(db, sorted(origins))
    new = sorted(set(origins) - found.keys())
    db.executemany("INSERT INTO site (origin) VALUES (?)", [(origin,) for origin in new])
    add_to_tally(db, {"sites": len(new)})
    return found | _select_sites(db, new)


def depths_of(db: sqlite3.Connection, urls: Collection[str]) -> dict[str, int]:
    """The depths of those URLs that are pages."""
    ids = ids_of_sites(db, {site_of(url) for url in urls})
    keys = {(ids[site_of(url)], fingerprint(url)): url for url in urls}
    depths: dict[str, int] = {}
    for some in chunks(sorted(keys)):
        values = ", ".join(["(?, ?)"] * len(some))
        rows = db.execute(
            f"WITH asked (site, mark) AS (VALUES {values}) SELECT site, mark, depth FROM asked"  # noqa: S608
            " CROSS JOIN page ON site_id = site AND fingerprint = mark",
            list(chain.from_iterable(some)),
        )
        depths |= {keys[site, mark]: depth for site, mark, depth in rows}
    return depths


def _select_sites(db: sqlite3.Connection, origins: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for some in chunks(origins):
        marks = ", ".join("?" * len(some))
        found |= db.execute(f"SELECT origin, id FROM site WHERE origin IN ({marks})", some).fetchall()  # noqa: S608
    return found


def _insert(db: sqlite3.Connection, new: Sequence[tuple[Key, int, Target, str, str]]) -> None:
    db.executemany("INSERT INTO known VALUES (?, ?, 0, ?)", [(*key, rank) for key, rank, *_ in new])
    db.executemany(
        "INSERT INTO frontier (site_id, part, rank, fingerprint, url, referrer, kind, hops, is_again)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)",
        [
            (
                site_id,
                part,
                rank,
                mark,
                target.url[len(origin) :],
                shorten(target.referrer, origin),
                target.kind,
                target.hops,
            )
            for (site_id, mark), rank, target, part, origin in new
        ],
    )
    add_to_tally(db, {"pending": len(new)})


def _wake(db: sqlite3.Connection, site_id: int, origin: str, part: str, now: float) -> None:
    row = db.execute(
        "SELECT visit IS NULL AND turn IS NULL FROM part WHERE site_id = ? AND part = ?", (site_id, part)
    ).fetchone()
    if row is None or row[0]:
        db.execute(
            "INSERT INTO part (site_id, part, turn) VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET turn = excluded.turn",
            (site_id, part, free_at(db, site_id, origin, now)),
        )
