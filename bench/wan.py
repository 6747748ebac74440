"""Crawlers that migrate beside ordinary crawling, over an emulated WAN: python -m bench.wan.

Two network namespaces, home and the site's machine, are joined by two TUN devices and a forwarder between
them that delays, limits and drops packets. At the site's machine nginx serves three real sites, and `sterna
host run` stands beside it; at home Sterna crawls in the ordinary way, Scrapy does, and Sterna sends its
crawlers to the host. Bytes are counted on home's device, both ways, IP headers included; CPU by control
groups, on both sides; times are those of the whole command. All must see the same pages. Needs root.
"""

import argparse
import compileall
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.ratios import settle
from bench.wan_parts import ordinary, sites
from bench.wan_parts.forwarder import Line
from bench.wan_parts.migrating import Hosts
from bench.wan_parts.places import joined
from bench.wan_parts.plan import MAIN, OTHERS, Plan
from bench.wan_parts.probe import probe
from bench.wan_parts.report import print_report, ratios_of
from bench.wan_parts.results import Results
from bench.wan_parts.stage import Stage

import sterna

SOURCE = Path(sterna.__file__).parent
FIGURES = Path(__file__).parent / "wan_parts/figures.py"


def main() -> None:
    given = read_arguments()
    if os.geteuid():
        raise SystemExit("bench.wan needs root: it makes network namespaces and devices")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench.wan: ended"))  # so that nothing is left behind
    sites.install()
    ordinary.install()
    # As an installation has it: without its byte code every start would take a quarter of a second more.
    compileall.compile_dir(SOURCE, quiet=1)
    given.into.mkdir(parents=True, exist_ok=True)
    results = Results(main_line=str(MAIN))
    try:
        with tempfile.TemporaryDirectory() as work:
            measure(results, Path(work), is_quick=given.quick)
    except KeyboardInterrupt:
        print("\nstopped: this is what was measured until then")
    finally:
        results.write(given.into / "wan.json")
    print_report(results)
    draw(given.into)
    if not given.quick:
        settle("wan", ratios_of(results), record=given.record)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--into", type=Path, default=Path("wan"), metavar="DIR", help="for figures and numbers"
    )
    parser.add_argument("--quick", action="store_true", help="only what most aims need, some three minutes")
    parser.add_argument("--record", action="store_true", help="keep the ratios for later comparisons")
    return parser.parse_args()


def measure(results: Results, work: Path, *, is_quick: bool) -> None:
    """The main line in full, then the others."""
    made = sites.make_sites(work)
    seen: dict[str, dict[str, str]] = {}
    lines = [MAIN] if is_quick else [MAIN, *OTHERS]
    for number, line in enumerate(lines):
        with ExitStack() as stack:
            plan = set_up(stack, made, line, seen=seen, results=results, folder=work / f"line-{number}")
            if line is not MAIN:
                plan.few()
            elif is_quick:
                plan.short()
            else:
                plan.whole()


def set_up(
    stack: ExitStack,
    made: dict[str, sites.Site],
    line: Line | None,
    *,
    seen: dict[str, dict[str, str]],
    results: Results,
    folder: Path,
) -> Plan:
    """A line with nginx at its end; what it is really like is told first."""
    home = folder / "home"
    home.mkdir(parents=True)
    places = stack.enter_context(joined(line))
    stage = Stage(places, made, home, seen)
    reached = str(probe(places))
    results.lines[stage.line] = reached
    print(f"\n{stage.line}: {reached}", flush=True)
    stack.enter_context(sites.served(made, places.site, folder=folder / "nginx"))
    return Plan(stage, Hosts(stack, places.site, folder), results)


def draw(folder: Path) -> None:
    print()
    subprocess.run([ordinary.PYTHON, FIGURES, folder / "wan.json", folder], check=True)


if __name__ == "__main__":
    main()
