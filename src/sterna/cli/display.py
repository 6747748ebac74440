"""What a person or a script sees while a crawl runs."""

import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec

from sterna.cli.numbers import bytes_text, duration_text
from sterna.cli.repeating import every
from sterna.home.away.place import Placement
from sterna.home.progress import Progress, Summary
from sterna.query.terminal import harmless

if TYPE_CHECKING:
    from rich.table import Table

RATE_SECONDS = 10.0
LINE_SECONDS = 10.0
JSON_SECONDS = 5.0


class Display(Protocol):
    """Shows how a run goes."""

    def warn(self, text: str) -> None: ...

    def tell(self, placement: Placement) -> None: ...

    def showing(self, progress: Progress) -> AbstractContextManager[None]: ...

    def wait_for(self, text: str) -> None:
        """Says, after the run, what is still waited for; nothing any more where the text is empty."""

    def finish(self, summary: Summary, lines: list[str]) -> None: ...


def choose_display(*, as_json: bool, quiet: bool, is_verbose: bool = False) -> Display:
    """JSON lines for scripts, a live table for a terminal, a line now and then for a log."""
    if as_json:
        return JsonDisplay(is_verbose=is_verbose)
    if quiet:
        return QuietDisplay()
    return (LiveDisplay if sys.stderr.isatty() else LineDisplay)(is_verbose=is_verbose)


class QuietDisplay:
    """Says nothing, unless not one page could be had."""

    def warn(self, text: str) -> None:
        pass

    def tell(self, placement: Placement) -> None:
        pass

    @contextmanager
    def showing(self, progress: Progress) -> Iterator[None]:
        yield

    def wait_for(self, text: str) -> None:
        pass

    def finish(self, summary: Summary, lines: list[str]) -> None:
        if summary.total_pages == 0:
            sys.stderr.write("".join(f"sterna: {line}\n" for line in lines[1:]))


class JsonDisplay(QuietDisplay):
    """A JSON object now and then; the last line is the summary."""

    def __init__(self, *, is_verbose: bool = False) -> None:
        self._is_verbose = is_verbose

    def warn(self, text: str) -> None:
        _write_json({"warning": text})

    def tell(self, placement: Placement) -> None:
        if self._is_verbose:
            _write_json({"visit": placement})

    @contextmanager
    def showing(self, progress: Progress) -> Iterator[None]:
        def show() -> None:
            _write_json(
                {"progress": {"pages": progress.pages, "pending": progress.pending, **_basics(progress)}}
            )

        with every(JSON_SECONDS, show):
            yield

    def wait_for(self, text: str) -> None:
        if text:
            _write_json({"waiting": text})

    def finish(self, summary: Summary, lines: list[str]) -> None:
        _write_json(summary)


class LineDisplay:
    """Plain lines on stderr; the report on stdout."""

    def __init__(self, *, is_verbose: bool = False) -> None:
        self._is_verbose = is_verbose
        self._waited_at: float | None = None

    def warn(self, text: str) -> None:
        sys.stderr.write(f"sterna: {harmless(text)}\n")

    def tell(self, placement: Placement) -> None:
        if self._is_verbose:
            place = "at its host" if placement.place == "host" else "from here"
            sys.stderr.write(harmless(f"{placement.site}: {place} ({placement.reason})") + "\n")

    @contextmanager
    def showing(self, progress: Progress) -> Iterator[None]:
        meter = Meter()

        def show() -> None:
            sys.stderr.write("  ".join(f"{name} {value}" for name, value in _fields(progress, meter)) + "\n")

        with every(LINE_SECONDS, show):
            yield

    def wait_for(self, text: str) -> None:
        if not text:
            return
        now = time.monotonic()
        if self._waited_at is None:
            self._waited_at = now  # most waits are over before a line is worth it
        elif now - self._waited_at >= LINE_SECONDS:
            self._waited_at = now
            sys.stderr.write(harmless(text) + "\n")

    def finish(self, summary: Summary, lines: list[str]) -> None:
        sys.stdout.write("\n".join(lines) + "\n")


class LiveDisplay(LineDisplay):
    """A table that renews itself."""

    @contextmanager
    def showing(self, progress: Progress) -> Iterator[None]:
        # It takes as long to load as the rest of the command, and a script never sees it.
        from rich.console import Console  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415

        meter = Meter()
        console = Console(stderr=True)

        def table() -> "Table":
            grid = Table.grid(padding=(0, 2))
            fields = _fields(progress, meter)
            for _ in fields:
                grid.add_column(justify="right")
            grid.add_row(*(f"[dim]{name}[/]" for name, _ in fields))
            grid.add_row(*(value for _, value in fields))
            grid.add_row(*([progress.note] if progress.note else []))
            return grid

        with Live(get_renderable=table, console=console, refresh_per_second=4, transient=True):
            yield

    def wait_for(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[2K{harmless(text)[:width]}")
        sys.stderr.flush()


class Meter:
    """Pages a second over the last seconds."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, int]] = deque()

    def rate(self, pages: int) -> float:
        now = time.monotonic()
        self._points.append((now, pages))
        while len(self._points) > 2 and now - self._points[0][0] > RATE_SECONDS:
            self._points.popleft()
        began, before = self._points[0]
        return (pages - before) / (now - began) if now > began else 0.0


def _fields(progress: Progress, meter: Meter) -> list[tuple[str, str]]:
    rate = meter.rate(progress.pages)
    return [
        ("pages", f"{progress.pages:,}"),
        ("a second", f"{rate:,.1f}"),
        ("sites", f"{progress.active:,}/{progress.sites:,}"),
        *([("away", f"{len(progress.away):,}")] if progress.has_sent else []),
        ("queue", f"{progress.pending:,}"),
        ("received", bytes_text(progress.bytes_received)),
        ("errors", f"{sum(progress.errors.values()):,}"),
        ("time left", _time_left(progress, rate)),
    ]


def _time_left(progress: Progress, rate: float) -> str:
    """From what is known to be left; links still to be found are not in it."""
    left = progress.pending
    if progress.max_pages is not None:
        left = min(left, progress.max_pages - progress.total_pages)
    return duration_text(left / rate) if rate and left > 0 else "-"


def _basics(progress: Progress) -> dict[str, int]:
    return {
        "requests": progress.requests,
        "bytes_received": progress.bytes_received,
        "errors": sum(progress.errors.values()),
        "sites": progress.sites,
        "active": progress.active,
        "away": len(progress.away),
    }


def _write_json(answer: object) -> None:
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    sys.stdout.flush()
