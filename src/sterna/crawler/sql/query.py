"""A query as a tree, and as the user's own text, which home runs: names checked, the WHERE split."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar, NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from sterna.errors import UsageError

MAX_LENGTH = 100_000
_EXAMPLE = "SELECT url, title FROM page WHERE status = 200"
_STARTS = {TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.L_PAREN}
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_AFTER_WHERE = {
    TokenType.GROUP_BY, TokenType.HAVING, TokenType.QUALIFY, TokenType.WINDOW, TokenType.ORDER_BY,
    TokenType.LIMIT, TokenType.OFFSET, TokenType.FETCH, TokenType.USING, TokenType.SELECT,
    TokenType.SEMICOLON, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT,
}  # fmt: skip
_CHANGES = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Copy, exp.Into)


class _Parser(DuckDBParser):
    """Leaves function calls as written: sqlglot replaces some by others that differ in detail."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}


class Dialect(DuckDB):
    """DuckDB's SQL."""

    Parser = _Parser


class Conjunct(NamedTuple):
    """One condition of a WHERE, and its text."""

    node: exp.Expr
    text: str


class Where(NamedTuple):
    """The position of the WHERE in the text of a query, and the conditions that it joins by AND."""

    start: int
    end: int
    parts: tuple[Conjunct, ...]


def read_query(sql: str) -> exp.Expr:
    """The parsed query; UsageError unless it is one SELECT."""
    if len(sql) > MAX_LENGTH or "\0" in sql:
        raise UsageError(f"the query has more than {MAX_LENGTH} characters of text, or a NUL among them")
    tokens = _tokens(sql)
    if not tokens:
        raise UsageError(f"the query is empty: write one such as {_EXAMPLE}")
    if tokens[0].token_type not in _STARTS:
        raise UsageError(
            f"only SELECT is allowed, and the query begins with {tokens[0].text!r}: try {_EXAMPLE}"
        )
    try:
        statements = [each for each in sqlglot.parse(sql, dialect=Dialect) if each]
    except ParseError as error:
        raise UsageError(_wrong(error)) from error
    if len(statements) != 1:
        raise UsageError(f"the query has {len(statements)} statements: write one")
    if not isinstance(statements[0], exp.Query) or statements[0].find(*_CHANGES):
        raise UsageError(f"only a SELECT that changes nothing is allowed: try {_EXAMPLE}")
    return statements[0]


def read_condition(text: str) -> exp.Expr:
    """The parsed condition of a WHERE; UsageError if the text is empty or more than a condition."""
    query = read_query(f"SELECT * FROM page WHERE\n{text}")  # noqa: S608 - parsed, never run
    where = query.args.get("where")
    if where is None or has_more(query, "expressions", "from_", "where"):
        raise UsageError(f"{text!r} is not a condition: write only what follows WHERE")
    return where.this  # type: ignore[no-any-return]


def has_more(node: exp.Expr, *known: str) -> bool:
    """True if the node has arguments other than the known ones."""
    return any(value for name, value in node.args.items() if name not in known)


def _wrong(error: ParseError) -> str:
    first = error.errors[0] if error.errors else {}
    near = f" near {first['highlight']!r}" if first.get("highlight") else ""
    said = str(first.get("description") or "this is not SQL").partition(" but got <Token")[0]
    said = "something is missing" if "Required keyword" in said else said
    place = f"line {first.get('line', 1)}, column {first.get('col', 1)}{near}"
    return f"syntax error in the query, {place}: {said}"


def _tokens(sql: str) -> list[Token]:
    try:
        return list(Dialect().tokenize(sql))
    except TokenError as error:
        raise UsageError("syntax error in the query: a quote or a comment is not closed") from error


# --- names


def check_names(query: exp.Expr, tables: Mapping[str, Sequence[str]]) -> None:
    """Raises UsageError if the query reads an unknown table or column."""
    own = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    for name in sorted(own & tables.keys()):
        raise UsageError(f"WITH defines {name}, which is the name of a table: choose another name")
    for table in query.find_all(exp.Table):
        is_known = not table.db and table.name.lower() in own | tables.keys()
        if isinstance(table.this, exp.Identifier) and not is_known:
            raise UsageError(f"unknown table {table.sql()}: {_nearest(table.name, tables)}")
    calls = any(isinstance(table.this, exp.Anonymous) for table in query.find_all(exp.Table))
    if calls or query.find(exp.Unnest, exp.Lateral, exp.Values, exp.Pivot):
        return  # only DuckDB knows the columns of such tables
    read = {table.name.lower() for table in query.find_all(exp.Table)}
    columns = [name for table in tables if table in read for name in tables[table]]
    aliases = set(_aliases(query))
    for column in query.find_all(exp.Column):
        # The name before a dot is a table, or a column with fields of its own.
        name = column.table if column.table and column.table.lower() not in aliases | read else column.name
        is_known = name.lower() in aliases or name.lower() in columns or name.lower() in read
        if not is_known and isinstance(column.this, exp.Identifier):
            quotes = f"; a text goes in single quotes: '{name}'" if column.this.quoted else ""
            raise UsageError(f"unknown column {name!r}: {_nearest(name, columns)}{quotes}")


