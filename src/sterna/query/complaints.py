"""What is wrong with a query, in a few words that point into it.

The first line says it all; where DuckDB tells the place, two more show that line of the query and mark it.
Messages quote the query and, where a cast fails, the text of a page: they are made harmless and cut short.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import NamedTuple, Protocol

import duckdb
import msgspec

from sterna.errors import QueryError, UnknownTable
from sterna.model import Record
from sterna.query.scan import identifier
from sterna.query.terminal import columns_of, harmless

_MESSAGE_WIDTH = 480
_LINE_WIDTH = 90
_MOST_NAMES = 40
_MOST_TABLES = 5

_OUTSIDE = re.compile(r'"(.+?)" - file system operations are disabled', re.DOTALL)
_MISSING_COLUMN = re.compile(
    r'(?:Referenced column "(.+?)" not found in FROM'
    r'|[A-Z][a-z ]+ ".+?" does not have a column named "(.+?)")',
    re.DOTALL,
)
_PREFIX = re.compile(r"[A-Z][A-Za-z ]+ Error: ")
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*", re.IGNORECASE)


def only_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """The statement of the query; QueryError unless it is a single one that only reads."""
    statements = connection.extract_statements(sql)
    if not statements:
        raise QueryError("the query is empty: write one statement, such as SELECT url FROM page LIMIT 10")
    if len(statements) > 1:
        raise QueryError(f"the query has {len(statements)} statements: write one")
    if statements[0].type != duckdb.StatementType.SELECT:
        kind = statements[0].type.name
        raise QueryError(f"the query is a statement of type {kind}: only SELECT and its like are allowed")
    return statements[0]


def check_parameters(statement: duckdb.Statement, given: Mapping[str, object]) -> None:
    """Raises QueryError unless exactly the parameters of the statement are given."""
    wanted = statement.named_parameters
    if missing := sorted(wanted - set(given)):
        raise QueryError(f"the query needs a value for ${missing[0]}: set it with --set {missing[0]}=VALUE")
    if unknown := sorted(set(given) - wanted):
        has = ", ".join(f"${name}" for name in sorted(wanted)) or "none"
        raise QueryError(f"the query has no parameter ${unknown[0]}: it has {has}")


# --- errors of DuckDB in our words


class _Said(Record, frozen=True, array_like=False):
    """An error of DuckDB: its message, and the bytes of the query that it refers to."""

    exception_message: str
    location: str = ""  # as [7,5]
    type: str = ""  # of what is missing
    name: str = ""


class Known(Protocol):
    """The tables of a collection, or of several."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def templates(self, connection: duckdb.DuckDBPyConnection) -> list[str]: ...


class Names(NamedTuple):
    """The names of tables and columns, to suggest a correction."""

    known: Known
    cursor: duckdb.DuckDBPyConnection

    def tables(self) -> list[str]:
        """The tables, then the templates."""
        with suppress(duckdb.Error):  # there may be no transaction
            self.cursor.execute("ROLLBACK")
        return [*self.known.names, *self.known.templates(self.cursor)]

    def columns(self, sql: str) -> dict[str, list[str]]:
        """The columns of the tables that the query names."""
        named = [
            name
            for name in self.tables()
            if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE)
        ]
        found: dict[str, list[str]] = {}
        for table in named[:_MOST_TABLES]:
            with suppress(duckdb.Error):  # the word may be no table in this query
                described = self.cursor.execute(f"DESCRIBE {identifier(table)}").fetchall()
                found[table] = [str(row[0]) for row in described]
        return found


def missing_table(error: duckdb.CatalogException) -> str | None:
    """The name of the missing table; None if the error is about something else."""
    said = _said(error)
    return said.name if said.type == "Table" else None


def complaint(error: Exception, sql: str = "", names: Names | None = None) -> QueryError:
    said = _said(error)
    kind = UnknownTable if names and said.type == "Table" else QueryError
    text = harmless(_explained(said, sql, names))
    if len(text) > _MESSAGE_WIDTH:
        text = f"{text[: _MESSAGE_WIDTH - 60]} … {text[-60:]}"
    try:
        position, size = msgspec.json.decode(said.location, type=tuple[int, int])
    except msgspec.MsgspecError:
        return kind(text)
    return kind(_pointed(text, sql, position, size) if sql else text)


def _said(error: Exception) -> _Said:
    """DuckDB is set to report errors as JSON; those that pass through Arrow are plain text."""
    text = _PREFIX.sub("", str(error).strip(), count=1)
    try:
        return msgspec.json.decode(text, type=_Said)
    except msgspec.MsgspecError:
        return _Said(text)


def _explained(said: _Said, sql: str, names: Names | None) -> str:
    message = said.exception_message
    if found := _OUTSIDE.search(message):
        return f'a query reads the tables of its collection and no files or addresses: "{found[1]}" is none'
    if names and said.type == "Table":
        there = names.tables()
        return f'there is no table "{said.name}"{_nearest(said.name, there)}; there are {_listed(there)}'
    if names and (found := _MISSING_COLUMN.match(message)) and (columns := names.columns(sql)):
        name = found[1] or found[2]
        there = list(dict.fromkeys(column for table in columns.values() for column in table))
        tables = "; ".join(f"{table} has {_listed(each)}" for table, each in columns.items())
        quotes = f"; a text goes in single quotes: '{name}'" if f'"{name}"' in sql else ""
        return f'there is no column "{name}"{_nearest(name, there)}{quotes}; {tables}'
    # As one line, without the candidates and hints after an empty line.
    return " ".join(message.partition("\n\n")[0].split())


def _nearest(name: str, there: Sequence[str]) -> str:
    by_key = {each.casefold(): each for each in reversed(there)}
    close = get_close_matches(name.casefold(), list(by_key), n=1)
    return f', did you mean "{by_key[close[0]]}"?' if close else ""


def _listed(names: Sequence[str]) -> str:
    shown = [name if _PLAIN_NAME.fullmatch(name) else identifier(name) for name in names[:_MOST_NAMES]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


# --- pointing into the query


def _pointed(text: str, sql: str, position: int, size: int) -> str:
    """The text, preceded by the place in the query, and followed by its line with a mark below."""
    before = sql.encode()[:position].decode(errors="ignore")
    number, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    lines = sql.split("\n")
    line = lines[number - 1] if number <= len(lines) else ""
    length = len(sql.encode()[position : position + size].decode(errors="ignore").partition("\n")[0])
    shown, start = _window(line, column - 1)
    end = min(start + length, len(shown))
    left, marked = harmless(shown[:start]), harmless(shown[start:end])
    rest = harmless(shown[end:])
    mark = " " * columns_of(left) + "^" * max(columns_of(marked), 1)
    return f"line {number}, column {column}: {text}\n  {left}{marked}{rest}\n  {mark}"


def _window(line: str, place: int) -> tuple[str, int]:
    """The part of a long line around the position, and the position in it."""
    if len(line) <= _LINE_WIDTH:
        return line, place
    begin = max(0, min(place - _LINE_WIDTH // 2, len(line) - _LINE_WIDTH))
    end = begin + _LINE_WIDTH
    left, right = "…" if begin else "", "…" if end < len(line) else ""
    return f"{left}{line[begin:end]}{right}", place - begin + len(left)
