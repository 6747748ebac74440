"""What a host remembers between two calls, in one SQLite file: sessions, nonces, rations, receipts.

Every transaction is short, because the processes of a CGI host wait for each other.
"""

import hmac
import math
import sqlite3
import time
from collections.abc import Callable, Container
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path

import msgspec

from sterna.errors import Refused, StorageError
from sterna.host.files import Database, Format
from sterna.host.policy.policy import DayCaps
from sterna.model import Budget, Record, Usage

NAME = "host.sqlite"  # in the folder of state
OWN_INDEX = "own.sqlite"  # the index of the own site, beside it
VISITS = "visits"  # the folder beside it, with a folder for each visit that is kept
OLD_FILES = ("sessions", "nonces", "ration", "receipts.jsonl", "swept", "refused")  # of earlier versions

TICKET_SECONDS = 60.0
NONCE_SECONDS = 300.0  # longer than any clock may be off, both ways
KEPT_SECONDS = 6 * 3600.0  # after the last use of a session
RETRY_SECONDS = 30.0
MAX_SESSIONS = 4_096
MAX_NONCES = 8_192
MAX_NONCES_OF_A_HOME = 1_024  # so that one home cannot shut the others out
ID_BYTES = 16
SPACING_SECONDS = 1.0  # between two refusals that a CGI host writes to its audit log

_STOPS = """
CREATE TABLE stop (
    home TEXT,                           -- its key as text
    crawler TEXT,                        -- its name
    reason TEXT NOT NULL,
    until REAL,                          -- NULL: until the owner opens the host again
    PRIMARY KEY (home, crawler)
) WITHOUT ROWID;
"""

FORMAT = Format(
    name="state of the host",
    version=2,
    missing="no host has worked in {} yet",
    repair="move it away and start the host again; rations and receipts then begin anew",
    tables="""
CREATE TABLE session (
    id BLOB PRIMARY KEY,
    data BLOB NOT NULL,
    used REAL NOT NULL,
    is_spent INTEGER NOT NULL DEFAULT 0  -- its ticket was claimed
) WITHOUT ROWID;
CREATE INDEX session_used ON session (is_spent, used);

CREATE TABLE nonce (home TEXT, nonce BLOB, time REAL NOT NULL, PRIMARY KEY (home, nonce)) WITHOUT ROWID;
CREATE INDEX nonce_time ON nonce (time);

CREATE TABLE ration (
    home TEXT PRIMARY KEY,
    day TEXT NOT NULL,                   -- of the policy's zone
    visits INTEGER NOT NULL,
    pages INTEGER NOT NULL,
    cpu_seconds REAL NOT NULL,
    read_bytes INTEGER NOT NULL,
    sent_bytes INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE receipt (
    id INTEGER PRIMARY KEY,
    visit TEXT NOT NULL,
    home BLOB NOT NULL,                  -- its public key
    payload BLOB NOT NULL UNIQUE,        -- the bytes that were signed
    by_host BLOB NOT NULL,
    by_home BLOB NOT NULL,               -- empty until the home signs
    name TEXT NOT NULL,
    agent TEXT NOT NULL
);
CREATE INDEX receipt_of_visit ON receipt (visit, home);

CREATE TABLE refusal (noted REAL NOT NULL);  -- one row: when the last one was written to the audit log
INSERT INTO refusal VALUES (0);
"""
    + _STOPS,
    upgrades=(_STOPS,),
)

# A receipt that is there already gets the home's signature, if it has none.
KEEP_RECEIPT = (
    "INSERT INTO receipt (visit, home, payload, by_host, by_home, name, agent) VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (payload) DO UPDATE SET by_home = excluded.by_home WHERE by_home = x''"
)


def open_state(folder: Path) -> Database:
    """The database of the host that works in this folder; takes over the files of earlier versions."""
    database = Database(folder / NAME, FORMAT)
    try:
        if has_old_files(folder):
            from sterna.host import old_state  # noqa: PLC0415 - needed once

            with database.transaction(is_durable=True) as db:
                old_state.copy(folder, db, keep_receipt=KEEP_RECEIPT)
            old_state.retire(folder)
    except BaseException as error:
        database.close()
        if isinstance(error, OSError):
            raise StorageError(f"cannot take over {error.filename}: {error.strerror}") from error
        raise
    return database


