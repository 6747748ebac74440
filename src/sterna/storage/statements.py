"""The SQL of a command, parsed: its statements, their `:name` parameters, and which kind of insert each is.

Text in quotes or in a comment contains no parameters, and `::` is a cast. Values are never inserted into the
text: the database gets them separately, so that no crawled text can become a statement.
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
_TABLE = rf"(?P<table>{_IDENTIFIER}(?:\s*\.\s*{_IDENTIFIER})?)"
_NAMES = rf"\s*{_IDENTIFIER}(?:\s*,\s*{_IDENTIFIER})*\s*"
_INSERT = re.compile(
    rf"INSERT\s+INTO\s+{_TABLE}\s*\((?P<columns>{_NAMES})\)"
    r"\s*VALUES\s*\((?P<values>\s*:\w+(?:\s*,\s*:\w+)*\s*)\)",
    re.IGNORECASE,
)
_HEAD = re.compile(rf"INSERT\s+INTO\s+{_TABLE}(?:\s*\({_NAMES}\))?\s*VALUES\s*(?=\()", re.IGNORECASE)
_TAIL = re.compile(
    rf"\s*(?:ON\s+CONFLICT(?:\s*\({_NAMES}\)|\s+ON\s+CONSTRAINT\s+{_IDENTIFIER})?\s*DO\s+NOTHING)?\s*",
    re.IGNORECASE,
)
# Words allowed in a list of values that does not depend on the rows stored before: types, and functions of
# PostgreSQL that read nothing and do not change within a transaction.
_WORDS = frozenset({
    "abs", "btrim", "cast", "ceil", "char_length", "coalesce", "concat", "current_date",
    "current_timestamp", "floor", "greatest", "least", "left", "length", "lower", "ltrim", "md5", "now",
    "nullif", "replace", "right", "round", "rtrim", "split_part", "substr", "to_timestamp", "trim", "upper",
    "as", "false", "null", "true", "bigint", "bool", "boolean", "bytea", "char", "date", "double", "int",
    "integer", "interval", "json", "jsonb", "numeric", "precision", "real", "smallint", "text", "time",
    "timestamp", "timestamptz", "uuid", "varchar", "with", "without", "zone",
})  # fmt: skip
_BARE = re.compile(r"[\w\s()+\-*/|,.:\[\]]*", re.ASCII)
_ENDS_TRANSACTIONS = frozenset(
    {"ABORT", "BEGIN", "COMMIT", "END", "PREPARE", "RELEASE", "ROLLBACK", "SAVEPOINT", "START"}
)


class InvalidSql(Exception):
    """A statement that a command may not contain."""


class PlainInsert(Record, frozen=True):
    """A statement that only puts its parameters into the columns of a table."""

    table: str
    columns: tuple[str, ...]
    parameters: tuple[str, ...]


class ValuesInsert(Record, frozen=True):
    """A statement that inserts one row of values that do not depend on the rows stored before.

    The list of values is `parts` with one of `parameters` after each but the last.
    """

    table: str
    head: str
    parts: tuple[str, ...]
    parameters: tuple[str, ...]
    tail: str


class Statement(Record, frozen=True):
    """One statement; `text` is in the syntax of SQLAlchemy's text()."""

    text: str
    parameters: tuple[str, ...]
    insert: PlainInsert | None = None
    values: ValuesInsert | None = None


@lru_cache(maxsize=256)
def statements_of(sql: str | tuple[str, ...]) -> tuple[Statement, ...]:
    """The statements in their order; InvalidSql names one that is not allowed."""
    texts = (sql,) if isinstance(sql, str) else sql
    parts = (tokens for text in texts for tokens in _split(text))
    return tuple(filter(None, map(_statement, parts)))


def parameters_of(statements: Iterable[Statement]) -> list[str]:
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


def _statement(tokens: list[re.Match[str]]) -> Statement | None:
    plain = "".join(" " if token["comment"] else token[0] for token in tokens).strip()
    if not plain:
        return None
    first = re.match(r"\w*", plain)
    if first and first[0].upper() in _ENDS_TRANSACTIONS:
        raise InvalidSql(f"a command may not {first[0].upper()}: Sterna begins and ends the transaction")
    names = dict.fromkeys(token["parameter"] for token in tokens if token["parameter"])
    # Other colons are escaped: SQLAlchemy looks for parameters in quotes, too.
    text = "".join(
        token[0] if token["parameter"] else " " if token["comment"] else token[0].replace(":", r"\:")
        for token in tokens
    )
    return Statement(text.strip(), tuple(names), _plain_insert(plain), _values_insert(plain))


def _plain_insert(text: str) -> PlainInsert | None:
    if not (found := _INSERT.fullmatch(text)):
        return None
    columns = tuple(re.findall(_IDENTIFIER, found["columns"]))
    parameters = tuple(re.findall(r":(\w+)", found["values"]))
    return PlainInsert(found["table"], columns, parameters) if len(columns) == len(parameters) else None


def _values_insert(text: str) -> ValuesInsert | None:
    if not (head := _HEAD.match(text)):
        return None
    parts, parameters, bare, depth = [""], [], "", 0
    for token in _TOKEN.finditer(text, head.end()):
        if token["parameter"]:
            parameters.append(token["parameter"])
            parts.append("")
        else:
            parts[-1] += token[0]
        # A name in double quotes could be anything, such as a function of the user.
        bare += " " if token["parameter"] or (token["quoted"] or "").endswith("'") else token[0]
        depth += (token[0] == "(") - (token[0] == ")")
        if not depth:
            break
    tail = text[token.end() :]
    words = re.findall(r"(?<!\w)[A-Za-z_]\w*", bare)
    is_known = _BARE.fullmatch(bare) and all(word.lower() in _WORDS for word in words)
    if not (is_known and parameters and not depth and _TAIL.fullmatch(tail)):
        return None
    return ValuesInsert(head["table"], head[0], tuple(parts), tuple(parameters), tail)
