"""`sterna trust`: how far the hosts of sites are trusted, and why."""

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from sterna.cli.lines import fields_of, plural, say, say_json
from sterna.errors import UsageError
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import SampleRow, TrustRow
from sterna.trust.judgement import BAD, Judgement
from sterna.trust.sampling import sample_count
from sterna.trust.score import Score, belief
from sterna.web.urls import Canonical, site_of

SHOWN = 20
LARGE = 10_000  # pages: of a visit this large only the host's score determines how many are checked

app = typer.Typer(
    help="Show how far the hosts of sites are trusted, and forget it.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="The collection.")]
SiteArgument = Annotated[
    str, typer.Argument(metavar="SITE", help="The site, such as https://www.example.org.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object.")]


@app.command("list")
def show_all(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """List the hosts that were checked."""
    collection = CollectionFolder(folder)
    collection.check()
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
    origin, collection = _origin(site), CollectionFolder(folder)
    collection.check()
    with collection.open_ledger() as ledger:
        row, samples = ledger.trust.row(origin), ledger.trust.samples(origin)
    if row is None:
        raise UsageError(_unknown(folder, origin))
    now = time.time()
    if as_json:
        say_json({**_fields(row, now), "samples": [fields_of(each) for each in samples]})
        return
    say(_line(row, now), *_about(row, samples, now), *map(_sample_line, _most_telling(samples)))
    if len(samples) > SHOWN:
        say(f"  ... and {len(samples) - SHOWN:,} more: --json shows them all")


@app.command()
def reset(folder: FolderArgument, site: SiteArgument) -> None:
    """Forget what is known of a host, which counts as unknown again."""
    origin, collection = _origin(site), CollectionFolder(folder)
    collection.check()
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
    return f"no host of {origin} was checked: sterna trust list {folder} lists them"


def _line(row: TrustRow, now: float) -> str:
    of = belief(Score(row.good, row.bad, row.at), now)
    if row.until > now:
        word = f"lied; left alone until {_date(row.until)}"
    elif of.is_trusted:
        word = "trusted"
    else:
        word = "results wait until they are checked"
    return f"  {of.mean:>6.1%} true, at least {of.lower:>6.1%}  {row.site}  {word}"


def _about(row: TrustRow, samples: list[SampleRow], now: float) -> list[str]:
    of = belief(Score(row.good, row.bad, row.at), now)
    verdicts = Counter(each.verdict for each in samples)
    counted = ", ".join(f"{verdicts[each]:,} {each}" for each in Judgement if verdicts[each])
    return [
        f"  key {row.key}",
        f"  {plural(len(samples), 'page')} checked, the last on {_date(row.at)}: {counted}",
        f"  of a large visit {plural(sample_count(of, LARGE), 'page')} would be checked now",
    ]


def _most_telling(samples: Iterable[SampleRow]) -> list[SampleRow]:
    """Samples against the host first, and the latest first among equals."""
    return sorted(samples, key=lambda each: each.verdict not in BAD)[:SHOWN]


def _sample_line(row: SampleRow) -> str:
    return f"  {_date(row.at)}  {row.verdict:<8}  {row.url}" + (f"  {row.detail}" if row.detail else "")


def _fields(row: TrustRow, now: float) -> dict[str, object]:
    of = belief(Score(row.good, row.bad, row.at), now)
    return {**fields_of(row), "mean": of.mean, "lower": of.lower, "is_trusted": of.is_trusted}


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
