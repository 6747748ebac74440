"""Queries over a million pages beside DuckDB by hand over the same files: python -m bench.query.

The pages are made from the real pages of this machine (see query_parts/making). By hand means: a connection
of its own, with views that its author wrote knowing the files. Where no page has a second version these are
the bare files. Where a tenth has one, the author has noted beforehand which rows are outdated, as we do, and
the time for that is not counted; the first query here, which has to find that out, is told beside it. A last
column is the view that one writes first: the newest row of each URL by GROUP BY, in each query.

Both sides may use the same memory and run in turn, several rounds; the ratio is that of the medians. All
ratios are better when they are higher: the aim of 1.2 times is 0.83.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
from bench.query_parts.making import Maker, Tables, host_of
from bench.ratios import settle

from sterna.query.engine import Engine

MEMORY_BYTES = 4_000_000_000
AIM = 1 / 1.2
FIRST_ROW_SECONDS = 0.2
ROUNDS = 5

QUERIES = {
    "count": "SELECT count(*) FROM page",
    "count, one status": "SELECT count(*) FROM page WHERE status = 200",
    "group by site": "SELECT site, count(*), sum(size) FROM page GROUP BY site ORDER BY 2 DESC, 1 LIMIT 10",
    "group by language": "SELECT language, count(*), max(title) FROM page GROUP BY 1 ORDER BY 2 DESC, 1",
    "titles with a word": "SELECT count(*) FROM page WHERE title ILIKE '%function%'",
    "links": "SELECT count(*) FROM link",
    "link join": "SELECT status, count(*) FROM link JOIN page ON url = to_url GROUP BY ALL ORDER BY 1",
    "links by target": "SELECT to_url, count(*) FROM link GROUP BY ALL ORDER BY 2 DESC, 1 LIMIT 10",
}
SELECTIVE = {
    "one URL": "SELECT url, title FROM page WHERE url = '{url}'",
    "one site, a word": "SELECT url, title FROM page WHERE site = 'https://{host}' AND title LIKE '%a%'",
    "links of one page": "SELECT to_url FROM link WHERE from_url = '{url}'",
}


class Hand:
    """DuckDB without us: what an author who knows the files writes."""

    def __init__(self, tables: Tables, *, has_second: bool = False, is_grouping: bool = False) -> None:
        self.connection = duckdb.connect(":memory:", config={"memory_limit": f"{MEMORY_BYTES} bytes"})
        pages, links = (
            f"read_parquet({[str(path) for path in tables[name]]!r})" for name in ("page", "link")
        )
        placed = pages.replace("])", "], filename = true, file_row_number = true)")
        if is_grouping:
            newest = f"SELECT url, max(fetched) AS fetched FROM {pages} GROUP BY url"
            self.define("page", f"FROM {pages} AS p SEMI JOIN ({newest}) AS n USING (url, fetched)")
            self.define(
                "link",
                f"FROM {links} AS l SEMI JOIN ({newest}) n ON from_url = n.url AND l.fetched = n.fetched",
            )
            return
        if not has_second:
            self.define("page", f"FROM {pages}")
            self.define("link", f"FROM {links}")
            return
        again = f"SELECT url, fetched, batch, filename, file_row_number FROM {placed}" + (
            f" SEMI JOIN (SELECT url FROM {pages} WHERE again) AS a USING (url)"
        )
        self.connection.execute(
            f"CREATE TABLE old AS SELECT * FROM ({again}) QUALIFY row_number() OVER"
            " (PARTITION BY url ORDER BY fetched DESC) > 1"
        )
        self.define(
            "page",
            f"FROM {placed} AS p ANTI JOIN old"
            " ON p.filename = old.filename AND p.file_row_number = old.file_row_number",
        )
        self.define(
            "link",
            f"FROM {links} AS l ANTI JOIN old"
            " ON l.from_url = old.url AND l.fetched = old.fetched AND l.batch = old.batch",
        )

    def define(self, name: str, rows: str) -> None:
        self.connection.execute(f"CREATE VIEW {name} AS {rows}")

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        return self.connection.execute(sql).fetchall()


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def timed_cpu(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and those of all cores: the machine may have other work."""
    began = time.process_time()
    seconds = timed(call)
    return seconds, time.process_time() - began


def _read(engine: Engine, sql: str) -> list[tuple[object, ...]]:
    return list(engine.run(sql).rows)


def compare(title: str, tables: Tables, *, has_second: bool, rounds: int) -> dict[str, float]:
    """Prints a table of all queries, and gives the ratios."""
    print(f"\n## {title}\n\n| query | here ms | by hand ms | ratio | first time here ms | GROUP BY view ms |")
    print("|---|---|---|---|---|---|")
    ratios = {}
    hand = Hand(tables, has_second=has_second)
    grouping = Hand(tables, is_grouping=True) if has_second else None
    with Engine(tables, memory_bytes=MEMORY_BYTES, time_limit_seconds=600) as engine:
        for name, sql in QUERIES.items():
            with Engine(tables, memory_bytes=MEMORY_BYTES, time_limit_seconds=600) as fresh:
                first = timed(partial(_read, fresh, sql))
            ours, theirs = list(engine.run(sql).rows), hand.ask(sql)
            assert ours == theirs, f"{name}: {ours[:3]} is not {theirs[:3]}"
            here, there = [], []
            for _ in range(rounds):
                here.append(timed(partial(_read, engine, sql)))
                there.append(timed(partial(hand.ask, sql)))
            by_group = f"{1e3 * timed(partial(grouping.ask, sql)):,.0f}" if grouping else "-"
            ratio = statistics.median(there) / statistics.median(here)
            ratios[f"by hand / here, {name}, {title}"] = ratio
            print(
                f"| {name} | {1e3 * statistics.median(here):,.1f} | {1e3 * statistics.median(there):,.1f} |"
                f" {ratio:.2f}{'' if ratio >= AIM else ' (aim 0.83)'} | {1e3 * first:,.0f} | {by_group} |",
                flush=True,
            )
    return ratios


