"""What a person or a script sees of a crawl, while it runs and after it."""

import shutil
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.cli.hints import runnable
from sterna.cli.lines import (
    LINE_SECONDS,
    bytes_text,
    date_text,
    duration_text,
    every,
    plural,
    say,
    say_json,
    warn,
)
from sterna.errors import command
from sterna.home.away.place import Placement
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import SiteRow
from sterna.home.pauses import pauses_of
from sterna.home.progress import Progress, Summary
from sterna.model import LIMITS, Ended
from sterna.query.terminal import harmless

if TYPE_CHECKING:
    from rich.console import Group

RATE_SECONDS = 10.0
JSON_SECONDS = 5.0
MAX_SITES = 5
# For crawlers without such a limit of their own.
_ENDS = {
    Ended.WALL_SECONDS: "its rules took too long for one page",
    Ended.CPU_SECONDS: "its rules computed for too long: see budget.cpu_seconds",
    Ended.MEMORY_BYTES: "its rules needed more memory than the sandbox has: see budget.memory_bytes",
    Ended.SCRATCH_BYTES: "its scratch store is full: see budget.scratch_bytes",
    Ended.FACTS: "its rules made too many facts: see budget.facts",
    Ended.VIOLATION: "it attempted something that the sandbox forbids",
    Ended.CRASH: "its rule engine crashed",
    Ended.RULES: "its rules are invalid",
}


