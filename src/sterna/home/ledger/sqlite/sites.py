"""Sites, their turns and leases: when a site is due, and what a visit to it starts from."""

import sqlite3
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from math import inf, nextafter

from sterna.home.ledger.records import NOTHING, WHOLE, Again, Lease, OwnerRow, Reread, Stale
from sterna.home.ledger.sqlite.database import Part, count, read_tally, select
from sterna.home.ledger.sqlite.frontier import add_holds, add_targets, depths_of, put_back, target_of
from sterna.home.ledger.sqlite.lookup import GREATEST, LEAST, MAX_DEPTH
from sterna.home.ledger.sqlite.memory import read_state
from sterna.home.ledger.sqlite.outbox import lose
from sterna.model import REQUISITES, Hold, Known, Record, Robots, RobotsState, Target, Validator
from sterna.web.politeness import site_key
from sterna.web.robots import NEVER

# Retry-After, Crawl-delay and robots.txt make a site wait for a day at most, its byte rate for little longer.
LONGEST_WAIT_SECONDS = 2 * 24 * 3600.0
MOST_START_BYTES = 8 * 1024 * 1024  # of the URLs from which one visit starts, and of their referrers
LONGEST_ALONE_SECONDS = 31 * 24 * 3600.0  # of a host that was caught lying, or as its owner asks
_LONG_WAITS = {
    "host": ("until", "failed_until"),
    "trust": ("until",),
    "owner": ("until", "ask_at", "closed_until"),
}
_AGAIN: dict[Again, str] = {
    "all": "true",
    "unkept": "NOT is_kept",
    "undigested": "is_kept AND status BETWEEN 200 AND 299 AND error = '' AND digest = x''",
}
STEP_SECONDS = 24 * 3600.0  # by which each step of priority moves a turn ahead of others


