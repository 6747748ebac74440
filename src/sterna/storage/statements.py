"""SQL of a command, taken apart: its statements, their `:name` parameters, and whether one is a plain insert.

What stands in quotes or in a comment is no parameter, and `::` is a cast. Values are never put into the text:
the database gets them beside it, so that nothing that was crawled can become a statement.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from sterna.model import Record

_TOKEN = re.compile(
    r"""
      (?P<quoted> [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*`
        | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ )
    | (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<cast> :: )
    | (?<![\w:]) : (?P<parameter> [A-Za-z_]\w* )
    | (?P<end> ; )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_IDENTIFIER = r'(?:"(?:[^"]|"")+"|[A-Za-z_]\w*)'
_INSERT = re.compile(
    rf"INSERT\s+INTO\s+(?P<table>{_IDENTIFIER}(?:\s*\.\s*{_IDENTIFIER})?)"
    rf"\s*\((?P<columns>\s*{_IDENTIFIER}(?:\s*,\s*{_IDENTIFIER})*\s*)\)"
    r"\s*VALUES\s*\((?P<values>\s*:\w+(?:\s*,\s*:\w+)*\s*)\)",
    re.IGNORECASE,
)
_ENDS_TRANSACTIONS = frozenset(
    {"ABORT", "BEGIN", "COMMIT", "END", "PREPARE", "RELEASE", "ROLLBACK", "SAVEPOINT", "START"}
)


class SqlFault(Exception):
    """A statement that a command must not have."""


class PlainInsert(Record, frozen=True):
    """A statement that puts its parameters into a table, each into a column, and nothing else."""

    table: str
    columns: tuple[str, ...]
    parameters: tuple[str, ...]


class Statement(Record, frozen=True):
    """One statement; `text` is as SQLAlchemy's text() takes it."""

    text: str
    parameters: tuple[str, ...]
    insert: PlainInsert | None = None


@lru_cache(maxsize=256)
def statements_of(sql: str | tuple[str, ...]) -> tuple[Statement, ...]:
    """The statements in their order; SqlFault names one that cannot be."""
    texts = (sql,) if isinstance(sql, str) else sql
    return tuple(_statement(tokens) for text in texts for tokens in _split(text) if _has_words(tokens))


def parameters_of(statements: Iterable[Statement]) -> list[str]:
    """The names that the statements ask for, each once."""
    return list(dict.fromkeys(name for each in statements for name in each.parameters))


def _split(text: str) -> Iterator[list[re.Match[str]]]:
    tokens: list[re.Match[str]] = []
    for token in _TOKEN.finditer(text):
        if token["end"]:
            yield tokens
            tokens = []
        else:
            tokens.append(token)
    yield tokens


def _has_words(tokens: list[re.Match[str]]) -> bool:
    return any(not token["comment"] and not token[0].isspace() for token in tokens)


def _statement(tokens: list[re.Match[str]]) -> Statement:
    plain = "".join(" " if token["comment"] else token[0] for token in tokens).strip()
    first = re.match(r"\w*", plain)
    if first and first[0].upper() in _ENDS_TRANSACTIONS:
        raise SqlFault(f"{first[0].upper()} cannot be in a command: Sterna begins and ends the transaction")
    names = dict.fromkeys(token["parameter"] for token in tokens if token["parameter"])
    # What is no parameter is marked so, for SQLAlchemy looks into quotes too.
    text = "".join(
        token[0] if token["parameter"] else " " if token["comment"] else token[0].replace(":", r"\:")
        for token in tokens
    )
    return Statement(text.strip(), tuple(names), _plain_insert(plain))


def _plain_insert(text: str) -> PlainInsert | None:
    found = _INSERT.fullmatch(text)
    if not found:
        return None
    columns = tuple(re.findall(_IDENTIFIER, found["columns"]))
    parameters = tuple(re.findall(r":(\w+)", found["values"]))
    return PlainInsert(found["table"], columns, parameters) if len(columns) == len(parameters) else None
