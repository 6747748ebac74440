"""Templates of facts as tables: their slots as columns, of the types that their values have.

Names of templates and slots come from crawlers, and so from strangers: each is a quoted identifier or a
quoted literal here, and nothing else. Slots come first; how the fact came is told by columns that begin with
`_`. An ordered fact has no slots: its values are `value_1`, `value_2` ... A symbol is its name; what is of
several kinds is a text.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import duckdb

from sterna.errors import QueryError
from sterna.query.scan import identifier, literal
from sterna.query.terminal import harmless

MOST_COLUMNS = 200
_MOST_NAMES = 1_000

# The template of exactly this name, else the first that differs in its case alone, as SQL has it.
_FIND = """
    SELECT template FROM fact WHERE lower(template) = lower($name)
    GROUP BY template ORDER BY template <> $name, template LIMIT 1
"""
HOW_IT_CAME = ("crawler", "site", "visit", "kind", "received")
_PLAIN_TYPES = dict.fromkeys(("UBIGINT", "BIGINT", "HUGEINT"), "BIGINT")
_PLAIN_TYPES |= {"DOUBLE": "DOUBLE", "BOOLEAN": "BOOLEAN"}


class _Slot(NamedTuple):
    """Where in a fact's JSON a value lies (RFC 6901), and its kind as DuckDB describes JSON."""

    name: str
    path: str
    kind: Any


def names(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """The templates that have facts, those with the most first."""
    sql = "SELECT template FROM fact GROUP BY template ORDER BY count(*) DESC, template"
    return [name for (name,) in connection.execute(sql).fetchmany(_MOST_NAMES) if name]


def define(connection: duckdb.DuckDBPyConnection, name: str, *, came: Sequence[str] = HOW_IT_CAME) -> bool:
    """Makes the template of this name a table for this connection; False if there are no facts of it.

    `came` are the columns of `fact` that say where a fact came from.
    """
    found = connection.execute(_FIND, {"name": name}).fetchone()
    if found is None:
        return False
    template = str(found[0])
    facts = f"fact WHERE template = {literal(template)}"
    slots = [*_named(connection, facts), *_numbered(connection, facts)]
    if len(slots) > MOST_COLUMNS:
        raise QueryError(
            f"the template {harmless(template)!r} has {len(slots):,} slots, and a table at most"
            f" {MOST_COLUMNS} columns: query data->>'SLOT' of fact instead"
        )
    origins = (f"{column} AS {identifier(f'_{column}')}" for column in came)
    columns = ", ".join([*_columns(slots, came), *origins])
    view = f"CREATE OR REPLACE TEMP VIEW {identifier(name)}"
    connection.execute(f"{view} AS SELECT {columns} FROM {facts}")  # noqa: S608 - all of it is quoted
    return True


def _named(connection: duckdb.DuckDBPyConnection, facts: str) -> list[_Slot]:
    """The slots that any of the facts has."""
    sql = f"SELECT json_group_structure(data) FROM {facts} AND json_type(data) = 'OBJECT'"  # noqa: S608
    (structure,) = connection.execute(sql).fetchone() or (None,)
    kinds = json.loads(structure) if structure else {}
    return [
        _Slot(name, "/" + name.replace("~", "~0").replace("/", "~1"), kind) for name, kind in kinds.items()
    ]


def _numbered(connection: duckdb.DuckDBPyConnection, facts: str) -> list[_Slot]:
    """The values of ordered facts by their position."""
    facts = f"{facts} AND json_type(data) = 'ARRAY'"
    (length,) = connection.execute(f"SELECT max(json_array_length(data)) FROM {facts}").fetchone() or (0,)  # noqa: S608
    paths = [f"/{position}" for position in range(min(length or 0, MOST_COLUMNS + 1))]
    if not paths:
        return []
    kinds = ", ".join(f"json_group_structure(json_extract(data, {literal(path)}))" for path in paths)
    found = connection.execute(f"SELECT {kinds} FROM {facts}").fetchone() or ()  # noqa: S608
    return [
        _Slot(f"value_{number}", path, json.loads(kind or '"JSON"'))
        for number, (path, kind) in enumerate(zip(paths, found, strict=True), start=1)
    ]


def _columns(slots: Sequence[_Slot], came: Sequence[str]) -> list[str]:
    """Each in SQL; names that SQL does not distinguish get a number."""
    taken = {f"_{column}" for column in came}
    columns = []
    for slot in slots:
        name, again = slot.name or "_", 2
        while name.casefold() in taken:
            name, again = f"{slot.name}_{again}", again + 1
        taken.add(name.casefold())
        columns.append(f"{_value(slot)} AS {identifier(name)}")
    return columns


def _value(slot: _Slot) -> str:
    kind, found = slot.kind, f"json_extract(data, {literal(slot.path)})"
    match kind:
        case [str(inner)] if inner in _PLAIN_TYPES:
            return f"TRY_CAST({found} AS {_PLAIN_TYPES[inner]}[])"
        case [*_]:
            return f"[{_text('each', '')} FOR each IN TRY_CAST({found} AS JSON[])]"
        case str() if kind in _PLAIN_TYPES:
            return f"TRY_CAST({_string('data', slot.path)} AS {_PLAIN_TYPES[kind]})"
        case {"float": _} if len(kind) == 1:  # none of them is a number in JSON
            return f"TRY_CAST({_string('data', f'{slot.path}/float')} AS DOUBLE)"
        case _:
            return _text("data", slot.path)


def _text(source: str, path: str) -> str:
    """The value as text; of a symbol its name."""
    return (
        f"coalesce({_string(source, f'{path}/symbol')}, {_string(source, f'{path}/float')},"
        f" {_string(source, path or '$')})"
    )


def _string(source: str, path: str) -> str:
    return f"json_extract_string({source}, {literal(path)})"
