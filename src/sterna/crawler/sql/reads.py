"""What a query reads: its tables and columns, and which pages and rows it needs at once."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlglot import exp

from sterna.crawler.sql.query import conjuncts, has_more
from sterna.model import Field, fields_among

PAGE_COLUMNS = (
    "url", "site", "status", "error", "content_type", "title", "text", "language", "digest", "size", "depth",
    "fetched", "modified", "etag", "referrer", "description", "keywords", "headings", "html", "headers",
    "extracts", "note", "visit", "crawler",
)  # fmt: skip
TABLES: dict[str, tuple[str, ...]] = {
    "page": PAGE_COLUMNS,
    "page_history": PAGE_COLUMNS,
    "link": ("from_url", "to_url", "text", "rel"),
    "event": ("url", "site", "kind", "fetched", "status", "digest", "digest_before", "visit"),
    "fact": ("kind", "crawler", "site", "visit", "template", "data", "received"),
    "site": (
        "site", "pages", "requests", "bytes_received", "errors", "robots", "robots_failures",
        "robots_retry_at", "reason", "next_turn",
    ),
    "visit": (
        "visit", "site", "part", "epoch", "place", "began", "over", "ended", "parcels", "pages",
        "requests", "bytes_received", "kept", "cpu_seconds",
    ),
}  # fmt: skip
PAGES = ("page", "page_history")


class PageReader(NamedTuple):
    """The one SELECT that reads page; or the reason why nothing of the query can be shipped."""

    select: exp.Select | None = None
    name: str = ""  # that page has there
    why: str = ""


def find_reader(query: exp.Expr) -> PageReader:
    """The SELECT that reads page, if pages that fail its WHERE can be dropped at the site."""
    tables = [table for table in query.find_all(exp.Table) if table.name.lower() in (*PAGES, "link")]
    pages = [table for table in tables if table.name.lower() in PAGES]
    if len(pages) != 1 or pages[0].name.lower() != "page":
        return PageReader(why="only a query that reads page exactly once can be shipped")
    page, select = pages[0], pages[0].parent_select
    if not isinstance(select, exp.Select) or not is_first_table(page, select):
        return PageReader(why="page is not first in the FROM")
    if query.find(exp.TableSample, exp.Pivot):
        return PageReader(why="a sample or a pivot needs all pages")
    name = page.alias_or_name.lower()
    if not all(table is page or _joins_own_links(table, select, name) for table in tables):
        return PageReader(why="it reads links, and the links of dropped pages would be missing")
    if not all(map(_keeps_first, select.args.get("joins") or ())):
        return PageReader(why="dropped pages would change the result of its join")
    return PageReader(select, name)


def is_first_table(page: exp.Table, select: exp.Select) -> bool:
    """True if the table is the first of the SELECT's FROM; joins may follow."""
    is_plain = not has_more(page, "this", "alias")
    return is_plain and isinstance(page.parent, exp.From) and page.parent is select.args.get("from_")


def _keeps_first(join: exp.Join) -> bool:
    """True if the join treats each row of the first table independently of the others."""
    return (
        not join.args.get("method")
        and join.side.upper() in ("", "LEFT")
        and join.kind.upper() in ("", "INNER", "CROSS", "OUTER")
    )


def _joins_own_links(link: exp.Table, select: exp.Select, page: str) -> bool:
    """True if each page is joined only with its own links, so that those of other pages are not needed."""
    join = link.parent
    if not isinstance(join, exp.Join) or join.parent is not select or not join.args.get("on"):
        return False
    own = link.alias_or_name.lower()
    for each in conjuncts(join.args["on"]):
        if isinstance(each, exp.EQ):
            for one, other in ((each.this, each.expression), (each.expression, each.this)):
                if _is_column(one, own, "from_url") and _is_column(other, page, "url"):
                    return True
    return False


def _is_column(node: exp.Expr, table: str, name: str) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() == name and node.table.lower() in ("", table)


