"""What a query may be: one statement that reads."""

import re
from collections.abc import Mapping

import duckdb

from sterna.errors import QueryError

# Whoever looks into the catalog wants to see tables that nobody has asked for yet.
_CATALOG = re.compile(
    r"\b(show|information_schema|duckdb_\w+|pg_catalog|sqlite_master|pragma_\w+)\b", re.IGNORECASE
)


def shows_tables(sql: str) -> bool:
    """True if the query may ask which tables there are."""
    return _CATALOG.search(sql) is not None


def only_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """The statement of the query; QueryError if it is not one that reads."""
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
        raise QueryError(f"the query needs a value for ${missing[0]}: give it by --set {missing[0]}=VALUE")
    if unknown := sorted(set(given) - wanted):
        has = ", ".join(f"${name}" for name in sorted(wanted)) or "none"
        raise QueryError(f"the query has no parameter ${unknown[0]}: it has {has}")
