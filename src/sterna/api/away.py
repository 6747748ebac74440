"""Crawlers that are away at hosts: which there are, and how to stop them from here."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from sterna.errors import CollectionInUse, Refused, SternaError, UsageError, command
from sterna.home.away.composition import lines_of, open_transport
from sterna.home.away.luggage import unpack
from sterna.home.folder import CollectionFolder
from sterna.home.ledger.records import UNDER_WAY, Out, OutboxRow, OwnerRow
from sterna.home.options import Options, load
from sterna.host.keyring import Keyring
from sterna.model import Visit
from sterna.query.terminal import harmless
from sterna.version import __version__
from sterna.web.clock import SystemClock
from sterna.web.urls import hostname_of
from sterna.wire.discovery import Offer
from sterna.wire.holdings import Holdings
from sterna.wire.receipts import SignedReceipt, decode_receipt

KILL_SECONDS = 30.0


class Away(NamedTuple):
    """A crawler at a host, and the options of its crawl."""

    visit: Visit
    offer: Offer
    options: Options


def sent_crawlers(collection: CollectionFolder) -> tuple[list[OutboxRow], dict[str, SignedReceipt]]:
    """The crawlers that were sent to hosts, and the receipts of their visits."""
    with collection.open_ledger() as ledger:
        return ledger.outbox(), {visit: decode_receipt(data) for visit, _, data in ledger.receipts()}


def owners_of(collection: CollectionFolder) -> list[OwnerRow]:
    """What the owners of sites asked for by their hosts, as far as it holds."""
    with collection.open_ledger() as ledger:
        return [row for row in ledger.owner_rows() if max(row.until, row.closed_until) > time.time()]


def note_kill(collection: CollectionFolder, visit: str | None) -> tuple[list[tuple[Visit, Offer]], Options]:
    """Marks the crawler, or all that are away, as killed, which counts even if their host is unreachable.

    Returns them with the options of their crawl, for `tell_hosts`. Raises UsageError for an unknown visit.
    """
    with ExitStack() as stack:
        is_alone = True
        try:
            stack.enter_context(collection.open_for_crawl())
        except CollectionInUse:
            is_alone = False  # the running crawl learns it from the host, and ends the lease
        ledger = stack.enter_context(collection.open_ledger(is_reader=False))
        rows = [row for row in ledger.outbox(states=UNDER_WAY) if visit in (None, row.visit)]
        away = [unpack(ledger.luggage(row.visit))[:2] for row in rows]
        for row in rows:
            ledger.mark_out(row.visit, Out.KILLED, now=time.time(), reason="killed from here")
            if is_alone:
                ledger.lose(row.visit, now=time.time())
        if visit and not away:
            raise UsageError(
                f"no crawler {visit} is away: {command('crawlers', collection.folder)} lists them"
            )
        return away, load(ledger.setting("options"))


def away_crawler(collection: CollectionFolder, visit: str | None) -> Away:
    """The crawler of this visit, or the only one that is away; UsageError if there is none, or several."""
    with collection.open_ledger() as ledger:
        rows = [row for row in ledger.outbox(states=UNDER_WAY) if visit in (None, row.visit)]
        if len(rows) != 1:
            several = f"{len(rows)} crawlers are away" if rows else "no crawler is away"
            what = several if visit is None else f"no crawler {harmless(visit)} is away"
            raise UsageError(f"{what}: sterna crawlers {collection.folder} lists them")
        sent, offer, _ = unpack(ledger.luggage(rows[0].visit))
        return Away(sent, offer, load(ledger.setting("options")))


async def ask_host(away: Away, *, keyring: Keyring) -> tuple[Holdings, float]:
    """What the crawler holds, and by how many seconds its host's clock is ahead.

    Raises Refused, LineBroken or HostGone.
    """
    visit, offer, options = away
    clock = SystemClock()
    async with open_transport(options, etiquette=options.etiquette(__version__), clock=clock) as transport:
        if visit.may_be_private or visit.allow_private:
            transport.let_private(hostname_of(offer.endpoint))
        lines = lines_of(transport, keyring.read("home"), options, clock)
        try:
            return await lines.to(offer).query(visit.id)
        except Refused as error:
            why = error.detail or error.problem
            raise Refused(error.problem, f"the host of {visit.site} does not answer: {why}") from error


async def tell_hosts(away: Sequence[tuple[Visit, Offer]], options: Options, *, keyring: Keyring) -> list[str]:
    """Tells the hosts to stop these crawlers; returns a line for each."""
    clock = SystemClock()
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
                return f"{name}: killed here, but its host was not reached ({error or 'timeout'})"
            return f"{name}: {report.state}"

        return list(await asyncio.gather(*(tell(visit, offer) for visit, offer in away)))
