"""`sterna status`: where a crawl stands."""

from msgspec.structs import asdict

from sterna.api.status import status as status_of
from sterna.cli.flags import FolderArgument, JsonOption
from sterna.cli.lines import bytes_text, plural, say, say_json
from sterna.home.folder import CollectionFolder

MAX_SITES = 20


def status(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Show where a crawl stands; it may be running."""
    found = status_of(CollectionFolder(folder))
    if as_json:
        sites = [asdict(row) for row in found.sites]
        say_json(
            {"collection": str(folder), **asdict(found.counts), "index": found.index, "site_rows": sites}
        )
        return
    counts, index = found.counts, found.index
    say(
        f"{folder}: {counts.pages:,} pages of {plural(counts.sites, 'site')}, {counts.pending:,} URLs to go",
        f"  {counts.requests:,} requests, {bytes_text(counts.bytes_received)} received,"
        f" {plural(counts.visits, 'visit')}, {counts.leased:,} under way,"
        f" {counts.waiting_sites:,} sites waiting",
    )
    if counts.away:
        say(f"  {plural(counts.away, 'crawler')} away at hosts: sterna crawlers {folder}")
    if counts.errors:
        say("  errors: " + ", ".join(f"{kind} {count:,}" for kind, count in counts.errors.items()))
    if index.trouble:
        say(f"  {index.trouble}")
    elif not index.is_there:
        say(f"  no search index: sterna index {folder}")
    elif index.pages_left:
        say(f"  search index: {plural(index.pages_left, 'page')} left: sterna index {folder}")
    else:
        say(f"  search index: up to date: sterna search {folder} WORDS")
    if found.has_storage:
        say(f"  storage rules: sterna storage status {folder}")
    for row in sorted(found.sites, key=lambda row: -row.pages)[:MAX_SITES]:
        robots = "" if row.robots != "disqualified" else f", disqualified: {row.reason}"
        say(f"  {row.pages:>9,} pages  {row.errors:>6,} errors  {row.site}{robots}")
    if len(found.sites) > MAX_SITES:
        say(f"  ... and {len(found.sites) - MAX_SITES:,} smaller sites")
