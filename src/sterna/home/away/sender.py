"""Visits carried out at hosts: sent there, followed, looked at and killed."""

import asyncio
from collections.abc import Callable

from sterna.errors import HostGone, Refused
from sterna.home.away.line import Line, Traffic
from sterna.home.away.patience import Patience
from sterna.home.away.receipts import Countersigning, Keep, forget
from sterna.home.away.trip import Deliver, Shape, Travel, Trip, as_it_is
from sterna.model import Visit
from sterna.transport.interface import Transport
from sterna.web.clock import Clock
from sterna.wire.discovery import Offer
from sterna.wire.keys import Identity
from sterna.wire.orders import Kill, Look, Report

__all__ = ["Away", "Deliver", "Patience", "Traffic", "Trip"]


def _ignore_line(site: str, line: str) -> None:
    pass


def _ignore() -> None:
    pass


def _none(site: str) -> int:
    return 0


class Away:
    """Sends crawlers to hosts; as many trips at once as the caller likes."""

    def __init__(  # noqa: PLR0913 - each is somebody it works with
        self,
        transport: Transport,
        identity: Identity,
        *,
        home: str,  # its name, as hosts may show it
        clock: Clock,
        level: int = 0,  # of compression; 0: by the time that a greeting takes
        patience: Patience | None = None,
        on_line: Callable[[str, str], None] = _ignore_line,  # the site, and a line of its host's log
        priority_of: Callable[[str], int] = _none,  # that home offers a site in its revisits
        keep_receipt: Keep = forget,
    ) -> None:
        self._transport = transport
        self._identity = identity
        self._home = home
        self._clock = clock
        self._level = level
        self._patience = patience or Patience()
        self._on_line = on_line
        self._priority_of = priority_of
        self._countersigning = Countersigning(identity, keep=keep_receipt)

    async def carry_out(
        self,
        visit: Visit,
        offer: Offer,
        *,
        deliver: Deliver,
        stop: asyncio.Event,
        resume_from: int = 0,
        on_taken: Callable[[], None] = _ignore,
        traffic: Traffic | None = None,
        shape: Shape = as_it_is,
    ) -> Trip:
        """Returns when the last parcel is delivered and the host's end is proven.

        `deliver` returns when home has the parcel for good; only then it is acknowledged. `resume_from` is
        the first parcel that is still to come, of a visit that is there; 0 sends the visit out. `on_taken` is
        called when the host has the visit; `traffic` counts what passes, of failures too. `shape` tells what
        of the visit is sent, once its host has said what it grants; from then on that is the visit.

        Refused and LineBroken: the host never had the visit. HostGone: it had it, and the rest is for another
        visit; what was delivered stays. ParcelRefused comes from `deliver`, and the visit is killed.
        """
        travel = Travel(
            visit,
            offer,
            self._line(offer, traffic or Traffic()),
            shape=shape,
            deliver=deliver,
            clock=self._clock,
            patience=self._patience,
            level=self._level,
            resume_from=resume_from,
            countersigning=self._countersigning,
            on_taken=on_taken,
            on_line=lambda line: self._on_line(visit.site, line),
        )
        return await travel.run(stop)

    async def look(self, offer: Offer, visit: str) -> Report:
        """How a visit stands at its host; HostGone if that knows none of this name."""
        return await self._ask(offer, Look(visit))

    async def kill(self, offer: Offer, visit: str) -> Report:
        """Ends a visit at its host, and tells how it stands then; HostGone as for look()."""
        return await self._ask(offer, Kill(visit))

    async def _ask(self, offer: Offer, order: Look | Kill) -> Report:
        try:
            return await self._line(offer, Traffic()).ask(order)
        except Refused as refusal:
            if refusal.problem != "gone":
                raise
            raise HostGone(f"the host of {offer.site} does not know the visit {order.visit}") from refusal

    def _line(self, offer: Offer, traffic: Traffic) -> Line:
        return Line(
            self._transport,
            self._identity,
            offer,
            home=self._home,
            clock=self._clock,
            traffic=traffic,
            priority=self._priority_of(offer.site),
        )
