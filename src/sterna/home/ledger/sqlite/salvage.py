"""What is left of a ledger: whether its file is good, and if not, all rows of it that can still be read."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from sterna.archive.manifest import Segment, WarcPosition
from sterna.errors import CollectionError
from sterna.home.ledger.sqlite import schema
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.ledger.sqlite.pages import BATCHES
from sterna.model import Record
from sterna.web.sqlite import connect, translated, version_of

_AT_ONCE = 1_000
_OF_FILES = frozenset({"segment", "warc"})  # tables that the files themselves decide
_BY_SITE = ("part", "known", "frontier", "page", "visit", "crawler_fact", "crawler_memory")

# The rows of a table that lost those of another one.
_CONSISTENT = (
    schema.DELETE_WRONG_VISITS,
    *(f"DELETE FROM {table} WHERE site_id NOT IN (SELECT id FROM site)" for table in _BY_SITE),  # noqa: S608
    "INSERT OR IGNORE INTO known SELECT site_id, fingerprint, 1, depth FROM page",
    "INSERT OR IGNORE INTO known SELECT site_id, fingerprint, 0, rank FROM frontier",
    "DELETE FROM frontier WHERE (site_id, fingerprint, rank) NOT IN"
    " (SELECT site_id, fingerprint, rank FROM known WHERE NOT is_done)",
    # Its text is lost. The links that lead there bring it back.
    "DELETE FROM known WHERE NOT is_done AND (site_id, fingerprint) NOT IN"
    " (SELECT site_id, fingerprint FROM frontier)",
)


class LedgerState(Record, frozen=True, kw_only=True):
    """A ledger as it was found."""

    damage: str = ""  # "": it is good
    is_empty: bool = False  # there is nothing in it
    owner: str | None = None  # the id of its collection, if it says so
    batch: int = 0
    segments: tuple[Segment, ...] = ()
    retired: frozenset[str] = frozenset()  # segments that were merged; the next crawl removes them
    warc: tuple[WarcPosition, ...] = ()


def inspect(path: Path) -> LedgerState:
    """Reads the whole ledger; raises CollectionError if a later version of Sterna wrote it."""
    if not path.exists() or not path.stat().st_size:
        damage = "it is empty" if path.exists() else "it is missing"
        return LedgerState(damage=damage, is_empty=True)
    try:
        with closing(connect(path, is_reader=True)) as db:
            version = version_of(db)
            if version == 0:
                return LedgerState(damage="it is empty", is_empty=True)
            if version > schema.VERSION:
                raise CollectionError(f"{path} has ledger format {version}: use the version that wrote it")
            (result,) = db.execute("PRAGMA integrity_check(1)").fetchone()
            return _state(db, damage="" if result == "ok" else f"it is damaged ({_line(result)})")
    except sqlite3.DatabaseError as error:
        return LedgerState(damage=f"it is damaged ({_line(str(error))})")


def copy_whole(path: Path, into: Path) -> None:
    """Copies a good ledger, with what is still in its log."""
    with (
        translated("ledger", into, advice={}),
        closing(connect(path, is_reader=True)) as old,
        closing(connect(into, is_reader=False)) as new,
    ):
        old.backup(new)


def copy_rows(path: Path, into: Path) -> list[str]:
    """Makes a ledger of all rows that can be read of a damaged one; returns the tables that are not whole."""
    SqliteLedger(into).close()
    torn = []
    with translated("ledger", into, advice={}), closing(connect(into, is_reader=False)) as new:
        new.execute("PRAGMA synchronous = OFF")
        tables = [name for (name,) in new.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in tables:
            if table not in _OF_FILES and not _copy_table(path, new, table):
                torn.append(table)
        for statement in _CONSISTENT:
            new.execute(statement)
    return torn


def _state(db: sqlite3.Connection, *, damage: str) -> LedgerState:
    """What the ledger says of itself, as far as it can be read."""
    names = "SELECT name, tbl, rows, size_bytes, tier FROM segment WHERE retired_at IS NULL ORDER BY name"
    retired = "SELECT name FROM segment WHERE retired_at IS NOT NULL"
    try:
        owner = db.execute("SELECT value FROM setting WHERE name = 'collection'").fetchone()
        batch = db.execute("SELECT amount FROM tally WHERE name = ?", (BATCHES,)).fetchone()
        state = LedgerState(damage=damage, owner=owner[0] if owner else None, batch=batch[0] if batch else 0)
        if db.execute(f"{schema.WRONG_NAMES} LIMIT 1").fetchone():
            return msgspec.structs.replace(state, damage=damage or "it names files outside of the collection")
        warc = db.execute("SELECT name, committed_bytes, is_open FROM warc ORDER BY name").fetchall()
        return msgspec.structs.replace(
            state,
            segments=tuple(Segment(*row) for row in db.execute(names)),
            retired=frozenset(name for (name,) in db.execute(retired)),
            warc=tuple(WarcPosition(name, size, bool(is_open)) for name, size, is_open in warc),
        )
    except sqlite3.DatabaseError as error:
        return LedgerState(damage=damage or f"it is damaged ({_line(str(error))})")


def _copy_table(path: Path, new: sqlite3.Connection, table: str) -> bool:
    """False if some rows are lost: those between the first damage from the front and from the back."""
    names = [(name, key) for _, name, _, _, _, key in new.execute(f"PRAGMA table_info({table})")]
    keys = [name for name, key in sorted(names, key=lambda each: each[1]) if key] or ["rowid"]
    with closing(_tolerant(path)) as old:
        try:
            present = {row[1] for row in old.execute(f"PRAGMA table_info({table})")}
        except sqlite3.DatabaseError:
            return False
    columns = ", ".join(name for name, _ in names if name in present)
    marks = ", ".join("?" for name, _ in names if name in present)
    if not columns:
        return False
    for order in ("ASC", "DESC"):
        sorting = ", ".join(f"{key} {order}" for key in keys)
        sql = f"SELECT {columns} FROM {table} ORDER BY {sorting}"  # noqa: S608 - names of our own schema
        is_whole = True
        for rows in _readable(path, sql):
            if rows is None:
                is_whole = False
                break
            new.execute("BEGIN")
            new.executemany(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})", rows)  # noqa: S608
            new.execute("COMMIT")
        if is_whole:
            return True
    return False


def _readable(path: Path, sql: str) -> Iterator[list[tuple[object, ...]] | None]:
    """The rows up to the first damage, which is a None."""
    rows: list[tuple[object, ...]] = []
    with closing(_tolerant(path)) as old:
        try:
            for row in old.execute(sql):
                rows.append(row)
                if len(rows) == _AT_ONCE:
                    yield rows
                    rows = []
            yield rows
        except sqlite3.DatabaseError:
            yield rows
            yield None


def _tolerant(path: Path) -> sqlite3.Connection:
    connection = connect(path, is_reader=True)
    connection.text_factory = lambda data: data.decode(errors="replace")
    return connection


def _line(text: str) -> str:
    return " ".join(text.split())[:120]
