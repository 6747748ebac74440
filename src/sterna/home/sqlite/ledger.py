"""The ledger on SQLite: leases, settings, holds; storing a parcel is in `storing`."""

import sqlite3
from array import array
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from sterna.archive.manifest import Segment, WarcPosition
from sterna.home.ledger import WHOLE, Change, Counts, Lease, SiteRow, Verdict, VisitRow
from sterna.home.sqlite.database import Database
from sterna.home.sqlite.links import add_targets, lengthen
from sterna.home.sqlite.storing import Storing, add_holds, write_warc
from sterna.home.sqlite.tally import add_to_tally, read_tally
from sterna.model import Ended, Hold, Known, Parcel, Robots, RobotsState, Target, Validator
from sterna.web.politeness import site_key
from sterna.web.robots import NEVER


class SqliteLedger:
    """See `Ledger`; the writer is one connection, readers open their own."""

    def __init__(self, path: Path, *, is_reader: bool = False) -> None:
        self._database = Database(path, is_reader=is_reader)

    def close(self) -> None:
        self._database.close()

    def seed(self, targets: Sequence[Target], *, now: float, private_sites: Collection[str] = ()) -> int:
        with self._database.transaction() as db:
            before = read_tally(db).get("pending", 0)
            sites = add_targets(db, self._database.lookup, [(WHOLE, targets)], now=now)
            db.executemany("UPDATE site SET is_seed = 1 WHERE id = ?", [(site,) for site in sites.values()])
            db.executemany(
                "UPDATE site SET may_be_private = 1 WHERE origin = ?", [(site,) for site in private_sites]
            )
            return read_tally(db).get("pending", 0) - before

    # -- leases ------------------------------------------------------------------------------------------

    def lease(
        self,
        visits: Sequence[str],
        *,
        now: float,
        pages: int,
        max_depth: int,
        may_visit: Callable[[str], bool] = lambda site: True,
    ) -> list[Lease]:
        leases: list[Lease] = []
        with self._database.transaction() as db:
            while len(leases) < len(visits):
                row = db.execute(
                    "SELECT site_id, part, epoch, origin FROM part JOIN site ON site.id = site_id"
                    " WHERE turn <= ? ORDER BY turn LIMIT 1",
                    (now,),
                ).fetchone()
                if row is None:
                    break
                *part, origin = row
                if not may_visit(origin):
                    db.execute("UPDATE part SET turn = NULL WHERE site_id = ? AND part = ?", part[:2])
                    continue
                visit = visits[len(leases)]
                lease = self._try_lease(db, part, visit=visit, now=now, pages=pages, max_depth=max_depth)
                if lease:
                    leases.append(lease)
        return leases

    def _try_lease(
        self,
        db: sqlite3.Connection,
        row: Sequence[Any],
        *,
        visit: str,
        now: float,
        pages: int,
        max_depth: int,
    ) -> Lease | None:
        site_id, part, epoch = row
        origin, may_be_private, robots = _site(db, site_id)
        starts, validators = _starts(
            db, site_id, origin, part=part, now=now, max_depth=max_depth, most=pages + 1
        )
        if not starts:
            later = db.execute(
                "SELECT min(not_before) FROM frontier WHERE site_id = ? AND part = ? AND depth <= ?",
                (site_id, part, max_depth),
            ).fetchone()[0]
            db.execute("UPDATE part SET turn = ? WHERE site_id = ? AND part = ?", (later, site_id, part))
            return None
        # Where not all fits into one visit, it goes no deeper than the last URL it got: levels stay in order.
        depth = starts[-2].depth if len(starts) > pages else max_depth
        db.execute(
            "UPDATE part SET epoch = ?, visit = ?, parcel = 0, turn = NULL WHERE site_id = ? AND part = ?",
            (epoch + 1, visit, site_id, part),
        )
        db.execute(
            "INSERT INTO visit (id, site_id, part, epoch, place, began) VALUES (?, ?, ?, ?, 'here', ?)",
            (visit, site_id, part, epoch + 1, now),
        )
        return Lease(
            visit=visit,
            site=origin,
            part=part,
            epoch=epoch + 1,
            starts=tuple(starts[:pages]),
            known=Known(_done(db, site_id), tuple(validators)),
            depth=depth,
            robots=robots,
            holds=_holds(db, "WHERE key = ? AND until > ?", (site_key(origin), now)),
            may_be_private=may_be_private,
        )

    def judge(self, parcel: Parcel) -> Verdict:
        with self._database.reading() as db:
            return Storing(db, self._database.lookup, now=0.0).judge(parcel)

    def commit(self, change: Change, *, now: float) -> None:
        with self._database.transaction() as db:
            Storing(db, self._database.lookup, now=now).store(change)

    def recover(self, *, now: float, least_pause: float) -> int:
        with self._database.transaction() as db:
            rows = db.execute(
                "SELECT site_id, part, visit, origin, delay_seconds FROM part JOIN site ON site.id = site_id"
                " WHERE visit IS NOT NULL"
            ).fetchall()
            for site_id, part, visit, origin, delay in rows:
                rest = now + max(delay, least_pause)
                add_holds(db, [Hold(site_key(origin), rest)])
                db.execute(
                    "UPDATE part SET visit = NULL, turn = ? WHERE site_id = ? AND part = ?",
                    (rest, site_id, part),
                )
                db.execute("UPDATE visit SET over = ?, ended = ? WHERE id = ?", (now, Ended.LOST, visit))
            return len(rows)

    def refresh(self, *, older_than: float, now: float) -> int:
        with self._database.transaction() as db:
            db.execute(
                "DELETE FROM known WHERE is_done"
                " AND (site_id, fingerprint) NOT IN (SELECT site_id, fingerprint FROM page)"
            )
            moved = db.execute(
                "INSERT INTO frontier (site_id, part, depth, fingerprint, url, referrer, kind, hops)"
                " SELECT page.site_id, ?, known.depth, page.fingerprint, url, '', 'page', 0"
                " FROM page JOIN known USING (site_id, fingerprint) WHERE fetched < ? AND is_done",
                (WHOLE, older_than),
            ).rowcount
            db.execute(
                "UPDATE known SET is_done = 0 WHERE is_done AND (site_id, fingerprint) IN"
                " (SELECT site_id, fingerprint FROM page WHERE fetched < ?)",
                (older_than,),
            )
            db.execute(
                "UPDATE site SET robots_state = 'unknown', robots_failures = 0, robots_retry_at = 0"
                " WHERE robots_retry_at >= ?",
                (NEVER,),
            )
            if moved:
                add_to_tally(db, {"pending": moved})
                db.execute("UPDATE tally SET amount = 0 WHERE name = 'round_pages'")
        self.wake(now=now)
        return moved

    def forget_validators(self) -> None:
        with self._database.transaction() as db:
            db.execute("UPDATE page SET etag = '', modified = '', digest = x''")

    def wake(self, *, now: float) -> None:
        with self._database.transaction() as db:
            db.execute(
                "UPDATE part SET turn = ? WHERE turn IS NULL AND visit IS NULL AND EXISTS"
                " (SELECT 1 FROM frontier f WHERE f.site_id = part.site_id AND f.part = part.part)",
                (now,),
            )

    # -- the archive's manifest --------------------------------------------------------------------------

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
            db.execute(
                "INSERT INTO segment VALUES (?, ?, ?, ?, ?, NULL)",
                (new.name, new.table, new.rows, new.size_bytes, new.tier),
            )

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
            write_warc(db, positions)

    # -- holds, blocks, settings -------------------------------------------------------------------------

    def holds(self, *, now: float) -> tuple[Hold, ...]:
        with self._database.transaction() as db:
            db.execute("DELETE FROM hold WHERE until <= ?", (now,))
            return _holds(db, "WHERE until > ?", (now,))

    def hold(self, holds: Sequence[Hold]) -> None:
        with self._database.transaction() as db:
            add_holds(db, holds)

    def block(self, names: Sequence[str]) -> None:
        with self._database.transaction() as db:
            db.executemany("INSERT OR IGNORE INTO block VALUES (?)", [(name,) for name in names])

    def unblock(self, names: Sequence[str]) -> None:
        with self._database.transaction() as db:
            db.executemany("DELETE FROM block WHERE name = ?", [(name,) for name in names])

    def blocked(self) -> frozenset[str]:
        with self._database.reading() as db:
            return _blocked(db)

    def seed_sites(self) -> frozenset[str]:
        with self._database.reading() as db:
            return frozenset(origin for (origin,) in db.execute("SELECT origin FROM site WHERE is_seed"))

    def setting(self, name: str) -> str | None:
        with self._database.reading() as db:
            row = db.execute("SELECT value FROM setting WHERE name = ?", (name,)).fetchone()
            return row[0] if row else None

    def set_setting(self, name: str, value: str) -> None:
        with self._database.transaction() as db:
            db.execute("INSERT OR REPLACE INTO setting VALUES (?, ?)", (name, value))

    # -- where the crawl stands --------------------------------------------------------------------------

    def counts(self, *, now: float) -> Counts:
        with self._database.reading() as db:
            tally = read_tally(db)
            turn = db.execute("SELECT min(turn) FROM part WHERE turn IS NOT NULL").fetchone()[0]
            return Counts(
                sites=tally.pop("sites", 0),
                leased=_count(db, "SELECT count(*) FROM part WHERE visit IS NOT NULL"),
                waiting_sites=_count(db, "SELECT count(*) FROM part WHERE turn > ?", now),
                visits=tally.pop("visits", 0),
                pending=tally.pop("pending", 0),
                pages=tally.pop("pages", 0),
                round_pages=tally.pop("round_pages", 0),
                requests=tally.pop("requests", 0),
                bytes_received=tally.pop("bytes_received", 0),
                unchanged=tally.pop("unchanged", 0),
                redirects=tally.pop("redirects", 0),
                next_turn=turn,
                errors={name.removeprefix("error "): amount for name, amount in sorted(tally.items())},
            )

    def due_count(self, *, now: float, most: int) -> int:
        with self._database.reading() as db:
            return _count(db, "SELECT count(*) FROM (SELECT 1 FROM part WHERE turn <= ? LIMIT ?)", now, most)

    def site_rows(self) -> list[SiteRow]:
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT origin, pages, requests, bytes_received, errors, robots_state, robots_failures,"
                " robots_retry_at, robots_reason, (SELECT min(turn) FROM part WHERE site_id = site.id)"
                " FROM site ORDER BY id"
            )
            return [
                SiteRow(
                    site=origin,
                    pages=pages,
                    requests=requests,
                    bytes_received=size,
                    errors=errors,
                    robots=state,
                    robots_failures=failures,
                    robots_retry_at=retry_at,
                    reason=reason,
                    next_turn=turn,
                )
                for origin, pages, requests, size, errors, state, failures, retry_at, reason, turn in rows
            ]

    def visit_rows(self) -> list[VisitRow]:
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT visit.id, origin, part, epoch, place, began, over, ended, parcels, visit.pages,"
                " visit.requests, visit.bytes_received"
                " FROM visit JOIN site ON site.id = site_id ORDER BY began"
            )
            names = VisitRow.__struct_fields__
            return [VisitRow(**dict(zip(names, row, strict=True))) for row in rows]


