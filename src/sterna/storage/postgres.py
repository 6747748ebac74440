"""The quick ways into PostgreSQL: COPY where it gives the same as the command's own INSERT, or a pipeline."""

from collections.abc import Callable, Sequence
from datetime import date, datetime
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, RootTransaction

from sterna.storage.connections import is_lost
from sterna.storage.faults import Kind, fault_of
from sterna.storage.statements import PlainInsert
from sterna.storage.values import Row

LEAST_ROWS = 8  # below that COPY is not worth its own statement

# Into which types (by PostgreSQL's numbers of them) COPY puts a value exactly as INSERT does. Texts are read
# by the type's own rules in both; but INSERT casts a time or a float that goes into a text column, say.
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


class NotCopied(Exception):
    """The table is one that COPY does not fill: the command's own statement must, after a rollback."""


class Copier:
    """Stores rows by COPY in place of a plain INSERT."""

    def __init__(self, insert: PlainInsert) -> None:
        self._insert = insert
        names = ", ".join(insert.columns)
        self._select = f"SELECT {names} FROM {insert.table} LIMIT 0".encode()  # noqa: S608 - the user's words
        self._copy = f"COPY {insert.table} ({names}) FROM STDIN".encode()
        self._is_possible = True  # until the table turns out to be one that COPY does not fill
        self._types: tuple[RootTransaction | None, list[int]] = (None, [])  # as a transaction found them

    def copy(self, connection: Connection, columns: Sequence[str], rows: Sequence[Row]) -> bool:
        """True if the rows are stored; False leaves them to the command's own statement."""
        is_worth_it = self._is_possible and len(rows) >= LEAST_ROWS
        if connection.dialect.driver != "psycopg" or not is_worth_it:
            return False
        try:
            return self._write(connection, _picked(self._insert.parameters, columns, rows))
        except Exception as error:
            if is_lost(connection) or fault_of(error).kind is not Kind.BROKEN:
                raise
            self._is_possible = False
            raise NotCopied from error

    def _write(self, connection: Connection, rows: Sequence[Row]) -> bool:
        driver: Any = connection.connection.driver_connection
        with driver.cursor() as cursor:
            types = self._types_of(cursor, connection.get_transaction())
            if not all(_is_same(*each) for each in zip(types, zip(*rows, strict=True), strict=True)):
                return False
            with cursor.copy(self._copy) as copy:
                for row in rows:
                    copy.write_row(row)
        return True

    def _types_of(self, cursor: Any, transaction: RootTransaction | None) -> list[int]:
        """The types of the columns, by PostgreSQL's numbers; each transaction asks once."""
        if self._types[0] is not transaction:
            cursor.execute(self._select)
            self._types = (transaction, [column.type_code for column in cursor.description])
        return self._types[1]


def run_in_pipeline(
    connection: Connection, statements: Sequence[tuple[str, Callable[[Row], Any]]], rows: Sequence[Row]
) -> None:
    """Runs all statements for one row after the other, without waiting for each answer."""
    driver: Any = connection.connection.driver_connection
    ready = [(sql.encode(), values) for sql, values in statements]
    with driver.pipeline(), driver.cursor() as cursor:
        for row in rows:
            for sql, values in ready:
                cursor.execute(sql, values(row), prepare=True)


def _picked(names: Sequence[str], columns: Sequence[str], rows: Sequence[Row]) -> Sequence[Row]:
    if tuple(names) == tuple(columns):
        return rows
    places = [columns.index(name) for name in names]
    if len(places) == 1:
        return [(row[places[0]],) for row in rows]
    return list(map(itemgetter(*places), rows))


def _is_same(number: int, values: Sequence[Any]) -> bool:
    return all(kind in _ALWAYS or number in _SAME.get(kind, ()) for kind in set(map(type, values)))