class Sites(Part):
    """Sites, leases and turns; see `SitesAndLeases`."""

    def seed(self, targets: Sequence[Target], *, now: float, private_sites: Collection[str] = ()) -> int:
        with self._database.transaction() as db:
            before = read_tally(db).get("pending", 0)
            sites = add_targets(db, self._database.lookup, [(WHOLE, targets)], now=now)
            db.executemany("UPDATE site SET is_seed = 1 WHERE id = ?", [(site,) for site in sites.values()])
            db.executemany(
                "UPDATE site SET may_be_private = 1 WHERE origin = ?", [(site,) for site in private_sites]
            )
            return read_tally(db).get("pending", 0) - before

    def seed_requisites(self, targets: Sequence[Target], *, upto: int, now: float) -> None:
        with self._database.transaction() as db:
            add_targets(db, self._database.lookup, [(REQUISITES, targets)], now=now)
            db.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (REQUISITES, str(upto)))

    def seed_sites(self) -> frozenset[str]:
        with self._database.reading() as db:
            return frozenset(origin for (origin,) in db.execute("SELECT origin FROM site WHERE is_seed"))

    def lease(
        self,
        visits: Sequence[str],
        *,
        now: float,
        pages: int,
        max_depth: int,
        host_pages: int = 0,
        part: str = WHOLE,
        may_visit: Callable[[str], bool] = lambda site: True,
    ) -> list[Lease]:
        leases: list[Lease] = []
        with self._database.transaction() as db:
            depth = min(max_depth, MAX_DEPTH)
            maker = LeaseMaker(
                db, part=part, now=now, pages=pages, host_pages=max(pages, host_pages), max_depth=depth
            )
            while len(leases) < len(visits) and (due := maker.next_due()):
                if not may_visit(due.origin):
                    maker.put_off(due, None)
                elif lease := maker.lease(due, visits[len(leases)]):
                    leases.append(lease)
        return leases

    def recover(self, *, now: float, least_pause: float) -> int:
        with self._database.transaction() as db:
            _void_impossible(db, now)
            rows = db.execute(
                "SELECT visit, origin, delay_seconds FROM part JOIN site ON site.id = site_id"
                " WHERE visit IS NOT NULL AND visit NOT IN"
                " (SELECT visit FROM outbox WHERE over_at IS NULL AND NOT is_live_only)"
            ).fetchall()
            for visit, origin, delay in rows:
                add_holds(db, [Hold(site_key(origin), now + max(delay, least_pause))])
                lose(db, visit, now=now, reason="home was restarted, and the host keeps no visits")
            return len(rows)

    def lose(self, visit: str, *, now: float, reason: str = "") -> bool:
        with self._database.transaction() as db:
            return lose(db, visit, now=now, reason=reason)

    def follow(
        self, links: Sequence[tuple[str, str]], *, admits: Callable[[Target], bool], now: float
    ) -> int:
        with self._database.transaction() as db:
            depths = depths_of(db, {source for source, _ in links})
            found: dict[str, Target] = {}
            for source, url in links:
                if source in depths and (url not in found or depths[source] < found[url].depth - 1):
                    found[url] = Target(url, depths[source] + 1, source)
            before = read_tally(db).get("pending", 0)
            wanted = [target for target in found.values() if admits(target)]
            add_targets(db, self._database.lookup, [(WHOLE, wanted)], now=now)
            return read_tally(db).get("pending", 0) - before

    def forget_passed(self) -> None:
        with self._database.transaction() as db:
            _forget_passed(db)

    def visit_starts(self, *, now: float) -> None:
        with self._database.transaction() as db:
            put_back(db, "depth = 0", ())
        self.wake(now=now)

    def fetch_again(self, *, kind: Again, now: float) -> int:
        with self._database.transaction() as db:
            condition = _AGAIN[kind]
            (moved,) = db.execute(f"SELECT count(*) FROM page WHERE {condition}").fetchone()  # noqa: S608
            put_back(db, condition, ())  # some may be there already
            db.execute(
                f"UPDATE page SET etag = '', modified = '', digest = x'', likeness = x'' WHERE {condition}"  # noqa: S608
            )
            if moved:
                db.execute("UPDATE tally SET amount = 0 WHERE name = 'round_pages'")
        self.wake(now=now)
        return int(moved)

    def due(self, site: str, *, older_than: float) -> list[Stale]:
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT fingerprint, digest, fetched FROM page JOIN known USING (site_id, fingerprint)"
                " WHERE page.site_id = (SELECT id FROM site WHERE origin = ?) AND fetched < ? AND is_done",
                (site, older_than),
            )
            return [Stale(*row) for row in rows]

    def reread(self, site: str, *, since: float) -> list[Reread]:
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT fingerprint, url, digest, modified FROM page"
                " WHERE site_id = (SELECT id FROM site WHERE origin = ?)"
                " AND fetched >= ? AND error = '' AND status = 200 AND digest <> x''",
                (site, since),
            )
            return [Reread(*row) for row in rows]

    def refresh(
        self, *, older_than: float, now: float, spared: Mapping[str, Collection[int]] = NOTHING
    ) -> int:
        with self._database.transaction() as db:
            db.execute(
                "CREATE TEMP TABLE IF NOT EXISTS spared (site_id INTEGER, fingerprint INTEGER,"
                " PRIMARY KEY (site_id, fingerprint)) WITHOUT ROWID"
            )
            db.execute("DELETE FROM spared")
            for site, marks in spared.items():
                db.executemany(
                    "INSERT INTO spared SELECT id, ? FROM site WHERE origin = ?",
                    [(mark, site) for mark in marks],
                )
            _forget_passed(db)
            # A page that was fetched in the future was fetched while the clock was ahead.
            is_due = (
                # Without a digest a page is to be read whole, whatever others say.
                "(fetched < ? OR fetched > ?) AND (digest = x'' OR (page.site_id, page.fingerprint) NOT IN"
                " (SELECT site_id, fingerprint FROM spared))"
            )
            moved = put_back(db, is_due, (older_than, now))
            db.execute(
                "UPDATE site SET robots_state = 'unknown', robots_failures = 0, robots_retry_at = 0"
                " WHERE robots_retry_at >= ?",
                (NEVER,),
            )
            if moved:
                db.execute("UPDATE tally SET amount = 0 WHERE name LIKE 'round!_%' ESCAPE '!'")
        self.wake(now=now)
        with self._database.transaction() as db:
            # For a larger budget, a home promises a site that it is visited again sooner. So the sites whose
            # turn is now come in the order of these priorities, and before all others.
            db.execute(
                "UPDATE part SET turn = turn - ? *"
                " (SELECT priority FROM host JOIN site ON site.origin = host.site WHERE site.id = site_id)"
                " WHERE turn = ? AND site_id IN"
                " (SELECT site.id FROM host JOIN site ON site.origin = host.site WHERE priority > 0)",
                (STEP_SECONDS, now),
            )
        return moved

    def wake(self, *, now: float) -> None:
        with self._database.transaction() as db:
            db.execute(
                "UPDATE part SET turn = ? WHERE turn IS NULL AND visit IS NULL AND EXISTS"
                " (SELECT 1 FROM frontier f WHERE f.site_id = part.site_id AND f.part = part.part)",
                (now,),
            )

    def due_count(self, *, now: float, most: int, part: str = WHOLE) -> int:
        with self._database.reading() as db:
            due = "SELECT 1 FROM part WHERE turn <= ? AND part = ? LIMIT ?"
            return count(db, f"SELECT count(*) FROM ({due})", now, part, most)  # noqa: S608


