"""The tables of a collection in DuckDB: page, page_history, link, fact, and those that the caller brings.

`page` has the newest version of each URL, `page_history` every version, `link` the links of the newest
versions. `fact` has what rules made: `data` is an object of its slots, or the list of its values where the
fact is an ordered one, in JSON. Its `kind` is 'row' for what they emitted, which stays as it came, and 'own'
for what a crawler remembers of a site now, which changes with each visit and has neither a visit nor a time.
A crawler's own facts are the ledger's: the caller brings them as `extra["fact"]`, made by
`archive.rows.fact_table`.
"""

from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from sterna.archive.rows import FACT_SCHEMA, SCHEMAS

# A window over all columns is shorter but holds every text in memory: 66 s against 1.0 s on 300,000 pages.
_NEWEST = """
    CREATE VIEW page AS
    SELECT {columns} FROM {source} AS stored
    SEMI JOIN (
        SELECT arg_max({{'file': filename, 'row': file_row_number}}, fetched) AS place
        FROM {source} GROUP BY url
    ) AS newest
    ON stored.filename = newest.place.file AND stored.file_row_number = newest.place.row
"""

# Links of the newest version of their page: what a page no longer carries is no link any more.
_NEWEST_LINKS = """
    CREATE VIEW link AS
    SELECT from_url, to_url, "text", rel FROM {source} AS stored
    SEMI JOIN (SELECT url, max(fetched) AS fetched FROM page_history GROUP BY url) AS newest
    ON stored.from_url = newest.url AND stored.fetched = newest.fetched
"""

# What is no JSON after all must not spoil every query over the table: it stays there as a text.
_FACTS = """
    SELECT '{kind}' AS kind, crawler, site, visit, template,
        coalesce(fact -> 'slots', fact -> 'values', fact) AS data, received
    FROM (SELECT *, coalesce(TRY_CAST(data AS JSON), to_json(data)) AS fact FROM {source})
"""
_OWN_FACTS = "own_fact"


def define(
    connection: duckdb.DuckDBPyConnection,
    files: Mapping[str, Sequence[str]],
    *,
    extra: Mapping[str, pa.Table],
    pages: pa.Table | None = None,
) -> None:
    """Makes the tables over the files of each, or over `pages` alone, and those of `extra` as they are."""
    _load(connection, "empty_page", rows=SCHEMAS["page"].empty_table())
    if pages is None:
        _define_pages(connection, files["page"])
    else:
        _load(connection, "given_page", rows=pages)
        columns = _columns(connection, "given_page")
        connection.execute(f"CREATE VIEW page_history AS SELECT {columns} FROM given_page")  # noqa: S608
        connection.execute("CREATE VIEW page AS FROM page_history")
    _define_links(connection, files["link"])
    own = extra.get("fact", FACT_SCHEMA.empty_table())
    _define_facts(connection, files["fact"], own=own)
    for name, rows in extra.items():
        if name != "fact":
            _load(connection, name, rows=rows)


def quoted_list(texts: Sequence[str]) -> str:
    """The texts as a list in SQL."""
    return f"[{', '.join(map(quoted, texts))}]"


def quoted(text: str) -> str:
    """The text as a literal in SQL."""
    return "'" + text.replace("'", "''") + "'"


def _define_pages(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> None:
    if not files:
        connection.execute("CREATE VIEW page_history AS FROM empty_page")
        connection.execute("CREATE VIEW page AS FROM page_history")
        return
    by_name = "union_by_name = true"  # a segment may lack columns that another has
    columns = _columns(connection, _source(files, by_name))
    connection.execute(f"CREATE VIEW page_history AS SELECT {columns} FROM {_source(files, by_name)}")  # noqa: S608
    source = _source(files, by_name, "filename = true", "file_row_number = true")
    connection.execute(_NEWEST.format(columns=columns, source=source))


def _columns(connection: duckdb.DuckDBPyConnection, source: str) -> str:
    """All columns of a page; those that no segment has are NULL."""
    present, all_of_them = (_types(connection, each) for each in (source, "empty_page"))
    return ", ".join(
        f'"{name}"' if name in present else f'NULL::{kind} AS "{name}"' for name, kind in all_of_them.items()
    )


def _types(connection: duckdb.DuckDBPyConnection, source: str) -> dict[str, str]:
    described = connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE FROM {source})")  # noqa: S608
    return dict(described.fetchall())


def _define_links(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> None:
    if files:
        connection.execute(_NEWEST_LINKS.format(source=_source(files)))
    else:
        _load(connection, "link", rows=SCHEMAS["link"].empty_table().drop_columns(["fetched"]))


def _define_facts(connection: duckdb.DuckDBPyConnection, files: Sequence[str], *, own: pa.Table) -> None:
    _load(connection, _OWN_FACTS, rows=own)
    parts = [_FACTS.format(kind="row", source=_source(files))] if files else []
    parts.append(_FACTS.format(kind="own", source=_OWN_FACTS))
    connection.execute(f"CREATE VIEW fact AS {' UNION ALL '.join(parts)}")


def _source(files: Sequence[str], *options: str) -> str:
    # A folder called `a=b` must not become a column.
    arguments = ", ".join([quoted_list(files), "hive_partitioning = false", *options])
    return f"read_parquet({arguments})"


def _load(connection: duckdb.DuckDBPyConnection, name: str, *, rows: pa.Table) -> None:
    """A table with these rows; one that is only registered is not seen by the cursors of the connection."""
    connection.register("incoming", rows)
    connection.execute(f'CREATE TABLE "{name}" AS FROM incoming')
    connection.unregister("incoming")
