"""How far a rule has come, and the rows that were refused: two tables in the user's own database.

They change in the same transaction as the rows themselves. So whoever dies between a row and its
acknowledgement, nothing is lost and nothing is stored twice, and there is no second truth at home.
"""

import secrets
import time
from collections.abc import Sequence

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.exc import IntegrityError

from sterna.model import Record
from sterna.storage.backoff import row_delay

BEFORE_ALL = -1  # a batch before the first: rows of old segments count as batch 0
RETRIED_ROWS = 500  # at a time

_METADATA = MetaData()
_LONG = Text().with_variant(LONGTEXT(), "mysql", "mariadb")
POSITION = Table(
    "sterna_storage",
    _METADATA,
    Column("collection", String(64), primary_key=True),
    Column("rule", String(100), primary_key=True),
    Column("batch", BigInteger, nullable=False),
    Column("stored", BigInteger, nullable=False),
    Column("moved", Double, nullable=False),  # seconds since 1970
)
WAITING = Table(
    "sterna_waiting",
    _METADATA,
    Column("collection", String(64), primary_key=True),
    Column("rule", String(100), primary_key=True),
    Column("id", String(32), primary_key=True),
    Column("step", Integer, nullable=False),  # which of the rule's stores, from 0
    Column("batch", BigInteger, nullable=False),
    Column("row_json", _LONG, nullable=False),
    Column("error", _LONG, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_try", Double, nullable=False),
    Index("sterna_waiting_next", "collection", "rule", "next_try"),
)


class Key(Record, frozen=True):
    """Whose position: a rule's, of one collection."""

    collection: str
    rule: str


class Position(Record, frozen=True):
    """How far a rule has come."""

    batch: int = BEFORE_ALL
    stored: int = 0
    moved: float = 0.0


class WaitingRow(Record, frozen=True, kw_only=True):
    """A row that the database refused."""

    id: str
    step: int
    batch: int
    row_json: str
    error: str
    attempts: int = 1
    next_try: float = 0.0


class Waiting(Record, frozen=True):
    """The rows of a rule that were refused."""

    count: int = 0
    next_try: float = 0.0  # of the first
    error: str = ""  # of one of the last


class Moved(Exception):
    """Another runner was quicker: the position is not the one that was read."""


def make_tables(connection: Connection) -> None:
    """Makes both tables where they are missing."""
    _METADATA.create_all(connection)


def has_tables(connection: Connection) -> bool:
    """True if rows were ever stored into this database."""
    return bool(connection.dialect.has_table(connection, POSITION.name))


def read(connection: Connection, key: Key) -> Position:
    """The position of a rule."""
    columns = (POSITION.c.batch, POSITION.c.stored, POSITION.c.moved)
    row = connection.execute(select(*columns).where(*_is(POSITION, key))).first()
    return Position(*row) if row else Position()


def claim(connection: Connection, key: Key, known: Position) -> None:
    """Keeps all other runners of the rule out until the transaction ends; Moved if one was here since."""
    same = update(POSITION).where(*_is(POSITION, key), POSITION.c.batch == known.batch)
    if connection.execute(same.values(moved=time.time())).rowcount == 1:
        return
    if known.batch != BEFORE_ALL:
        raise Moved
    start = {"batch": BEFORE_ALL, "stored": 0, "moved": time.time()}
    try:
        connection.execute(insert(POSITION).values(**_named(key), **start))
    except IntegrityError:
        raise Moved from None


def move(connection: Connection, key: Key, *, batch: int, stored: int) -> None:
    """The rule has come up to this batch, and so many rows more are stored."""
    values = {"batch": batch, "stored": POSITION.c.stored + stored, "moved": time.time()}
    connection.execute(update(POSITION).where(*_is(POSITION, key)).values(**values))


def forget(connection: Connection, key: Key) -> None:
    """The rule counts as one that never stored anything here."""
    for table in (WAITING, POSITION):
        connection.execute(delete(table).where(*_is(table, key)))


def keep_waiting(connection: Connection, key: Key, rows: Sequence[WaitingRow]) -> None:
    """Puts aside rows that were refused."""
    now = time.time()
    values = [
        {
            **_named(key),
            "id": secrets.token_hex(16),
            "step": row.step,
            "batch": row.batch,
            "row_json": row.row_json,
            "error": row.error,
            "attempts": row.attempts,
            "next_try": now + row_delay(row.attempts),
        }
        for row in rows
    ]
    if values:
        connection.execute(insert(WAITING), values)


def waiting(connection: Connection, key: Key) -> Waiting:
    """How many rows of the rule wait, and until when."""
    counted = select(func.count(), func.min(WAITING.c.next_try)).where(*_is(WAITING, key))
    count, next_try = connection.execute(counted).one()
    if not count:
        return Waiting()
    last = select(WAITING.c.error).where(*_is(WAITING, key)).order_by(WAITING.c.next_try.desc()).limit(1)
    return Waiting(int(count), float(next_try), connection.execute(last).scalar() or "")


def due(connection: Connection, key: Key, *, at: float) -> list[WaitingRow]:
    """Rows whose time has come, a bounded number of them."""
    names = WaitingRow.__struct_fields__
    columns = [WAITING.c[name] for name in names]
    wanted = select(*columns).where(*_is(WAITING, key), WAITING.c.next_try <= at)
    rows = connection.execute(wanted.order_by(WAITING.c.next_try).limit(RETRIED_ROWS))
    return [WaitingRow(**dict(zip(names, row, strict=True))) for row in rows]


def retry_at_once(connection: Connection, key: Key) -> None:
    """All rows that wait are due: something was changed that may have made them good."""
    connection.execute(update(WAITING).where(*_is(WAITING, key)).values(next_try=0.0))


def drop_waiting(connection: Connection, key: Key, ids: Sequence[str]) -> None:
    """These rows are stored now."""
    if ids:
        connection.execute(delete(WAITING).where(*_is(WAITING, key), WAITING.c.id.in_(ids)))


def wait_longer(connection: Connection, key: Key, row: WaitingRow, *, error: str) -> None:
    """The row was refused once more."""
    attempts = row.attempts + 1
    values = {"attempts": attempts, "error": error, "next_try": time.time() + row_delay(attempts)}
    connection.execute(update(WAITING).where(*_is(WAITING, key), WAITING.c.id == row.id).values(**values))


def _is(table: Table, key: Key) -> tuple[ColumnElement[bool], ...]:
    return (table.c.collection == key.collection, table.c.rule == key.rule)


def _named(key: Key) -> dict[str, str]:
    return {"collection": key.collection, "rule": key.rule}