def has_old_files(folder: Path) -> bool:
    return any((folder / name).exists() for name in OLD_FILES)


class Session(Record, frozen=True):
    """What two requests of one home have in common."""

    id: bytes
    home: str  # its key as text
    keys: bytes  # as `wire.handshake` writes them
    ticket: bytes
    grants: Budget
    opened: float
    understands: tuple[str, ...] = ()  # optional features that this home can read
    priority: int = 0  # for which this is granted


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Session)


class Sessions:
    """Sessions and nonces; of several processes that claim a ticket or send a nonce, one wins."""

    def __init__(self, database: Database, *, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now

    def note(self, home: str, nonce: bytes) -> None:
        """Refused if this home has used the nonce before."""
        with self._database.transaction() as db:
            now = self._sweep(db)
            total, own = db.execute("SELECT count(*), total(home = ?) FROM nonce", (home,)).fetchone()
            if total >= MAX_NONCES or own >= MAX_NONCES_OF_A_HOME:
                raise Refused("busy", "too many greetings", retry_after=RETRY_SECONDS)
            added = db.execute("INSERT OR IGNORE INTO nonce VALUES (?, ?, ?)", (home, nonce, now))
            if not added.rowcount:
                raise Refused("replayed", "this request was received before")

    def open(self, session: Session) -> None:
        """Keeps a session until its ticket expires, or while it is used; Refused if too many are unused."""
        with self._database.transaction() as db:
            now = self._sweep(db)
            total, spent = db.execute("SELECT count(*), sum(is_spent) FROM session").fetchone()
            if total >= MAX_SESSIONS:
                if not spent:
                    raise Refused("busy", "too many sessions are open", retry_after=RETRY_SECONDS)
                # Forgets those that were unused for longest.
                db.execute(
                    "DELETE FROM session WHERE id IN"
                    " (SELECT id FROM session WHERE is_spent ORDER BY used LIMIT ?)",
                    (max(MAX_SESSIONS // 8, 1),),
                )
            db.execute(
                "INSERT INTO session (id, data, used) VALUES (?, ?, ?)",
                (session.id, _ENCODER.encode(session), now),
            )

    def find(self, id: bytes) -> Session:
        """The session; Refused if there is none."""
        if len(id) != ID_BYTES:
            raise Refused("malformed", "the session id is missing")
        with self._database.snapshot() as db:
            row = db.execute("SELECT data FROM session WHERE id = ?", (id,)).fetchone()
        with suppress(msgspec.MsgspecError):  # written by another version: as if it were not there
            if row:
                return _DECODER.decode(row[0])
        raise Refused("ticket-expired", "unknown or expired session: greet the host again")

    def claim(self, session: Session, ticket: bytes, *, now: float) -> None:
        """Spends the session's ticket; Refused for everyone but the first."""
        if not hmac.compare_digest(ticket, session.ticket):
            raise Refused("malformed", "the ticket does not belong to the session")
        if abs(now - session.opened) > TICKET_SECONDS:
            raise Refused("ticket-expired", f"a ticket is valid for {TICKET_SECONDS:g} seconds")
        with self._database.transaction() as db:
            claimed = db.execute(
                "UPDATE session SET is_spent = 1, used = ? WHERE id = ? AND NOT is_spent",
                (self._now(), session.id),
            )
        if not claimed.rowcount:
            raise Refused("ticket-spent", "a ticket is valid for one order")

    def use(self, session: Session) -> None:
        """Keeps a session for longer, because it was used."""
        with self._database.transaction() as db:
            db.execute("UPDATE session SET used = ? WHERE id = ?", (self._now(), session.id))

    def close(self, session: Session) -> None:
        """Forgets a session under which nothing more can be said."""
        with self._database.transaction() as db:
            db.execute("DELETE FROM session WHERE id = ?", (session.id,))

    def end(self, homes: Container[str]) -> int:
        """Forgets all sessions of these homes; their number."""
        with self._database.transaction() as db:
            rows = db.execute("SELECT id, data FROM session").fetchall()
            ids = [(id,) for id, data in rows if _home_of(data) in homes]
            db.executemany("DELETE FROM session WHERE id = ?", ids)
        return len(ids)

    def _sweep(self, db: sqlite3.Connection) -> float:
        """Deletes what has expired; returns the time."""
        now = self._now()
        db.execute("DELETE FROM nonce WHERE time < ?", (now - NONCE_SECONDS,))
        for is_spent, seconds in ((0, 2 * TICKET_SECONDS), (1, KEPT_SECONDS)):
            db.execute("DELETE FROM session WHERE is_spent = ? AND used < ?", (is_spent, now - seconds))
        return now


def _home_of(data: bytes) -> str:
    """Whose session it is; "" if another version wrote it."""
    with suppress(msgspec.MsgspecError):
        return _DECODER.decode(data).home
    return ""


_RATIONED = DayCaps.__struct_fields__  # also the columns


class Left(Record, frozen=True, kw_only=True):
    """What a home may still use today; infinite where there is no limit."""

    visits: float = math.inf
    pages: float = math.inf
    cpu_seconds: float = math.inf
    read_bytes: float = math.inf
    sent_bytes: float = math.inf

    @property
    def missing(self) -> str:
        """What is used up, apart from visits, which count only at the start of one; "" if nothing is."""
        return next((name for name in _RATIONED if name != "visits" and getattr(self, name) <= 0), "")


class Rations:
    """What each home has used today, across processes and restarts; days are those of the policy's zone."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def left(self, home: str, caps: DayCaps, day: str) -> Left:
        """What the home may still use; StorageError if the file cannot be read."""
        with self._database.snapshot() as db:
            row = db.execute(
                f"SELECT {', '.join(_RATIONED)} FROM ration WHERE home = ? AND day IN (?, ?)",  # noqa: S608
                (home, day, _after(day)),
            ).fetchone()
        used = dict(zip(_RATIONED, row or (0,) * len(_RATIONED), strict=True))
        return Left(**{name: max(cap - used[name], 0) for name in used if (cap := getattr(caps, name))})

    def spend(self, home: str, day: str, usage: Usage, *, visits: int = 0) -> None:
        """Adds what was used, and returns when it is on the disk; StorageError if it cannot be written."""
        with self._database.transaction(is_durable=True) as db:  # before its parcel is: none is given twice
            db.execute("DELETE FROM ration WHERE day NOT IN (?, ?)", (day, _after(day)))
            sums = ", ".join(f"{name} = {name} + excluded.{name}" for name in _RATIONED)
            db.execute(
                f"INSERT INTO ration (home, day, {', '.join(_RATIONED)}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
                f" ON CONFLICT (home) DO UPDATE SET {sums}",
                (home, day, visits, usage.pages, usage.cpu_seconds, usage.bytes_received, usage.sent_bytes),
            )


def _after(day: str) -> str:
    """The next day, whose row counts too: a clock that was set back must not grant a day twice."""
    return (date.fromisoformat(day) + timedelta(days=1)).isoformat()


class Stop(Record, frozen=True, array_like=False):
    """A crawler that the owner stopped: another of its home and name is refused."""

    home: str  # its key as text
    crawler: str
    reason: str
    until: float | None = None  # None: until the owner opens the host again


class Stops:
    """The crawlers that the owner stopped; those whose time is over are forgotten."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, stop: Stop) -> None:
        """Returns when it is on the disk; StorageError if it cannot be written."""
        with self._database.transaction(is_durable=True) as db:
            db.execute("INSERT OR REPLACE INTO stop VALUES (?, ?, ?, ?)", msgspec.structs.astuple(stop))

    def find(self, home: str, crawler: str, *, now: float) -> Stop | None:
        return next(
            (stop for stop in self.all(now=now) if (stop.home, stop.crawler) == (home, crawler)), None
        )

    def all(self, *, now: float) -> list[Stop]:
        with self._database.snapshot() as db:
            rows = db.execute("SELECT * FROM stop WHERE until IS NULL OR until > ?", (now,)).fetchall()
        return [Stop(*row) for row in rows]

    def lift(self) -> int:
        """Lets all of them in again; their number."""
        with self._database.transaction(is_durable=True) as db:
            return db.execute("DELETE FROM stop").rowcount


def may_note_refusal(database: Database, *, now: float) -> bool:
    """True at most once a second, over all processes; false if that cannot be recorded."""
    try:
        with database.transaction() as db:
            changed = db.execute(
                "UPDATE refusal SET noted = ? WHERE abs(? - noted) >= ?", (now, now, SPACING_SECONDS)
            )
            return changed.rowcount > 0
    except StorageError:
        return False
