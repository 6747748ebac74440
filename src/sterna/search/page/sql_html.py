"""The SQL page as HTML: a form, the rows, and the tables; everything from the collection is escaped."""

import re
from collections.abc import Sequence
from html import escape
from urllib.parse import urlencode

from sterna.search.page.html import Face, document, header, link, text
from sterna.search.page.sql import SqlBounds, Table
from sterna.search.page.text import cut, plain

_MAX_CELL = 300
_MAX_LINKED = 2_048
_NUMBER = re.compile(r"-?[0-9][0-9.,eE+-]*")
_URL = re.compile(r"https?://[^\s<>\"]+")

EXAMPLES = (
    ("Newest pages", "SELECT url, title, fetched FROM page ORDER BY fetched DESC LIMIT 20"),
    ("Pages by status", "SELECT status, count(*) AS pages FROM page GROUP BY status ORDER BY pages DESC"),
    (
        "Dead links",
        "SELECT from_url, to_url, status FROM link JOIN page ON to_url = page.url WHERE status >= 400",
    ),
    ("Changes", "SELECT fetched, kind, url FROM event ORDER BY fetched DESC LIMIT 50"),
    (
        "Longest texts",
        "SELECT url, length(text) AS letters FROM page ORDER BY letters DESC LIMIT 20",
    ),
)

Tables = Sequence[tuple[str, int, Sequence[tuple[str, str]]]]


def sql_page(
    face: Face, bounds: SqlBounds, *, sql: str, tables: Tables, table: Table | None, error: str = ""
) -> str:
    """The page with the answer to a query, or its error, or with examples if there is no query."""
    answer = ""
    if error:
        answer = f'<pre class="error" role="alert">{escape(_lines(error))}</pre>'
    elif table:
        answer = _rows(table, sql)
    start = "" if sql else _examples()
    body = (
        f'{header(face, "")}<main id="main" class="wide" tabindex="-1"><h1>Query in SQL</h1>'
        f"{_form(bounds, sql)}{answer}{start}{_tables(tables)}</main>"
    )
    return document(face, f"SQL - {face.name}", body)


def _form(bounds: SqlBounds, sql: str) -> str:
    rows = min(max(4, sql.count("\n") + 1), 20)
    return (
        '<form class="sql" action="/sql" method="get"><label for="sql">One SELECT of'
        " DuckDB; the address of this page contains it.</label>"
        f'<textarea id="sql" name="sql" rows="{rows}" maxlength="{bounds.letters}" required'
        f' spellcheck="false" autocapitalize="none" autocomplete="off">{escape(_lines(sql))}</textarea>'
        '<button type="submit">Run</button></form>'
    )


def _rows(table: Table, sql: str) -> str:
    count = f"{len(table.rows):,} row{'' if len(table.rows) == 1 else 's'}"
    shown = f"The first {count}; there are more" if table.is_cut else count
    asked = urlencode({"sql": sql}, errors="replace")
    links = " · ".join(
        f'<a href="{escape(f"/sql.{kind}?{asked}")}" rel="nofollow">{name}</a>'
        for kind, name in (("csv", "CSV"), ("json", "JSON"))
    )
    numeric = [
        bool(table.rows) and all(_NUMBER.fullmatch(cell) or not cell for cell in column)
        for column in zip(*table.rows, strict=True)
    ] or [False] * len(table.columns)
    heads = "".join(
        f'<th scope="col"{" class=number" if is_number else ""}>{text(cut(name, 80))}</th>'
        for name, is_number in zip(table.columns, numeric, strict=True)
    )
    lines = "".join(f"<tr>{''.join(map(_cell, row, numeric))}</tr>\n" for row in table.rows)
    return (
        f'<p class="count" role="status">{shown}: {links}</p>'
        '<div class="table" role="region" aria-label="Rows of the query" tabindex="0">'
        f"<table><thead><tr>{heads}</tr></thead>\n<tbody>{lines}</tbody></table></div>"
    )


def _cell(value: str, is_number: bool) -> str:
    if is_number:
        return f'<td class="number">{text(value)}</td>'
    shown = text(cut(plain(value), _MAX_CELL))
    if len(value) <= _MAX_LINKED and _URL.fullmatch(value):
        shown = link(value, shown)
    return f'<td dir="auto">{shown}</td>'


def _examples() -> str:
    items = "".join(f'<li><a href="{_address(sql)}">{name}</a></li>' for name, sql in EXAMPLES)
    return f"<h2>Examples</h2><ul>{items}</ul>"


def _tables(tables: Tables) -> str:
    parts = []
    for name, count, columns in tables:
        shown = (f"{text(cut(each, 80))} <i>{text(cut(kind.lower(), 60))}</i>" for each, kind in columns)
        quoted = name if name.isidentifier() else '"' + name.replace('"', '""') + '"'
        first = _address(f"SELECT * FROM {quoted} LIMIT 20")  # noqa: S608 - for a person to run
        title = f'<a href="{first}">{text(cut(name, 80))}</a>'
        rows = f"{count:,} row{'' if count == 1 else 's'}"
        parts.append(f"<dt>{title} <span>{rows}</span></dt><dd>{', '.join(shown)}</dd>")
    return f'<h2>Tables</h2><dl class="tables">{"".join(parts)}</dl>' if parts else ""


def _address(sql: str) -> str:
    return escape(f"/sql?{urlencode({'sql': sql}, errors='replace')}")


def _lines(value: str) -> str:
    """Text of several lines, of which each is made harmless; spaces at a line's beginning stay."""
    lines = value.replace("\r", "").split("\n")
    return "\n".join(" " * (len(line) - len(line.lstrip(" "))) + plain(line) for line in lines)