# --- what travels home, and whether it can be streamed

# Functions of one row; any other function may need several.
_ROW_FUNCTIONS = frozenset(
    """
    abs array_length ceil coalesce concat concat_ws contains date_part date_trunc day dayname ends_with epoch
    floor format greatest hour ifnull instr least left len length list_contains list_filter list_sort
    list_transform lower lpad ltrim md5 minute month monthname nullif position prefix printf regexp_extract
    regexp_extract_all regexp_full_match regexp_matches regexp_replace repeat replace reverse right round rpad
    rtrim sha256 split split_part starts_with strftime string_split strip_accents strlen strpos substr
    substring suffix to_json trim unnest upper url_decode url_encode year
    """.split()  # noqa: SIM905 - one per line would fill a page
)
_ROW_NODES = (
    exp.Cast, exp.Case, exp.If, exp.Extract, exp.Trim, exp.Substring, exp.Ceil, exp.Floor, exp.StrPosition
)  # fmt: skip


def columns_read(query: exp.Expr, exact: set[int]) -> Iterator[str]:
    """The columns of page that home reads, in table order; the nodes in `exact` are judged at the site."""
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
            leaves_out = isinstance(node, exp.Star) and node.args.get("except_")
            waiting += () if leaves_out else node.iter_expressions()
    return (name for name in PAGE_COLUMNS if name in found)


def _read_by(node: exp.Expr, others: set[str]) -> Sequence[str]:
    owner = node if isinstance(node, exp.Column) else node.parent
    if isinstance(owner, exp.Column) and owner.table.lower() in others:
        return ()
    call = node.parent if isinstance(node.parent, exp.Anonymous) else None
    if isinstance(node, exp.Star) and not (call and call.name.lower() == "count"):
        gone = {column.name.lower() for column in node.args.get("except_") or ()}
        return [name for name in PAGE_COLUMNS if name not in gone]
    if isinstance(node, exp.Anonymous) and node.name.lower() == "columns":
        return PAGE_COLUMNS
    if isinstance(node, exp.Join):
        return [column.name.lower() for column in node.args.get("using") or ()]
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier):
        # A table's name is a row with all its columns.
        name = node.name.lower()
        may_be_row = not node.table and name not in PAGE_COLUMNS
        tables = node.root().find_all(exp.Table) if may_be_row else ()
        return PAGE_COLUMNS if any(table.alias_or_name.lower() == name for table in tables) else [name]
    return ()


def fields_read(query: exp.Expr, columns: Sequence[str]) -> tuple[Field, ...]:
    """The columns as fields that a crawler keeps, and links if the query reads them."""
    reads_links = any(table.name.lower() == "link" for table in query.find_all(exp.Table))
    return fields_among([*columns, "links"] if reads_links else columns)


def is_streamable(query: exp.Expr) -> bool:
    """True if each page yields its result rows independently of other pages."""
    allowed = ("expressions", "from_", "where", "limit", "offset")
    if not isinstance(query, exp.Select) or has_more(query, *allowed):
        return False
    tables = list(query.find_all(exp.Table))
    is_page = len(tables) == 1 and tables[0].name.lower() == "page" and is_first_table(tables[0], query)
    bounds = (query.args.get("limit"), query.args.get("offset"))
    return (
        is_page
        and len(list(query.find_all(exp.Query))) == 1
        and all(map(_is_plain, filter(None, bounds)))
        and not any(map(needs_other_rows, query.expressions))
    )


def needs_other_rows(column: exp.Expr) -> bool:
    """True if the column may need several rows."""
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
    """True if a LIMIT or OFFSET is a plain number."""
    number = bound.args.get("expression")
    return isinstance(number, exp.Literal) and number.is_int and not has_more(bound, "expression")


def bounds_of(query: exp.Expr) -> tuple[int | None, int]:
    limit, offset = query.args.get("limit"), query.args.get("offset")
    return int(limit.expression.this) if limit else None, int(offset.expression.this) if offset else 0