def _forget_passed(db: sqlite3.Connection) -> None:
    db.execute(
        "DELETE FROM known WHERE is_done"
        " AND (site_id, fingerprint) NOT IN (SELECT site_id, fingerprint FROM page)"
    )


def _void_impossible(db: sqlite3.Connection, now: float) -> None:
    """Deletes waits that nobody can have asked for: they were written while the clock was ahead.

    Those of single URLs are passed over when a site is leased: to look for them here would read the frontier.
    """
    latest = now + LONGEST_WAIT_SECONDS
    db.execute("DELETE FROM hold WHERE until > ?", (latest,))
    db.execute("UPDATE part SET turn = ? WHERE turn > ?", (now, latest))
    db.execute(
        "UPDATE site SET robots_retry_at = 0 WHERE robots_retry_at > ? AND robots_retry_at < ?",
        (latest, NEVER),
    )
    for table, columns in _LONG_WAITS.items():
        for column in columns:
            latest = now + LONGEST_ALONE_SECONDS
            db.execute(f"UPDATE {table} SET {column} = 0 WHERE {column} > ?", (latest,))  # noqa: S608


class Due(Record, frozen=True):
    """A part whose turn it is."""

    site_id: int
    part: str
    epoch: int
    origin: str
    is_best_first: bool  # a URL of its frontier has a priority other than 0
    has_host: bool  # to which a crawler may be sent now


