"""Commands: the vocabulary of a database, each a few SQL statements or a function of the user."""

import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from sterna.storage.config import CommandSpec
from sterna.storage.connections import CallFailed, Fault, in_call, text_of
from sterna.storage.postgres import LEAST_ROWS, Copier, ManyInserter, NotApplicable, run_in_pipeline
from sterna.storage.rows import Row, bindable, picker
from sterna.storage.statements import Statement, parameters_of, statements_of
from sterna.toml import stamp

# -- statements ------------------------------------------------------------------------------------------


class SqlCommand:
    """Statements with named parameters, run for each row in their order."""

    def __init__(self, name: str, statements: Sequence[Statement]) -> None:
        self.name = name
        self.statements = statements
        only = statements[0] if len(statements) == 1 else None
        # One plain INSERT, which PostgreSQL can do by COPY from columns.
        self.is_plain = only is not None and only.insert is not None
        # Changed by `run`, which removes those that do not work for the table.
        self._fast_ways: list[Copier | ManyInserter] = []
        if only and only.insert:
            self._fast_ways.append(Copier(only.insert))
        if only and only.values:
            self._fast_ways.append(ManyInserter(only.values))

    def check(self, columns: Sequence[str]) -> None:
        """Raises a Fault if the columns lack something that the command needs."""
        missing = [each for each in parameters_of(self.statements) if each not in columns]
        if missing:
            needs, gives = ", ".join(f":{each}" for each in missing), ", ".join(columns)
            raise Fault(f"command {self.name!r} needs {needs}, but the query gives only {gives}")

    def run(self, connection: Connection, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Stores the rows in the connection's transaction."""
        self.check(columns)
        if self._is_stored_fast(connection, columns, rows):
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

    def _is_stored_fast(self, connection: Connection, columns: Sequence[str], rows: Sequence[Row]) -> bool:
        if connection.dialect.driver != "psycopg" or len(rows) < LEAST_ROWS:
            return False
        for way in self._fast_ways:
            try:
                if way.store(connection, columns, rows):
                    return True
            except NotApplicable:
                self._fast_ways.remove(way)
                raise
        return False


class _Prepared:
    """A statement in the syntax of the driver, and how to pick its values from a row of these columns."""

    def __init__(self, statement: Statement, connection: Connection, columns: Sequence[str]) -> None:
        # Drivers may refuse to run other statements for many rows at once.
        self._is_many = statement.text.split(None, 1)[0].upper() in ("INSERT", "UPDATE", "DELETE", "REPLACE")
        compiled = text(statement.text).compile(dialect=connection.dialect)
        self.sql = str(compiled)
        names = list((compiled.positiontup if compiled.positional else compiled.params) or ())
        pick = picker([columns.index(name) for name in names])
        self.values: Callable[[Row], Any] = pick
        if not compiled.positional:
            self.values = lambda row: dict(zip(names, pick(row), strict=True))

    def run_all(self, connection: Connection, rows: Sequence[Row]) -> None:
        values = [self.values(row) for row in rows]
        if self._is_many and len(values) > 1:
            connection.exec_driver_sql(self.sql, values)
        else:
            for each in values:
                connection.exec_driver_sql(self.sql, each).close()


# -- functions -------------------------------------------------------------------------------------------


class FunctionCommand(NamedTuple):
    """A function of the user, which gets the connection and the rows."""

    name: str
    find: Callable[[], Callable[..., object]]
    is_plain: bool = False

    def check(self, columns: Sequence[str]) -> None:
        self.find()

    def run(self, connection: Connection, columns: Sequence[str], rows: Sequence[Row]) -> None:
        function = self.find()
        given = [dict(zip(columns, row, strict=True)) for row in rows]
        with in_call(connection):
            try:
                function(connection, given)
            except (Fault, SQLAlchemyError):
                raise
            except Exception as error:
                text = f"command {self.name!r} raised {type(error).__name__}: {text_of(error)}"
                raise CallFailed(text) from error


class Functions:
    """The functions that commands name; a module is loaded once, and again when its file changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By folder and name; changed under the lock.
        self._loaded: dict[tuple[str, str], tuple[tuple[int, ...], ModuleType]] = {}

    def find(self, call: str, folder: Path) -> Callable[..., object]:
        """The function in the present version of its file; a Fault if it is missing."""
        module_name, _, name = call.partition(":")
        with self._lock:
            module = self._module(module_name, folder)
        function = getattr(module, name, None)
        if not callable(function):
            raise Fault(f"module {module_name!r} has no function {name!r}")
        return function  # type: ignore[no-any-return]

    def version(self, call: str, folder: Path) -> tuple[int, ...]:
        """Differs after the function's file was changed."""
        return stamp(_file_of(call.partition(":")[0], folder))

    def _module(self, name: str, folder: Path) -> ModuleType:
        path = _file_of(name, folder)
        seen = stamp(path)
        found = self._loaded.get((str(folder), name))
        if found and found[0] == seen:
            return found[1]
        try:
            module = _from_file(name, path) if path.is_file() else importlib.import_module(name)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name == name:
                text = f"there is no module {name!r}: put {path.name} into {folder}, or install it"
            else:
                text = f"cannot load module {name!r}: {type(error).__name__}: {text_of(error)}"
            raise Fault(text) from error
        self._loaded[str(folder), name] = (seen, module)
        return module


def _file_of(name: str, folder: Path) -> Path:
    return folder.joinpath(*name.split(".")).with_suffix(".py")


def _from_file(name: str, path: Path) -> ModuleType:
    # Under a private name: two collections may have modules of the same name.
    private = f"sterna_storage_call_{abs(hash(str(path)))}_{name.replace('.', '_')}"
    sys.modules[private] = module = ModuleType(private)
    module.__file__ = str(path)
    # Not by importlib: cached bytecode is not invalidated by a change within the same second.
    exec(compile(path.read_bytes(), path, "exec"), module.__dict__)  # noqa: S102 - the user's own function
    return module


Command = SqlCommand | FunctionCommand


def command_of(name: str, spec: CommandSpec, *, folder: Path, functions: Functions) -> Command:
    """The command of a specification; by default a function's file lies in `folder`."""
    if spec.call:
        return FunctionCommand(name, lambda: functions.find(spec.call, folder / spec.folder))
    return SqlCommand(name, statements_of(spec.sql))
