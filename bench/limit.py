"""How far each is from nginx's own limit, on one site: python -m bench.limit.

The pages are those that wget2 sees, as in bench.crawl. wrk asks nginx for them over and over and reads
nothing: more than that no crawler can get out of this server on this machine. The CPU time of nginx is told
apart from that of whoever asks.
"""

import argparse
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvloop
from bench.budget import fetch_all
from bench.crawl import DEBIAN, MEMORY, OUR_LINKS, OURS, SERVER, START, WGET2, Peer, install, seen, sterna
from bench.measuring import descendants, measure, thread_seconds
from bench.ratios import settle
from tests.servers.nginx import NginxServer, serve

SECONDS = 10
CONNECTIONS = 64
LUA = """
paths = {}
for line in io.lines("%s") do paths[#paths + 1] = line end
at = 0
request = function()
    at = at %% #paths + 1
    return wrk.format("GET", paths[at])
end
"""


@dataclass(frozen=True, slots=True)
class Row:
    """What one of them got out of the server, and at what cost on both sides."""

    name: str
    pages_per_second: float
    client_micros: float  # of CPU, for each page
    nginx_micros: float


def nginx_seconds(server: NginxServer) -> float:
    return sum(sum(thread_seconds(pid).values()) for pid in descendants(server.pid))


def row(name: str, server: NginxServer, work: Callable[[], tuple[float, float, float]]) -> Row:
    """`work` gives pages, wall seconds and CPU seconds."""
    os.sync()
    before = nginx_seconds(server)
    pages, seconds, cpu = work()
    spent = nginx_seconds(server) - before
    made = Row(name, pages / seconds, 1e6 * cpu / pages, 1e6 * spent / pages)
    print(f"{made.name}: {made.pages_per_second:,.0f} pages/s", flush=True)
    return made


def ask_by_wrk(server: NginxServer, paths: list[str], folder: Path) -> tuple[float, float, float]:
    (folder / "paths").write_text("\n".join(paths))
    (folder / "ask.lua").write_text(LUA % (folder / "paths"))
    command = ["wrk", "-t2", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "-s", str(folder / "ask.lua"), server.url]
    cost = measure(command, folder=folder)
    found = re.search(r"(\d+) requests in ([\d.]+)s", cost.output)
    assert found, cost.output
    assert "Non-2xx" not in cost.output, cost.output
    return int(found[1]), float(found[2]), cost.cpu_seconds


def fetch_by_loop(server: NginxServer, paths: list[str]) -> tuple[float, float, float]:
    began, cpu = time.perf_counter(), time.process_time()
    uvloop.run(fetch_all([server.url + path for path in paths]))
    return len(paths), time.perf_counter() - began, time.process_time() - cpu


def crawl_by(peer: Peer, server: NginxServer) -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory(dir=peer.folder) as work:
        since = server.log_path.stat().st_size
        command = peer.command(f"{server.url}{START}", Path(work))
        cost = measure(command, folder=Path(work), good_codes=frozenset({0, 8}))
        return len(seen(server, since)), cost.seconds, cost.cpu_seconds


def measure_all(server: NginxServer, folder: Path) -> list[Row]:
    wget2 = Peer("wget2 into memory", lambda url, _: [*WGET2, url], folder=MEMORY)
    crawl_by(wget2, server)
    paths = sorted(seen(server, 0) - {START})
    rows = [
        row("wrk: nginx's limit", server, lambda: ask_by_wrk(server, paths, folder)),
        row("our fetch loop, nothing read", server, lambda: fetch_by_loop(server, paths)),
    ]
    peers = [wget2, Peer(OUR_LINKS, sterna("--keep", "links")), Peer(OURS, sterna())]
    return rows + [row(peer.name, server, lambda peer=peer: crawl_by(peer, server)) for peer in peers]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true", help="keep the ratios for later comparisons")
    given = parser.parse_args()
    install()
    subprocess.run(["apt-get", "install", "-y", "-qq", "wrk"], check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as work:
        roots = {"/boost/": DEBIAN["libboost1.81-doc"], "/java/": DEBIAN["openjdk-17-doc"]}
        with serve(roots, folder=Path(work), extra=SERVER) as server:
            rows = measure_all(server, Path(work))
    limit = rows[0].pages_per_second
    print(
        "\n| who asks | pages/s | of nginx's limit | CPU us a page, who asks | nginx |\n|---|---|---|---|---|"
    )
    for each in rows:
        print(
            f"| {each.name} | {each.pages_per_second:,.0f} | {each.pages_per_second / limit:.3f} |"
            f" {each.client_micros:,.0f} | {each.nginx_micros:,.0f} |"
        )
    ratios = {f"{each.name} / nginx's limit": each.pages_per_second / limit for each in rows[1:]}
    settle("limit", ratios, record=given.record)


if __name__ == "__main__":
    main()