def _starts(
    db: sqlite3.Connection, site_id: int, origin: str, *, part: str, now: float, max_depth: int, most: int
) -> tuple[list[Target], list[Validator]]:
    rows = db.execute(
        "SELECT f.url, f.depth, f.referrer, f.kind, f.hops, f.attempts,"
        " f.fingerprint, p.etag, p.modified, p.digest, p.has_raw"
        # Only what was read well may be asked for conditionally: a 304 brings nothing to read.
        " FROM frontier f LEFT JOIN page p ON p.site_id = f.site_id AND p.fingerprint = f.fingerprint"
        " AND p.status BETWEEN 200 AND 299 AND p.error = ''"
        " WHERE f.site_id = ? AND f.part = ? AND f.depth <= ? AND f.not_before <= ? ORDER BY f.depth LIMIT ?",
        (site_id, part, max_depth, now, most),
    ).fetchall()
    starts = [
        Target(origin + path, depth, lengthen(referrer, origin), kind, hops, attempts)
        for path, depth, referrer, kind, hops, attempts, *_ in rows
    ]
    validators = [
        Validator(mark, etag, modified, digest, bool(has_raw))
        for mark, etag, modified, digest, has_raw in (row[6:] for row in rows)
        if etag is not None
    ]
    return starts, validators