def _aliases(query: exp.Expr) -> Iterator[str]:
    for node in query.find_all(exp.Alias, exp.TableAlias, exp.CTE, exp.Subquery, exp.Table):
        yield node.alias.lower()
    for aliases in query.find_all(exp.TableAlias):
        yield from (column.name.lower() for column in aliases.args.get("columns") or ())
    for function in query.find_all(exp.Lambda):
        yield from (parameter.name.lower() for parameter in function.expressions)


def _nearest(name: str, known: Sequence[str] | Mapping[str, object]) -> str:
    near = get_close_matches(name.lower(), list(known), n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(dict.fromkeys(known))}"


# --- the WHERE in parts, and the text of the query without them


def where_of(sql: str, select: exp.Select) -> Where | None:
    """The WHERE of a plain SELECT; None if it has none."""
    node = select.args.get("where")
    tokens = _tokens(sql)
    places = [at for at, token in _outermost(tokens) if token.token_type == TokenType.WHERE]
    if node is None or len(places) != 1:
        return None
    start = places[0]
    ends = (at for at, token in _outermost(tokens) if at > start and token.token_type in _AFTER_WHERE)
    inside = tokens[start + 1 : next(ends, len(tokens))]
    nodes = tuple(conjuncts(node.this))
    texts = [_text(sql, each) for each in _split(inside)]
    is_same = len(texts) == len(nodes) and all(map(_means, texts, nodes))
    parts = map(Conjunct, nodes, texts) if is_same else [Conjunct(node.this, _text(sql, inside))]
    return Where(tokens[start].start, inside[-1].end + 1, tuple(parts))


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    inner = node.unnest()
    if isinstance(inner, exp.And):
        for each in inner.flatten(unnest=False):
            yield from conjuncts(each)
    else:
        yield node


def with_parts(sql: str, where: Where, parts: Sequence[Conjunct]) -> str:
    """The text of the query with only these conditions in its WHERE."""
    kept = " AND ".join(f"({part.text})" for part in parts)
    clause = f"WHERE {kept}" if kept else ""
    return " ".join(filter(None, (sql[: where.start].rstrip(), clause, sql[where.end :].lstrip())))


def without_limit(sql: str) -> str:
    """The text of the query without its LIMIT and OFFSET, both plain numbers."""
    tokens = _tokens(sql)
    kept = sql
    for at, token in reversed(list(_outermost(tokens))):
        if token.token_type in (TokenType.LIMIT, TokenType.OFFSET):
            kept = kept[: token.start].rstrip() + kept[tokens[at + 1].end + 1 :]
    return kept


def trimmed(sql: str) -> str:
    """The text of the statement without a trailing semicolon or comment."""
    tokens = [token for token in _tokens(sql) if token.token_type != TokenType.SEMICOLON]
    return _text(sql, tokens) if tokens else ""


def _means(text: str, node: exp.Expr) -> bool:
    try:
        return read_condition(text) == node
    except UsageError:
        return False  # it was cut at an AND that does not join conditions


def _text(sql: str, tokens: Sequence[Token]) -> str:
    return sql[tokens[0].start : tokens[-1].end + 1]


def _outermost(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """The tokens outside all parentheses, with their indexes."""
    depth = 0
    for at, token in enumerate(tokens):
        depth -= token.token_type in _CLOSING
        if depth == 0:
            yield at, token
        depth += token.token_type in _OPENING


def _split(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """The tokens of each condition if AND joins them all, else all tokens."""
    if any(token.token_type == TokenType.OR for _, token in _outermost(tokens)):
        return [tokens]
    parts: list[Sequence[Token]] = []
    start, is_between = 0, False
    for at, token in _outermost(tokens):
        if token.token_type == TokenType.BETWEEN:
            is_between = True
        elif token.token_type == TokenType.AND and is_between:
            is_between = False
        elif token.token_type == TokenType.AND:
            parts.append(tokens[start:at])
            start = at + 1
    parts.append(tokens[start:])
    return [each for part in parts for each in _unwrapped(part)]


def _unwrapped(tokens: Sequence[Token]) -> list[Sequence[Token]]:
    """The parts of a condition in parentheses if it has several, else the condition."""
    is_open = len(tokens) > 2 and tokens[0].token_type == TokenType.L_PAREN
    is_wrapped = is_open and [at for at, _ in _outermost(tokens)] == [0, len(tokens) - 1]
    inner = _split(tokens[1:-1]) if is_wrapped else []
    return inner if len(inner) > 1 else [tokens]
