"""What a survey still has to do, kept in the index: who was killed goes on where the last parcel ended."""

import sqlite3
from array import array

import msgspec

from sterna.host.own.index import OPEN, Index, Survey
from sterna.host.own.register import EVERYBODY, Register, forget_hidden, forget_old_changes, line_up
from sterna.host.site.closed import Closed
from sterna.model import Known, Parcel, Target, Validator
from sterna.web.robots import Rules
from sterna.web.urls import fingerprint

STARTS_AT_ONCE = 20_000  # of one visit, so that a large site takes no more memory than a small one
WHOLE_SECONDS = 7 * 24 * 3600.0  # so often a page is read whole: a server may hide it and answer "unchanged"

_decode = msgspec.msgpack.Decoder(Target).decode


class Plan:
    """One survey's; all of its methods wait for the disk."""

    def __init__(self, index: Index, survey: Survey, *, since: float | None) -> None:
        self._index = index
        self._number = survey.number
        self._register = Register(survey.number, since=since)
        self._rules = Rules.parse(b"", EVERYBODY)  # of robots.txt as it was last read, by take()

    @classmethod
    def begin(cls, index: Index, *, starts: tuple[str, ...], now: float) -> "Plan":
        """The survey that is to be gone on with; if there is none, a new one over all known pages."""
        with index.transaction() as db:
            row = db.execute("SELECT number FROM survey WHERE ended IS NULL").fetchone()
            if row is None:
                db.execute("INSERT INTO survey (began) VALUES (?)", (now,))
                db.execute("DELETE FROM todo")
                line_up(db, (Target(url, depth) for url, depth in db.execute("SELECT url, depth FROM page")))
            for url in starts:  # known or not, a way into the site that its owner named
                db.execute("DELETE FROM todo WHERE mark = ? AND target IS NOT NULL", (fingerprint(url),))
                line_up(db, [Target(url)])
            since = db.execute("SELECT max(began) FROM survey WHERE is_whole").fetchone()[0]
        survey = index.last_survey(is_over=False)
        assert survey
        return cls(index, survey, since=since)

    def next(self, *, is_anew: bool, now: float) -> tuple[tuple[Target, ...], Known]:
        """Where the next visit begins, and what it knows; nowhere if nothing is left."""
        with self._index.snapshot() as db:
            rows = db.execute(
                "SELECT mark, target FROM todo WHERE target IS NOT NULL ORDER BY depth LIMIT ?",
                (STARTS_AT_ONCE,),
            ).fetchall()
            starts = {mark: _decode(target) for mark, target in rows}
            marks = db.execute("SELECT mark FROM todo ORDER BY mark")
            others = array("q", (mark for (mark,) in marks if mark not in starts))
            validators = _validators(db, starts, is_anew=is_anew, now=now)
        return tuple(starts.values()), Known(others.tobytes(), validators)

    def take(self, parcel: Parcel) -> None:
        """Keeps what a parcel brought, for good."""
        if parcel.robots:
            self._rules = Rules.parse(parcel.robots.rules, EVERYBODY)
        with self._index.transaction() as db:
            self._register.take(db, parcel)

    def left(self) -> int:
        """How many URLs are still to be asked for."""
        with self._index.snapshot() as db:
            return int(db.execute("SELECT count(*) FROM todo WHERE target IS NOT NULL").fetchone()[0])

    def standing(self) -> Survey:
        """How far it has come."""
        survey = self._index.last_survey(is_over=False)
        assert survey
        return survey

    def finish(self, *, is_whole: bool, now: float, closed: Closed = OPEN) -> None:
        """Ends the survey; from now on sitemap and feed are made of it."""
        with self._index.transaction() as db:
            db.execute(
                "UPDATE survey SET ended = ?, is_whole = ? WHERE number = ?", (now, is_whole, self._number)
            )
            db.execute("DELETE FROM todo")
            forget_hidden(db, lambda url: url not in closed and self._rules.may_fetch(url))
            forget_old_changes(db)


def _validators(
    db: sqlite3.Connection, starts: dict[int, Target], *, is_anew: bool, now: float
) -> tuple[Validator, ...]:
    rows = db.execute("SELECT mark, etag, modified, digest FROM page WHERE read > ?", (now - WHOLE_SECONDS,))
    return () if is_anew else tuple(Validator(*row) for row in rows if row[0] in starts)
