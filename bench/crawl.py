"""Sterna beside the crawlers that people use, on one real site, in turn: python -m bench.crawl.

The site is the documentation of Boost and OpenJDK, served by nginx on loopback, not compressed: on loopback
that would only measure nginx's gzip. nginx's own log tells which pages each crawler saw. Sterna stores title,
text and links of every page durably, or with --keep links nothing but links, as wget2 (which saves files) and
spider-rs do. wget2 runs once more with its files in memory: on disk the file system takes most of its time,
and how much depends on the disk's age. The peers are installed into bench/.peers the first time.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.measuring import Cost, measure
from bench.ratios import settle
from tests.servers.nginx import NginxServer, serve

HERE = Path(__file__).parent
PEERS = HERE / ".peers"
DEBIAN = {
    "libboost1.81-doc": Path("/usr/share/doc/libboost1.81-doc"),
    "openjdk-17-doc": Path("/usr/share/doc/openjdk-17-jre-headless"),
}
# The second is the first one's native part, which npm takes for optional and leaves out.
NODE_PACKAGES = ("@spider-rs/spider-rs", "@spider-rs/spider-rs-linux-x64-gnu")
OURS, OUR_LINKS = "sterna", "sterna --keep links"
SLOW = ("scrapy", "crawlee")
START = "/start.html"
WGET2 = ("wget2", "-q", "-r", "-l", "inf", "--no-robots", "--max-threads=8", "-P", "w")
MEMORY = Path("/dev/shm")
SERVER = """
        gzip off;
        location = /start.html {
            default_type text/html;
            return 200 '<a href="/boost/doc/html/index.html">B</a><a href="/java/api/index.html">J</a>';
        }
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """A crawler, how it is called, and where it writes: on disk unless told."""

    name: str
    command: Callable[[str, Path], list[str]]
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """One round of one crawler."""

    pages: int
    cost: Cost

    @property
    def pages_per_second(self) -> float:
        return self.pages / self.cost.seconds

    @property
    def cpu_per_1000(self) -> float:
        return 1000 * self.cost.cpu_seconds / self.pages


def sterna(*flags: str) -> Callable[[str, Path], list[str]]:
    def command(url: str, folder: Path) -> list[str]:
        program = [sys.executable, "-m", "sterna", "crawl", url, "--into", str(folder / "c")]
        return [*program, "--delay", "0", "--no-index", "--json", *flags]  # peers index nothing either

    return command


def peers() -> list[Peer]:
    python = str(PEERS / "venv/bin/python")
    return [
        Peer(OURS, sterna()),
        Peer(OUR_LINKS, sterna("--keep", "links")),
        Peer("scrapy", lambda url, _: [python, str(HERE / "peers/scrapy_site.py"), url, "out.jsonl"]),
        Peer("crawlee", lambda url, _: [python, str(HERE / "peers/crawlee_site.py"), url]),
        Peer("spider-rs", lambda url, _: ["node", str(PEERS / "node/spider_site.mjs"), url]),
        Peer("wget2", lambda url, _: [*WGET2, url]),
        Peer("wget2 into memory", lambda url, _: [*WGET2, url], folder=MEMORY),
    ]


def install_sites() -> None:
    missing = [name for name, folder in DEBIAN.items() if not folder.is_dir()]
    if missing:
        subprocess.run(["apt-get", "install", "-y", "-qq", *missing], check=True)


def install() -> None:
    """What the bench needs, by its ordinary client."""
    install_sites()
    if not shutil.which("wget2") or not shutil.which("npm"):
        subprocess.run(["apt-get", "install", "-y", "-qq", "wget2", "nodejs", "npm"], check=True)
    if not (PEERS / "venv").is_dir():
        subprocess.run([sys.executable, "-m", "venv", PEERS / "venv"], check=True)
        pip = [PEERS / "venv/bin/pip", "install", "-q", "scrapy", "crawlee[parsel]"]
        subprocess.run(pip, check=True)
    if not (PEERS / "node/node_modules").is_dir():
        (PEERS / "node").mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", *NODE_PACKAGES], cwd=PEERS / "node", check=True)
    shutil.copy(HERE / "peers/spider_site.mjs", PEERS / "node/spider_site.mjs")


