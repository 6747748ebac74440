"""Composes whatever carries the visits of a run out: the runtime here, and with it the hosts of sites."""

from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from sterna.home.away.carrier import Here, Placed, Stationary, Ways
from sterna.home.away.hosts import Hosts
from sterna.home.away.outbox import Outbox, Sender
from sterna.home.away.patience import Resting
from sterna.home.away.place import Placement
from sterna.home.away.receipts import Keep, forget, kept_in
from sterna.home.away.sender import Away
from sterna.home.belief.checked import Checked, Means
from sterna.home.belief.quarantine import WaitingRoom
from sterna.home.dispatch import Carrier
from sterna.home.ledger.interface import Ledger
from sterna.home.options import Options
from sterna.home.progress import Progress
from sterna.model import Etiquette, Visit
from sterna.transport.http import HttpConfig, HttpTransport
from sterna.web.clock import Clock
from sterna.web.dns import DnsResolver
from sterna.web.urls import hostname_of
from sterna.wire.discovery import Offer
from sterna.wire.keys import Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Envoy:
    """Who sends crawlers out, and what is said of it."""

    identity: Callable[[], Identity]  # home's; asked for when the first crawler leaves
    tell: Callable[[Placement], None] = lambda placement: None
    warn: Callable[[str], None] = lambda line: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What a carrier shares with the rest of the run."""

    ledger: Ledger
    clock: Clock
    thread: Executor  # the ledger's
    progress: Progress
    waiting_folder: Path  # for what hosts bring that are not believed yet


@dataclass(slots=True)
class Crossed:
    """Bytes to and from hosts, heads included; set when the carrier is closed."""

    total: int = 0


@asynccontextmanager
async def open_carrier(
    here: Here,
    options: Options,
    *,
    etiquette: Etiquette,
    envoy: Envoy | None,
    common: Common,
    crossed: Crossed,
) -> AsyncIterator[Carrier]:
    """The carrier of a run; without an envoy nobody is sent out. Its connections end with the context."""
    if envoy is None:
        yield Stationary(here)
        return
    async with open_transport(options, etiquette=etiquette, clock=common.clock) as transport:
        try:
            yield Placed(_ways(here, options, transport, envoy=envoy, common=common))
        finally:
            crossed.total = transport.bytes_sent + transport.bytes_received


@asynccontextmanager
async def open_transport(
    options: Options, *, etiquette: Etiquette, clock: Clock
) -> AsyncIterator[HttpTransport]:
    """The line to hosts, with the crawl's own name, proxy and certificates."""
    config = HttpConfig(
        user_agent=etiquette.user_agent, sender=etiquette.sender, proxy=options.proxy, ca_file=options.ca_file
    )
    resolver = DnsResolver(clock)
    transport = HttpTransport(config, resolver=resolver, clock=clock)
    try:
        yield transport
    finally:
        await transport.close()
        await resolver.close()


def let_reach(transport: HttpTransport, visit: Visit, offer: Offer) -> None:
    """Allows calls to the host of a visit that may be on a private network."""
    if visit.may_be_private or visit.allow_private:
        transport.let_private(hostname_of(offer.endpoint))


def away_of(
    transport: HttpTransport,
    identity: Identity,
    options: Options,
    clock: Clock,
    *,
    keep_receipt: Keep = forget,
    warn: Callable[[str], None] = lambda line: None,
) -> Away:
    """The sender of crawlers, by the name that hosts may show."""
    name = options.contact or options.etiquette("").robots_name
    offered = options.priorities_by_site()
    return Away(
        transport,
        identity,
        home=name,
        clock=clock,
        level=options.compression,
        priority_of=lambda site: offered.get(site, 0),
        keep_receipt=keep_receipt,
        on_line=Resting(warn).note,
    )


def _ways(
    here: Here,
    options: Options,
    transport: HttpTransport,
    *,
    envoy: Envoy,
    common: Common,
) -> Ways:
    ledger, clock, thread, progress = common.ledger, common.clock, common.thread, common.progress
    identity = cache(envoy.identity)
    keep = kept_in(ledger, thread)
    means = Means(
        here=here,
        book=ledger.trust,
        room=WaitingRoom(common.waiting_folder),
        clock=clock,
        thread=thread,
        progress=progress,
        warn=envoy.warn,
        is_strict=options.checks == "strict",
    )

    def sender() -> Sender:
        away = away_of(transport, identity(), options, clock, keep_receipt=keep, warn=envoy.warn)
        return away if options.checks == "none" else Checked(away, means)

    return Ways(
        here=here,
        hosts=Hosts(
            ledger,
            transport,
            clock=clock,
            thread=thread,
            configured=options.configured_hosts(),
            let_private=transport.let_private,
            warn=envoy.warn,
        ),
        outbox=Outbox(
            ledger,
            cache(sender),
            clock=clock,
            thread=thread,
            progress=progress,
            let_reach=partial(let_reach, transport),
            tell=lambda site, line: envoy.tell(Placement(site=site, place="host", reason=line)),
        ),
        ledger=ledger,
        clock=clock,
        thread=thread,
        is_host_required=options.require_host,
        tell=envoy.tell,
        warn=envoy.warn,
        welcome=lambda: f"sterna keys allow {identity().public.text} --name NAME",
    )
