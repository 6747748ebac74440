"""The tables of a run, for people."""

from collections.abc import Iterable

from bench.wan_parts.aims import BEST, aims
from bench.wan_parts.results import Results, cpu, seconds, size
from bench.wan_parts.sites import MIDDLE
from bench.wan_parts.stage import Outcome

STORED = "root stored"
ORDINARY = "ordinary 64"


def print_report(results: Results) -> None:
    """Everything that was measured, and what became of the aims."""
    _print_lines(results)
    for site in dict.fromkeys(each.site for each in results.outcomes):
        _print_site(results, site, results.main_line)
    for line in results.lines:
        if line != results.main_line:
            _print_site(results, MIDDLE, line)
    _print_beside("Remote page selection (Fiedler-Hammer 23)", results, "M")
    _print_beside("Remote page filtering (Fiedler-Hammer 24)", results, "filtered")
    _print_beside("Number of pages (Fiedler-Hammer 25)", results, "first")
    _print_again(results)
    print_aims(results)


def print_aims(results: Results) -> None:
    _print_head("What was to be reached", ("aim", "at least", "is", ""))
    for aim in aims(results):
        ratio = "" if aim.ratio is None else f"{aim.ratio:.2f}"
        _print_row(aim.what, f"{aim.least:.2f}", ratio, aim.verdict)


def ratios_of(results: Results) -> dict[str, float]:
    """What is recorded: the ratios of all aims that were measured."""
    return {aim.what: aim.ratio for aim in aims(results) if aim.ratio is not None}


def _print_lines(results: Results) -> None:
    _print_head("Lines", ("asked for", "reached"))
    for line, reached in results.lines.items():
        _print_row(line, reached)
    _print_head("Sites", ("site", "pages", "MB", "xz -9e, MB"))
    for site, pages in results.pages.items():
        packed = results.xz_bytes.get(site)
        _print_row(site, f"{pages:,}", f"{results.page_bytes[site] / 1e6:.2f}", _megabytes(packed))


def _print_site(results: Results, site: str, line: str) -> None:
    tasks = [
        task
        for task in dict.fromkeys(each.task for each in results.outcomes)
        if task.split()[0] in ("full", "text", "brief")
    ]
    shown = [
        (way, task, results.rounds(way, task, site=site, line=line))
        for task in tasks
        for way in results.ways(task, site=site, line=line)
    ]
    if not shown:
        return
    _print_head(
        f"{site}, {line}",
        (
            "way",
            "brings",
            "pages",
            "up, MB",
            "down, MB",
            "seconds",
            "home CPU, user + kernel",
            "site CPU, user + kernel",
            "both",
        ),
    )
    for way, task, rounds in shown:
        _print_row(way, task, *_cells(results, rounds, way, task, site, line))


def _cells(
    results: Results, rounds: list[Outcome], way: str, task: str, site: str, line: str
) -> Iterable[str]:
    first = rounds[0]

    def middle(number) -> float:
        return results.median(number, way, task, site=site, line=line) or 0.0

    each = f" ({', '.join(f'{one.seconds:.2f}' for one in rounds)})" if len(rounds) > 1 else ""
    yield f"{first.pages:,}"
    yield f"{middle(lambda one: one.traffic.up) / 1e6:.3f}"
    yield f"{middle(lambda one: one.traffic.down) / 1e6:.3f}"
    yield f"{middle(seconds):.2f}{each}"
    yield f"{middle(lambda one: one.home.user):.2f} + {middle(lambda one: one.home.kernel):.2f}"
    yield f"{middle(lambda one: one.at_site.user):.2f} + {middle(lambda one: one.at_site.kernel):.2f}"
    yield f"{middle(cpu):.2f}"


def _print_beside(title: str, results: Results, beginning: str) -> None:
    tasks = [
        task for task in dict.fromkeys(each.task for each in results.outcomes) if task.startswith(beginning)
    ]
    if not tasks:
        return
    _print_head(title, ("crawler", "pages", "kept", "ordinary, MB", "not compressed, MB", "compressed, MB"))
    for task in tasks:
        rounds = results.rounds(BEST, task) or results.rounds(STORED, task)
        ordinary = results.median(size, ORDINARY, task) or results.median(size, ORDINARY)
        loads = (ordinary, results.median(size, STORED, task), results.median(size, BEST, task))
        _print_row(task, f"{rounds[0].pages:,}", f"{rounds[0].kept:,}", *map(_megabytes, loads))


def _print_again(results: Results) -> None:
    tasks = [
        task for task in dict.fromkeys(each.task for each in results.outcomes) if task.startswith("again")
    ]
    if not tasks:
        return
    _print_head(
        f"Second visit, {MIDDLE}",
        (
            "changed",
            "way",
            "up, kB",
            "down, kB",
            "seconds",
            "CPU of both",
            "bytes, beside conditional requests",
        ),
    )
    for task in tasks:
        ordinary = results.median(size, "ordinary 64 gzip", task)
        for way in results.ways(task):
            one = results.rounds(way, task)[0]
            times = (
                f"{ordinary / one.bytes:.1f} times fewer" if ordinary and way != "ordinary 64 gzip" else ""
            )
            kilobytes = (f"{one.traffic.up / 1e3:.1f}", f"{one.traffic.down / 1e3:.1f}")
            share = task.removeprefix("again ")
            _print_row(share, way, *kilobytes, f"{one.seconds:.2f}", f"{one.cpu_seconds:.2f}", times)


def _megabytes(count: float | None) -> str:
    return "" if count is None else f"{count / 1e6:.3f}"


def _print_head(title: str, columns: tuple[str, ...]) -> None:
    print(f"\n### {title}\n")
    _print_row(*columns)
    print("|" + "---|" * len(columns))


def _print_row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |")