class Display:
    """Shows how a run goes; this one prints nothing, unless not one page could be fetched."""

    seconds = LINE_SECONDS

    def __init__(self, *, is_verbose: bool = False) -> None:
        self._is_verbose = is_verbose

    def warn(self, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        """What a changed errand means."""

    def tell(self, placement: Placement) -> None:
        """Where a visit is made, and why."""

    @contextmanager
    def showing(self, progress: Progress) -> Iterator[None]:
        with every(self.seconds, partial(self._show, progress, Meter())):
            yield

    def _show(self, progress: Progress, meter: "Meter") -> None:
        """Called at the interval while the crawl runs."""

    def wait_for(self, text: str) -> None:
        """Shows, after the run, what is still waited for; an empty text ends that."""

    def finish(self, summary: Summary, lines: list[str]) -> None:
        if summary.total_pages == 0:
            for line in lines[1:]:
                warn(line)


def choose_display(*, as_json: bool = False, quiet: bool = False, is_verbose: bool = False) -> Display:
    """JSON lines for scripts, a live table for a terminal, a line at intervals for a log."""
    if as_json:
        return JsonDisplay(is_verbose=is_verbose)
    if quiet:
        return Display()
    return (LiveDisplay if sys.stderr.isatty() else LineDisplay)(is_verbose=is_verbose)


class JsonDisplay(Display):
    """A JSON object at intervals; the last line is the summary."""

    seconds = JSON_SECONDS

    def warn(self, text: str) -> None:
        say_json({"warning": text})

    def note(self, text: str) -> None:
        say_json({"note": text})

    def tell(self, placement: Placement) -> None:
        if self._is_verbose:
            say_json({"visit": placement})

    def _show(self, progress: Progress, meter: "Meter") -> None:
        fields = {
            "pages": progress.usage.pages,
            "pending": progress.pending,
            "requests": progress.usage.requests,
            "bytes_received": progress.usage.bytes_received,
            "errors": sum(progress.usage.errors.values()),
            "sites": progress.sites,
            "active": progress.active,
            "away": len(progress.away),
        }
        say_json({"progress": fields | {"waiting": _waiting(progress)}})

    def wait_for(self, text: str) -> None:
        if text:
            say_json({"waiting": text})

    def finish(self, summary: Summary, lines: list[str]) -> None:
        say_json(summary)


class LineDisplay(Display):
    """Plain lines on stderr; the report on stdout."""

    _waited_at: float | None = None

    def warn(self, text: str) -> None:
        warn(text)

    def note(self, text: str) -> None:
        sys.stderr.write(harmless(text) + "\n")

    def tell(self, placement: Placement) -> None:
        if self._is_verbose:
            place = "at its host" if placement.place == "host" else "from here"
            sys.stderr.write(harmless(f"{placement.site}: {place} ({placement.reason})") + "\n")

    def _show(self, progress: Progress, meter: "Meter") -> None:
        fields = [f"{name} {value}" for name, value in _fields(progress, meter)]
        sys.stderr.write(harmless("  ".join([*fields, *_waiting(progress)])) + "\n")

    def wait_for(self, text: str) -> None:
        if not text:
            return
        now = time.monotonic()
        if self._waited_at is None:
            self._waited_at = now  # most waits are too short for a line
        elif now - self._waited_at >= LINE_SECONDS:
            self._waited_at = now
            sys.stderr.write(harmless(runnable(text)) + "\n")

    def finish(self, summary: Summary, lines: list[str]) -> None:
        say(*lines)


class LiveDisplay(LineDisplay):
    """A table that is updated in place."""

    @contextmanager
    def showing(self, progress: Progress) -> Iterator[None]:
        # rich takes as long to load as the rest of the command, and a script never sees it.
        from rich.console import Console, Group  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        meter = Meter()
        console = Console(stderr=True)

        def table() -> "Group":
            grid = Table.grid(padding=(0, 2))
            fields = _fields(progress, meter)
            for _ in fields:
                grid.add_column(justify="right")
            grid.add_row(*(f"[dim]{name}[/]" for name, _ in fields))
            grid.add_row(*(value for _, value in fields))
            return Group(grid, *map(Text, filter(None, [progress.note, *map(harmless, _waiting(progress))])))

        with Live(get_renderable=table, console=console, refresh_per_second=4, transient=True):
            yield

    def wait_for(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[2K{harmless(runnable(text))[:width]}")
        sys.stderr.flush()


class Meter:
    """Pages a second over the last seconds."""

    def __init__(self) -> None:
        self._points = deque([(time.monotonic(), 0)])  # the first line has a rate too

    def rate(self, pages: int) -> float:
        now = time.monotonic()
        self._points.append((now, pages))
        while len(self._points) > 2 and now - self._points[0][0] > RATE_SECONDS:
            self._points.popleft()
        began, before = self._points[0]
        return (pages - before) / (now - began) if now > began else 0.0


def _fields(progress: Progress, meter: Meter) -> list[tuple[str, str]]:
    rate = meter.rate(progress.usage.pages)
    # An estimate: links that are not found yet do not count.
    left = progress.pending
    if progress.max_pages is not None:
        left = min(left, progress.max_pages - progress.total_pages)
    return [
        ("pages", f"{progress.usage.pages:,}"),
        ("a second", f"{rate:,.1f}"),
        ("sites", f"{progress.active:,}/{progress.sites:,}"),
        *([("away", f"{len(progress.away):,}")] if progress.has_sent else []),
        ("queue", f"{progress.pending:,}"),
        ("received", bytes_text(progress.usage.bytes_received)),
        ("errors", f"{sum(progress.usage.errors.values()):,}"),
        ("time left", duration_text(left / rate) if rate and left > 0 else "-"),
    ]


def _waiting(progress: Progress) -> list[str]:
    """Which site waits for long, and why; how many more do."""
    waits = progress.notices.waiting(time.time())
    words = [f"waiting: {site} {each.why}, until {date_text(each.until)}" for site, each in waits.items()]
    return words if len(words) < 2 else [f"{words[0]}, and {plural(len(words) - 1, 'more site')}"]


# -- after the run -----------------------------------------------------------------------------------------


_ODD = {
    "redirect_loop": "only redirected in a circle; if the site wants a login or consent: --cookies FILE",
    "scripts": "showed nothing without scripts, which are not run here; look for a sitemap, a feed or an API",
    "empty": "had neither text nor links; see which: {which}",
    "cut": "came only in part; to fetch them again: --refresh 0",
    "damaged": "could be decompressed only in part; to fetch them again: --refresh 0",
}


def report(summary: Summary, collection: CollectionFolder) -> list[str]:
    folder = collection.folder
    lines = [
        f"{plural(summary.pages, 'page')} in {duration_text(summary.seconds)}"
        f" ({summary.pages_per_second:,.1f} a second),"
        f" {bytes_text(summary.bytes_received)} received, {plural(summary.sites, 'site')} -> {folder}"
    ]
    if summary.kept < summary.pages:
        lines.append(_unwanted(summary))
    if summary.rows:
        lines.append(f"{plural(summary.rows, 'fact')} sent home by its rules")
    if summary.unchanged:
        lines.append(f"{_of_them(summary.unchanged)} unchanged since the last visit")
    if summary.left_out:
        lines.append(f"{plural(summary.left_out, 'link')} left out by --include, --exclude or --subtree")
    if trips := summary.visits.get("host", 0):
        saved = summary.saved
        lines.append(
            f"{plural(trips, 'visit')} made at hosts: {bytes_text(saved.crossed)} crossed the network,"
            f" {bytes_text(saved.fetched)} were read there"
        )
    if summary.checked:
        lines.append(f"{plural(summary.checked, 'page')} of theirs fetched from here too, to check them")
    if summary.requisites:
        lines.append(
            f"{plural(summary.requisites, 'image')}, styles, scripts and fonts of pages fetched too,"
            f" {bytes_text(summary.requisite_bytes)} of what was received"
        )
    if summary.errors:
        lines.append(_errors(summary))
    if "private_address" in summary.errors:
        lines.append("sites in private networks were not visited; to visit them: --allow-private")
    lines += _odd_pages(summary, folder)
    if summary.ended in LIMITS:
        reason = f"its limit of {summary.ended} is reached"
        if not summary.has_own_limit:
            reason = _ENDS.get(Ended(summary.ended), f"a host's limit of {summary.ended} is reached")
        lines.append(f"the crawler was ended: {reason}")
    lines += _what_is_left(summary, collection)
    if summary.total_pages:
        example = command("query", folder, "SELECT url, title FROM page LIMIT 10")
        lines.append(f"look at it: {example}")
    return lines


def why_nothing(summary: Summary, collection: CollectionFolder, passed_over: str = "") -> list[str]:
    """Why a question has no row; `passed_over` says in words which URLs it did not fetch."""
    if not summary.pages:
        lines = ["no row: not one page could be read"]
    elif not summary.kept:
        lines = [f"no row: {plural(summary.pages, 'page')} read, none of them wanted{_unmet(summary)}"]
    else:
        met = f"{summary.kept:,} of {plural(summary.pages, 'page')} met what is checked there"
        lines = [f"no row: {met}, but none of them gives a row{_unmet(summary)}"]
    if passed_over:
        lines.append(f"not fetched: pages for which {passed_over}")
    if summary.errors:
        lines.append(_errors(summary))
    if summary.ended == "limit":
        lines.append(f"the limit of pages is reached with {_to_go(summary)}: --max-pages N")
    return lines + ([] if summary.pages else _troubled_sites(collection))


def _of_them(count: int) -> str:
    return f"{count:,} of them {'was' if count == 1 else 'were'}"


def _unwanted(summary: Summary) -> str:
    """How many pages were not wanted, of those that were judged: an unchanged one was judged before."""
    count, came = summary.pages - summary.kept, summary.pages - summary.unchanged
    of = f"the {came:,} that came anew" if summary.unchanged and count <= came else f"{summary.pages:,}"
    return f"{count:,} of {of} {'was' if count == 1 else 'were'} not wanted{_unmet(summary)}"


def _unmet(summary: Summary) -> str:
    """The conditions that pages failed, each with their number; a page may fail several."""
    told = [f"{words} ({count:,})" for words, count in summary.unmet.items()]
    return f"; failed: {', '.join(told)}" if told else ""


def _to_go(summary: Summary) -> str:
    return f"{plural(summary.pending, 'URL')} to go"


def _errors(summary: Summary) -> str:
    return "errors: " + ", ".join(f"{kind} {count:,}" for kind, count in summary.errors.items())


def _odd_pages(summary: Summary, folder: Path) -> list[str]:
    """A line for each kind of page that came without what its visitors see, with what to do."""
    counts = Counter(summary.notes)
    counts["redirect_loop"] += summary.errors.get("redirect_loop", 0)
    which = command("query", folder, "SELECT url FROM page WHERE note = 'empty'")
    told = ((counts[kind], words.replace("{which}", which)) for kind, words in _ODD.items())
    return [f"{plural(count, 'page')} {words}" for count, words in told if count]


def _what_is_left(summary: Summary, collection: CollectionFolder) -> list[str]:
    again = command("crawl", "--into", collection.folder)
    if summary.ended == "stopped":
        return [f"stopped cleanly with {_to_go(summary)}; continue with: {again}"]
    if summary.ended in ("limit", "pages"):
        return [f"the limit is reached with {_to_go(summary)}; for more: {again} --max-pages N"]
    if summary.ended == "waiting":
        return [
            *_troubled_sites(collection),
            f"continue at that time with: {again}",
            f"to ask at once: {again} --retry",
        ]
    if summary.total_pages == 0:
        troubled = _troubled_sites(collection)
        return [*troubled, f"to ask again: {again} --retry"] if troubled else []
    if summary.pages == 0:
        return [f"nothing was left to do; to visit the pages again: {again} --refresh 1d"]
    return []


def _troubled_sites(collection: CollectionFolder) -> list[str]:
    """The sites that the crawl waits for, or has given up."""
    with collection.open_ledger() as ledger:
        rows = [row for row in ledger.site_rows() if row.next_turn or row.robots == "disqualified"]
        pauses = pauses_of(ledger)
    lines = []
    for row in rows[:MAX_SITES]:
        state = "is given up"
        if row.next_turn is not None:
            state = f"may be visited again at {date_text(row.next_turn)}"
        cause = f": it {pauses[row.site].why}" if row.site in pauses else ""
        if row.robots == "disqualified":
            cause = f": its robots.txt {_fault(row)}"
        lines.append(harmless(f"{row.site} {state}{cause}"))
    if len(rows) > MAX_SITES:
        lines.append(f"and {len(rows) - MAX_SITES:,} more sites: {command('status', collection.folder)}")
    return lines


def _fault(row: SiteRow) -> str:
    """Why a robots.txt is not known."""
    what = "was refused" if row.reason.startswith("HTTP 4") else "could not be fetched"
    hint = ""
    if "wrong version number" in row.reason and row.site.startswith("https://"):
        hint = f"; the server may speak plain HTTP: write {row.site.replace('https', 'http', 1)}/"
    return f"{what} ({row.reason}){hint}"
