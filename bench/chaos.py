"""Random SIGKILL and SIGSTOP to every process of whole crawls, whose result must not change.

python -m bench.chaos [--signals 1000] [--seed 1]. A crawler with rules crawls a site from here, at the site's
host, or two sites, one each way; with WARC, an index, and rows that are copied to PostgreSQL. Each scenario
is first crawled in peace. Then follow rounds in which home, host, warm parents, readers, engines, the
indexer, storage, confined processes and PostgreSQL are killed and stopped at random. What ended is started
again by the same command, until the crawl is finished. Pages, links, facts, events, rows, WARC records and
index must equal those of the first crawl. Whatever differs is printed, and the code is 1.

The signals of a round are drawn from the seed, the scenario and the number of the round: `--only here
--first 7 --rounds 1` draws those of round 7 again. Where they find a process is up to the machine.
`--keep DIR` keeps the folders of rounds that went wrong, with a list of the signals in `struck.txt`.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.chaos_parts.driver import Driver, Wedged, fetch_again, finish_by_hand
from bench.chaos_parts.plan import strokes
from bench.chaos_parts.processes import adopt_orphans
from bench.chaos_parts.results import (
    Result,
    Tally,
    broken_pages,
    collect,
    collect_newest,
    compare,
    print_tallies,
)
from bench.chaos_parts.stage import SCENARIOS, Scenario, Stage, serving
from tests.crawl.running import ask
from tests.servers.pages import PageServer
from tests.servers.postgres import PostgresServer, cluster

PER_ROUND = 40
# What is made beside a crawl, by processes that may be killed last: home then names the command for the rest.
FOLLOWED = {"rows": "sterna storage run", "index": "sterna index"}


@dataclass(frozen=True, slots=True)
class Theatre:
    """What all rounds share."""

    work: Path
    server: PageServer
    postgres: PostgresServer
    given: argparse.Namespace


def main() -> None:
    given = read_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench.chaos: ended"))  # so that nothing is left behind
    adopt_orphans()
    scenarios = [each for each in SCENARIOS if given.only in {"", each.name}]
    tallies = [Tally(each.name) for each in scenarios]
    print(f"seed {given.seed}, {given.signals:,} signals", flush=True)
    with tempfile.TemporaryDirectory(prefix="chaos-") as work, serving() as server, cluster() as postgres:
        theatre = Theatre(Path(work), server, postgres, given)
        expected = [crawl_in_peace(theatre, each) for each in scenarios]
        number = given.first
        while sum(tally.signals for tally in tallies) < given.signals and number < given.first + given.rounds:
            for scenario, tally, result in zip(scenarios, tallies, expected, strict=True):
                disturb(theatre, scenario, number, tally=tally, expected=result)
            number += 1
    print_tallies(tallies)
    sys.exit(0 if all(tally.is_good for tally in tallies) else 1)


def crawl_in_peace(theatre: Theatre, scenario: Scenario) -> Result:
    """What a crawl stores that nobody disturbs."""
    began = time.monotonic()
    stage = Stage(theatre.work / f"{scenario.name}-in-peace", scenario, theatre.server, theatre.postgres)
    driver = Driver(stage, Tally(scenario.name), strokes(0, "", 0), most=0, name=f"{scenario.name}, in peace")
    try:
        stage.prepare()
        driver.play()
        result = collect(stage)
    finally:
        driver.end()
    counts = ", ".join(f"{rows.total():,} {kind}" for kind, rows in result.items())
    print(f"{scenario.name}, in peace: {counts}; {time.monotonic() - began:.1f} s", flush=True)
    return result


def disturb(theatre: Theatre, scenario: Scenario, number: int, *, tally: Tally, expected: Result) -> None:
    """One round, compared."""
    began, before, faults = time.monotonic(), tally.signals, len(tally.faults)
    stage = Stage(theatre.work / f"{scenario.name}-{number}", scenario, theatre.server, theatre.postgres)
    plan = strokes(theatre.given.seed, scenario.name, number)
    name = f"{scenario.name} {number}"
    driver = Driver(stage, tally, plan, most=theatre.given.per_round, name=name)
    lines: list[str] = []
    try:
        stage.prepare()
        driver.play()
        lines = judge(driver, expected)
    except Wedged as error:
        tally.faults.append(str(error))
        lines = [str(error)]
    finally:
        driver.end()
        tally.rounds += 1
        tally.seconds += time.monotonic() - began
    print(f"{name}: {tally.signals - before} signals, {time.monotonic() - began:.1f} s", flush=True)
    for line in lines:
        print(f"DIFFERENT {name}: {line}", flush=True)
    if (lines or len(tally.faults) > faults) and theatre.given.keep:
        (stage.folder / "struck.txt").write_text("\n".join(driver.struck))
        kept = theatre.given.keep / stage.folder.name
        shutil.copytree(stage.folder, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns("control"))
    shutil.rmtree(stage.folder)


def judge(driver: Driver, expected: Result) -> list[str]:
    """Counts what a crawl that is finished has, and returns what differs, one line each."""
    stage, tally = driver.stage, driver.tally
    places = ask(stage.collection, "SELECT place FROM visit WHERE pages > 0")
    tally.visits.update(row["place"] for row in places)
    found, lines = collect(stage), []
    differences = compare(expected, found)
    if left := [kind for kind in FOLLOWED if differences[kind]]:
        tally.left += 1
        said = driver.said()
        lines = [f"{kind}: left incomplete without a word" for kind in left if FOLLOWED[kind] not in said]
        tally.faults += lines
        finish_by_hand(stage)
        found = collect(stage)
    if broken := broken_pages(expected, found):
        tally.broken += len(broken)
        print(f"made errors: {', '.join(broken)}", flush=True)
        fetch_again(stage)
        finish_by_hand(stage)
        found = collect_newest(stage)
    return lines + tally.add(found, compare(expected, found))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--signals", type=int, default=1000, help="end after the round in which so many were sent"
    )
    parser.add_argument("--seed", type=int, default=1, help="another one gives other signals")
    parser.add_argument(
        "--per-round", type=int, default=PER_ROUND, metavar="N", help="signals to one crawl, at most"
    )
    parser.add_argument("--only", default="", choices=["", *(each.name for each in SCENARIOS)])
    parser.add_argument("--first", type=int, default=1, metavar="N", help="number of the first round")
    parser.add_argument(
        "--rounds", type=int, default=10_000, metavar="N", help="rounds of each scenario, at most"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the folders of rounds that went wrong")
    return parser.parse_args()


if __name__ == "__main__":
    main()
