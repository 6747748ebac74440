"""What of the pages a query reads at home, and whether its rows can come one page after the other."""

from collections.abc import Iterator, Sequence
from typing import get_args

from sqlglot import exp

from sterna.crawler.sources import PAGE_COLUMNS, PAGES, is_source
from sterna.model import Field

# Functions of one row: anything else in a list of columns could be about several.
_ROW_FUNCTIONS = frozenset(
    ["abs", "array_length", "ceil", "coalesce", "concat", "concat_ws", "contains", "date_part", "date_trunc", "day", "dayname", "ends_with", "epoch", "floor", "format", "greatest", "hour", "ifnull", "instr", "least", "left", "len", "length", "list_contains", "list_filter", "list_sort", "list_transform", "lower", "lpad", "ltrim", "md5", "minute", "month", "monthname", "now", "nullif", "position", "prefix", "printf", "regexp_extract", "regexp_extract_all", "regexp_full_match", "regexp_matches", "regexp_replace", "repeat", "replace", "reverse", "right", "round", "rpad", "rtrim", "sha256", "split", "split_part", "starts_with", "strftime", "string_split", "strip_accents", "strlen", "strpos", "substr", "substring", "suffix", "to_json", "trim", "unnest", "upper", "url_decode", "url_encode", "year"]
)
_ROW_NODES = (
    exp.Cast,
    exp.Case,
    exp.If,
    exp.Extract,
    exp.Trim,
    exp.Substring,
    exp.Ceil,
    exp.Floor,
    exp.StrPosition,
)


def columns_read(query: exp.Expr, exact: set[int]) -> Iterator[str]:
    """The columns of page that home reads, in their order."""
    tables = list(query.find_all(exp.Table))
    others = {table.alias_or_name.lower() for table in tables if table.name.lower() not in PAGES}
    others -= {table.alias_or_name.lower() for table in tables if table.name.lower() in PAGES}
    if len(others) == len({table.alias_or_name.lower() for table in tables}):
        return iter(())  # no page is read
    found: set[str] = set()
    waiting = [query]
    while waiting:
        node = waiting.pop()
        if id(node) not in exact:
            found.update(_read_by(node, others))
            waiting += (
                [] if isinstance(node, exp.Star) and node.args.get("except_") else node.iter_expressions()
            )
    return (name for name in PAGE_COLUMNS if name in found)


def _read_by(node: exp.Expr, others: set[str]) -> Sequence[str]:
    owner = node if isinstance(node, exp.Column) else node.parent
    if isinstance(owner, exp.Column) and owner.table.lower() in others:
        return ()
    if isinstance(node, exp.Star) and not _is_counted(node):
        gone = {column.name.lower() for column in node.args.get("except_") or ()}
        return [name for name in PAGE_COLUMNS if name not in gone]
    if isinstance(node, exp.Anonymous) and node.name.lower() == "columns":
        return PAGE_COLUMNS
    if isinstance(node, exp.Join):
        return [column.name.lower() for column in node.args.get("using") or ()]
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier):
        # A table's own name stands for all its columns.
        is_row = not node.table and node.name.lower() not in PAGE_COLUMNS
        return PAGE_COLUMNS if is_row and _is_table(node) else [node.name.lower()]
    return ()


def _is_counted(star: exp.Star) -> bool:
    return isinstance(star.parent, exp.Anonymous) and star.parent.name.lower() == "count"


def _is_table(column: exp.Column) -> bool:
    tables = column.root().find_all(exp.Table)
    return any(table.alias_or_name.lower() == column.name.lower() for table in tables)


def fields_read(query: exp.Expr, columns: Sequence[str]) -> tuple[Field, ...]:
    reads_links = any(table.name.lower() == "link" for table in query.find_all(exp.Table))
    wanted = {*columns, "links"} if reads_links else set(columns)
    return tuple(field for field in get_args(Field) if field in wanted)


def is_streamable(query: exp.Expr) -> bool:
    """True if the rows of the result are those of each page, one page after the other."""
    allowed = ("expressions", "from_", "where", "limit", "offset")
    source = query.args.get("from_")
    if not isinstance(query, exp.Select) or any(v for k, v in query.args.items() if k not in allowed):
        return False
    is_page = source is not None and isinstance(source.this, exp.Table) and source.this.name.lower() == "page"
    if not is_page or not is_source(source.this, query) or len(list(query.find_all(exp.Query))) > 1:
        return False
    has_plain_bounds = all(
        isinstance(bound, exp.Limit | exp.Offset) and _is_plain(bound)
        for bound in (query.args.get("limit"), query.args.get("offset"))
        if bound
    )
    return has_plain_bounds and not any(map(has_others, query.expressions))


def has_others(column: exp.Expr) -> bool:
    """True if the column may need other rows than its own."""
    if column.find(exp.Window, exp.AggFunc, exp.Filter):
        return True
    functions = (node for node in column.find_all(exp.Func) if not isinstance(node, exp.Binary | exp.Unary))
    return any(
        node.name.lower() not in _ROW_FUNCTIONS
        if isinstance(node, exp.Anonymous)
        else not isinstance(node, _ROW_NODES)
        for node in functions
    )


def _is_plain(bound: exp.Expr) -> bool:
    number, others = bound.args.get("expression"), [v for k, v in bound.args.items() if k != "expression"]
    return isinstance(number, exp.Literal) and number.is_int and not any(others)


def bounds_of(query: exp.Expr) -> tuple[int | None, int]:
    limit, offset = query.args.get("limit"), query.args.get("offset")
    return int(limit.expression.this) if limit else None, int(offset.expression.this) if offset else 0
