"""Pages a second of a whole crawl beside a bare fetch loop over the same URLs: python -m bench.speed.

The site is real (Debian's handbook, SQLite's and Apache's documentation) and served by nginx on loopback.
The bare loop is the limit of our own fetching: it asks for every page, reads nothing and stores nothing.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import uvloop
from bench.ratios import settle
from tests.crawl.running import segment_paths
from tests.servers.nginx import real_site, serve

from sterna.web.curl import CurlConfig, CurlFetcher
from sterna.web.http import Request

CONNECTIONS = 50
FLAGS = ("--delay", "0", "--no-index", "--json")
SITES = {"/sqlite/": "sqlite3-doc", "/apache/": "apache2-doc", "/handbook/": "debian-handbook"}


def crawl(folder: Path, seeds: list[str]) -> dict[str, float]:
    began = os.times()
    result = subprocess.run(
        [sys.executable, "-m", "sterna", "crawl", *seeds, "--into", folder, *FLAGS],
        capture_output=True,
        text=True,
        check=True,
    )
    ended = os.times()
    summary = json.loads(result.stdout.splitlines()[-1])
    cpu = ended.children_user + ended.children_system - began.children_user - began.children_system
    return {
        "pages": summary["pages"],
        "pages_per_second": summary["pages_per_second"],
        "cpu_seconds_per_1000": 1000 * cpu / summary["pages"],
        "peak_mb": summary["peak_memory_bytes"] / 1e6,
    }


async def fetch_all(urls: list[str]) -> float:
    """Pages a second of nothing but fetching."""
    fetcher = CurlFetcher(CurlConfig(connections=CONNECTIONS))
    queue = iter(urls)

    async def work() -> None:
        for url in queue:
            await fetcher.fetch(Request(url=url, address="127.0.0.1", headers=(("Accept-Encoding", "gzip"),)))

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
    seconds = time.perf_counter() - began
    await fetcher.close()
    return len(urls) / seconds


def urls_of(folder: Path) -> list[str]:
    paths = segment_paths(folder, "page")
    rows = duckdb.sql(f"SELECT url FROM read_parquet({paths!r}) WHERE status = 200").fetchall()
    return [url for (url,) in rows]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="keep the ratio for later comparisons")
    given = parser.parse_args()
    ratios: list[float] = []
    with tempfile.TemporaryDirectory() as work:
        roots = {path: real_site(name) for path, name in SITES.items()}
        with serve(roots, folder=Path(work) / "nginx") as server:
            starts = ("/sqlite/index.html", "/apache/en/index.html", "/handbook/en-US/index.html")
            seeds = [f"{server.url}{start}" for start in starts]
            print(
                "| round | pages | crawl, pages/s | CPU s per 1,000 | peak MB | bare fetch, pages/s | ratio |"
            )
            print("|---|---|---|---|---|---|---|")
            for number in range(given.rounds):
                folder = Path(work) / f"c{number}"
                ours = crawl(folder, seeds)
                bare = uvloop.run(fetch_all(urls_of(folder)))
                ratios.append(ours["pages_per_second"] / bare)
                print(
                    f"| {number + 1} | {ours['pages']:,} | {ours['pages_per_second']:,.0f} |"
                    f" {ours['cpu_seconds_per_1000']:.2f} | {ours['peak_mb']:.0f} | {bare:,.0f} |"
                    f" {ours['pages_per_second'] / bare:.2f} |",
                    flush=True,
                )
    settle("speed", {"crawl / bare fetch loop": statistics.median(ratios)}, record=given.record)


if __name__ == "__main__":
    main()
