"""The tables of a collection in DuckDB, each defined when a query first asks for it.

`page` has the newest version of each URL, `page_history` every version, `link` the links of the newest
versions, `event` what became of each page. `fact` has what rules made: `data` is an object of its slots, or
the list of its values, in JSON; `kind` is 'row' for what they emitted, and 'own' for what a crawler remembers
of a site now, without a visit or a time. These facts are the ledger's: the caller brings them as
`extra["fact"]`; a column `kind` in it says otherwise. Every other name is that of a template (`templates`).
"""

import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

import duckdb
import pyarrow as pa

from sterna.archive.rows import FACT_SCHEMA, HIDDEN, SCHEMAS
from sterna.query import templates
from sterna.query.scan import Scan, Within, identifier
from sterna.query.versions import (
    IS_VERSION,
    SCHEMA,
    Way,
    events,
    find_way,
    newest_links,
    newest_pages,
    note_outdated,
)

PAGE_COLUMNS, LINK_COLUMNS = (
    tuple(name for name in SCHEMAS[table].names if name not in HIDDEN[table]) for table in ("page", "link")
)

# Invalid JSON must not fail every query of the table: it stays a text.
_FACTS = """
    SELECT {kind} AS kind, crawler, site, visit, template,
        coalesce(fact -> 'slots', fact -> 'values', fact) AS data, received
    FROM (SELECT *, coalesce(TRY_CAST(data AS JSON), to_json(data)) AS fact FROM {rows} WHERE {condition})
"""
_OF_VISIT = """
    SEMI JOIN (SELECT url, fetched, coalesce(batch, 0) AS number FROM {pages} WHERE {condition}) AS brought
    ON stored.from_url = brought.url AND stored.fetched = brought.fetched
    AND coalesce(stored.batch, 0) = brought.number
"""


class Tables:
    """The tables that a query can name; `define` is called with each name that DuckDB does not know yet."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        files: Mapping[str, Sequence[str]],
        *,
        extra: Mapping[str, pa.Table],
        pages: pa.Table | None = None,
        within: Within,
    ) -> None:
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
        self._within = within
        given = f"{SCHEMA}.given_page" if pages is not None else ""
        if pages is not None:
            _load(connection, given, rows=pages)
        self._pages = Scan("page", files["page"], given=given)
        self._links = Scan("link", files["link"])
        self._facts = Scan("fact", files["fact"])
        own = extra.get("fact", FACT_SCHEMA.empty_table())
        self._own_kind = "kind" if "kind" in own.column_names else "'own'"
        _load(connection, f"{SCHEMA}.own_fact", rows=own)
        for name, rows in extra.items():
            if name != "fact":
                _load(connection, identifier(name), rows=rows)
        self._makers: dict[str, Callable[[duckdb.DuckDBPyConnection], str]] = {
            "page": self._page,
            "page_history": self._page_history,
            "link": self._link,
            "event": lambda connection: events(self._pages.rows(connection, with_place=True), self._within),
            "fact": self._fact,
        }
        self.names = (*self._makers, *(name for name in extra if name not in self._makers))
        self._defined: set[str] = set()  # guarded by the lock
        # None until a query needs the newest versions; a part of a collection shows all versions.
        self._is_whole = not given and within == Within()
        self._way = None if self._is_whole else Way.NONE_IS
        self._lock = threading.Lock()

    def define(self, connection: duckdb.DuckDBPyConnection, name: str) -> bool:
        """Makes the table, or the template for this connection only; False if the name is unknown."""
        key = name.casefold()
        with self._lock:
            if key in self._makers and key not in self._defined:
                self._make(connection, key)
                self._defined.add(key)
                return True
        if key in self.names:
            return False
        self.define(connection, "fact")
        return templates.define(connection, name)

    def prepare(self, connection: duckdb.DuckDBPyConnection, sql: str) -> None:
        """Called before each query: the second that needs the newest versions pays for all later ones."""
        with self._lock:
            made = self._defined & {"page", "link"}
            again = [name for name in made if re.search(rf"\b{name}\b", sql, re.IGNORECASE)]
            if self._way is not Way.BY_URL or not again:
                return
            self._way = note_outdated(connection, self._pages)
            for name in made:
                self._make(connection, name)

    @property
    def files(self) -> list[str]:
        """The segments that tables are read from."""
        return [file for scan in (self._pages, self._links, self._facts) for file in scan.files]

    def leave_out(self, connection: duckdb.DuckDBPyConnection, files: Collection[str]) -> None:
        """Defines all tables anew, without these segments."""
        with self._lock:
            for scan in (self._pages, self._links, self._facts):
                scan.leave_out(files)
            self._way = None if self._is_whole else Way.NONE_IS
            for name in self._defined:
                self._make(connection, name)

    def templates(self, connection: duckdb.DuckDBPyConnection) -> list[str]:
        self.define(connection, "fact")
        return templates.names(connection)

    def _make(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        connection.execute(f"CREATE OR REPLACE VIEW {name} AS {self._makers[name](connection)}")

    def _page_history(self, connection: duckdb.DuckDBPyConnection) -> str:
        return _select(PAGE_COLUMNS, self._pages.rows(connection), self._within.condition())

    def _page(self, connection: duckdb.DuckDBPyConnection) -> str:
        if (way := self._find_way(connection)) is Way.NONE_IS:
            condition = f"{self._within.condition()} AND {IS_VERSION}"
            return _select(PAGE_COLUMNS, self._pages.rows(connection), condition)
        return newest_pages(_listed(PAGE_COLUMNS), self._pages.rows(connection, with_place=True), way)

    def _link(self, connection: duckdb.DuckDBPyConnection) -> str:
        rows = self._links.rows(connection)
        if (way := self._find_way(connection)) is not Way.NONE_IS:
            placed = self._pages.rows(connection, with_place=True)
            return newest_links(_listed(LINK_COLUMNS), rows, placed, way)
        join = ""
        if self._within.visit is not None:
            join = _OF_VISIT.format(pages=self._pages.rows(connection), condition=self._within.condition())
        return _select(LINK_COLUMNS, f"{rows} AS stored {join}", self._within.condition(has_visit=False))

    def _fact(self, connection: duckdb.DuckDBPyConnection) -> str:
        rows, is_all = self._facts.rows(connection), self._within == Within()
        brought = _FACTS.format(kind="'row'", rows=rows, condition=self._within.condition())
        own = _FACTS.format(kind=self._own_kind, rows=f"{SCHEMA}.own_fact", condition=str(is_all).lower())
        return f"{brought} UNION ALL {own}"

    def _find_way(self, connection: duckdb.DuckDBPyConnection) -> Way:
        if self._way is None:
            self._way = find_way(connection, self._pages)
        return self._way


def _select(columns: Sequence[str], rows: str, condition: str) -> str:
    where = "" if condition == "true" else f" WHERE {condition}"
    return f"SELECT {_listed(columns)} FROM {rows}{where}"  # noqa: S608 - names of ours, quoted values


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(identifier, columns))


def _load(connection: duckdb.DuckDBPyConnection, name: str, *, rows: pa.Table) -> None:
    """Makes a table of these rows; cursors of the connection do not see registered ones."""
    connection.register("incoming", rows)
    connection.execute(f"CREATE TABLE {name} AS FROM incoming")
    connection.unregister("incoming")
