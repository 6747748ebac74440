"""What a host costs its owner: python -m bench.owners.

A real site behind nginx, set up as deploy/ says, and `sterna host run` beside it. One hundred crawlers with
rules at once in a memory cgroup of 1.5 GB; the web server's answers to a steady load of wrk without a host,
beside an idle one, and with a crawler at work, in turn; the memory of an idle host; and what a policy check,
a line of audit and a receipt cost. Needs root: for the cgroup, and so that visitors, who are elsewhere in
truth, do not wait for a core here.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from bench.crawl import install_sites
from bench.owners_parts.costs import Costs, measure_costs
from bench.owners_parts.crowd import LIMIT_BYTES, Crowd, measure_crowd
from bench.owners_parts.idle import Idle, measure_idle
from bench.owners_parts.latency import ALONE, AT_WORK, WAYS, Felt, measure_latency, rise, spread
from bench.owners_parts.stage import served
from bench.ratios import settle

CRAWLERS = 100
IDLE_BYTES = 60_000_000
MOST_RISE = 1.10
LEAST_SHARE, LEAST_JAIN = 0.8, 0.95
PARTS = ("crowd", "latency", "idle", "costs")


@dataclass(frozen=True, slots=True)
class Aim:
    """A ratio that is to be reached."""

    what: str
    least: float
    ratio: float

    @property
    def verdict(self) -> str:
        return "reached" if self.ratio >= self.least else "NOT REACHED"


@dataclass(slots=True)
class Results:
    """What was measured; parts that were left out are None, or empty."""

    crowd: Crowd | None = None
    felt: list[Felt] = field(default_factory=list)
    idle: Idle | None = None
    costs: list[Costs] = field(default_factory=list)


def measure(given: argparse.Namespace, folder: Path) -> Results:
    results = Results()
    with served(folder) as site:
        if "idle" in given.only:
            results.idle = measure_idle(site, folder / "idle")
        if "crowd" in given.only:
            results.crowd = measure_crowd(site, folder / "crowd", crawlers=given.crawlers, pages=given.pages)
        if "latency" in given.only:
            results.felt = measure_latency(site, folder, rounds=given.rounds, seconds=given.seconds)
    if "costs" in given.only:
        results.costs = measure_costs(folder / "costs")
    return results


def aims(results: Results) -> list[Aim]:
    found = []
    if crowd := results.crowd:
        found += [
            Aim(f"of {crowd.crawlers} crawlers, those that brought all", 1.0, crowd.share),
            Aim("pages, slowest crawler / fastest", LEAST_SHARE, crowd.least_share),
            Aim("Jain's index of their pages", LEAST_JAIN, crowd.jain),
            Aim("1.5 GB / memory of their host's processes", 1.0, _ratio(LIMIT_BYTES, crowd.process_bytes)),
        ]
    if results.felt:
        for figure, who in (("p99_ms", "wrk"), ("fixed_p99_ms", "fixed arrivals")):
            ratio = 1 / rise(results.felt, AT_WORK, figure)
            found.append(
                Aim(f"p99 of the web server alone / with a crawler at work, {who}", 1 / MOST_RISE, ratio)
            )
    if idle := results.idle:
        found.append(Aim("60 MB / memory of an idle host", 1.0, _ratio(IDLE_BYTES, idle.fresh_bytes)))
        found.append(Aim("60 MB / the same after a visit", 1.0, _ratio(IDLE_BYTES, idle.after_bytes)))
    return found


def _ratio(above: float, below: float) -> float:
    return above / below if below else 0.0


# -- tables ------------------------------------------------------------------------------------------------


def print_report(results: Results) -> None:
    if results.crowd:
        print_crowd(results.crowd)
    if results.felt:
        print_felt(results.felt)
    if idle := results.idle:
        _head("an idle host", "MB", "processes")
        _row("fresh", f"{idle.fresh_bytes / 1e6:.1f}", idle.fresh_processes)
        _row("after a visit", f"{idle.after_bytes / 1e6:.1f}", idle.after_processes)
    if results.costs:
        _head("what", "us", "beside", "us", "times")
        for each in results.costs:
            times = f"{each.micros / each.beside_micros:.1f}"
            _row(each.what, f"{each.micros:,.0f}", each.beside, f"{each.beside_micros:,.0f}", times)
    found = aims(results)
    if found:
        _head("aim", "at least", "is", "")
    for aim in found:
        _row(aim.what, f"{aim.least:.2f}", f"{aim.ratio:.2f}", aim.verdict)


def print_crowd(crowd: Crowd) -> None:
    _head(
        "crawlers", "brought all", "pages", "pages/s", "slowest / fastest", "Jain",
        "slowest / fastest so far", "peak MB, processes", "with files", "killed",
    )  # fmt: skip
    _row(
        crowd.crawlers, crowd.whole, f"{crowd.pages:,}", f"{crowd.pages / crowd.seconds:.0f}",
        f"{crowd.least_share:.2f}", f"{crowd.jain:.3f}", f"{crowd.least_so_far:.2f}",
        f"{crowd.process_bytes / 1e6:.0f}", f"{crowd.peak_bytes / 1e6:.0f}", crowd.killed,
    )  # fmt: skip
    for problem in crowd.problems:
        print(f"a crawler's problem: {problem}")


def print_felt(felt: list[Felt]) -> None:
    _head(
        "the web server's answers", "p50 ms, wrk", "p99 ms, wrk (each round)", "beside no host",
        "p99 ms, fixed arrivals (each round)", "beside no host", "requests/s", "pages/s crawled",
    )  # fmt: skip
    for way in WAYS:
        rounds = [each for each in felt if each.way == way]
        _row(
            way,
            f"{_median(rounds, 'median_ms'):.2f}",
            f"{_median(rounds, 'p99_ms'):.2f} ({_all(rounds, 'p99_ms')})",
            _rise(felt, way, "p99_ms"),
            f"{_median(rounds, 'fixed_p99_ms'):.2f} ({_all(rounds, 'fixed_p99_ms')})",
            _rise(felt, way, "fixed_p99_ms"),
            f"{_median(rounds, 'requests_per_second'):.0f}",
            f"{_median(rounds, 'pages_per_second'):.0f}",
        )


def _rise(felt: list[Felt], way: str, figure: str) -> str:
    if way == ALONE:
        return "1"
    least, most = spread(felt, way, figure)
    return f"{rise(felt, way, figure):.2f} ({least:.2f} to {most:.2f})"


def _median(rounds: list[Felt], figure: str) -> float:
    return statistics.median(getattr(each, figure) for each in rounds)


def _all(rounds: list[Felt], figure: str) -> str:
    return ", ".join(f"{getattr(each, figure):.2f}" for each in rounds)


def _head(*cells: str) -> None:
    print()
    _row(*cells)
    _row(*("---" for _ in cells))


def _row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--crawlers", type=int, default=CRAWLERS, help="at once")
    parser.add_argument("--pages", type=int, default=400, help="of each of them")
    parser.add_argument("--rounds", type=int, default=10, help="of all ways, one after the other")
    parser.add_argument("--seconds", type=int, default=8, help="of each way in a round")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part, and others so named")
    parser.add_argument("--quick", action="store_true", help="about two minutes: all parts, short")
    parser.add_argument("--record", action="store_true", help="keep the ratios for later comparisons")
    given = parser.parse_args()
    given.only = given.only or PARTS
    if given.quick:
        given.pages, given.rounds, given.seconds = 120, 2, 4
    if os.geteuid():
        raise SystemExit("bench.owners needs root: it makes a memory cgroup")
    install_sites()
    subprocess.run(["apt-get", "install", "-y", "-qq", "wrk"], check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as work:
        results = measure(given, Path(work))
    print_report(results)
    if set(given.only) == set(PARTS) and not given.quick:
        settle("owners", {aim.what: aim.ratio for aim in aims(results)}, record=given.record)


if __name__ == "__main__":
    main()
