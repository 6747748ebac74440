"""`sterna crawlers`: those that were sent to hosts, and how to stop them from here."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import asdict

from sterna.api.away import ask_host, away_crawler, note_kill, owners_of, sent_crawlers, tell_hosts
from sterna.api.crawl import keyring_of
from sterna.cli.confinement import keep_to
from sterna.cli.flags import JsonOption, argument, option
from sterna.cli.lines import bytes_text, duration_text, say, say_json, warn
from sterna.cli.status import owner_lines
from sterna.errors import HostGone, UsageError, WireError
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import Out, OutboxRow
from sterna.host.keyring import Keyring
from sterna.query.terminal import Format
from sterna.wire.receipts import SignedReceipt

MEMORY_BYTES = 1_000_000_000  # of a query


def crawlers(
    words: Annotated[
        list[str],
        argument("[kill|query] DIR [VISIT] [SQL]", "The collection, and the crawler to stop or to query."),
    ],
    keys: Annotated[
        Path | None,
        option("DIR", "The folder of your keys. (default: the crawl's own)", envvar="STERNA_KEYS"),
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", "-f", help="Of query: how to write the rows.")
    ] = "table",
    as_json: JsonOption = False,
) -> None:
    """List the crawlers that were sent to hosts: away, returned and lost.

    `sterna crawlers kill DIR` stops those that are away, or the one that is named; a crawl may be running.
    What a crawler has brought is kept, and the next crawl continues from there.

    `sterna crawlers query DIR [VISIT] "SELECT url, title FROM page"` asks the host what a crawler holds: the
    tables page, link, fact, frontier and visit.
    """
    if words[0] == "query" and len(words) > 1:
        _query(words[1:], keys, form="jsonl" if as_json else form)
        return
    is_kill = words[0] == "kill" and len(words) > 1
    folder, *rest = words[1:] if is_kill else words
    if len(rest) > is_kill:
        raise UsageError("too many arguments: sterna crawlers DIR, or sterna crawlers kill DIR [VISIT]")
    collection = CollectionFolder(Path(folder)).check()
    if is_kill:
        away, options = note_kill(collection, rest[0] if rest else None)
        keyring = Keyring(keys.expanduser()) if keys else keyring_of(options)
        lines = asyncio.run(tell_hosts(away, options, keyring=keyring)) if away else ["no crawler is away"]
        answer: object = {"collection": folder, "killed": lines}
    else:
        rows, receipts = sent_crawlers(collection)
        lines = _lines(folder, rows, receipts, now=time.time())
        lines += [line for owner in owners_of(collection) for line in owner_lines(owner, now=time.time())]
        # The figures, and the bytes that prove them.
        shown = {
            visit: asdict(each.open()) | {"is_countersigned": bool(each.by_home), "signed": each.encode()}
            for visit, each in receipts.items()
        }
        answer = {"collection": folder, "crawlers": [asdict(row) for row in rows], "receipts": shown}
    if as_json:
        say_json(answer)
    else:
        say(*lines)


def _query(words: Sequence[str], keys: Path | None, *, form: Format) -> None:
    if not 2 <= len(words) <= 3:
        raise UsageError('write it as: sterna crawlers query DIR [VISIT] "SELECT ..."')
    folder, *visit, sql = words
    collection = CollectionFolder(Path(folder)).check()
    away = away_crawler(collection, visit[0] if visit else None)
    keyring = Keyring(keys.expanduser()) if keys else keyring_of(away.options)
    holdings, ahead_seconds = asyncio.run(ask_host(away, keyring=keyring))
    keep_to(collection.folder)
    # They are slow to load, and may not be before the process is confined.
    from sterna.api.holdings import left_out, open_holdings  # noqa: PLC0415
    from sterna.api.query import held_memory  # noqa: PLC0415
    from sterna.cli.query import write_answer  # noqa: PLC0415

    if missing := left_out(holdings):
        warn(missing)
    try:
        engine = open_holdings(away.visit, holdings, ahead_seconds=ahead_seconds)
    except WireError as error:
        raise HostGone(f"the host of {away.visit.site} sent a malformed reply: {error}") from error
    with engine, held_memory(MEMORY_BYTES):
        write_answer(engine, sql, form=form)


def _lines(
    folder: str, rows: Sequence[OutboxRow], receipts: dict[str, SignedReceipt], *, now: float
) -> list[str]:
    counts = {out: sum(row.state is out for row in rows) for out in Out}
    states = ", ".join(f"{count:,} {out}" for out, count in counts.items() if count)
    lines = [f"{folder}: {states or 'no crawler was sent to a host'}"]
    for row in rows:
        seconds = (row.over_at or now) - row.written_at
        traffic = bytes_text(row.bytes_sent + row.bytes_received) if row.over_at else ""
        reason = f"  {row.reason}" if row.reason else ""
        receipt = ""
        if signed := receipts.get(row.visit):
            receipt = f", receipt signed by {'both' if signed.by_home else 'its host alone'}"
        lines.append(
            f"  {row.visit}  {row.state:<8}  {duration_text(seconds):>12}  {row.pages:>7,} pages"
            f"  {traffic:>9}  {row.site}{reason}{receipt}"
        )
    return lines
