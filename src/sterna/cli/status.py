"""`sterna status`: where a crawl stands."""

import sys
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from sterna.cli.numbers import bytes_text, plural
from sterna.home.collection import Collection
from sterna.home.ledger import Counts, SiteRow
from sterna.home.sqlite.ledger import SqliteLedger
from sterna.query.terminal import harmless

MAX_SITES = 20


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The collection.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Tell where a crawl stands; it may be running."""
    collection = Collection(folder)
    collection.check()
    ledger = SqliteLedger(collection.ledger_path, is_reader=True)
    try:
        counts, sites = ledger.counts(now=time.time()), ledger.site_rows()
    finally:
        ledger.close()
    if as_json:
        counts_json = {name: getattr(counts, name) for name in counts.__struct_fields__}
        sites_json = [{name: getattr(row, name) for name in row.__struct_fields__} for row in sites]
        answer = {"collection": str(folder), **counts_json, "site_rows": sites_json}
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    else:
        sys.stdout.write("\n".join(_lines(folder, counts, sites)) + "\n")


def _lines(folder: Path, counts: Counts, sites: list[SiteRow]) -> list[str]:
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
    largest = sorted(sites, key=lambda row: -row.pages)[:MAX_SITES]
    for row in largest:
        robots = "" if row.robots != "disqualified" else f", disqualified: {row.reason}"
        lines.append(harmless(f"  {row.pages:>9,} pages  {row.errors:>6,} errors  {row.site}{robots}"))
    if len(sites) > MAX_SITES:
        lines.append(f"  ... and {len(sites) - MAX_SITES:,} smaller sites")
    return lines
