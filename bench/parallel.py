"""Which way of using all cores is the best one: python -m bench.parallel.

Reading alone, on real pages: one process, threads in it, two processes. Then whole crawls of one site with
one, two and three readers, and with two runtimes that share the site, each a crawl of its own half.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

from bench.crawl import DEBIAN, SERVER, START, install_sites, seen
from bench.ratios import settle
from tests.servers.nginx import NginxServer, serve

from sterna.web.document import Fetched, read_document

SAMPLE = 2_000
HALVES = ("/boost/doc/html/index.html", "/java/api/index.html")


def read(body: bytes) -> int:
    document = read_document(
        Fetched(url="http://h.test/a/b.html", status=200, content_type="text/html", body=body)
    )
    return len(document.text)


def read_all(bodies: Sequence[bytes]) -> int:
    return sum(map(read, bodies))


def pages_per_second(bodies: Sequence[bytes], pool: Executor | None, ways: int) -> float:
    """With a pool, each way reads its share; it is warm before the clock starts."""
    shares = [bodies[at::ways] for at in range(ways)]
    if pool:
        list(pool.map(read_all, [bodies[:20]] * ways))
    began = time.perf_counter()
    total = sum(pool.map(read_all, shares)) if pool else read_all(bodies)
    assert total > 0
    return len(bodies) / (time.perf_counter() - began)


def reading(bodies: Sequence[bytes]) -> dict[str, float]:
    made = {"reading: one process": pages_per_second(bodies, None, 1)}
    for ways in (2, 3):
        with ThreadPoolExecutor(ways) as threads:
            made[f"reading: {ways} threads"] = pages_per_second(bodies, threads, ways)
        with ProcessPoolExecutor(ways) as processes:
            made[f"reading: {ways} processes"] = pages_per_second(bodies, processes, ways)
    return made


def crawl(server: NginxServer, folder: Path, *, starts: Sequence[str], readers: int) -> float:
    """Pages a second of as many crawls at once as there are starts."""
    config = folder / "readers.toml"
    config.write_text(f"readers = {readers}\n")
    since, began = server.log_path.stat().st_size, time.perf_counter()
    crawls = [
        subprocess.Popen(
            [sys.executable, "-m", "sterna", "crawl", f"{server.url}{start}", "--delay", "0", "--quiet",
             "--no-index", "--into", str(folder / f"c{number}"), "--config", str(config)]
        )
        for number, start in enumerate(starts)
    ]  # fmt: skip
    for process in crawls:
        assert process.wait(600) == 0
    return len(seen(server, since)) / (time.perf_counter() - began)


def whole_crawls(server: NginxServer) -> dict[str, float]:
    ways: dict[str, tuple[Sequence[str], int]] = {
        f"crawl: {count} reader{'s' if count > 1 else ''}": ((START,), count) for count in (1, 2, 3)
    }
    ways["crawl: two runtimes, one reader each"] = (HALVES, 1)
    ways["crawl: two runtimes, two readers each"] = (HALVES, 2)
    made: dict[str, float] = {}
    for name, (starts, readers) in ways.items():
        with tempfile.TemporaryDirectory() as work:
            made[name] = crawl(server, Path(work), starts=starts, readers=readers)
            print(f"{name}: {made[name]:,.0f} pages/s", flush=True)
    return made


def sample_bodies() -> list[bytes]:
    paths = sorted(path for folder in DEBIAN.values() for path in folder.rglob("*.html") if path.is_file())
    return [path.read_bytes() for path in paths[:: max(1, len(paths) // SAMPLE)]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true", help="keep the ratios for later comparisons")
    given = parser.parse_args()
    install_sites()
    made = reading(sample_bodies())
    with tempfile.TemporaryDirectory() as work:
        roots = {"/boost/": DEBIAN["libboost1.81-doc"], "/java/": DEBIAN["openjdk-17-doc"]}
        with serve(roots, folder=Path(work), extra=SERVER) as server:
            made |= whole_crawls(server)
    print("\n| way | pages/s | beside the first of its kind |\n|---|---|---|")
    first = {name.partition(":")[0]: rate for name, rate in reversed(made.items())}
    for name, rate in made.items():
        print(f"| {name} | {rate:,.0f} | {rate / first[name.partition(':')[0]]:.2f} |")
    settle(
        "parallel",
        {name: rate / first[name.partition(":")[0]] for name, rate in made.items()},
        record=given.record,
    )


if __name__ == "__main__":
    main()
