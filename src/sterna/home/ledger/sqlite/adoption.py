"""Adoption: a ledger learns again what the rows of the archive say of sites, pages, links and visits."""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import astuple

from sterna.archive.manifest import UNWANTED, Segment, WarcPosition
from sterna.home.ledger.records import WHOLE
from sterna.home.ledger.sqlite.database import Database, count
from sterna.home.ledger.sqlite.frontier import add_targets, depths_of, ids_of_sites, put_back
from sterna.home.ledger.sqlite.lookup import REQUISITE_RANK, chunks
from sterna.home.ledger.sqlite.pages import BATCHES
from sterna.model import Target
from sterna.web.urls import fingerprint, path_of, site_of

_SAME_SECONDS = 1e-5  # rows have microseconds, a ledger more
_GOOD = "status BETWEEN 200 AND 299 AND error = ''"
# `came`: pages newer than those of the ledger. `stored`: versions that have their rows; `torn`: pages whose
# batch lost links or facts. `raw`: pages with a response in a WARC file. `lost`: pages to be fetched again.
_TEMPORARY = """
CREATE TEMP TABLE came (
    site_id INTEGER, fingerprint INTEGER, url TEXT, status INTEGER, error TEXT, depth INTEGER, fetched REAL,
    etag TEXT, modified TEXT, digest BLOB, PRIMARY KEY (site_id, fingerprint)
) WITHOUT ROWID;
CREATE TEMP TABLE stored (fingerprint INTEGER, digest BLOB, PRIMARY KEY (fingerprint, digest)) WITHOUT ROWID;
CREATE TEMP TABLE torn (fingerprint INTEGER PRIMARY KEY);
CREATE TEMP TABLE raw (fingerprint INTEGER PRIMARY KEY);
CREATE TEMP TABLE lost (
    site_id INTEGER, fingerprint INTEGER, PRIMARY KEY (site_id, fingerprint)
) WITHOUT ROWID;
"""
_TAKE = (
    "DELETE FROM came WHERE EXISTS (SELECT 1 FROM page WHERE page.site_id = came.site_id"  # noqa: S608
    f" AND page.fingerprint = came.fingerprint AND page.fetched >= came.fetched - {_SAME_SECONDS})",
    "INSERT OR REPLACE INTO page (site_id, fingerprint, url, status, error, depth, fetched, etag, modified,"  # noqa: S608
    f" digest, has_raw, is_kept) SELECT *, 0, error <> '{UNWANTED}' FROM came",
    f"DELETE FROM frontier WHERE (site_id, part, rank, fingerprint) IN (SELECT site_id, '{WHOLE}', rank,"  # noqa: S608
    " fingerprint FROM came JOIN known USING (site_id, fingerprint))",
    "INSERT INTO known SELECT site_id, fingerprint, 1, depth FROM came WHERE true"
    " ON CONFLICT DO UPDATE SET is_done = 1",
    "DELETE FROM came",
)
_REQUISITES = f"site_id, fingerprint FROM known WHERE rank = {REQUISITE_RANK}"
# A site without a part never gets a turn.
_PARTS = (
    "INSERT OR IGNORE INTO part (site_id, part)"
    " SELECT id, :whole FROM site UNION SELECT site_id, part FROM frontier"
)
_COUNTERS = {
    "sites": "SELECT count(*) FROM site",
    "pending": "SELECT count(*) FROM frontier",
    "pages": f"SELECT count(*) FROM page WHERE {_GOOD}",  # noqa: S608
    "visits": "SELECT count(*) FROM visit WHERE over IS NOT NULL",
}


class StoredPage(NamedTuple):
    """What a row of the archive says of a page that its ledger should know."""

    url: str
    status: int
    error: str
    depth: int
    fetched: float
    etag: str
    modified: str
    digest: bytes
    visit: str
    batch: int


class _Stay(NamedTuple):
    """A visit, as its pages show it."""

    site: str
    began: float
    over: float
    pages: int


