"""`sterna crawlers`: those that were sent to hosts, and how to stop them from here."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sterna.api.away import note_kill, sent_crawlers, tell_hosts
from sterna.api.crawl import keyring_of
from sterna.cli.lines import bytes_text, duration_text, fields_of, say, say_json
from sterna.errors import UsageError
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import Out, OutboxRow
from sterna.host.keyring import Keyring
from sterna.wire.receipts import SignedReceipt


def crawlers(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[kill] DIR [VISIT]", help="The collection, and with `kill` the crawler to stop."
        ),
    ],
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", envvar="STERNA_KEYS", help="The folder of your keys. (default: the crawl's own)"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """List the crawlers that were sent to hosts: away, returned and lost.

    `sterna crawlers kill DIR` stops those that are away, or the one that is named; a crawl may be running.
    What a crawler has brought is kept, and the next crawl continues from there.
    """
    is_kill = words[0] == "kill" and len(words) > 1
    folder, *rest = words[1:] if is_kill else words
    if len(rest) > is_kill:
        raise UsageError("too many arguments: sterna crawlers DIR, or sterna crawlers kill DIR [VISIT]")
    collection = CollectionFolder(Path(folder))
    collection.check()
    if is_kill:
        lines = _kill(collection, rest[0] if rest else None, keys=keys)
        answer: object = {"collection": folder, "killed": lines}
    else:
        rows, receipts = sent_crawlers(collection)
        lines = _lines(folder, rows, receipts, now=time.time())
        shown = {visit: _receipt_fields(signed) for visit, signed in receipts.items()}
        answer = {"collection": folder, "crawlers": [fields_of(row) for row in rows], "receipts": shown}
    if as_json:
        say_json(answer)
    else:
        say(*lines)


def _kill(collection: CollectionFolder, visit: str | None, *, keys: Path | None) -> list[str]:
    away, options = note_kill(collection, visit)
    if not away:
        return ["no crawler is away"]
    keyring = Keyring(keys.expanduser()) if keys else keyring_of(options)
    return asyncio.run(tell_hosts(away, options, keyring=keyring))


def _lines(
    folder: str, rows: Sequence[OutboxRow], receipts: dict[str, SignedReceipt], *, now: float
) -> list[str]:
    counts = {out: sum(row.state is out for row in rows) for out in Out}
    states = ", ".join(f"{count:,} {out}" for out, count in counts.items() if count)
    first = f"{folder}: {states or 'no crawler was sent to a host'}"
    return [first, *(_line(row, now) + _receipt(receipts.get(row.visit)) for row in rows)]


def _line(row: OutboxRow, now: float) -> str:
    seconds = (row.over_at or now) - row.written_at
    traffic = f"{bytes_text(row.bytes_sent + row.bytes_received):>9}" if row.over_at else " " * 9
    reason = f"  {row.reason}" if row.reason else ""
    return (
        f"  {row.visit}  {row.state:<8}  {duration_text(seconds):>12}  {row.pages:>7,} pages  {traffic}"
        f"  {row.site}{reason}"
    )


def _receipt(signed: SignedReceipt | None) -> str:
    if signed is None:
        return ""
    return ", receipt signed by both" if signed.by_home else ", receipt signed by its host alone"


def _receipt_fields(signed: SignedReceipt) -> dict[str, object]:
    """The figures, and the bytes that prove them."""
    return fields_of(signed.open()) | {"is_countersigned": bool(signed.by_home), "signed": signed.encode()}
