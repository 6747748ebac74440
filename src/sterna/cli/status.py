"""`sterna status`: where a crawl stands."""

import sys
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from sterna.cli.numbers import bytes_text, plural
from sterna.errors import IndexUnusable
from sterna.home.folder import Collection
from sterna.home.ledger.interface import Counts, SiteRow
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.snapshots import take
from sterna.query.terminal import harmless

MAX_SITES = 20


class Indexed(msgspec.Struct, frozen=True, kw_only=True):
    """How far the search index is."""

    is_there: bool = True
    pages_left: int = 0  # that came in and cannot be found yet
    trouble: str = ""


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
    indexed = _indexed(collection)
    if as_json:
        counts_json = {name: getattr(counts, name) for name in counts.__struct_fields__}
        sites_json = [{name: getattr(row, name) for name in row.__struct_fields__} for row in sites]
        answer = {"collection": str(folder), **counts_json, "index": indexed, "site_rows": sites_json}
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    else:
        lines = [*_lines(folder, counts), *_following(collection, indexed), *_site_lines(sites)]
        sys.stdout.write("\n".join(lines) + "\n")


def _indexed(collection: Collection) -> Indexed:
    if not collection.index_folder.exists():
        return Indexed(is_there=False)
    # They take a while to load, and few collections are asked without having been indexed.
    from sterna.archive.arrivals import count  # noqa: PLC0415
    from sterna.search.generations import read_position  # noqa: PLC0415

    try:
        position = read_position(collection.index_folder)
    except IndexUnusable as error:
        return Indexed(trouble=str(error))
    if position is None:
        return Indexed(is_there=False)
    snapshot = take(collection)
    return Indexed(pages_left=count(snapshot.tables["page"], after=position, upto=snapshot.batch))


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


def _following(collection: Collection, indexed: Indexed) -> list[str]:
    """What is done with the pages besides keeping them."""
    folder = collection.folder
    if indexed.trouble:
        lines = [f"  {indexed.trouble}"]
    elif not indexed.is_there:
        lines = [f"  no search index: sterna index {folder}"]
    elif indexed.pages_left:
        lines = [f"  search index: {plural(indexed.pages_left, 'page')} left: sterna index {folder}"]
    else:
        lines = [f"  search index: up to date: sterna search {folder} WORDS"]
    if collection.storage_path.exists():
        lines.append(f"  storage rules: sterna storage status {folder}")
    return lines


def _site_lines(sites: list[SiteRow]) -> list[str]:
    lines = []
    for row in sorted(sites, key=lambda row: -row.pages)[:MAX_SITES]:
        robots = "" if row.robots != "disqualified" else f", disqualified: {row.reason}"
        lines.append(harmless(f"  {row.pages:>9,} pages  {row.errors:>6,} errors  {row.site}{robots}"))
    if len(sites) > MAX_SITES:
        lines.append(f"  ... and {len(sites) - MAX_SITES:,} smaller sites")
    return lines
