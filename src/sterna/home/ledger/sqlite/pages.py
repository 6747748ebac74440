"""Commits: pages, links, holds, robots, counters and the names of their files, all in one transaction."""

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from itertools import chain

from msgspec.structs import astuple

from sterna.archive.manifest import Original, Segment, WarcPosition
from sterna.home.ledger.records import WHOLE, Change, Disposal, Standing, Stored
from sterna.home.ledger.sqlite.database import Part, add_to_tally
from sterna.home.ledger.sqlite.frontier import add_holds, add_targets, free_at, target_of
from sterna.home.ledger.sqlite.lookup import Lookup, chunks
from sterna.home.ledger.sqlite.memory import change_state
from sterna.home.ledger.sqlite.outbox import add_arrival, end
from sterna.home.ledger.versions import Fate, fate_of, standing_after
from sterna.model import LIMITS, REQUISITES, Ended, Page, Parcel, Robots, RobotsState, Target
from sterna.web.urls import fingerprint, path_of, site_of

LONGEST_WORD_SECONDS = 24 * 3600.0  # for which a host's word on its robots.txt keeps home away
UNTOLD_SECONDS = 3600.0  # where it does not say for how long
BATCHES = "batches"  # the counter whose value is the number of the last batch


_ORIGINAL = (
    "SELECT fetched, payload FROM original"
    " WHERE site_id = (SELECT id FROM site WHERE origin = ?) AND fingerprint = ?"
)


class Pages(Part):
    """See `PagesAndParcels`."""

    def judge(self, parcel: Parcel) -> Disposal:
        with self._database.reading() as db:
            return _judge(db, parcel)

    def batch(self) -> int:
        with self._database.reading() as db:
            return _last_batch(db)

    def standings(self, pages: Collection[tuple[str, int]]) -> dict[tuple[str, int], Standing]:
        with self._database.reading() as db:
            found: dict[tuple[str, int], Standing] = {}
            for some in chunks(sorted(pages)):  # neighbours share pages of the table
                rows = db.execute(standings_sql(len(some)), list(chain.from_iterable(some)))
                for origin, mark, status, error, is_kept, _ in rows:
                    found[origin, mark] = Standing(status, error, bool(is_kept))
            return found

    def kept_versions(self, pages: Collection[tuple[str, int]]) -> dict[tuple[str, int], Stored]:
        with self._database.reading() as db:
            found: dict[tuple[str, int], Stored] = {}
            for some in chunks(sorted(pages)):
                rows = db.execute(standings_sql(len(some)), list(chain.from_iterable(some)))
                for origin, mark, status, _, is_kept, digest in rows:
                    if is_kept:
                        found[origin, mark] = Stored(status, digest)
            return found

    def originals(self, pages: Collection[tuple[str, int]]) -> dict[tuple[str, int], Original]:
        with self._database.reading() as db:
            rows = (
                (page, db.execute(_ORIGINAL, page).fetchone()) for page in sorted(pages)
            )  # one by one: each is found by its key
            return {page: Original(*row) for page, row in rows if row}

    def waiting(self, site: str, part: str, *, kinds: Collection[str]) -> list[Target]:
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT url, rank, referrer, kind, hops, attempts, not_before FROM frontier"  # noqa: S608
                " WHERE site_id = (SELECT id FROM site WHERE origin = ?) AND part = ?"
                f" AND kind IN ({', '.join('?' * len(kinds))}) ORDER BY rank, fingerprint",
                (site, part, *kinds),
            )
            return [target_of(site, each) for each in rows]

    def forget_validators(self) -> None:
        with self._database.transaction() as db:
            db.execute("UPDATE page SET etag = '', modified = '', digest = x'', likeness = x''")


class Manifest(Part):
    """See `ArchiveManifest`."""

    def segments(self) -> list[Segment]:
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT name, tbl, rows, size_bytes, tier FROM segment WHERE retired_at IS NULL ORDER BY name"
            )
            return [Segment(*row) for row in rows]

    def replace_segments(self, old: Sequence[Segment], new: Segment, *, now: float) -> None:
        with self._database.transaction() as db:
            db.executemany(
                "UPDATE segment SET retired_at = ? WHERE name = ?", [(now, segment.name) for segment in old]
            )
            _add_segments(db, [new])

    def forget_retired(self, *, before: float) -> list[str]:
        with self._database.transaction() as db:
            rows = db.execute("DELETE FROM segment WHERE retired_at < ? RETURNING name", (before,))
            return [name for (name,) in rows.fetchall()]

    def warc_positions(self) -> list[WarcPosition]:
        with self._database.reading() as db:
            rows = db.execute("SELECT name, committed_bytes, is_open FROM warc ORDER BY name")
            return [WarcPosition(name, size, bool(is_open)) for name, size, is_open in rows]

    def set_warc_positions(self, positions: Sequence[WarcPosition]) -> None:
        with self._database.transaction() as db:
            _write_warc(db, positions)