def _done(db: sqlite3.Connection, site_id: int) -> bytes:
    rows = db.execute(
        "SELECT fingerprint FROM known WHERE site_id = ? AND is_done ORDER BY fingerprint", (site_id,)
    )
    return array("q", (fingerprint for (fingerprint,) in rows)).tobytes()


def _site(db: sqlite3.Connection, site_id: int) -> tuple[str, bool, Robots]:
    origin, may_be_private, state, *rest = db.execute(
        "SELECT origin, may_be_private, robots_state, robots_tried_at, robots_failures, robots_retry_at,"
        " robots_rules, robots_reason FROM site WHERE id = ?",
        (site_id,),
    ).fetchone()
    return origin, bool(may_be_private), Robots(RobotsState(state), *rest)


def _holds(db: sqlite3.Connection, where: str, values: tuple[str | float, ...]) -> tuple[Hold, ...]:
    rows = db.execute(f"SELECT key, until FROM hold {where}", values)  # noqa: S608 - from this file only
    return tuple(Hold(key, until) for key, until in rows)


def _blocked(db: sqlite3.Connection) -> frozenset[str]:
    return frozenset(name for (name,) in db.execute("SELECT name FROM block"))


def _count(db: sqlite3.Connection, sql: str, *values: float) -> int:
    return int(db.execute(sql, values).fetchone()[0])
