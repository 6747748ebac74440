"""The user's database, of either kind, as a test sees it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.servers.postgres import PostgresServer


class Place(Protocol):
    """A database."""

    @property
    def url(self) -> str:
        """As SQLAlchemy writes it."""

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """What the last statement gives."""


class SqlitePlace:
    """A file of SQLite."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.path, timeout=20)
        try:
            with connection:
                for statement in statements:
                    cursor = connection.execute(statement)
                return cursor.fetchall()
        finally:
            connection.close()


class PostgresPlace:
    """A part of the tests' own PostgreSQL."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._schema = server.new_schema()
        self.url = server.url("postgres", schema=self._schema)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        return self._server.run("postgres", f"SET search_path = {self._schema}", *statements)

    @contextmanager
    def locked(self, table: str) -> Iterator[None]:
        """Another session holds a lock on the table, which even readers wait for."""
        with self._server.connect("postgres") as connection, connection.transaction():
            connection.execute(f"LOCK TABLE {self._schema}.{table} IN ACCESS EXCLUSIVE MODE".encode())
            yield
