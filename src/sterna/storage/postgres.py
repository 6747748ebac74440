"""Fast ways into PostgreSQL: COPY or many rows per statement where the result is the same, or a pipeline."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from functools import lru_cache
from itertools import chain
from typing import Any

from sqlalchemy import Connection, RootTransaction

from sterna.storage.connections import FaultKind, fault_of, is_lost
from sterna.storage.rows import ColumnRows, Row, bindable, picker
from sterna.storage.statements import PlainInsert, ValuesInsert

LEAST_ROWS = 8  # with fewer rows the preparation costs more than it saves
_MANY_ROWS = 500  # more rows per statement are not faster
_MOST_PARAMETERS = 65_535  # of a statement

# The types (by their OIDs in PostgreSQL) that COPY fills exactly as INSERT does. Both read texts by the rules
# of the type; but INSERT casts, for example, a time or a float for a text column.
_TEXTS = frozenset({25, 1042, 1043})
_FLOATS = frozenset({700, 701})
_SAME: dict[type, frozenset[int]] = {
    bool: frozenset({16}),
    int: frozenset({20, 21, 23, 1700}) | _FLOATS | _TEXTS,
    float: _FLOATS,
    datetime: frozenset({1184}),
    date: frozenset({1082}),
    bytes: frozenset({17}),
    list: frozenset({1009, 1015}),
}
_ALWAYS = frozenset({str, type(None)})

# Whether many rows in one statement have the same effect as one after the other: no code of the user runs
# between them, and no row refers to another.
_IS_PLAIN_TABLE = b"""
SELECT relkind = 'r' AND NOT relhasrules AND NOT relrowsecurity
  AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = t.oid AND NOT tgisinternal)
  AND NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = t.oid AND confrelid = t.oid)
  AND NOT EXISTS (
    SELECT FROM pg_depend JOIN pg_attrdef AS d ON classid = 'pg_attrdef'::regclass AND objid = d.oid
    WHERE d.adrelid = t.oid AND refclassid = 'pg_proc'::regclass)
  AND NOT EXISTS (
    SELECT FROM pg_depend JOIN pg_constraint AS c ON classid = 'pg_constraint'::regclass AND objid = c.oid
    WHERE c.conrelid = t.oid AND refclassid = 'pg_proc'::regclass)
FROM pg_class AS t WHERE oid = to_regclass($1)
"""


class NotApplicable(Exception):
    """A fast way does not work for this table: roll back and use the command's own statement."""


class Copier:
    """Stores rows by COPY in place of a plain INSERT."""

    def __init__(self, insert: PlainInsert) -> None:
        self._insert = insert
        names = ", ".join(insert.columns)
        self._select = f"SELECT {names} FROM {insert.table} LIMIT 0".encode()  # noqa: S608 - the user's words
        self._copy = f"COPY {insert.table} ({names}) FROM STDIN".encode()
        self._copy_csv = self._copy + b" (FORMAT csv)"
        # The OIDs of the columns' types, queried once per transaction.
        self._types: tuple[RootTransaction | None, list[int]] = (None, [])

    def store(self, connection: Connection, columns: Sequence[str], rows: Sequence[Row]) -> bool:
        """True if the rows are stored; False: use the command's own statement."""
        driver: Any = connection.connection.driver_connection
        with _broken_is_not_applicable(connection), driver.cursor() as cursor:
            transaction = connection.get_transaction()
            if self._types[0] is not transaction:
                cursor.execute(self._select)
                self._types = (transaction, [column.type_code for column in cursor.description])
            types = self._types[1]
            if isinstance(rows, ColumnRows) and self._copy_columns(cursor, types, columns, rows):
                return True
            picked = _picked(self._insert.parameters, columns, bindable(rows, kind="postgresql"))
            for oid, values in zip(types, zip(*picked, strict=True), strict=True):
                if not all(_is_same(oid, kind) for kind in set(map(type, values))):
                    return False
            with cursor.copy(self._copy) as copy:
                for row in picked:
                    copy.write_row(row)
        return True

    def _copy_columns(
        self, cursor: Any, types: Sequence[int], columns: Sequence[str], rows: ColumnRows
    ) -> bool:
        """Copies whole columns without making rows; False if their types do not allow it."""
        places = [columns.index(name) for name in self._insert.parameters]
        kinds = rows.kinds(places)
        if kinds is None or cursor.connection.info.encoding != "utf-8":
            return False
        if not all(_is_same(*each) for each in zip(types, kinds, strict=True)):
            return False
        with cursor.copy(self._copy_csv) as copy:
            copy.write(rows.as_csv(places))
        return True


