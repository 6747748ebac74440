"""Peak memory of home against a single site that wants all of it: python -m bench.memory.

Each case is a whole crawl of one site that does one thing to excess; the first one is of ordinary pages. The
limit is for home's own process. Readers have a limit each, and are counted in the column of all processes.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import greedy_parcels as greedy
from bench.greedy_host import greedy_host
from bench.greedy_parcels import Fill
from bench.measuring import descendants, pss_bytes
from tests.servers.bombs import brotli_bomb, gzip_bomb, wide_text, zstd_bomb
from tests.servers.hostile import HostileServer

LIMIT_BYTES = 400_000_000
LOOK_SECONDS = 0.05
MOST_SECONDS = 60
WIDE_MB = (47, 11, 5, 1)  # too large for a reader's answer, and ever less so
PARCELS = {
    "texts of 6 MB with an emoji": greedy.wide_texts,
    "texts of 40 MB with an emoji": greedy.too_wide,
    "two texts of 12 MB": greedy.long_texts,
    "HTML of 24 MB": greedy.long_html,
    "800,000 links": greedy.many_links,
    "1,000,000 facts": greedy.short_facts,
    "1,000,000 empty facts": greedy.least_facts,
    "facts of 4,000,000 symbols": greedy.long_facts,
    "1,000 facts of 8,000 symbols": greedy.facts_of_many_values,
    "1,000,000 own facts, new ones each time": greedy.own_facts,
    "1,000,000 own facts, the same each time": greedy.same_own_facts,
    "400,000 own facts, new ones each time": greedy.full_parcels_of_own_facts,
    "135,000 own facts, new ones in every second": greedy.most_own_facts,
    "1,000,000 own facts gone": greedy.own_facts_gone,
    "a memory of 25 MB": greedy.large_memory,
    "1,000,000 URLs found": greedy.short_found,
    "450,000 URLs found": greedy.most_found,
    "450,000 URLs found in 5 parcels": greedy.found_in_parts,
    "90,000 URLs to try again": greedy.again_in_parts,
    "6,500 URLs of 2 kB found": greedy.long_found,
    "6,500 referrers of 2 kB": greedy.long_referrers,
    "1,000,000 URLs to try again": greedy.short_again,
    "1,000,000 URLs done": greedy.million_done,
    "285,000 sitemaps found and done": greedy.sitemaps_done,
    "1,000,000 links to other sites": greedy.million_outlinks,
    "100,000 failed pages": greedy.failed_pages,
    "80,000 failed pages": greedy.some_failed_pages,
    "100,000 pages with all fields": greedy.full_pages,
    "25,000 pages with all fields": greedy.some_full_pages,
    "3,000,000 keywords": greedy.short_keywords,
    "1,080,000 keywords": greedy.some_keywords,
    "10,000,000 keywords and extracts apart": greedy.apart_keywords,
    "1,000 kinds of errors": greedy.many_kinds_of_errors,
}
WITNESSED = (
    "1,000,000 facts",
    "1,000,000 own facts, new ones each time",
    "135,000 own facts, new ones in every second",
    "450,000 URLs found",
    "450,000 URLs found in 5 parcels",
)
CHECKS = (("", ["--check", "none"]), (", held and checked", ["--check", "strict"]))
# A crawler with rules whose state is witnessed, so that they can be run again.
RULES = """
(defrule keep (page (url ?url)) => (assert (seen ?url)))
(defrule ask (request (url ?url)) (never) => (refuse ?url))
"""
SESSIONS = ("--max-pages", "5000", "--max-depth", "5000")


@dataclass(frozen=True, slots=True)
class Case:
    """What the start page of a site links to, and the flags of its crawl."""

    name: str
    links: Sequence[str] = ()
    flags: Sequence[str] = ()
    robots: bytes = b""
    fill: Fill | None = None  # the parcels of the site's host, if it has one
    rules: str = ""  # of the crawler


@dataclass(slots=True)
class Peak:
    """The most that was seen; changed by look()."""

    own_bytes: int = 0
    all_bytes: int = 0

    def look(self, pid: int) -> None:
        self.own_bytes = max(self.own_bytes, _most_resident(pid))
        self.all_bytes = max(self.all_bytes, sum(map(pss_bytes, descendants(pid))))


def _cases() -> list[Case]:
    each = range(400)
    return [
        Case("2,000 ordinary pages", [f"/leaf/{n}" for n in range(2_000)]),
        Case("80 bodies of 15 MB that stall", [f"/stall/{n}?mb=15" for n in range(80)]),
        Case("400 bodies of 15 MB", [f"/big?mb=15&n={n}" for n in each]),
        Case("400 bodies without an end", [f"/endless?n={n}" for n in each]),
        Case("bombs", [f"/bomb.{kind}?n={n}" for n in range(60) for kind in ("gz", "br", "zst")]),
        *(
            Case(f"texts of {mb} MB with an emoji", [f"/wide?mb={mb}&n={n}" for n in range(60)])
            for mb in WIDE_MB
        ),
        Case("400 bodies of 15 MB, --warc", [f"/big?mb=15&n={n}" for n in each], ["--warc"]),
        Case("60 texts of 5 MB with an emoji, --warc", [f"/wide?mb=5&n={n}" for n in range(60)], ["--warc"]),
        Case(
            "60 texts of 15 MB, uncompressed, --warc", [f"/text?mb=15&n={n}" for n in range(60)], ["--warc"]
        ),
        Case("60 texts of 15 MB, uncompressed", [f"/text?mb=15&n={n}" for n in range(60)]),
        Case(
            "60 pages of 7 MB, their HTML kept",
            [f"/text.html?mb=7&n={n}" for n in range(60)],
            ["--keep", "html,text,links"],
        ),
        Case("40 pages with 300,000 links each", [f"/manylinks?n={300_000 + n}" for n in range(40)]),
        Case("100 pages 100,000 elements deep", [f"/deep?n={n}" for n in range(100)]),
        Case("8 bodies of 15 MB in chunks of two bytes", [f"/splinters?mb=15&n={n}" for n in range(8)]),
        Case("400 heads of 1 MB", [f"/badheaders?n={n}" for n in each]),
        Case("links of 100 kB", [f"/longlinks?n={n}" for n in each]),
        Case(
            "session ids without an end", ["/session?sid=0"], ["--max-pages", "5000", "--max-depth", "5000"]
        ),
        Case("robots.txt of 50 MB", robots=b"Disallow: /x*y*z$\n" * 2_800_000),
        Case("400 chains of redirects", [f"/chain/{n}000" for n in each]),
        *(
            Case(f"host: {name}{how}", flags=flags, fill=fill)
            for name, fill in PARCELS.items()
            for how, flags in CHECKS
        ),
        *(
            Case(f"host: raw responses of 24 MB{how}", flags=[*flags, "--warc"], fill=greedy.raw_responses)
            for how, flags in CHECKS
        ),
        *(
            Case(
                f"host: 450,000 links to other sites{name}, all followed{how}",
                flags=[*flags, "--stay", "any"],
                fill=fill,
            )
            for name, fill in (("", greedy.short_outlinks), (" in 5 parcels", greedy.outlinks_in_parts))
            for how, flags in CHECKS
        ),
        *(
            Case(f"host: {name}, of a crawler with rules{how}", flags=flags, fill=PARCELS[name], rules=RULES)
            for name in WITNESSED
            for how, flags in CHECKS
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="only the cases whose names contain this")
    only = parser.parse_args().only
    cases = [case for case in _cases() if only in case.name]
    if any(not case.fill for case in cases):
        for mb in WIDE_MB:
            wide_text(mb * 1_000_000)
        for make in (gzip_bomb, brotli_bomb, zstd_bomb):
            make()
    print(
        "| the site | seconds | home, MB | all processes, MB | of the limit |",
        "|---|---|---|---|---|",
        sep="\n",
    )
    worst = 0
    for case in cases:
        seconds, peak = _crawl(case)
        share = peak.own_bytes / LIMIT_BYTES
        sizes = f"{peak.own_bytes / 1e6:,.0f} | {peak.all_bytes / 1e6:,.0f} | {share:.2f}"
        print(f"| {case.name} | {seconds:.1f} | {sizes} |", flush=True)
        worst = max(worst, peak.own_bytes)
    if worst > LIMIT_BYTES:
        sys.exit(f"home took {worst / 1e6:,.0f} MB, more than {LIMIT_BYTES / 1e6:,.0f}")


def _crawl(case: Case) -> tuple[float, Peak]:
    began, peak = time.monotonic(), Peak()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = stack.enter_context(HostileServer().run_in_thread())
        server.links = list(case.links)
        server.robots = (200, {}, case.robots)
        limits = ["--delay", "0", "--max-seconds", str(MOST_SECONDS), "--no-index", "--quiet"]
        if case.fill:
            endpoint = stack.enter_context(greedy_host(server.url, case.fill))
            limits += ["--host", f"{server.url}={endpoint}", "--keys", str(Path(folder) / "keys")]
        crawl = _spec(Path(folder), server.url, case.rules) if case.rules else server.url
        command = [sys.executable, "-m", "sterna", "crawl", crawl, "--into", str(Path(folder) / "c")]
        with subprocess.Popen([*command, *limits, *case.flags], stdout=subprocess.DEVNULL) as process:
            while process.poll() is None:
                peak.look(process.pid)
                time.sleep(LOOK_SECONDS)
        # Rules end where a host says nonsense of their state.
        usual = (0, 1, 3, 4) if case.rules else (0, 3, 4)
        if not (server.log or case.fill) or process.returncode not in usual:
            raise RuntimeError(f"the crawl of {case.name!r} ended with {process.returncode}")
    return time.monotonic() - began, peak


def _spec(folder: Path, url: str, rules: str) -> str:
    (folder / "bench.clp").write_text(rules)
    path = folder / "bench.toml"
    path.write_text(f'name = "bench"\nseeds = ["{url}/"]\nrules = ["bench.clp"]\n')
    return str(path)


def _most_resident(pid: int) -> int:
    """The most that a process ever had in memory, as the kernel counts it; 0 if it is over."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


if __name__ == "__main__":
    main()