@dataclass(frozen=True, slots=True)
class Commit:
    """Stores a change inside a transaction that the ledger holds."""

    db: sqlite3.Connection
    lookup: Lookup
    _: KW_ONLY
    now: float

    def store(self, change: Change) -> None:
        new = self._accept(change.parcels)
        self._add_links(new)
        for parcel in new:
            self._store_parcel(parcel)
            if parcel.arrival:
                add_arrival(self.db, parcel, parcel.arrival, now=self.now)
        self._note_originals(change.originals)
        _add_segments(self.db, change.segments)
        _write_warc(self.db, change.warc)
        self.db.executemany(
            "UPDATE page SET is_kept = 0 WHERE site_id = (SELECT id FROM site WHERE origin = ?)"
            " AND fingerprint = ?",
            change.ended,
        )
        if change.batch:
            # Otherwise followers would miss or double rows.
            if change.batch != (following := _last_batch(self.db) + 1):
                raise ValueError(f"batch {change.batch} is out of order: the next one is {following}")
            add_to_tally(self.db, {BATCHES: 1})

    def _accept(self, parcels: Sequence[Parcel]) -> list[Parcel]:
        """The parcels to store; each number is noted at once, so that the visit's next parcel is in order."""
        new, over = list[Parcel](), set[str]()
        for parcel in parcels:
            if parcel.visit not in over and _judge(self.db, parcel) is Disposal.NEW:
                self.db.execute("UPDATE part SET parcel = ? WHERE visit = ?", (parcel.number, parcel.visit))
                new.append(parcel)
                if parcel.ended:
                    over.add(parcel.visit)
        return new

    def _add_links(self, parcels: Sequence[Parcel]) -> None:
        """Adds the links of all parcels together: the more there are, the more share a page of the table."""
        found = [(parcel.part, parcel.checkpoint.found) for parcel in parcels]
        outlinks = [
            (REQUISITES if parcel.part == REQUISITES else WHOLE, parcel.outlinks) for parcel in parcels
        ]
        sites = add_targets(self.db, self.lookup, found + outlinks, now=self.now)
        # Depth 0 is a start page that moved: its new site counts as a seed too, but never as a private one.
        moved = {site_of(target.url) for _, targets in outlinks for target in targets if target.depth == 0}
        self.db.executemany("UPDATE site SET is_seed = 1 WHERE id = ?", [(sites[each],) for each in moved])

    def _store_parcel(self, parcel: Parcel) -> None:
        db, part = self.db, parcel.part
        (site_id,) = db.execute("SELECT id FROM site WHERE origin = ?", (parcel.site,)).fetchone()
        self._finish(site_id, part, [page.fingerprint for page in parcel.pages])
        self._finish(site_id, part, parcel.checkpoint.done)
        self._store_pages(site_id, parcel.pages, is_counted=part != REQUISITES)
        self._try_again(site_id, part, parcel.checkpoint.again)
        change_state(db, site_id, part, parcel.state)
        add_holds(db, parcel.holds)
        if parcel.arrival:
            self._heed(site_id, parcel)
        elif parcel.robots:
            db.execute(
                "UPDATE site SET robots_state = ?, robots_tried_at = ?, robots_failures = ?,"
                " robots_retry_at = ?, robots_rules = ?, robots_reason = ? WHERE id = ?",
                (*astuple(parcel.robots), site_id),
            )
        self._count(site_id, parcel)
        if parcel.ended:
            self._end(site_id, parcel, parcel.ended)

    def _heed(self, site_id: int, parcel: Parcel) -> None:
        """Keeps a host's word on its robots.txt: it may lengthen a wait, and never shortens one.

        Its rules are never known here: before home fetches a page of the site, it asks for itself.
        """
        robots = parcel.robots
        if robots is None and parcel.ended is Ended.DISQUALIFIED:  # a host before 0.4 says no more
            robots = Robots(RobotsState.DISQUALIFIED, retry_at=self.now + UNTOLD_SECONDS, reason="it failed")
        if robots and robots.state is RobotsState.QUALIFIED:
            self.db.execute(
                "UPDATE site SET robots_state = 'qualified', robots_reason = 'as its host says'"
                " WHERE id = ? AND robots_state = 'unknown'",
                (site_id,),
            )
        elif robots and robots.state is RobotsState.DISQUALIFIED:
            retry_at = min(robots.retry_at, self.now + LONGEST_WORD_SECONDS)
            self.db.execute(
                "UPDATE site SET robots_state = 'disqualified', robots_retry_at = ?2, robots_reason = ?3"
                " WHERE id = ?1 AND ?2 > ?4 AND (robots_state <> 'disqualified' OR robots_retry_at < ?2)",
                (site_id, retry_at, f"its host says: {robots.reason}", self.now),
            )

    def _finish(self, site_id: int, part: str, marks: Sequence[int]) -> None:
        removed = self.db.executemany(
            "DELETE FROM frontier WHERE site_id = ? AND part = ? AND fingerprint = ?"
            " AND rank = (SELECT rank FROM known WHERE site_id = ? AND fingerprint = ?)",
            ((site_id, part, mark, site_id, mark) for mark in marks),
        ).rowcount
        self.db.executemany(
            "INSERT INTO known VALUES (?, ?, 1, 0) ON CONFLICT DO UPDATE SET is_done = 1",
            ((site_id, mark) for mark in marks),
        )
        add_to_tally(self.db, {"pending": -max(removed, 0)})

    def _store_pages(self, site_id: int, pages: Sequence[Page], *, is_counted: bool) -> None:
        """Renews what is known of the pages, and counts those that are good: each once."""
        before = self._standings(site_id, [page.fingerprint for page in pages])
        news = [
            (page, standing_after(page, before.get(page.fingerprint)))
            for page in pages
            if not page.is_unchanged and fate_of(page, before.get(page.fingerprint)) is not Fate.FAILED
        ]
        good = sum(now.is_good for _, now in news)
        good -= sum(before[page.fingerprint].is_good for page, _ in news if page.fingerprint in before)
        good = good if is_counted else 0
        self.db.execute("UPDATE site SET pages = pages + ? WHERE id = ?", (good, site_id))
        add_to_tally(self.db, {"pages": good})
        self.db.executemany(
            "INSERT OR REPLACE INTO page VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    site_id,
                    page.fingerprint,
                    path_of(page.url),
                    page.status,
                    page.error,
                    page.depth,
                    page.fetched,
                    page.etag,
                    page.modified,
                    page.digest,
                    page.raw is not None and page.is_kept,
                    page.likeness,
                    now.is_kept,
                )
                for page, now in news
            ],
        )
        self.db.executemany(
            "UPDATE page SET fetched = ? WHERE site_id = ? AND fingerprint = ?",
            [(page.fetched, site_id, page.fingerprint) for page in pages if page.is_unchanged],
        )

    def _standings(self, site_id: int, marks: Sequence[int]) -> dict[int, Standing]:
        found: dict[int, Standing] = {}
        for some in chunks(marks):
            rows = self.db.execute(
                "SELECT fingerprint, status, error, is_kept FROM page WHERE site_id = ?"  # noqa: S608
                f" AND fingerprint IN ({', '.join('?' * len(some))})",
                (site_id, *some),
            )
            found |= {mark: Standing(status, error, bool(is_kept)) for mark, status, error, is_kept in rows}
        return found

    def _note_originals(self, originals: Sequence[tuple[str, int, Original]]) -> None:
        self.db.executemany(
            "INSERT OR REPLACE INTO original SELECT id, ?, ?, ? FROM site WHERE origin = ?",
            [(mark, original.fetched, original.payload, site) for site, mark, original in originals],
        )
        self.db.executemany(  # an unchanged page may be stored whole, if nothing of it was
            "UPDATE page SET has_raw = 1 WHERE NOT has_raw AND fingerprint = ?"
            " AND site_id = (SELECT id FROM site WHERE origin = ?)",
            [(mark, site) for site, mark, _ in originals],
        )

    def _try_again(self, site_id: int, part: str, targets: Sequence[Target]) -> None:
        self.db.executemany(
            "UPDATE frontier SET attempts = ?, not_before = ?"
            " WHERE site_id = ? AND part = ? AND fingerprint = ?"
            " AND rank = (SELECT rank FROM known WHERE site_id = ? AND fingerprint = ?)",
            [
                (target.attempts, target.not_before, site_id, part, mark, site_id, mark)
                for target in targets
                for mark in (fingerprint(target.url),)
            ],
        )

    def _count(self, site_id: int, parcel: Parcel) -> None:
        """Site and visit count what was fetched there; the collection counts bytes over the network."""
        usage = parcel.usage
        used = (usage.pages, usage.requests, usage.bytes_received, usage.kept, usage.cpu_seconds)
        self.db.execute(
            "UPDATE site SET requests = requests + ?, bytes_received = bytes_received + ?,"
            " errors = errors + ?, delay_seconds = ? WHERE id = ?",
            (*used[1:3], sum(usage.errors.values()), parcel.delay_seconds, site_id),
        )
        self.db.execute(
            "UPDATE visit SET pages = pages + ?, requests = requests + ?,"
            " bytes_received = bytes_received + ?, kept = kept + ?, cpu_seconds = cpu_seconds + ?,"
            " parcels = ? WHERE id = ?",
            (*used, parcel.number, parcel.visit),
        )
        if parcel.part == REQUISITES:
            usage, pages = usage.apart(), usage.pages
            add_to_tally(
                self.db,
                {
                    "requisites": pages,
                    "round_requisites": pages,
                    "requisite_bytes": usage.bytes_received,
                    "round_requisite_bytes": usage.bytes_received,
                },
            )
        add_to_tally(
            self.db,
            {
                "round_pages": usage.pages,
                "requests": usage.requests,
                "bytes_received": 0 if parcel.arrival else usage.bytes_received,
                "unchanged": usage.unchanged,
                "redirects": usage.redirects,
                "kept": usage.kept,
                "cpu_us": round(usage.cpu_seconds * 1e6),
                **{f"error {kind}": count for kind, count in usage.errors.items()},
            },
        )

    def _end(self, site_id: int, parcel: Parcel, ended: Ended) -> None:
        """Ends the lease; the part gets its next turn when its site may be visited again."""
        (has_more,) = self.db.execute(
            "SELECT EXISTS (SELECT 1 FROM frontier WHERE site_id = ? AND part = ?)", (site_id, parcel.part)
        ).fetchone()
        may_return = has_more and ended not in (Ended.REFUSED, *LIMITS)
        turn = free_at(self.db, site_id, parcel.site, self.now) if may_return else None
        end(self.db, parcel.visit, ended, turn=turn, now=self.now)
        add_to_tally(self.db, {"visits": 1})


