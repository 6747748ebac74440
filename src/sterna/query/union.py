"""The tables of several collections as one: rows of all, with a first column that names their collection.

Each collection has its tables in a database of its own in memory, which finds its newest versions as if it
were alone. Of a page that several collections have, `page` has the newest version only, `link` its links.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import duckdb
import pyarrow as pa

from sterna.query import templates
from sterna.query.scan import Within, identifier, literal
from sterna.query.tables import Tables
from sterna.query.versions import SCHEMA

COLLECTION = "collection"
_EARLIER = """
    CREATE OR REPLACE TABLE {schema}.earlier AS
    SELECT number, url FROM ({pages})
    QUALIFY row_number() OVER (PARTITION BY url ORDER BY fetched DESC NULLS LAST, number) > 1
"""
_PLACES = "SELECT {number} AS number, url, fetched FROM {table}"
_LATEST = """
    ANTI JOIN (SELECT url FROM {schema}.earlier WHERE number = {number}) AS earlier
    ON stored.{url} = earlier.url
"""
_URL = {"page": "url", "link": "from_url"}  # of the page that a row is of, where one version counts


class Part(NamedTuple):
    """One of the collections: its name, the segments of each table, and the tables of its ledger."""

    name: str
    files: Mapping[str, Sequence[str]]
    extra: Mapping[str, pa.Table]


class _Member(NamedTuple):
    name: str
    database: str
    cursor: duckdb.DuckDBPyConnection  # of its own database
    tables: Tables


class Union:
    """As `Tables`, of several collections."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, parts: Sequence[Part]) -> None:
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
        self._members = [_member(connection, number, part) for number, part in enumerate(parts)]
        self.names = self._members[0].tables.names
        self._defined: set[str] = set()  # guarded by the lock, as the next
        self._knows_earlier = False
        self._lock = threading.Lock()

    def define(self, connection: duckdb.DuckDBPyConnection, name: str) -> bool:
        """Makes the table, or the template for this connection only; False if the name is unknown."""
        key = name.casefold()
        if key not in self.names:
            self.define(connection, "fact")
            return templates.define(connection, name, came=(COLLECTION, *templates.HOW_IT_CAME))
        with self._lock:
            if key in self._defined:
                return False
            self._make(connection, key)
            self._defined.add(key)
            return True

    def prepare(self, connection: duckdb.DuckDBPyConnection, sql: str) -> None:
        for member in self._members:
            member.tables.prepare(member.cursor, sql)

    @property
    def files(self) -> list[str]:
        """The segments that tables are read from."""
        return [file for member in self._members for file in member.tables.files]

    def leave_out(self, connection: duckdb.DuckDBPyConnection, files: Collection[str]) -> None:
        """Defines all tables anew, without these segments."""
        for member in self._members:
            member.tables.leave_out(member.cursor, files)
        with self._lock:
            self._knows_earlier = False
            for name in self._defined:
                self._make(connection, name)

    def templates(self, connection: duckdb.DuckDBPyConnection) -> list[str]:
        self.define(connection, "fact")
        return templates.names(connection)

    def _make(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        """Each collection's own table first; only then are its columns known."""
        for member in self._members:
            member.tables.define(member.cursor, name)
            if name in _URL:
                member.tables.define(member.cursor, "page")
        if name in _URL and not self._knows_earlier:
            pages = self._rows("page", _PLACES.format)
            connection.execute(_EARLIER.format(schema=SCHEMA, pages=pages))
            self._knows_earlier = True
        rows = self._rows(name, partial(self._selected, name))
        connection.execute(f"CREATE OR REPLACE VIEW {identifier(name)} AS {rows}")

    def _rows(self, name: str, select: Callable[..., str]) -> str:
        tables = (f"{member.database}.main.{identifier(name)}" for member in self._members)
        selects = (select(number=number, table=table) for number, table in enumerate(tables))
        return " UNION ALL BY NAME ".join(selects)

    def _selected(self, name: str, *, number: int, table: str) -> str:
        columns = f"{literal(self._members[number].name)} AS {COLLECTION}, stored.*"
        url = _URL.get(name)
        join = _LATEST.format(schema=SCHEMA, number=number, url=url) if url else ""
        return f"SELECT {columns} FROM {table} AS stored {join}"  # noqa: S608 - our own names, quoted values


def _member(connection: duckdb.DuckDBPyConnection, number: int, part: Part) -> _Member:
    database = f"collection_{number:d}"
    connection.execute(f"ATTACH ':memory:' AS {database}")
    cursor = connection.cursor()
    cursor.execute(f"USE {database}")
    tables = Tables(cursor, part.files, extra=part.extra, within=Within())
    return _Member(part.name, database, cursor, tables)
