"""Composes the carrier of a run: the runtime here, and the way to hosts."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sterna.home.away.carrier import Migrating, Stationary
from sterna.home.away.courier import Courier
from sterna.home.away.hosts import Hosts
from sterna.home.away.line import Lines
from sterna.home.away.place import Placement
from sterna.home.away.receipts import Keep, forget, kept_in
from sterna.home.belief.inquiry import Inquiries
from sterna.home.belief.quarantine import Quarantine
from sterna.home.dispatch import Carrier
from sterna.home.ledger.interface import LedgerDesk
from sterna.home.options import Options
from sterna.home.progress import Progress
from sterna.model import Etiquette
from sterna.runtime.runtime import Runtime
from sterna.transport.http import HttpConfig, HttpTransport
from sterna.web.clock import Clock
from sterna.web.dns import DnsResolver
from sterna.wire.keys import Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """Lets a run send crawlers to hosts: under which identity, and where to report it."""

    identity: Callable[[], Identity]  # home's; read when the first crawler leaves
    tell: Callable[[Placement], None] = lambda placement: None
    warn: Callable[[str], None] = lambda line: None
    is_defiant: bool = False  # the user crawls whatever owners of sites ask for


@asynccontextmanager
async def open_carrier(
    here: Runtime,
    options: Options,
    *,
    etiquette: Etiquette,
    migration: Migration | None,  # None: crawlers stay here
    ledger: LedgerDesk,
    clock: Clock,
    progress: Progress,
    quarantine: Path,
) -> AsyncIterator[Carrier]:
    """The carrier of a run; its connections are closed with the context."""
    if migration is None:
        yield Stationary(here)
        return
    async with open_transport(options, etiquette=etiquette, clock=clock) as transport:
        identity = cache(migration.identity)
        keep = kept_in(ledger)
        hosts = Hosts(
            ledger,
            transport,
            clock=clock,
            configured=options.configured_hosts(),
            let_private=transport.let_private,
            warn=migration.warn,
        )
        inquiries = Inquiries(
            here=here,
            ledger=ledger,
            quarantine=Quarantine(quarantine),
            clock=clock,
            progress=progress,
            warn=migration.warn,
            is_strict=options.checks == "strict",
        )
        courier = Courier(
            cache(lambda: lines_of(transport, identity(), options, clock, keep_receipt=keep)),
            ledger,
            clock=clock,
            progress=progress,
            inquiries=None if options.checks == "none" else inquiries,
            level=options.compression,
            tell=migration.tell,
            warn=migration.warn,
            is_defiant=migration.is_defiant,
        )
        try:
            yield Migrating(
                here,
                hosts,
                courier,
                ledger=ledger,
                clock=clock,
                is_host_required=options.require_host,
                is_defiant=migration.is_defiant,
                tell=migration.tell,
                warn=migration.warn,
                welcome=lambda: f"sterna keys allow {identity().public.text} --name NAME",
            )
        finally:
            progress.crossed += transport.bytes_sent + transport.bytes_received


@asynccontextmanager
async def open_transport(
    options: Options, *, etiquette: Etiquette, clock: Clock
) -> AsyncIterator[HttpTransport]:
    """The transport to hosts, with the crawl's user agent, proxy and certificates."""
    config = HttpConfig(
        user_agent=etiquette.user_agent,
        sender=etiquette.sender,
        proxy=options.proxy,
        proxy_resolves=options.proxy_resolves,
        ca_file=options.ca_file,
    )
    resolver = DnsResolver(clock)
    transport = HttpTransport(config, resolver=resolver, clock=clock)
    try:
        yield transport
    finally:
        await transport.close()
        await resolver.close()


def lines_of(
    transport: HttpTransport,
    identity: Identity,
    options: Options,
    clock: Clock,
    *,
    keep_receipt: Keep = forget,
) -> Lines:
    """Lines to hosts, with the home's name that they may show."""
    return Lines(
        transport,
        identity,
        home=options.contact or options.etiquette("").robots_name,
        clock=clock,
        priorities=options.priorities_by_site(),
        keep_receipt=keep_receipt,
    )
