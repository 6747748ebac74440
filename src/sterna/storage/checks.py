"""Checks of the rules: connections answer, commands fit their tables, queries give what commands need."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from sterna.archive.manifest import Snapshot
from sterna.errors import QueryError, UnknownTable
from sterna.model import Record
from sterna.runtime.cell.confined import Confined
from sterna.storage.commands import Command, Functions, SqlCommand, command_of
from sterna.storage.config import Config, RuleSpec
from sterna.storage.confined import columns_of
from sterna.storage.connections import Database, Fault
from sterna.storage.statements import Statement, statements_of

_EXPLAINED = ("INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE", "SELECT", "WITH")
_UNKNOWN_TYPE = "42P18"  # PostgreSQL cannot infer the type of a parameter without its value


class Finding(Record, frozen=True, kw_only=True):
    """What was checked, and its fault if there is one."""

    what: str
    fault: str = ""
    may_come: bool = False  # it may work later: no crawler has sent such a template yet


def check_rules(config: Config, *, folder: Path, snapshot: Snapshot, confined: Confined) -> Iterator[Finding]:
    """Checks commands and queries without any database; `confined` runs these."""
    functions, commands = Functions(), dict[str, Command]()
    for name, spec in config.commands.items():
        commands[name] = command_of(name, spec, folder=folder, functions=functions)
        if spec.call:
            yield _found(f"command {name}", commands[name].check, ())
    for name, rule in config.rules.items():
        for number, store in enumerate(rule.store):
            what = f"rule {name}, store {number + 1}" if len(rule.store) > 1 else f"rule {name}"
            needed = [commands[each] for each in store.commands]
            yield _found(what, _check_store, confined, rule, number, needed, snapshot)


def check_databases(config: Config, *, folder: Path, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Tries each connection, and lets its database parse the commands without running them."""
    for name, spec in config.connections.items():
        database = Database(name, spec, folder=folder, environ=environ)
        try:
            answer = _found(f"connection {name} {database.shown()}", _try, database)
            yield answer
            for each, command in () if answer.fault else config.commands.items():
                if command.connection == name and command.sql:
                    yield _found(f"command {each}", _explain, database, statements_of(command.sql))
        finally:
            database.close()


def _found(what: str, look: Callable[..., None], *given: object) -> Finding:
    try:
        look(*given)
    except QueryError as error:
        fault = str(error).splitlines()[0]
        return Finding(what=what, fault=fault, may_come=isinstance(error, UnknownTable))
    except Fault as error:
        return Finding(what=what, fault=str(error))
    return Finding(what=what)


def _check_store(
    confined: Confined, rule: RuleSpec, number: int, commands: list[Command], snapshot: Snapshot
) -> None:
    columns = columns_of(confined, rule, number, snapshot=snapshot)
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise Fault(f"the query gives {twice[0]!r} twice: rename one of them with AS")
    for command in commands:
        if isinstance(command, SqlCommand):
            command.check(columns)


def _try(database: Database) -> None:
    with database.connect(is_reader=True) as connection:
        connection.exec_driver_sql("SELECT 1").close()


def _explain(database: Database, statements: Sequence[Statement]) -> None:
    """Lets the database parse the statements, unless one of them creates what later ones need."""
    first_words = [re.split(r"\W", each.text, maxsplit=1)[0].upper() for each in statements]
    if database.kind not in ("postgresql", "sqlite") or not set(first_words) <= set(_EXPLAINED):
        return
    for statement in statements:
        with database.connect(is_reader=True) as connection:
            try:
                sql = text(f"EXPLAIN {statement.text}")
                connection.execute(sql, dict.fromkeys(statement.parameters)).close()
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", "") != _UNKNOWN_TYPE:
                    raise Fault(str(database.fault_of(error, connection))) from error
                connection.rollback()
                connection.begin()