def seen(server: NginxServer, since: int) -> set[str]:
    """The pages that were served well since an offset of nginx's log."""
    with server.log_path.open() as log:
        log.seek(since)
        lines = re.findall(r'"GET (\S+\.html?)(?:\?\S*)? HTTP/[\d.]+" 200 ', log.read())
    return set(lines)


def run(peer: Peer, server: NginxServer) -> tuple[Result, set[str]]:
    with tempfile.TemporaryDirectory(dir=peer.folder) as work:
        os.sync()  # what the crawler before wrote is not this one's to wait for
        since = server.log_path.stat().st_size
        url = f"{server.url}{START}"
        # wget2 ends with 8 where a link of the site is dead.
        cost = measure(peer.command(url, Path(work)), folder=Path(work), good_codes=frozenset({0, 8}))
        pages = seen(server, since)
        return Result(len(pages), cost), pages


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow-rounds", type=int, default=3, help="of Scrapy and crawlee, minutes each")
    parser.add_argument("--only", action="append", metavar="CRAWLER", help="only this one, and ours")
    parser.add_argument("--record", action="store_true", help="keep the ratios for later comparisons")
    given = parser.parse_args()
    install()
    chosen = [peer for peer in peers() if not given.only or peer.name in (OURS, *given.only)]
    results: dict[str, list[Result]] = {peer.name: [] for peer in chosen}
    sets: dict[str, set[str]] = {}
    with tempfile.TemporaryDirectory() as work:
        roots = {"/boost/": DEBIAN["libboost1.81-doc"], "/java/": DEBIAN["openjdk-17-doc"]}
        with serve(roots, folder=Path(work), extra=SERVER) as server:
            for number in range(given.rounds):
                for peer in chosen:
                    if peer.name in SLOW and number >= given.slow_rounds:
                        continue
                    result, sets[peer.name] = run(peer, server)
                    results[peer.name].append(result)
                    print(
                        f"round {number + 1} {peer.name}: {result.pages_per_second:,.0f} pages/s", flush=True
                    )
    print_table(results, sets)
    settle("crawl", ratios_of(results), record=given.record)


def speed_of(rounds: list[Result]) -> float:
    return statistics.median(result.pages_per_second for result in rounds)


def ratios_of(results: dict[str, list[Result]]) -> dict[str, float]:
    """How many times as fast we are: with text, and with links only beside what reads nothing but links."""
    ratios = {
        f"{ours} / {name}": speed_of(results[ours]) / speed_of(rounds)
        for ours in (OURS, OUR_LINKS)
        for name, rounds in results.items()
        if ours in results and name not in (OURS, OUR_LINKS)
    }
    memory = {
        f"400 MB / memory of {ours}": 400e6 / max(result.cost.peak_bytes for result in results[ours])
        for ours in (OURS, OUR_LINKS)
        if ours in results
    }
    return ratios | memory


def print_table(results: dict[str, list[Result]], sets: dict[str, set[str]]) -> None:
    common = set.intersection(*sets.values())
    print(
        "\n| crawler | pages | not seen by all | pages/s (each round) | CPU s per 1,000 | peak MB |"
        f" {OURS} is times as fast | {OUR_LINKS} |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, rounds in results.items():
        cpu = statistics.median(result.cpu_per_1000 for result in rounds)
        peak = max(result.cost.peak_bytes for result in rounds) / 1e6
        each = ", ".join(f"{result.pages_per_second:,.0f}" for result in rounds)
        beside = " | ".join(
            f"{speed_of(results[ours]) / speed_of(rounds):.2f}" if ours in results else ""
            for ours in (OURS, OUR_LINKS)
        )
        print(
            f"| {name} | {rounds[-1].pages:,} | {len(sets[name] - common):,} |"
            f" {speed_of(rounds):,.0f} ({each}) |"
            f" {cpu:.2f} | {peak:,.0f} | {beside} |"
        )


if __name__ == "__main__":
    main()
