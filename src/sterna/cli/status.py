"""`sterna status`: where a crawl stands."""

import time

from msgspec.structs import asdict

from sterna.cli.confinement import keep_to
from sterna.cli.flags import FolderArgument, JsonOption
from sterna.cli.lines import bytes_text, plural, say, say_json
from sterna.errors import command
from sterna.home.away.place import stop_words
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import OwnerRow
from sterna.query.terminal import harmless

MAX_SITES = 20
MAX_PATHS = 10  # closed ones that are shown of a site


def status(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Show where a crawl stands; it may be running."""
    keep_to(folder)
    from sterna.api.status import status as status_of  # noqa: PLC0415 - it loads Arrow

    found = status_of(CollectionFolder(folder))
    if as_json:
        sites = [asdict(row) for row in found.sites]
        owners = [asdict(row) for row in found.owners]
        say_json(
            {
                "collection": str(folder),
                **asdict(found.counts),
                "index": found.index,
                "site_rows": sites,
                "owner_rows": owners,
            }
        )
        return
    counts, index = found.counts, found.index
    say(
        f"{folder}: {plural(counts.pages, 'page')} of {plural(counts.sites, 'site')},"
        f" {plural(counts.pending, 'URL')} to go",
        f"  {plural(counts.requests, 'request')}, {bytes_text(counts.bytes_received)} received,"
        f" {plural(counts.visits, 'visit')}, {counts.leased:,} under way,"
        f" {plural(counts.waiting_sites, 'site')} waiting",
    )
    if counts.requisites:
        received = bytes_text(counts.requisite_bytes)
        say(f"  {counts.requisites:,} images, styles, scripts and fonts of pages, {received} of it")
    if counts.away:
        say(f"  {plural(counts.away, 'crawler')} away at hosts: {command('crawlers', folder)}")
    for owner in found.owners:
        say(*owner_lines(owner, now=time.time()))
    if counts.errors:
        say("  errors: " + ", ".join(f"{kind} {count:,}" for kind, count in counts.errors.items()))
    if index.trouble:
        say(f"  {index.trouble}")
    elif not index.is_there:
        say(f"  no search index: {command('index', folder)}")
    elif index.pages_left:
        say(f"  search index: {plural(index.pages_left, 'page')} left: {command('index', folder)}")
    else:
        say(f"  search index: up to date: {command('search', folder, 'WORDS')}")
    if found.has_storage:
        say(f"  storage rules: {command('storage', 'status', folder)}")
    for row in sorted(found.sites, key=lambda row: -row.pages)[:MAX_SITES]:
        robots = "" if row.robots != "disqualified" else f", disqualified: {row.reason}"
        say(f"  {row.pages:>9,} pages  {row.errors:>6,} errors  {row.site}{robots}")
    if len(found.sites) > MAX_SITES:
        say(f"  ... and {len(found.sites) - MAX_SITES:,} smaller sites")


def owner_lines(owner: OwnerRow, *, now: float) -> list[str]:
    """What the owner of a site asked for, as far as it still holds."""
    lines = []
    if owner.until > now:
        lines.append(f"  {stop_words(owner.site, harmless(owner.reason), owner.until)}")
    if owner.closed_until > now and (paths := owner.closed.splitlines()):
        more = f" and {len(paths) - MAX_PATHS} more" if len(paths) > MAX_PATHS else ""
        lines.append(f"  closed by the owner of {owner.site}: {harmless(' '.join(paths[:MAX_PATHS]))}{more}")
    return lines