class Adopter:
    """Writes into a ledger that nobody uses yet; its methods may each be called many times, in this order."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path)
        self._visits: dict[str, _Stay] = {}
        with self._database.reading() as db:
            db.execute("PRAGMA synchronous = OFF")  # the file does not count before it is complete
            db.execute("PRAGMA temp_store = FILE")  # there may be a row for every page
            db.executescript(_TEMPORARY)

    def close(self) -> None:
        self._database.close()

    def add_pages(self, pages: Sequence[StoredPage]) -> None:
        """Adds pages that the ledger does not know, and newer versions of those that it knows."""
        with self._database.transaction() as db:
            ids = ids_of_sites(db, {site_of(page.url) for page in pages})
            db.executemany(
                "INSERT INTO came VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
                " status = excluded.status, error = excluded.error, depth = excluded.depth,"
                " fetched = excluded.fetched, etag = excluded.etag, modified = excluded.modified,"
                " digest = excluded.digest WHERE excluded.fetched >= fetched",
                [
                    (ids[site_of(page.url)], fingerprint(page.url), path_of(page.url), *page[1:8])
                    for page in pages
                ],
            )
            for statement in _TAKE:
                db.execute(statement)
        self._note_visits(pages)

    def add_links(
        self, links: Collection[tuple[str, str]], *, admits: Callable[[str], bool], now: float
    ) -> None:
        """Adds what these links, each from a page to a URL, lead to; pages that are missing are added too."""
        sources = {source for source, _ in links}
        with self._database.transaction() as db:
            depths = depths_of(db, sources)
            found = dict.fromkeys(sources - depths.keys(), (1, ""))
            for source, url in links:
                depth = depths.get(source, 1) + 1
                if url not in found or depth < found[url][0]:
                    found[url] = depth, source
            may_enter = cache(admits)
            wanted = [Target(url, *each) for url, each in found.items() if may_enter(site_of(url))]
            add_targets(db, self._database.lookup, [(WHOLE, wanted)], now=now)

    def note_stored(self, pages: Iterable[StoredPage], *, torn: Collection[int]) -> None:
        """Notes which versions have their rows, and which of them are of batches that lost links or facts."""
        with self._database.transaction() as db:
            for some in chunks(pages):
                rows = [(fingerprint(page.url), page.digest, page.batch) for page in some]
                db.executemany("INSERT OR IGNORE INTO stored VALUES (?, ?)", [row[:2] for row in rows])
                marks = [(mark,) for mark, _, batch in rows if batch in torn]
                db.executemany("INSERT OR IGNORE INTO torn VALUES (?)", marks)

    def put_back_lost(self, *, is_all_noted: bool) -> int:
        """Puts the pages whose rows, links or facts are lost back into the frontier, to be fetched whole.

        Wanted pages without rows count as lost only if all rows were noted.
        """
        with self._database.transaction() as db:
            conditions = ["fingerprint IN (SELECT fingerprint FROM torn)"]
            if is_all_noted:
                stored = "(SELECT fingerprint, digest FROM stored)"
                # What pages need has no rows.
                is_page = f"(site_id, fingerprint) NOT IN (SELECT {_REQUISITES})"
                conditions.append(f"is_kept AND {is_page} AND (fingerprint, digest) NOT IN {stored}")
            db.execute(
                "INSERT INTO lost SELECT site_id, fingerprint FROM page WHERE "  # noqa: S608
                + " OR ".join(conditions)
            )
            is_lost = "(page.site_id, page.fingerprint) IN (SELECT site_id, fingerprint FROM lost)"
            moved = put_back(db, is_lost, ())
            db.execute(
                f"UPDATE page SET etag = '', modified = '', digest = x'', likeness = x'' WHERE {is_lost}"  # noqa: S608
            )
            return moved

    def note_raw(self, fingerprints: Iterable[int]) -> None:
        """Corrects which pages have their response in a WARC file: these, and no others."""
        with self._database.transaction() as db:
            for some in chunks(fingerprints):
                db.executemany("INSERT OR IGNORE INTO raw VALUES (?)", [(mark,) for mark in some])
            db.execute("UPDATE page SET has_raw = fingerprint IN (SELECT fingerprint FROM raw)")

    def finish(
        self,
        segments: Sequence[Segment],
        warc: Sequence[WarcPosition],
        *,
        batch: int,
        settings: Mapping[str, str],
        blocked: Collection[str] = (),
    ) -> None:
        """Writes the manifest, the number of the last batch, visits, counters, and settings that are new."""
        with self._database.transaction() as db:
            db.execute("DELETE FROM segment WHERE retired_at IS NULL")
            db.executemany(
                "INSERT OR REPLACE INTO segment VALUES (?, ?, ?, ?, ?, NULL)", map(astuple, segments)
            )
            db.execute("DELETE FROM warc")
            db.executemany("INSERT INTO warc VALUES (?, ?, ?)", map(astuple, warc))
            self._write_visits(db)
            db.execute(_PARTS, {"whole": WHOLE})
            db.executemany("INSERT OR IGNORE INTO setting VALUES (?, ?)", settings.items())
            db.executemany("INSERT OR IGNORE INTO block VALUES (?)", [(name,) for name in blocked])
            if not count(db, "SELECT count(*) FROM site WHERE is_seed"):
                db.execute(
                    "UPDATE site SET is_seed = 1 WHERE id IN (SELECT site_id FROM page WHERE depth = 0)"
                )
            db.execute(
                f"UPDATE site SET pages = (SELECT count(*) FROM page WHERE site_id = site.id AND {_GOOD})"  # noqa: S608
            )
            counters = {name: count(db, sql) for name, sql in _COUNTERS.items()} | {BATCHES: batch}
            db.executemany("INSERT OR REPLACE INTO tally VALUES (?, ?)", counters.items())
            db.execute(
                "INSERT OR IGNORE INTO tally SELECT 'round_pages', amount FROM tally WHERE name = 'pages'"
            )

    def sites(self) -> set[str]:
        """The sites with pages."""
        with self._database.reading() as db:
            return {
                origin
                for (origin,) in db.execute("SELECT origin FROM site WHERE id IN (SELECT site_id FROM page)")
            }

    def _note_visits(self, pages: Iterable[StoredPage]) -> None:
        for page in pages:
            if page.visit:
                at, old = page.fetched, self._visits.get(page.visit)
                self._visits[page.visit] = (
                    _Stay(old.site, min(old.began, at), max(old.over, at), old.pages + 1)
                    if old
                    else _Stay(site_of(page.url), at, at, 1)
                )

    def _write_visits(self, db: sqlite3.Connection) -> None:
        ids = ids_of_sites(db, {stay.site for stay in self._visits.values()})
        db.executemany(
            "INSERT OR IGNORE INTO visit (id, site_id, part, epoch, place, began, over, pages, kept)"
            " VALUES (?, ?, ?, 0, 'here', ?, ?, ?, ?)",
            [
                (visit, ids[stay.site], WHOLE, stay.began, stay.over, stay.pages, stay.pages)
                for visit, stay in self._visits.items()
            ],
        )
