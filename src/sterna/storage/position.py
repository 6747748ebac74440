"""The position of a rule, and the rows that were refused: two tables in the user's own database.

They change in the same transaction as the rows themselves. So if a process dies between a row and its
acknowledgement, nothing is lost and nothing is stored twice, and home keeps no state that could contradict.
"""

import secrets
import time
from collections.abc import Sequence

import sqlalchemy as sa
from msgspec.structs import asdict
from sqlalchemy import Column, ColumnElement, Connection, Table
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.exc import IntegrityError

from sterna.model import Record

BEFORE_ALL = -1  # the position of a rule that has stored nothing; batch 0 is from before batches existed
RETRIED_ROWS = 500  # at a time
ROW_FIRST_SECONDS = 60.0  # of a refused row, for which the user must correct something first
ROW_LONGEST_SECONDS = 6 * 3600.0
_MOST_DOUBLINGS = 40

_METADATA = sa.MetaData()
_LONG = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")
POSITION = Table(
    "sterna_storage",
    _METADATA,
    Column("collection", sa.String(64), primary_key=True),
    Column("rule", sa.String(100), primary_key=True),
    Column("batch", sa.BigInteger, nullable=False),
    Column("stored", sa.BigInteger, nullable=False),
    Column("moved", sa.Double, nullable=False),  # seconds since 1970
)
WAITING = Table(
    "sterna_waiting",
    _METADATA,
    Column("collection", sa.String(64), primary_key=True),
    Column("rule", sa.String(100), primary_key=True),
    Column("id", sa.String(32), primary_key=True),
    Column("step", sa.Integer, nullable=False),  # the index of the rule's store
    Column("batch", sa.BigInteger, nullable=False),
    Column("row_json", _LONG, nullable=False),
    Column("error", _LONG, nullable=False),
    Column("attempts", sa.Integer, nullable=False),
    Column("next_try", sa.Double, nullable=False),
    sa.Index("sterna_waiting_next", "collection", "rule", "next_try"),
)


class Key(Record, frozen=True):
    """A rule of a collection."""

    collection: str
    rule: str


class Position(Record, frozen=True):
    """Up to which batch a rule has stored everything, and how many rows."""

    batch: int = BEFORE_ALL
    stored: int = 0
    moved: float = 0.0


class RefusedRow(Record, frozen=True, kw_only=True):
    """A row that the database refused, to be tried again."""

    id: str = ""  # made when it is set aside
    step: int
    batch: int
    row_json: str
    error: str
    attempts: int = 1
    next_try: float = 0.0


class RefusedRows(Record, frozen=True):
    """All refused rows of a rule, summed up."""

    count: int = 0
    next_try: float = 0.0  # the earliest
    error: str = ""  # one of the latest


class PositionMoved(Exception):
    """Another runner was faster: the position differs from the one that was read."""


def delay(attempts: int, *, first: float = ROW_FIRST_SECONDS, longest: float = ROW_LONGEST_SECONDS) -> float:
    """Seconds to wait after this many failures in a row: doubled each time, up to the longest."""
    return min(longest, first * 2.0 ** min(max(attempts - 1, 0), _MOST_DOUBLINGS))


def make_tables(connection: Connection) -> None:
    _METADATA.create_all(connection)


def has_tables(connection: Connection) -> bool:
    """True if rows were ever stored into this database."""
    return bool(connection.dialect.has_table(connection, POSITION.name))


def read(connection: Connection, key: Key) -> Position:
    columns = (POSITION.c.batch, POSITION.c.stored, POSITION.c.moved)
    row = connection.execute(sa.select(*columns).where(*_is(POSITION, key))).first()
    return Position(*row) if row else Position()


def claim(connection: Connection, key: Key, known: Position) -> None:
    """Locks the rule until the transaction ends; PositionMoved if another runner stored rows meanwhile."""
    same = sa.update(POSITION).where(*_is(POSITION, key), POSITION.c.batch == known.batch)
    if connection.execute(same.values(moved=time.time())).rowcount == 1:
        return
    if known.batch != BEFORE_ALL:
        raise PositionMoved
    start = {"batch": BEFORE_ALL, "stored": 0, "moved": time.time()}
    try:
        connection.execute(sa.insert(POSITION).values(**asdict(key), **start))
    except IntegrityError:
        raise PositionMoved from None


def move(connection: Connection, key: Key, *, batch: int, stored: int) -> None:
    values = {"batch": batch, "stored": POSITION.c.stored + stored, "moved": time.time()}
    connection.execute(sa.update(POSITION).where(*_is(POSITION, key)).values(**values))


def forget(connection: Connection, key: Key) -> None:
    """Resets the rule, as if it had never stored anything here."""
    for table in (WAITING, POSITION):
        connection.execute(sa.delete(table).where(*_is(table, key)))


def set_aside(connection: Connection, key: Key, rows: Sequence[RefusedRow]) -> None:
    now = time.time()
    values = [
        {**asdict(key), **asdict(row), "id": secrets.token_hex(16), "next_try": now + delay(row.attempts)}
        for row in rows
    ]
    if values:
        connection.execute(sa.insert(WAITING), values)


def refused(connection: Connection, key: Key) -> RefusedRows:
    """How many rows of the rule wait, and until when."""
    counted = sa.select(sa.func.count(), sa.func.min(WAITING.c.next_try)).where(*_is(WAITING, key))
    count, next_try = connection.execute(counted).one()
    if not count:
        return RefusedRows()
    last = sa.select(WAITING.c.error).where(*_is(WAITING, key)).order_by(WAITING.c.next_try.desc()).limit(1)
    return RefusedRows(int(count), float(next_try), connection.execute(last).scalar() or "")


def is_due(next_try: float, *, at: float) -> bool:
    """Whether to try now; a time later than any row waits was written while the clock was ahead."""
    return not at < next_try <= at + ROW_LONGEST_SECONDS


def due(connection: Connection, key: Key, *, at: float) -> list[RefusedRow]:
    """Refused rows that are to be tried now, at most RETRIED_ROWS."""
    columns = [WAITING.c[name] for name in RefusedRow.__struct_fields__]
    next_try = WAITING.c.next_try
    is_now = sa.or_(next_try <= at, next_try > at + ROW_LONGEST_SECONDS)  # as is_due()
    wanted = sa.select(*columns).where(*_is(WAITING, key), is_now)
    rows = connection.execute(wanted.order_by(next_try).limit(RETRIED_ROWS))
    return [RefusedRow(**row) for row in rows.mappings()]


def retry_at_once(connection: Connection, key: Key) -> None:
    """Makes all refused rows due: a change may have removed the reason."""
    connection.execute(sa.update(WAITING).where(*_is(WAITING, key)).values(next_try=0.0))


def drop_refused(connection: Connection, key: Key, ids: Sequence[str]) -> None:
    if ids:
        connection.execute(sa.delete(WAITING).where(*_is(WAITING, key), WAITING.c.id.in_(ids)))


def wait_longer(connection: Connection, key: Key, row: RefusedRow, *, error: str) -> None:
    """Notes that the row was refused once more."""
    attempts = row.attempts + 1
    values = {"attempts": attempts, "error": error, "next_try": time.time() + delay(attempts)}
    connection.execute(sa.update(WAITING).where(*_is(WAITING, key), WAITING.c.id == row.id).values(**values))


def _is(table: Table, key: Key) -> tuple[ColumnElement[bool], ...]:
    return (table.c.collection == key.collection, table.c.rule == key.rule)