def first_rows(
    title: str, tables: Tables, *, url: str, host: str, has_second: bool, rounds: int
) -> dict[str, float]:
    """From an engine that is not there yet to the first row of a query that wants few."""
    print(f"\n## First row: {title}\n")
    print("| query | ms from nothing | best | CPU ms | by hand ms | CPU ms | 200 ms / here |")
    print("|---|---|---|---|---|---|---|")
    ratios = {}
    for name, template in SELECTIVE.items():
        sql = template.format(url=url, host=host)

        def here(sql: str = sql) -> None:
            with Engine(tables, memory_bytes=MEMORY_BYTES) as engine:
                assert next(engine.run(sql).rows)

        def there(sql: str = sql) -> None:
            assert Hand(tables, has_second=has_second).connection.execute(sql).fetchone()

        spent = [(*timed_cpu(here), *timed_cpu(there)) for _ in range(rounds)]
        seconds, cpu, by_hand, cpu_by_hand = map(statistics.median, zip(*spent, strict=True))
        ratios[f"200 ms / first row, {name}, {title}"] = FIRST_ROW_SECONDS / seconds
        best = min(each[0] for each in spent)
        print(
            f"| {name} | {1e3 * seconds:,.0f} | {1e3 * best:,.0f} | {1e3 * cpu:,.0f} |"
            f" {1e3 * by_hand:,.0f} | {1e3 * cpu_by_hand:,.0f} | {FIRST_ROW_SECONDS / seconds:.2f} |",
            flush=True,
        )
    return ratios


def segments(maker: Maker, sites: int, *, rounds: int) -> dict[str, float]:
    """Many small segments beside the same rows after compaction."""
    many, merged = maker.small(sites)
    print(f"\n## {len(many['page']):,} small segments of pages beside one\n")
    print("| query | small ms | compacted ms | small / compacted |\n|---|---|---|---|")
    ratios = {}
    for name in ("count", "group by site", "link join"):
        spent: list[float] = []
        for tables in (many, merged):

            def ask(tables: Tables = tables, name: str = name) -> None:
                with Engine(tables, memory_bytes=MEMORY_BYTES, time_limit_seconds=600) as engine:
                    assert list(engine.run(QUERIES[name]).rows)

            spent.append(statistics.median(timed(ask) for _ in range(rounds)))
        ratios[f"small / compacted, {name}"] = spent[0] / spent[1]
        print(f"| {name} | {1e3 * spent[0]:,.0f} | {1e3 * spent[1]:,.0f} | {spent[0] / spent[1]:.1f} |")
    return ratios


def command(folder: Path) -> None:
    """What a whole command takes: Python and its libraries are most of it."""
    crawl = [sys.executable, "-m", "sterna", "demo", "--into", str(folder / "demo"), "--json"]
    subprocess.run(crawl, capture_output=True, check=True)
    query = [sys.executable, "-m", "sterna", "query", str(folder / "demo"), "SELECT count(*) FROM page"]
    spent = [timed(lambda: subprocess.run(query, capture_output=True, check=True)) for _ in range(3)]
    print(f"\nthe whole command on a small collection: {1e3 * statistics.median(spent):,.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a twentieth of the pages")
    parser.add_argument("--record", action="store_true", help="keep the ratios for later comparisons")
    parser.add_argument("--into", type=Path, default=None, help="make the files here and leave them")
    given = parser.parse_args()
    pages, sites = (2_000, 25) if given.quick else (10_000, 100)
    rounds = 3 if given.quick else ROUNDS
    with tempfile.TemporaryDirectory() as work:
        folder = given.into or Path(work)
        folder.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        maker = Maker(folder, pages=pages, sites=sites)
        first = maker.first_versions()
        second = maker.second_versions()
        both = {name: [*first[name], *second[name]] for name in first}
        size = sum(path.stat().st_size for files in both.values() for path in files)
        print(
            f"{maker.pages:,} pages, {maker.links:,} links, {size / 1e9:.2f} GB with the second versions;",
            end=" ",
        )
        print(f"made in {time.perf_counter() - began:.0f} s", flush=True)
        where = {"url": maker.urls[11].replace(host_of(0), host_of(sites // 2)), "host": host_of(sites // 2)}
        ratios = compare("one version of each", first, has_second=False, rounds=rounds)
        ratios |= compare("a tenth has two", both, has_second=True, rounds=rounds)
        ratios |= first_rows("one version of each", first, **where, has_second=False, rounds=rounds)
        ratios |= first_rows("a tenth has two", both, **where, has_second=True, rounds=rounds)
        ratios |= segments(maker, max(sites // 10, 2), rounds=rounds)
        command(Path(work))
    if given.quick:
        print("\nnothing is compared with what was recorded: that was the whole size")
    else:
        settle("query", ratios, record=given.record)


if __name__ == "__main__":
    main()
