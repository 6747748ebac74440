"""`sterna crawlers`: those that were sent to hosts, and how to stop them from here."""

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from sterna.cli.keys import keyring_of
from sterna.cli.numbers import bytes_text, duration_text
from sterna.cli.running import keys_folder
from sterna.errors import CollectionInUse, SternaError, UsageError
from sterna.home.folder import Collection
from sterna.home.ledger.interface import UNDER_WAY, Out, OutboxRow
from sterna.home.ledger.sqlite.ledger import SqliteLedger
from sterna.home.options import Options, load
from sterna.model import Visit
from sterna.query.terminal import harmless
from sterna.web.urls import hostname_of
from sterna.wire.discovery import Offer
from sterna.wire.receipts import SignedReceipt, decode_receipt

KILL_SECONDS = 30.0


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
    What a crawler has brought stays, and the next crawl goes on from there.
    """
    is_kill = words[0] == "kill" and len(words) > 1
    folder, *rest = words[1:] if is_kill else words
    if len(rest) > is_kill:
        raise UsageError("that is too much: sterna crawlers DIR, or sterna crawlers kill DIR [VISIT]")
    collection = Collection(Path(folder))
    collection.check()
    if is_kill:
        lines = asyncio.run(kill(collection, rest[0] if rest else None, keys=keys))
        answer: object = {"collection": folder, "killed": lines}
    else:
        rows, receipts = _rows(collection)
        lines = _lines(folder, rows, receipts, now=time.time())
        told = {visit: _receipt_fields(signed) for visit, signed in receipts.items()}
        answer = {"collection": folder, "crawlers": [_fields(row) for row in rows], "receipts": told}
    sys.stdout.write(msgspec.json.encode(answer).decode() if as_json else "\n".join(map(harmless, lines)))
    sys.stdout.write("\n")


# -- the list --------------------------------------------------------------------------------------------


def _rows(collection: Collection) -> tuple[list[OutboxRow], dict[str, SignedReceipt]]:
    """The crawlers, and the receipts of their visits."""
    ledger = SqliteLedger(collection.ledger_path, is_reader=True)
    try:
        return ledger.outbox(), {visit: decode_receipt(data) for visit, _, data in ledger.receipts()}
    finally:
        ledger.close()


def _lines(
    folder: str, rows: Sequence[OutboxRow], receipts: dict[str, SignedReceipt], *, now: float
) -> list[str]:
    counts = {out: sum(row.state is out for row in rows) for out in Out}
    told = ", ".join(f"{count:,} {out}" for out, count in counts.items() if count)
    first = f"{folder}: {told or 'no crawler was sent to a host'}"
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
    """Who signed what the visit cost."""
    if signed is None:
        return ""
    return ", receipt signed by both" if signed.by_home else ", receipt signed by its host alone"


def _receipt_fields(signed: SignedReceipt) -> dict[str, object]:
    """The figures, and the bytes that prove them."""
    receipt = signed.open()
    fields = {name: getattr(receipt, name) for name in receipt.__struct_fields__}
    return fields | {"is_countersigned": bool(signed.by_home), "signed": signed.encode()}


def _fields(row: OutboxRow) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


# -- stopping them ---------------------------------------------------------------------------------------


async def kill(collection: Collection, visit: str | None, *, keys: Path | None) -> list[str]:
    """Stops a crawler that is away, or all of them; a line for each.

    It is noted here first: so it counts as killed even if its host cannot be reached.
    """
    away, options = _note_kill(collection, visit)
    if not away:
        if visit:
            raise UsageError(f"no crawler {visit} is away: sterna crawlers {collection.folder} lists them")
        return ["no crawler is away"]
    return await _tell_hosts(away, options, keys=keys)


def _note_kill(collection: Collection, visit: str | None) -> tuple[list[tuple[Visit, Offer]], Options]:
    from sterna.home.away.luggage import unpack  # noqa: PLC0415

    with ExitStack() as stack:
        is_alone = True
        try:
            stack.enter_context(collection.open_for_crawl())
        except CollectionInUse:
            is_alone = False  # the crawl that is under way hears of it from the host, and ends the lease
        ledger = SqliteLedger(collection.ledger_path)
        stack.callback(ledger.close)
        rows = [row for row in ledger.outbox(states=UNDER_WAY) if visit in (None, row.visit)]
        away = [unpack(ledger.luggage(row.visit)) for row in rows]
        for row in rows:
            ledger.mark_out(row.visit, Out.KILLED, now=time.time(), reason="killed from here")
            if is_alone:
                ledger.lose(row.visit, now=time.time())
        return away, load(ledger.setting("options"))


async def _tell_hosts(
    away: Sequence[tuple[Visit, Offer]], options: Options, *, keys: Path | None
) -> list[str]:
    from sterna import __version__  # noqa: PLC0415
    from sterna.home.away.composition import lines_of, open_transport  # noqa: PLC0415
    from sterna.web.clock import SystemClock  # noqa: PLC0415

    clock = SystemClock()
    keyring = keyring_of(keys or keys_folder(options))
    async with open_transport(options, etiquette=options.etiquette(__version__), clock=clock) as transport:

        async def tell(visit: Visit, offer: Offer) -> str:
            if visit.may_be_private or visit.allow_private:
                transport.let_private(hostname_of(offer.endpoint))
            name = f"{visit.id} at {visit.site}"
            try:
                lines = lines_of(transport, keyring.read("home"), options, clock)
                async with asyncio.timeout(KILL_SECONDS):
                    report = await lines.kill(offer, visit.id)
            except (SternaError, TimeoutError) as error:
                return f"{name}: killed here; its host did not hear of it ({error or 'too late'})"
            return f"{name}: {report.state}"

        return list(await asyncio.gather(*(tell(visit, offer) for visit, offer in away)))
