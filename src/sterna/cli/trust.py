"""`sterna trust`: how far the hosts of sites are trusted, and why."""

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

from msgspec.structs import asdict

from sterna.cli.flags import FolderArgument, JsonOption, argument, command_group
from sterna.cli.lines import date_text, plural, say, say_json
from sterna.errors import UsageError, command
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import TrustRow
from sterna.trust.judgement import BAD, Judgement
from sterna.trust.sampling import sample_count
from sterna.trust.score import Score, belief
from sterna.web.urls import Canonical, site_of

SHOWN = 20
LARGE = 10_000  # pages: of a visit this large only the host's score determines how many are checked

app = command_group("Show how far the hosts of sites are trusted, and forget it.")

SiteArgument = Annotated[str, argument("SITE", "The site, such as https://www.example.org.")]


@app.command("list")
def show_all(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """List the hosts that were checked."""
    collection = CollectionFolder(folder).check()
    with collection.open_ledger() as ledger:
        rows = ledger.trust.rows()
    now = time.time()
    if as_json:
        say_json({"collection": str(folder), "hosts": [_fields(row, now) for row in rows]})
        return
    say(f"{folder}: {plural(len(rows), 'host')} checked", *(_line(row, now) for row in rows))


@app.command()
def show(folder: FolderArgument, site: SiteArgument, as_json: JsonOption = False) -> None:
    """Show how far a host is trusted, and the pages that were checked, the latest first."""
    origin, collection = _origin(site), CollectionFolder(folder).check()
    with collection.open_ledger() as ledger:
        row, samples = ledger.trust.row(origin), ledger.trust.samples(origin)
    if row is None:
        raise UsageError(_unknown(folder, origin))
    now = time.time()
    if as_json:
        say_json({**_fields(row, now), "samples": [asdict(each) for each in samples]})
        return
    verdicts = Counter(each.verdict for each in samples)
    counted = ", ".join(f"{verdicts[each]:,} {each}" for each in Judgement if verdicts[each])
    to_check = sample_count(belief(Score(row.good, row.bad, row.at), now), LARGE)
    say(
        _line(row, now),
        f"  key {row.key}",
        f"  {plural(len(samples), 'page')} checked, the last on {date_text(row.at)}: {counted}",
        f"  of a large visit {plural(to_check, 'page')} would be checked now",
    )
    # Samples against the host first, and the latest first among equals.
    for each in sorted(samples, key=lambda each: each.verdict not in BAD)[:SHOWN]:
        detail = f"  {each.detail}" if each.detail else ""
        say(f"  {date_text(each.at)}  {each.verdict:<8}  {each.url}{detail}")
    if len(samples) > SHOWN:
        say(f"  ... and {len(samples) - SHOWN:,} more: --json shows them all")


@app.command()
def reset(folder: FolderArgument, site: SiteArgument) -> None:
    """Forget what is known of a host, which counts as unknown again."""
    origin, collection = _origin(site), CollectionFolder(folder).check()
    with collection.open_for_crawl(), collection.open_ledger(is_reader=False) as ledger:
        is_forgotten = ledger.trust.forget(origin)
    if not is_forgotten:
        raise UsageError(_unknown(folder, origin))
    say(f"{origin}: its host counts as unknown again")


def _origin(text: str) -> str:
    url = Canonical(())(text if "://" in text else f"https://{text}")
    if url is None:
        raise UsageError(f"{text!r} is not a site: write it like https://www.example.org")
    return site_of(url)


def _unknown(folder: Path, origin: str) -> str:
    return f"no host of {origin} was checked: {command('trust', 'list', folder)} lists them"


def _line(row: TrustRow, now: float) -> str:
    of = belief(Score(row.good, row.bad, row.at), now)
    if row.until > now:
        word = f"lied; left alone until {date_text(row.until)}"
    elif of.is_trusted:
        word = "trusted"
    else:
        word = "results wait until they are checked"
    return f"  {of.mean:>6.1%} true, at least {of.lower:>6.1%}  {row.site}  {word}"


def _fields(row: TrustRow, now: float) -> dict[str, object]:
    of = belief(Score(row.good, row.bad, row.at), now)
    return {**asdict(row), "mean": of.mean, "lower": of.lower, "is_trusted": of.is_trusted}
