"""What of the pages a query reads at home, and whether its rows can come one page after the other."""

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from sqlglot import exp

from sterna.crawler.sources import PAGE_COLUMNS, PAGES, is_source
from sterna.model import Field

# Functions of one row: anything else in a list of columns could be about several.
_ROW_FUNCTIONS = frozenset(
    """
    abs array_length ceil coalesce concat concat_ws contains date_part date_trunc day dayname ends_with epoch
    floor format greatest hour ifnull instr least left len length list_contains list_filter list_sort
    list_transform lower lpad ltrim md5 minute month monthname nullif position prefix printf regexp_extract
    regexp_extract_all regexp_full_match regexp_matches regexp_replace repeat replace reverse right round rpad
    rtrim sha256 split split_part starts_with strftime string_split strip_accents strlen strpos substr
    substring suffix to_json trim unnest upper url_decode url_encode year
    """.split()  # noqa: SIM905 - one a line would fill a page
)
_ROW_NODES = (
    *(exp.Cast, exp.Case, exp.If, exp.Extract, exp.Trim, exp.Substring),
    *(exp.Ceil, exp.Floor, exp.StrPosition),
)


def columns_read(query: exp.Expr, exact: set[int]) -> Iterator[str]:
    """The columns of page that home reads, in their order."""
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for table in query.find_all(exp.Table):
        names[table.name.lower() in PAGES].add(table.alias_or_name.lower())
    if not names[True]:
        return iter(())
    found: set[str] = set()
    waiting = [query]
    while waiting:
        node = waiting.pop()
        if id(node) not in exact:
            found.update(_read_by(node, names[False] - names[True]))
            waiting += _below(node)
    return (name for name in PAGE_COLUMNS if name in found)


def _below(node: exp.Expr) -> Iterable[exp.Expr]:
    leaves_out = isinstance(node, exp.Star) and node.args.get("except_")
    return () if leaves_out else node.iter_expressions()


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
    """The columns as fields that a crawler keeps, and links where they are read."""
    reads_links = any(table.name.lower() == "link" for table in query.find_all(exp.Table))
    wanted = {*columns, "links"} if reads_links else set(columns)
    return tuple(field for field in get_args(Field) if field in wanted)


def is_streamable(query: exp.Expr) -> bool:
    """True if the rows of the result are those of each page, one page after the other."""
    allowed = ("expressions", "from_", "where", "limit", "offset")
    if not isinstance(query, exp.Select) or any(v for k, v in query.args.items() if k not in allowed):
        return False
    bounds = (query.args.get("limit"), query.args.get("offset"))
    return (
        _reads_page_alone(query)
        and all(map(_is_plain, filter(None, bounds)))
        and not any(map(has_others, query.expressions))
    )


def _reads_page_alone(query: exp.Select) -> bool:
    tables = list(query.find_all(exp.Table))
    is_page = len(tables) == 1 and tables[0].name.lower() == "page" and is_source(tables[0], query)
    return is_page and len(list(query.find_all(exp.Query))) == 1


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
    """True if a LIMIT or OFFSET is a number, and no more."""
    others = [value for name, value in bound.args.items() if name != "expression"]
    number = bound.args.get("expression")
    return isinstance(number, exp.Literal) and number.is_int and not any(others)


def bounds_of(query: exp.Expr) -> tuple[int | None, int]:
    """The plain LIMIT and OFFSET of a query."""
    limit, offset = query.args.get("limit"), query.args.get("offset")
    return int(limit.expression.this) if limit else None, int(offset.expression.this) if offset else 0