def _judge(db: sqlite3.Connection, parcel: Parcel) -> Disposal:
    row = db.execute(
        "SELECT part.visit, part.epoch, part.parcel FROM part JOIN site ON site.id = site_id"
        " WHERE origin = ? AND part = ?",
        (parcel.site, parcel.part),
    ).fetchone()
    if row is None or row[:2] != (parcel.visit, parcel.epoch):
        # Parcels of a visit that is over are acknowledged again, but not stored.
        row = db.execute("SELECT parcels FROM visit WHERE id = ?", (parcel.visit,)).fetchone()
        return Disposal.STORED if row and parcel.number <= row[0] else Disposal.STALE
    if parcel.number <= row[2]:
        return Disposal.STORED
    return Disposal.NEW if parcel.number == row[2] + 1 else Disposal.GAP


def _add_segments(db: sqlite3.Connection, segments: Sequence[Segment]) -> None:
    db.executemany("INSERT INTO segment VALUES (?, ?, ?, ?, ?, NULL)", map(astuple, segments))


def _write_warc(db: sqlite3.Connection, positions: Sequence[WarcPosition]) -> None:
    """Notes the length up to which each WARC file counts."""
    db.executemany("INSERT OR REPLACE INTO warc VALUES (?, ?, ?)", map(astuple, positions))


def _last_batch(db: sqlite3.Connection) -> int:
    row = db.execute("SELECT amount FROM tally WHERE name = ?", (BATCHES,)).fetchone()
    return int(row[0]) if row else 0


@cache
def standings_sql(count: int) -> str:
    """The statement for `count` pages; a plain join might start with `page` and read all of it."""
    return (
        f"WITH asked (origin, mark) AS (VALUES {', '.join(['(?, ?)'] * count)})"  # noqa: S608
        " SELECT asked.origin, mark, status, error, is_kept, digest FROM asked"
        " CROSS JOIN site ON site.origin = asked.origin"
        " CROSS JOIN page ON page.site_id = site.id AND page.fingerprint = mark"
    )
