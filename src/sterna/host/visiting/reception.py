"""Takes orders under a session: a crawler comes, a stream goes on, a look, an end; acknowledgements.

The service loads this with the first order: it brings the runtime, which a greeting does not need.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from sterna.errors import Refused
from sterna.host.entrance.admission import rationed
from sterna.host.entrance.sessions import Session
from sterna.host.locks import lock
from sterna.host.owner.receipts import Receipts
from sterna.host.policy.hours import day_of
from sterna.host.policy.load import LoadMeter, Probe
from sterna.host.policy.steering import check_open
from sterna.host.policy.terms import Terms
from sterna.host.premises import Premises
from sterna.host.site.upstream import Upstream
from sterna.host.visiting.accepting import visit_of
from sterna.host.visiting.hosted import HostedVisit
from sterna.host.visiting.streams import Streams
from sterna.host.visiting.visits import RETRY_SECONDS, Visits
from sterna.host.visiting.workshop import Workshop
from sterna.model import Usage
from sterna.runtime.cell.jail import protection
from sterna.wire.handshake import SessionKeys
from sterna.wire.keys import PublicKey
from sterna.wire.orders import Acknowledgement, Kill, Look, Order, Resume, Send, seal_report
from sterna.wire.receipts import TAKES_RECEIPTS

_LIVE = "live-"


class Reception:
    """What a host does for a home that has shown who it is; made inside a running loop."""

    def __init__(
        self,
        premises: Premises,
        workshop: Workshop,
        *,
        meter: LoadMeter,
        receipts: Receipts | None = None,
    ) -> None:
        self._premises = premises
        self._workshop = workshop
        state = premises.config.state
        folder = state / (f"{_LIVE}{os.getpid()}" if premises.is_live_only else "visits")
        if premises.is_live_only:
            _sweep_live(state)
        self.visits = Visits(premises, workshop, folder=folder, meter=meter, receipts=receipts)
        self._has_jail: bool | None = None  # not tried yet
        self._streams = Streams(lambda: premises.limits)

    async def take(
        self, order: Order, *, session: Session, keys: SessionKeys, terms: Terms
    ) -> bytes | AsyncIterator[bytes]:
        """Carries an order out; the answer is a stream for Send and Resume, a report for Look and Kill."""
        if isinstance(order, Send):
            self._streams.check(session.home)
            hosted = await self._begin(order, session=session, terms=terms)
            return self._stream(hosted, 1, order.level, session=session, keys=keys)
        if self._premises.is_live_only:
            raise Refused("gone", "this host keeps no visits: each ends with its stream")
        hosted = self.visits.find(session.home, order.visit)
        if isinstance(order, Resume):
            hosted.check_first(order.first)
            self._streams.check(session.home)
            return self._stream(hosted, order.first, order.level, session=session, keys=keys)
        if isinstance(order, Kill):
            await self.visits.kill(hosted)
        else:
            assert isinstance(order, Look)
        return seal_report(keys, hosted.report())

    def acknowledge(self, said: Acknowledgement, *, session: Session) -> None:
        """Deletes the parcels that home has; a host that keeps nothing has nothing to delete."""
        if not self._premises.is_live_only:
            self.visits.find(session.home, said.visit).acknowledge(said.number)

    async def close(self) -> None:
        """Ends what is still here."""
        await self.visits.close()
        await self._workshop.close()

    # -- a crawler comes -----------------------------------------------------------------------------------

    async def _begin(self, order: Send, *, session: Session, terms: Terms) -> HostedVisit:
        premises, home = self._premises, PublicKey.parse(session.home)
        left = premises.left(home, terms)
        check_open(terms, left, wall=premises.wall(), keeps=not premises.is_live_only)
        visit = await asyncio.to_thread(
            visit_of, order, config=premises.config_now, terms=terms, grants=session.grants
        )
        visit = msgspec.structs.replace(visit, budget=rationed(visit.budget, left))
        if visit.crawler.program.rules and not await self._can_jail():
            raise Refused("no-jail", "crawlers with rules are refused: this machine has no seccomp")
        if premises.is_live_only:
            take_place(premises.config.state, premises.limits.crawlers_at_once)
        self.visits.check(visit, home=home, terms=terms)
        if terms.day.are_any:
            day = day_of(premises.wall(), terms.zone)
            await asyncio.to_thread(premises.ration.spend, home.id, day, Usage(), visits=1)
        return self.visits.begin(visit, home=home, terms=terms)

    async def _can_jail(self) -> bool:
        if self._has_jail is None:
            self._has_jail = (await asyncio.to_thread(protection)).has_seccomp
        return self._has_jail

    # -- streams -------------------------------------------------------------------------------------------

    def _stream(
        self, hosted: HostedVisit, first: int, level: int, *, session: Session, keys: SessionKeys
    ) -> AsyncIterator[bytes]:
        level = min(level, self._premises.limits.level)

        def open_stream(memory_bytes: int) -> AsyncIterator[bytes]:
            return hosted.stream(
                keys.stream,
                first=first,
                level=level,
                memory_bytes=memory_bytes,
                frees=self._premises.is_live_only,
                takes_receipt=TAKES_RECEIPTS in session.understands,
            )

        return self._streams.counted(open_stream, level=level, home=session.home)


def meter_of(premises: Premises) -> LoadMeter:
    """What measures how busy the site is; a document root by itself has no web server to ask."""
    config = premises.config
    if config.root and config.check == "never":
        return LoadMeter()
    upstream = Upstream.of(config.site, config.upstream)

    async def probe() -> float:
        return await Probe(config.site, upstream, premises.policy.load.probe)()

    return LoadMeter(probe=probe)


def _sweep_live(folder: Path) -> None:
    """Deletes what processes left that a web server killed."""
    for path in folder.glob(f"{_LIVE}*"):
        pid = path.name.removeprefix(_LIVE)
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(path, ignore_errors=True)


def take_place(folder: Path, count: int) -> int:
    """One of the places that all processes of a host share, until this one ends; Refused if none is free."""
    for number in range(count):
        descriptor = lock(folder / f"place-{number}")
        if descriptor is not None:
            return descriptor
    raise Refused("busy", "as many crawlers as may be are at work", retry_after=RETRY_SECONDS)
