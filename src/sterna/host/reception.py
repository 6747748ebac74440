"""Takes orders under a session: a crawler comes, a stream goes on, a look, an end; acknowledgements.

The service loads this with the first order: it brings the runtime, which a greeting does not need.
"""

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

from sterna.errors import Refused
from sterna.host.accepting import visit_of
from sterna.host.config import HostConfig
from sterna.host.locks import lock
from sterna.host.policy import Terms
from sterna.host.sessions import Session
from sterna.host.visits import RETRY_SECONDS, Announce, Visits
from sterna.host.workshop import Workshop
from sterna.runtime.jail import protection
from sterna.web.clock import Clock
from sterna.wire.handshake import SessionKeys
from sterna.wire.keys import Identity, PublicKey
from sterna.wire.orders import Kill, Look, Order, Resume, Send, open_acknowledgement, seal_report

SPARE_STREAMS = 4  # beyond those of visits that may be under way: of such as are over, and of cut ones
_LIVE = "live-"


class Reception:
    """What a host does for a home that has shown who it is; made inside a running loop."""

    def __init__(
        self,
        config: HostConfig,
        workshop: Workshop,
        *,
        identity: Identity,
        clock: Clock,
        announce: Announce,
        is_live_only: bool = False,
    ) -> None:
        self._config = config
        self._workshop = workshop
        self._is_live_only = is_live_only
        folder = config.state / (f"{_LIVE}{os.getpid()}" if is_live_only else "visits")
        if is_live_only:
            _sweep_live(config.state)
        self._visits = Visits(
            config, workshop, identity=identity, clock=clock, announce=announce, folder=folder
        )
        self._has_jail: bool | None = None  # not tried yet
        self._streams: Counter[str] = Counter()  # open ones, by home; changed by _counted() alone

    async def take(
        self, order: Order, *, session: Session, keys: SessionKeys, terms: Terms
    ) -> bytes | AsyncIterator[bytes]:
        """Carries an order out; the answer is a stream for Send and Resume, a report for Look and Kill."""
        if isinstance(order, Send):
            return await self._send(order, session=session, keys=keys, terms=terms)
        if self._is_live_only:
            raise Refused("gone", "this host keeps no visits: each ends with its stream")
        hosted = self._visits.find(session.home, order.visit)
        if isinstance(order, Resume):
            hosted.check_first(order.first)
            self._check_streams(session.home)
            stream = hosted.stream(keys.stream, first=order.first, level=self._level(order.level))
            return self._counted(stream, session.home)
        if isinstance(order, Kill):
            await self._visits.kill(hosted)
        else:
            assert isinstance(order, Look)
        return seal_report(keys, hosted.report())

    def acknowledge(self, body: bytes, *, session: Session, keys: SessionKeys) -> None:
        """Deletes the parcels that home has; a host that keeps nothing has nothing to delete."""
        said = open_acknowledgement(keys, body)
        if not self._is_live_only:
            self._visits.find(session.home, said.visit).acknowledge(said.number)

    def stop(self) -> None:
        """Asks all visits to end softly."""
        self._visits.stop()

    async def close(self) -> None:
        """Ends what is still here."""
        await self._visits.close()
        await self._workshop.close()

    async def _send(
        self, order: Send, *, session: Session, keys: SessionKeys, terms: Terms
    ) -> AsyncIterator[bytes]:
        self._check_streams(session.home)
        visit = await asyncio.to_thread(
            visit_of, order, config=self._config, terms=terms, grants=session.grants
        )
        if visit.crawler.program.rules and not await self._can_jail():
            raise Refused("no-jail", "crawlers with rules are refused: this machine has no seccomp")
        if self._is_live_only:
            take_place(self._config.state, self._config.limits.crawlers_at_once)
        home = PublicKey.parse(session.home)
        hosted = self._visits.begin(visit, home=home, name=terms.name)
        level = self._level(order.level)
        stream = hosted.stream(keys.stream, first=1, level=level, frees=self._is_live_only)
        return self._counted(stream, session.home)

    def _check_streams(self, home: str) -> None:
        """Refused if there are too many: each has a compressor of its own, whether it is read or not."""
        limits = self._config.limits
        is_full = self._streams.total() >= limits.crawlers_at_once + limits.queue + SPARE_STREAMS
        if is_full or self._streams[home] >= limits.visits_of_a_home + SPARE_STREAMS:
            raise Refused("busy", "too many streams are open", retry_after=RETRY_SECONDS)

    async def _counted(self, stream: AsyncIterator[bytes], home: str) -> AsyncIterator[bytes]:
        self._streams[home] += 1
        try:
            async with aclosing(stream) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    yield chunk
        finally:
            self._streams[home] -= 1

    def _level(self, asked: int) -> int:
        return min(asked, self._config.limits.level)

    async def _can_jail(self) -> bool:
        if self._has_jail is None:
            self._has_jail = (await asyncio.to_thread(protection)).has_seccomp
        return self._has_jail


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