class ManyInserter:
    """Stores rows by statements of many rows each, in place of an INSERT for each of them.

    PostgreSQL resolves the types of each row separately and stores the rows in their order, so that sequences
    give the same numbers.
    """

    def __init__(self, insert: ValuesInsert) -> None:
        self._insert = insert
        self._names = list(dict.fromkeys(insert.parameters))
        self._count = min(_MANY_ROWS, _MOST_PARAMETERS // len(self._names))
        self._is_plain: tuple[RootTransaction | None, bool] = (None, False)  # cached for one transaction

    def store(self, connection: Connection, columns: Sequence[str], rows: Sequence[Row]) -> bool:
        """True if the rows are stored; False: use the command's own statement."""
        # Not at the top: the driver is needed for PostgreSQL only.
        from psycopg import RawCursor  # noqa: PLC0415

        driver: Any = connection.connection.driver_connection
        with _broken_is_not_applicable(connection), RawCursor(driver) as cursor:
            transaction = connection.get_transaction()
            if self._is_plain[0] is not transaction:
                answer = cursor.execute(_IS_PLAIN_TABLE, [self._insert.table]).fetchone()
                self._is_plain = (transaction, bool(answer and answer[0]))
            if not self._is_plain[1]:
                return False
            picked = _picked(self._names, columns, bindable(rows, kind="postgresql"))
            for first in range(0, len(picked), self._count):
                some = picked[first : first + self._count]
                sql = _sql_of_many(self._insert, len(some)).encode(driver.info.encoding)
                cursor.execute(sql, list(chain.from_iterable(some)))
        return True


@contextmanager
def _broken_is_not_applicable(connection: Connection) -> Iterator[None]:
    """Errors of the fast way itself: the command's own statement may work."""
    try:
        yield
    except Exception as error:
        if is_lost(connection) or fault_of(error).kind is not FaultKind.BROKEN:
            raise
        raise NotApplicable from error


@lru_cache(maxsize=32)
def _sql_of_many(insert: ValuesInsert, count: int) -> str:
    """The statement for this number of rows, with numbered parameters."""
    names = list(dict.fromkeys(insert.parameters))
    places = [names.index(name) + 1 for name in insert.parameters]
    lists = []
    for first in range(0, count * len(names), len(names)):
        values = [f"{part}${first + place}" for part, place in zip(insert.parts, places, strict=False)]
        lists.append("".join(values) + insert.parts[-1])
    return f"{insert.head}{', '.join(lists)}{insert.tail}"


def run_in_pipeline(
    connection: Connection, statements: Sequence[tuple[str, Callable[[Row], Any]]], rows: Sequence[Row]
) -> None:
    """Runs all statements for each row in turn, without waiting for each result."""
    driver: Any = connection.connection.driver_connection
    ready = [(sql.encode(), values) for sql, values in statements]
    with driver.pipeline(), driver.cursor() as cursor:
        for row in rows:
            for sql, values in ready:
                cursor.execute(sql, values(row), prepare=True)


def _picked(names: Sequence[str], columns: Sequence[str], rows: Sequence[Row]) -> Sequence[Row]:
    if tuple(names) == tuple(columns):
        return rows
    return list(map(picker([columns.index(name) for name in names]), rows))


def _is_same(oid: int, kind: type) -> bool:
    return kind in _ALWAYS or oid in _SAME.get(kind, ())
