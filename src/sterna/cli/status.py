"""`sterna status`: where a crawl stands."""

from pathlib import Path
from typing import Annotated

import typer

from sterna.api.search import IndexState
from sterna.api.status import status as status_of
from sterna.cli.lines import bytes_text, fields_of, plural, say, say_json
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import Counts, SiteRow

MAX_SITES = 20


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The collection.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show where a crawl stands; it may be running."""
    found = status_of(CollectionFolder(folder))
    if as_json:
        sites = [fields_of(row) for row in found.sites]
        say_json(
            {"collection": str(folder), **fields_of(found.counts), "index": found.index, "site_rows": sites}
        )
        return
    say(*_lines(folder, found.counts), _index_line(folder, found.index))
    if found.has_storage:
        say(f"  storage rules: sterna storage status {folder}")
    say(*_site_lines(found.sites))


def _lines(folder: Path, counts: Counts) -> list[str]:
    lines = [
        f"{folder}: {counts.pages:,} pages of {plural(counts.sites, 'site')}, {counts.pending:,} URLs to go",
        f"  {counts.requests:,} requests, {bytes_text(counts.bytes_received)} received,"
        f" {plural(counts.visits, 'visit')}, {counts.leased:,} under way,"
        f" {counts.waiting_sites:,} sites waiting",
    ]
    if counts.away:
        lines.append(f"  {plural(counts.away, 'crawler')} away at hosts: sterna crawlers {folder}")
    if counts.errors:
        lines.append("  errors: " + ", ".join(f"{kind} {count:,}" for kind, count in counts.errors.items()))
    return lines


def _index_line(folder: Path, index: IndexState) -> str:
    if index.trouble:
        return f"  {index.trouble}"
    if not index.is_there:
        return f"  no search index: sterna index {folder}"
    if index.pages_left:
        return f"  search index: {plural(index.pages_left, 'page')} left: sterna index {folder}"
    return f"  search index: up to date: sterna search {folder} WORDS"


def _site_lines(sites: tuple[SiteRow, ...]) -> list[str]:
    lines = []
    for row in sorted(sites, key=lambda row: -row.pages)[:MAX_SITES]:
        robots = "" if row.robots != "disqualified" else f", disqualified: {row.reason}"
        lines.append(f"  {row.pages:>9,} pages  {row.errors:>6,} errors  {row.site}{robots}")
    if len(sites) > MAX_SITES:
        lines.append(f"  ... and {len(sites) - MAX_SITES:,} smaller sites")
    return lines
