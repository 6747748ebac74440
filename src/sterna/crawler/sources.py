"""The tables that a query may read, and whether pages that its WHERE refuses may be dropped at the site."""

from typing import NamedTuple

from sqlglot import exp

from sterna.crawler.clauses import conjuncts
from sterna.crawler.operands import Names

PAGE_COLUMNS = (
    *(
        "url",
        "site",
        "status",
        "error",
        "content_type",
        "title",
        "text",
        "language",
        "digest",
        "size",
        "depth",
    ),
    *("fetched", "modified", "etag", "referrer", "description", "keywords", "headings", "html", "headers"),
    *("extracts", "visit", "crawler"),
)
TABLES: dict[str, tuple[str, ...]] = {
    "page": PAGE_COLUMNS,
    "page_history": PAGE_COLUMNS,
    "link": ("from_url", "to_url", "text", "rel"),
    "event": ("url", "site", "kind", "fetched", "status", "digest", "digest_before", "visit"),
    "fact": ("kind", "crawler", "site", "visit", "template", "data", "received"),
    "site": (
        *("site", "pages", "requests", "bytes_received", "errors", "robots", "robots_failures"),
        *("robots_retry_at", "reason", "next_turn"),
    ),
    "visit": (
        *(
            "visit",
            "site",
            "part",
            "epoch",
            "place",
            "began",
            "over",
            "ended",
            "parcels",
            "pages",
            "requests",
        ),
        *("bytes_received", "kept", "cpu_seconds"),
    ),
}
PAGES = ("page", "page_history")


class Source(NamedTuple):
    """The SELECT that reads page, the only one that does; or why nothing of the query can be shipped."""

    select: exp.Select | None
    names: Names
    why: str = ""


def read_source(query: exp.Expr) -> Source:
    """Where the query reads page, if pages that its WHERE refuses can be dropped before they come home."""
    nothing = Source(None, frozenset())
    tables = [table for table in query.find_all(exp.Table) if table.name.lower() in (*PAGES, "link")]
    pages = [table for table in tables if table.name.lower() in PAGES]
    if len(pages) != 1 or pages[0].name.lower() != "page":
        return nothing._replace(why="only a query that reads page, and reads it once, can be shipped")
    page, select = pages[0], pages[0].parent_select
    if not isinstance(select, exp.Select) or not is_source(page, select):
        return nothing._replace(why="page does not come first in the FROM")
    if query.find(exp.TableSample, exp.Pivot):
        return nothing._replace(why="a sample or a pivot is of all pages")
    names = frozenset({page.alias_or_name.lower()})
    links = [table for table in tables if table is not page]
    if not all(_joins_own_links(link, select, names) for link in links):
        return nothing._replace(why="it reads links, and links of pages that are not kept would be missing")
    if not all(map(_keeps_first, select.args.get("joins") or ())):
        return nothing._replace(why="it joins in a way that pages which are not kept would change")
    return Source(select, names)


def is_source(page: exp.Table, select: exp.Select) -> bool:
    """True if the table stands alone behind the SELECT's FROM; joins may follow."""
    is_plain = not any(value for name, value in page.args.items() if name not in ("this", "alias"))
    return is_plain and isinstance(page.parent, exp.From) and page.parent is select.args.get("from_")


def _keeps_first(join: exp.Join) -> bool:
    """True if what the join makes of a row of the first table does not depend on its other rows."""
    return (
        not join.args.get("method")
        and join.side.upper() in ("", "LEFT")
        and join.kind.upper() in ("", "INNER", "CROSS", "OUTER")
    )


def _joins_own_links(link: exp.Table, select: exp.Select, names: Names) -> bool:
    """True if a page meets no links but its own: then those of other pages are not missed."""
    join = link.parent
    if not isinstance(join, exp.Join) or join.parent is not select or not join.args.get("on"):
        return False
    own, page = link.alias_or_name.lower(), next(iter(names))
    for each in conjuncts(join.args["on"]):
        if isinstance(each, exp.EQ):
            for one, other in ((each.this, each.expression), (each.expression, each.this)):
                if _is_column(one, own, "from_url") and _is_column(other, page, "url"):
                    return True
    return False


def _is_column(node: exp.Expr, table: str, name: str) -> bool:
    if not isinstance(node, exp.Column):
        return False
    return node.name.lower() == name and node.table.lower() in ("", table)
