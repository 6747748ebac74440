"""Thousands of sites with a delay of a second each, on loopback addresses: python -m bench.politeness.

Once with answers at once (what request rate is reached, of the one that the delays allow), and once with
answers that take about as long as the delay (how many connections are kept busy, of those that may be open).
The server's log alone judges the delays: from the end of an answer to the site's next request.
"""

import argparse
import json
import resource
import sys
import tempfile
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, quantiles

from bench.many_sites import ROBOTS_PATH, Exchange, ManySites, addresses, serve
from bench.measuring import Cost, measure
from bench.ratios import settle
from tests.crawl.running import COMMAND, rows

SITES = 2000
CONNECTIONS = 1000
DELAY_SECONDS = 1.0
SPARE_FILES = 500  # what a process opens besides one socket a connection
STEP_SECONDS = 0.05
CRAWL_SECONDS = 280.0
HEADINGS = (
    "answers take",
    "requests",
    "requests/s",
    "of the ideal",
    "connections busy",
    "of the ideal",
    "p10 / p50 / p90",
    "delays broken",
    "shortest pause",
    "CPU s per 1,000 requests",
    "peak MB",
    "pages stored / served",
)


@dataclass(frozen=True, slots=True)
class Ideal:
    """What the delays and the connections allow at most."""

    requests_per_second: float
    busy: float

    @classmethod
    def of(cls, sites: int, *, answer_seconds: float) -> "Ideal":
        by_delay = sites / (DELAY_SECONDS + answer_seconds)
        rate = min(by_delay, CONNECTIONS / answer_seconds) if answer_seconds else by_delay
        return cls(rate, rate * answer_seconds)


@dataclass(frozen=True, slots=True)
class Flow:
    """How requests came, over the middle half of them."""

    requests_per_second: float
    busy: float
    busy_percentiles: tuple[float, float, float]  # 10th, 50th and 90th

    @classmethod
    def of(cls, exchanges: list[Exchange]) -> "Flow":
        began = sorted(each.began for each in exchanges)
        ended = sorted(each.ended for each in exchanges)
        first, last = len(began) // 4, 3 * len(began) // 4
        steps = int((began[last] - began[first]) / STEP_SECONDS)
        times = [began[first] + step * STEP_SECONDS for step in range(steps)]
        busy = [float(bisect_right(began, time) - bisect_right(ended, time)) for time in times]
        tenths = quantiles(busy, n=10)
        rate = (last - first) / (began[last] - began[first])
        return cls(rate, mean(busy), (tenths[0], tenths[4], tenths[8]))


def pauses(exchanges: Iterable[Exchange]) -> list[float]:
    """Seconds from each answer's end to the site's next request; below 0 if two were under way at once."""
    by_site: defaultdict[str, list[Exchange]] = defaultdict(list)
    for each in exchanges:
        by_site[each.site].append(each)
    return [
        later.began - earlier.ended
        for of_site in by_site.values()
        for earlier, later in pairwise(sorted(of_site, key=lambda each: each.began))
    ]


def crawl(folder: Path, seeds: list[str]) -> Cost:
    folder.mkdir()
    config = folder / "crawl.toml"
    # A pause of five response times would be the default: here the delay is one second, and nothing else.
    config.write_text(
        f"seeds = {json.dumps(seeds)}\ndelay = {DELAY_SECONDS}\nresponse_factor = 0.0\n"
        f"concurrency = {CONNECTIONS}\nindex = false\n"
    )
    command = [*COMMAND, "crawl", "--config", str(config), "--into", str(folder / "crawl"), "--json"]
    return measure(command, folder=folder, timeout=CRAWL_SECONDS)


def report(
    sites: ManySites, cost: Cost, *, stored: int, flow: Flow, ideal: Ideal, answer_seconds: float
) -> str:
    exchanges = sites.exchanges
    gaps = pauses(exchanges)
    served = sum(each.was_taken and each.path != ROBOTS_PATH for each in exchanges)
    cells = (
        f"{answer_seconds:g} s",
        f"{len(exchanges):,}",
        f"{flow.requests_per_second:,.0f}",
        f"{flow.requests_per_second / ideal.requests_per_second:.2f}",
        f"{flow.busy:,.0f}",
        f"{flow.busy / ideal.busy:.2f}" if ideal.busy else "-",
        " / ".join(f"{busy:,.0f}" for busy in flow.busy_percentiles),
        f"{sum(gap < DELAY_SECONDS for gap in gaps):,} of {len(gaps):,}",
        f"{min(gaps):.4f} s",
        f"{1000 * cost.cpu_seconds / len(exchanges):.2f}",
        f"{cost.peak_bytes / 1e6:,.0f}",
        f"{stored:,} / {served:,}",
    )
    return f"| {' | '.join(cells)} |"


def course(sites: ManySites, cost: Cost) -> str:
    """How long the beginning and the end took, which the table leaves out."""
    began = [each.began for each in sites.exchanges]
    seen: dict[str, float] = {}
    for each in sites.exchanges:
        seen.setdefault(each.site, each.began)
    over = max(each.ended for each in sites.exchanges) - min(began)
    return (
        f"{cost.seconds:.0f} s in all, {over:.0f} s from the first request to the last;"
        f" every site was met within {max(seen.values()) - min(began):.1f} s;"
        f" {sites.connections:,} connections made, {sites.most_open:,} open at once"
    )


def run(folder: Path, *, site_count: int, pages: int, answer_seconds: float) -> tuple[str, str, float]:
    """The line of the table for one crawl, its course, and what it reached of the ideal rate."""
    with serve(pages=pages, answer_seconds=answer_seconds) as sites:
        cost = crawl(folder, [f"http://{address}:{sites.port}/" for address in addresses(site_count)])
    ((stored,),) = rows(folder / "crawl", "SELECT count(DISTINCT url) FROM t WHERE status = 200")
    ideal = Ideal.of(site_count, answer_seconds=answer_seconds)
    flow = Flow.of(sites.exchanges)
    line = report(sites, cost, stored=stored, flow=flow, ideal=ideal, answer_seconds=answer_seconds)
    return line, course(sites, cost), flow.requests_per_second / ideal.requests_per_second


def raise_file_limit() -> None:
    """Lets this process and the crawl open a file for each connection; the crawl inherits the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS + SPARE_FILES
    if most != resource.RLIM_INFINITY and most < wanted:
        sys.exit(f"{CONNECTIONS} connections need {wanted} open files, the limit here is {most}: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sites", type=int, default=SITES)
    parser.add_argument("--pages", type=int, default=15, help="pages of each site")
    parser.add_argument("--answers", type=float, nargs="+", default=[0.0, 1.25], help="seconds each takes")
    parser.add_argument("--record", action="store_true", help="keep the ratios for later comparisons")
    asked = parser.parse_args()
    raise_file_limit()
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    with tempfile.TemporaryDirectory() as work:
        courses = []
        ratios: dict[str, float] = {}
        for number, seconds in enumerate(asked.answers):
            line, told, ratio = run(
                Path(work) / str(number), site_count=asked.sites, pages=asked.pages, answer_seconds=seconds
            )
            print(line, flush=True)
            ratios[f"rate / ideal, answers of {seconds:g} s"] = ratio
            courses.append(f"Answers of {seconds:g} s: {told}.")
        print("", *courses, sep="\n")
    settle("politeness", ratios, record=asked.record)


if __name__ == "__main__":
    main()
