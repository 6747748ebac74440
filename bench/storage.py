"""Rows a second into PostgreSQL by storage rules, beside a COPY by hand: python -m bench.storage.

The archive is of real pages of this machine (see bench.pages). By hand means: the same query by DuckDB over
the same files, its rows written by psycopg's COPY in one transaction, no position, no row refused. PostgreSQL
is Debian's, in a cluster of its own, with fsync. Both ways in turn, each time into a new database.
"""

import argparse
import gc
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import msgspec
from bench.query_parts.making import read_pages
from bench.ratios import settle
from tests.servers.postgres import PostgresServer, cluster
from tests.storage.stock import Stock

from sterna.model import Page
from sterna.web.urls import fingerprint

BATCH_PAGES = 250
MOST_READ = 3_000
FETCH_ROWS = 1_000

TASKS = {
    "pages with their text": (
        "page",
        "SELECT url, title, text, size, fetched FROM page WHERE status = 200",
        "CREATE TABLE t (url text, title text, text text, size bigint, fetched timestamptz)",
        ["INSERT INTO t (url, title, text, size, fetched) VALUES (:url, :title, :text, :size, :fetched)"],
    ),
    "links": (
        "link",
        "SELECT from_url, to_url FROM link",
        "CREATE TABLE t (from_url text, to_url text)",
        ["INSERT INTO t (from_url, to_url) VALUES (:from_url, :to_url)"],
    ),
    "links, INSERT that is not plain": (
        "link",
        "SELECT from_url, to_url FROM link",
        "CREATE TABLE t (from_url text, to_url text)",
        ["INSERT INTO t (from_url, to_url) VALUES (:from_url, lower(:to_url))"],
    ),
    "pages into two tables, two statements": (
        "page",
        "SELECT url, title, text, size, fetched FROM page WHERE status = 200",
        "CREATE TABLE a (id bigserial PRIMARY KEY, url text UNIQUE);"
        "CREATE TABLE t (url text, title text, text text, size bigint, fetched timestamptz)",
        [
            "INSERT INTO a (url) VALUES (:url) ON CONFLICT DO NOTHING",
            "INSERT INTO t SELECT url, :title, :text, :size, :fetched FROM a WHERE url = :url",
        ],
    ),
}
BOUND = ("pages with their text", "links")  # those of which the ratio must be a third at least


def real_pages(count: int) -> list[Page]:
    """Real pages, the same ones again under other names if there are too few."""
    read = list(read_pages(min(count, MOST_READ)))
    again = itertools.cycle(read)
    return [_renamed(next(again), number) for number in range(count)]


def _renamed(page: Page, number: int) -> Page:
    url = f"https://docs.example/{number}.html"
    return msgspec.structs.replace(page, url=url, fingerprint=fingerprint(url))


def by_rule(stock: Stock, postgres: PostgresServer, database: str, query: str, sql: list[str]) -> float:
    """The seconds until everything is stored."""
    stock.rules(f"""
[connections.main]
url = "{postgres.url(database)}"
[commands.Add]
connection = "main"
sql = {sql!r}
[rules.all]
[[rules.all.store]]
query = "{query}"
commands = ["Add"]
""")
    began = time.perf_counter()
    (standing,) = stock.store()
    if standing.error:
        raise RuntimeError(standing.error)
    return time.perf_counter() - began


def by_hand(stock: Stock, postgres: PostgresServer, database: str, table: str, query: str) -> float:
    """The seconds of the shortest program that does it with COPY."""
    files = [str(path) for path in stock.collection.snapshot().tables[table]]
    began = time.perf_counter()
    with duckdb.connect() as duck, postgres.connect(database) as connection:
        duck.execute("SET TimeZone = 'UTC'")
        rows = duck.execute(f"WITH {table} AS (FROM read_parquet({files!r}, union_by_name = true)) {query}")
        cursor = connection.cursor()
        with connection.transaction(), cursor.copy(b"COPY t FROM STDIN") as copy:
            for row in fetched(rows):
                copy.write_row(row)
    return time.perf_counter() - began


def fetched(rows: duckdb.DuckDBPyConnection) -> Iterator[tuple[object, ...]]:
    while some := rows.fetchmany(FETCH_ROWS):
        yield from some


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="keep the ratios for later comparisons")
    given = parser.parse_args()
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as work, cluster() as postgres, Stock(Path(work) / "c") as stock:
        pages = real_pages(given.pages)
        for first in range(0, len(pages), BATCH_PAGES):
            stock.put(pages[first : first + BATCH_PAGES])
        del pages
        gc.collect()
        gc.freeze()  # what made the collection would not be in the process that stores it
        print("| what | rows | by rule, rows/s | COPY by hand, rows/s | ratio (each round) |")
        print("|---|---|---|---|---|")
        for name, (table, query, tables, sql) in TASKS.items():
            ours, hand, rounds = [], [], []
            for _ in range(given.rounds):
                one, other = postgres.new_database(), postgres.new_database()
                for database in (one, other):
                    postgres.run(database, tables)
                ours.append(by_rule(stock, postgres, one, query, sql))
                hand.append(by_hand(stock, postgres, other, table, query))
                rounds.append(hand[-1] / ours[-1])
                counts = [postgres.run(each, "SELECT count(*) FROM t")[0][0] for each in (one, other)]
                if counts[0] != counts[1] or not counts[0]:
                    raise RuntimeError(f"{name}: {counts[0]:,} rows by rule, {counts[1]:,} by hand")
                for database in (one, other):
                    postgres.run("postgres", f"DROP DATABASE {database}")
            rows = counts[0]
            ratio = statistics.median(rounds)
            print(
                f"| {name} | {rows:,} | {rows / statistics.median(ours):,.0f} |"
                f" {rows / statistics.median(hand):,.0f} | {ratio:.2f}"
                f" ({', '.join(f'{each:.2f}' for each in rounds)}) |",
                flush=True,
            )
            ratios[f"{name}: rule / COPY by hand"] = ratio
    worst = min(ratios[f"{name}: rule / COPY by hand"] for name in BOUND)
    print(f"\nplain inserts: {worst:.2f} of a COPY by hand at least; a third is asked for")
    settle("storage", ratios, record=given.record)


if __name__ == "__main__":
    main()
