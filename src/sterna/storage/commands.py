"""Commands: the vocabulary of a database, each word a few statements of SQL or a function of the user's."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from sterna.storage.config import CommandSpec
from sterna.storage.connections import in_call
from sterna.storage.faults import CallFailed, Fault, Kind, text_of
from sterna.storage.functions import Functions
from sterna.storage.postgres import LEAST_ROWS, Copier, ManyInserter, NotThisWay, run_in_pipeline
from sterna.storage.rows import Row, bindable
from sterna.storage.statements import Statement, parameters_of, statements_of


class Command(Protocol):
    """What stores rows."""

    is_plain: bool  # one plain INSERT, for which PostgreSQL has a way that needs no rows

    def check(self, columns: Sequence[str]) -> None:
        """Raises a Fault unless the columns have all that the command asks for."""

    def run(self, connection: Connection, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Stores the rows in the connection's transaction."""


class SqlCommand:
    """Statements with named parameters, run for each row in their order."""

    def __init__(self, name: str, statements: Sequence[Statement]) -> None:
        self.name = name
        self.statements = statements
        self.is_plain = len(statements) == 1 and statements[0].insert is not None
        # Those that turn out not to work for the table are taken out.
        self._quick_ways = _quick_ways(statements[0]) if len(statements) == 1 else []

    def check(self, columns: Sequence[str]) -> None:
        missing = [each for each in parameters_of(self.statements) if each not in columns]
        if missing:
            needs = ", ".join(f":{each}" for each in missing)
            gives = ", ".join(columns)
            text = f"command {self.name!r} needs {needs}, which its query does not give: it gives {gives}"
            raise Fault(Kind.BROKEN, text)

    def run(self, connection: Connection, columns: Sequence[str], rows: Sequence[Row]) -> None:
        self.check(columns)
        if self._is_stored_quickly(connection, columns, rows):
            return
        ready = bindable(rows, kind=connection.dialect.name)
        prepared = [_Prepared(each, connection, columns) for each in self.statements]
        if len(prepared) == 1:
            prepared[0].run_all(connection, ready)
        elif connection.dialect.driver == "psycopg":
            run_in_pipeline(connection, [(each.sql, each.values) for each in prepared], ready)
        else:
            for row in ready:
                for each in prepared:
                    each.run_all(connection, [row])

    def _is_stored_quickly(self, connection: Connection, columns: Sequence[str], rows: Sequence[Row]) -> bool:
        if connection.dialect.driver != "psycopg" or len(rows) < LEAST_ROWS:
            return False
        for way in self._quick_ways:
            try:
                if way.store(connection, columns, rows):
                    return True
            except NotThisWay:
                self._quick_ways.remove(way)
                raise
        return False


class FunctionCommand:
    """A function of the user's, which gets the connection and the rows."""

    def __init__(self, name: str, find: Callable[[], Callable[..., object]]) -> None:
        self.name = name
        self.is_plain = False
        self._find = find

    def check(self, columns: Sequence[str]) -> None:
        self._find()

    def run(self, connection: Connection, columns: Sequence[str], rows: Sequence[Row]) -> None:
        function = self._find()
        given = [dict(zip(columns, row, strict=True)) for row in rows]
        with in_call(connection):
            try:
                function(connection, given)
            except Exception as error:
                if isinstance(error, Fault | SQLAlchemyError):
                    raise
                said = f"{type(error).__name__}: {text_of(error)}"
                raise CallFailed(f"command {self.name!r} raised {said}") from error


def command_of(name: str, spec: CommandSpec, *, folder: Path, functions: Functions) -> Command:
    """The command that a specification describes; a function's file lies in `folder` if nothing is said."""
    if spec.call:
        place = folder / spec.folder if spec.folder else folder
        return FunctionCommand(name, lambda: functions.find(spec.call, place))
    return SqlCommand(name, statements_of(spec.sql))


def _quick_ways(statement: Statement) -> list[Copier | ManyInserter]:
    copier = [Copier(statement.insert)] if statement.insert else []
    return [*copier, *([ManyInserter(statement.values)] if statement.values else [])]


class _Prepared:
    """A statement as the driver takes it, and how its values come from a row of these columns."""

    def __init__(self, statement: Statement, connection: Connection, columns: Sequence[str]) -> None:
        # Of others a driver may want each on its own.
        self._is_many = statement.text.split(None, 1)[0].upper() in ("INSERT", "UPDATE", "DELETE", "REPLACE")
        compiled = text(statement.text).compile(dialect=connection.dialect)
        self.sql = str(compiled)
        names = compiled.positiontup if compiled.positional else list(compiled.params)
        places = [columns.index(name) for name in names or ()]
        self.values = _picker(places) if compiled.positional else _namer(list(names or ()), places)

    def run_all(self, connection: Connection, rows: Sequence[Row]) -> None:
        values = [self.values(row) for row in rows]
        if self._is_many and len(values) > 1:
            connection.exec_driver_sql(self.sql, values)
        else:
            for each in values:
                connection.exec_driver_sql(self.sql, each).close()


def _picker(places: Sequence[int]) -> Callable[[Row], Any]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda row: tuple(row[place] for place in places)


def _namer(names: Sequence[str], places: Sequence[int]) -> Callable[[Row], Any]:
    pairs = list(zip(names, places, strict=True))
    return lambda row: {name: row[place] for name, place in pairs}
