"""The words after a run: what it did, what is left, how to go on."""

import time

from sterna.cli.numbers import bytes_text, duration_text, plural
from sterna.home.folder import Collection
from sterna.home.ledger.interface import SiteRow
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.progress import Summary
from sterna.model import LIMITS, Ended
from sterna.query.terminal import harmless

MAX_SITES = 5
_ENDS = {
    Ended.VIOLATION: "it tried what its jail forbids",
    Ended.CRASH: "its engine died",
    Ended.RULES: "its rules cannot be run",
}


def report(summary: Summary, collection: Collection) -> list[str]:
    """A few lines for a person."""
    folder = collection.folder
    lines = [
        f"{summary.pages:,} pages in {duration_text(summary.seconds)}"
        f" ({summary.pages_per_second:,.1f} a second),"
        f" {bytes_text(summary.bytes_received)} received, {plural(summary.sites, 'site')} -> {folder}"
    ]
    if summary.kept < summary.pages:
        lines.append(f"{summary.kept:,} of them were wanted")
    if summary.rows:
        lines.append(f"{plural(summary.rows, 'fact')} sent home by its rules")
    if summary.unchanged:
        lines.append(f"{summary.unchanged:,} of them were unchanged since the last visit")
    if trips := summary.visits.get("host", 0):
        saved = summary.saved
        lines.append(
            f"{plural(trips, 'visit')} made at hosts: {bytes_text(saved.crossed)} crossed the network,"
            f" {bytes_text(saved.fetched)} were read there"
        )
    if summary.checked:
        lines.append(f"{plural(summary.checked, 'page')} of theirs fetched from here too, to check them")
    if summary.errors:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in summary.errors.items())
        lines.append(f"errors: {kinds}")
    if "private_address" in summary.errors:
        lines.append("sites in private networks were left alone; to visit them too: --allow-private")
    if summary.ended in LIMITS:
        reason = _ENDS.get(Ended(summary.ended), f"its limit of {summary.ended} is reached")
        lines.append(f"the crawler was ended: {reason}")
    lines += _what_is_left(summary, collection)
    if summary.total_pages:
        example = '"SELECT url, title FROM page LIMIT 10"'
        lines.append(f"look at it: sterna query {folder} {example}")
    return lines


def _what_is_left(summary: Summary, collection: Collection) -> list[str]:
    again = f"sterna crawl --into {collection.folder}"
    if summary.ended == "stopped":
        return [f"stopped cleanly with {summary.pending:,} URLs to go; go on with: {again}"]
    if summary.ended in ("limit", "pages"):
        return [f"the limit is reached with {summary.pending:,} URLs to go; for more: {again} --max-pages N"]
    if summary.ended == "waiting":
        return [*_troubled_sites(collection), f"go on when their time has come, with: {again}"]
    if summary.total_pages == 0:
        return _troubled_sites(collection)
    if summary.pages == 0:
        return [f"nothing was left to do; to visit the pages again: {again} --refresh 1d"]
    return []


def _troubled_sites(collection: Collection) -> list[str]:
    """The sites that keep the crawl waiting, or that it had to give up."""
    ledger = SqliteLedger(collection.ledger_path, is_reader=True)
    try:
        rows = [row for row in ledger.site_rows() if row.next_turn or row.robots == "disqualified"]
    finally:
        ledger.close()
    lines = [harmless(_trouble(row)) for row in rows[:MAX_SITES]]
    if len(rows) > MAX_SITES:
        lines.append(f"and {len(rows) - MAX_SITES:,} more sites: sterna status {collection.folder}")
    return lines


def _trouble(row: SiteRow) -> str:
    cause = f": its robots.txt is not to be had ({row.reason})" if row.robots == "disqualified" else ""
    if row.next_turn is None:
        return f"{row.site} is given up{cause}"
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.next_turn))
    return f"{row.site} may be visited again at {when}{cause}"
