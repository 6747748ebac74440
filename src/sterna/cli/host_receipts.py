"""`sterna host receipts`: what visits cost and spared by home and day; the access log before and after."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from sterna.cli.flags import JsonOption, option
from sterna.cli.host_options import OwnSiteOption, OwnStateOption
from sterna.cli.host_owner import folder_of
from sterna.cli.lines import bytes_text, columns, plural, say, say_json
from sterna.export.workbench import whole_file
from sterna.host.owner.access_log import LogCount, read_logs
from sterna.host.owner.receipts import Book, Total, by_home, by_home_and_day, read_book, total_of
from sterna.host.owner.savings import Comparison, DayOf, Traffic, compare, days_of, svg_of, text_of

SVG_DAYS = 60  # to each side
_HEADS = ("home", "day", "visits", "signed", "pages", "requests", "read", "sent", "CPU", "spared", "")
_RIGHT = [number for number, head in enumerate(_HEADS) if head not in ("home", "day", "signed")]


def receipts(
    state: OwnStateOption = None,
    site: OwnSiteOption = "",
    log: Annotated[
        list[Path] | None, option("FILE", "An access log of the web server, .gz too; repeatable.")
    ] = None,
    here: Annotated[
        list[str] | None,
        option("ADDRESS", "The address from which the host asks the web server, if not this machine."),
    ] = None,
    svg: Annotated[Path | None, option("FILE", "Draw the before and after into this file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Sum up the receipts of visits by home and day: what they cost, what they spared, and who signed.

    With the web server's access log it shows what each home's crawler asked for before and after its first
    visit at the host.
    """
    book, day_of = read_book(folder_of(state, site)), days_of(None)
    traffic = Traffic((kept.agent for kept in book.rows if kept.agent), day_of, here=here or [])
    count = read_logs(log or [], traffic.add, now=time.time())
    if svg:
        drawn = compare(traffic, book.rows, day_of, some_days=SVG_DAYS)
        own_site = book.rows[-1].receipt.site if book.rows else ""
        with whole_file(svg, stdout=sys.stdout.buffer) as file:
            file.write(svg_of(drawn, own_site).encode())
    comparisons = compare(traffic, book.rows, day_of)
    if not as_json:
        say(*_sums(book, day_of), *_log_lines(comparisons, count, traffic))
        return
    fields = {
        "total": total_of(book.rows),
        "homes": by_home(book.rows),
        "days": by_home_and_day(book.rows, day_of),
        "bad_lines": book.bad_lines,
        "comparisons": comparisons,
        "log": {"lines": count.lines, "bad_lines": count.bad_lines, "remarks": _remarks(count, traffic)},
    }
    say_json(fields)


def _sums(book: Book, day_of: DayOf) -> list[str]:
    lines = ["no receipts yet: they come with the first visit"]
    if book.rows:
        totals = by_home_and_day(book.rows, day_of)
        if len({kept.receipt.home for kept in book.rows}) > 1:
            totals += by_home(book.rows)
        rows = [(each.home, str(each.day or "all days"), *_cells(each.total)) for each in totals]
        lines = columns([_HEADS, *rows, ("all", "", *_cells(total_of(book.rows)))], right=_RIGHT)
    if book.bad_lines:
        lines.append(f"{plural(book.bad_lines, 'line')} of the file unreadable or changed")
    return lines


def _cells(total: Total) -> tuple[str, ...]:
    signed = "both" if total.countersigned == total.visits else f"{total.countersigned:,} by both"
    return (
        f"{total.visits:,}",
        signed,
        f"{total.pages:,}",
        f"{total.requests:,}",
        bytes_text(total.read_bytes),
        bytes_text(total.sent_bytes),
        f"{total.cpu_seconds:.1f} s",
        f"{total.spared_requests:,} requests",
        bytes_text(total.spared_bytes),
    )


def _log_lines(comparisons: Sequence[Comparison], count: LogCount, traffic: Traffic) -> list[str]:
    if not count.lines and not count.broken:
        return []
    has_blocks = sys.stdout.isatty() and (sys.stdout.encoding or "").lower().startswith("utf")
    lines = [""]
    for each in comparisons:
        lines += [*text_of(each, has_blocks=has_blocks), ""]
    passed = f", {count.bad_lines:,} passed over" if count.bad_lines else ""
    lines.append(f"log: {plural(count.lines, 'line')}{passed}")
    return [*lines, *_remarks(count, traffic)]


def _remarks(count: LogCount, traffic: Traffic) -> list[str]:
    """What the comparison cannot show."""
    lines = [f"log: {text}" for text in count.broken]
    if traffic.local_requests:
        lines.append(f"log: {traffic.local_requests:,} requests by the host and crawlers at it: not counted")
    if traffic.days and not traffic.has_agents:
        lines.append("log: no user agents: use the combined format")
    if traffic.days and not traffic.has_outsiders:
        lines.append("log: all requests come from this machine: is it the log of a server behind a proxy?")
    return lines