@dataclass(frozen=True, slots=True)
class LeaseMaker:
    """Makes leases inside a transaction that the ledger holds."""

    db: sqlite3.Connection
    _: KW_ONLY
    part: str  # of each site
    now: float
    pages: int
    host_pages: int  # where the site has a host
    max_depth: int

    def next_due(self) -> Due | None:
        """The part that has waited longest for its turn."""
        row = self.db.execute(
            # Ranks with a priority are at both ends of the key, so each EXISTS reads one row at most.
            "SELECT site_id, p.part, epoch, origin,"
            " EXISTS (SELECT 1 FROM frontier f WHERE f.site_id = p.site_id AND f.part = p.part AND rank < 0)"
            " OR EXISTS"
            " (SELECT 1 FROM frontier f WHERE f.site_id = p.site_id AND f.part = p.part AND rank > ?),"
            " EXISTS (SELECT 1 FROM host h WHERE h.site = origin AND length(offer) > 0 AND failed_until <= ?)"
            " FROM part p JOIN site ON site.id = site_id WHERE turn <= ? AND p.part = ?"
            " ORDER BY turn LIMIT 1",
            (MAX_DEPTH, self.now, self.now, self.part),
        ).fetchone()
        return Due(*row) if row else None

    def put_off(self, due: Due, turn: float | None) -> None:
        """Gives the part a later turn; None: no turn until wake()."""
        self.db.execute(
            "UPDATE part SET turn = ? WHERE site_id = ? AND part = ?", (turn, due.site_id, due.part)
        )

    def lease(self, due: Due, visit: str) -> Lease | None:
        """The lease for this visit; None if nothing may be fetched yet, and the part gets a later turn."""
        owner = next(iter(select(self.db, OwnerRow, "owner WHERE site = ?", due.origin)), OwnerRow(site=""))
        if (halted_until := min(owner.until, owner.ask_at)) > self.now:
            self.put_off(due, halted_until)
            return None
        ranks = (LEAST, GREATEST) if due.is_best_first else (0, self.max_depth)
        pages = self.host_pages if due.has_host else self.pages
        starts, validators, count = self._starts(due, ranks, pages)
        if not starts:
            (later,) = self.db.execute(
                "SELECT min(not_before) FROM frontier"
                " WHERE site_id = ? AND part = ? AND rank BETWEEN ? AND ? AND (rank & ?) <= ?",
                (due.site_id, due.part, *ranks, MAX_DEPTH, self.max_depth),
            ).fetchone()
            self.put_off(due, later)
            return None
        # A visit that cannot take all goes no deeper than its last URL, so that levels stay in order.
        # With priorities, which come before depth, there are no levels.
        is_cut = len(starts) > count and not due.is_best_first
        depth = starts[count - 1].depth if is_cut else self.max_depth
        self._begin(due, visit)
        may_be_private, state, *robots = self.db.execute(
            "SELECT may_be_private, robots_state, robots_tried_at, robots_failures, robots_retry_at,"
            " robots_rules, robots_reason FROM site WHERE id = ?",
            (due.site_id,),
        ).fetchone()
        done = self.db.execute(
            "SELECT fingerprint FROM known WHERE site_id = ? AND is_done ORDER BY fingerprint", (due.site_id,)
        )
        key = site_key(due.origin)
        return Lease(
            visit=visit,
            site=due.origin,
            part=due.part,
            epoch=due.epoch + 1,
            starts=tuple(starts[:count]),
            pages=pages,
            known=Known(array("q", (mark for (mark,) in done)).tobytes(), tuple(validators)),
            depth=depth,
            robots=Robots(RobotsState(state), *robots),
            holds=tuple(select(self.db, Hold, "hold WHERE key = ? AND until > ?", key, self.now)),
            may_be_private=bool(may_be_private),
            state=read_state(self.db, due.site_id, due.part),
            closed=tuple(owner.closed.splitlines()) if owner.closed_until > self.now else (),
        )

    def _later(self) -> tuple[float, float]:
        """The times at which a URL still waits; a later one was written while the clock was ahead."""
        return nextafter(self.now, inf), self.now + LONGEST_WAIT_SECONDS

    def _begin(self, due: Due, visit: str) -> None:
        self.db.execute(
            "UPDATE part SET epoch = ?, visit = ?, parcel = 0, turn = NULL WHERE site_id = ? AND part = ?",
            (due.epoch + 1, visit, due.site_id, due.part),
        )
        self.db.execute(
            "INSERT INTO visit (id, site_id, part, epoch, place, began) VALUES (?, ?, ?, ?, 'here', ?)",
            (visit, due.site_id, due.part, due.epoch + 1, self.now),
        )

    def _starts(
        self, due: Due, ranks: tuple[int, int], pages: int
    ) -> tuple[list[Target], list[Validator], int]:
        """The URLs to fetch first, and how many they are; one more shows that there are others."""
        cursor = self.db.execute(
            "SELECT f.url, f.rank, f.referrer, f.kind, f.hops, f.attempts,"
            " f.fingerprint, p.etag, p.modified, p.digest,"
            " p.has_raw AND EXISTS (SELECT 1 FROM original o"
            " WHERE o.site_id = p.site_id AND o.fingerprint = p.fingerprint), p.likeness"
            # Only good pages get conditional requests: a 304 brings nothing to read. URLs that were never
            # fetched are not looked up, because each lookup would read a page from the disk.
            " FROM frontier f LEFT JOIN page p"
            " ON p.site_id = iif(f.is_again, f.site_id, NULL) AND p.fingerprint = f.fingerprint"
            " AND p.status BETWEEN 200 AND 299 AND p.error = ''"
            " WHERE f.site_id = ? AND f.part = ? AND f.rank BETWEEN ? AND ? AND (f.rank & ?) <= ?"
            " AND f.not_before NOT BETWEEN ? AND ? ORDER BY f.rank LIMIT ?",
            (due.site_id, due.part, *ranks, MAX_DEPTH, self.max_depth, *self._later(), pages + 1),
        )
        starts, validators, left = list[Target](), list[Validator](), MOST_START_BYTES
        for row in cursor:
            starts.append(target_of(due.origin, row[:6]))
            if len(starts) > 1 and left < 0:  # long URLs take memory, in several forms
                return starts, validators, len(starts) - 1
            left -= len(starts[-1].url) + len(starts[-1].referrer)
            mark, etag, modified, digest, has_raw, likeness = row[6:]
            if etag is not None:
                validators.append(Validator(mark, etag, modified, digest, bool(has_raw), likeness))
        return starts, validators, min(len(starts), pages)
