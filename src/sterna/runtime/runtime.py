"""The runtime: carries out visits, at home and at a site alike."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from sterna.model import Deliver, Hold, Raw, Visit
from sterna.runtime.access import Access, Kit, RuntimeConfig
from sterna.runtime.engine.client import Engines
from sterna.runtime.readers import Readers
from sterna.runtime.reins import Reins
from sterna.runtime.visit import VisitLoop
from sterna.web.bodies import DOCUMENT_ROOM_BYTES, BodyRoom
from sterna.web.clock import Clock
from sterna.web.curl import CurlFetcher
from sterna.web.dns import DnsResolver, Resolver
from sterna.web.document import Fetched
from sterna.web.http import Fetcher, read_head
from sterna.web.politeness import Gate

MANY_VISITS = 32
HEAVY_BYTES = 1024 * 1024  # of start URLs, with which a visit is not left to the garbage collector
MAX_HEAD_BYTES = 512 * 1024  # of a stranger's response: curl accepts no larger one


class Runtime:
    """Carries out visits, as many at once as it is given."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self.engines = kit.engines  # also for rules that run here without a visit
        self.notices = kit.notices
        self._under_way = 0

    def restore(self, holds: Iterable[Hold]) -> None:
        self._kit.gate.restore(holds)

    async def carry_out(
        self,
        visit: Visit,
        *,
        deliver: Deliver,
        stop: asyncio.Event,
        reins: Reins | None = None,
        through: Callable[[Fetcher], Fetcher] | None = None,
        parcels: int = 0,
    ) -> None:
        """Returns when its last parcel is delivered; `reins` pause or end it, `through` wraps its fetcher.

        An interrupted visit goes on after so many `parcels`.
        """
        self._kit.readers.begin()  # while robots.txt is fetched
        config = self._kit.config
        kit = replace(self._kit, reins=reins or Reins(self._kit.clock))
        if through:
            kit = replace(kit, fetcher=through(kit.fetcher))
        if not config.shares_holds:  # the documents of an owner who does not fetch them stay here
            kit = replace(kit, gate=Gate(config.limits), documents=BodyRoom(DOCUMENT_ROOM_BYTES))
        kit.gate.restore(visit.holds)
        self._under_way += 1
        is_one_of_many = self._under_way > MANY_VISITS
        try:
            await VisitLoop(
                visit, kit, deliver=deliver, stop=stop, is_one_of_many=is_one_of_many, parcels=parcels
            ).run()
        finally:
            self._under_way -= 1
            if _url_bytes(visit) > HEAVY_BYTES:
                # Its loop refers to itself, and its URLs would wait until all garbage is collected.
                asyncio.get_running_loop().call_soon(gc.collect)

    async def take_turn(self, visit: Visit) -> None:
        """Waits until the caller may make a request to the visit's site; FetchError if it may not."""
        self._kit.gate.restore(visit.holds)
        await Access(self._kit, visit).take_turn(f"{visit.site}/")

    async def digest(self, raw: Raw) -> bytes:
        """The digest of a stranger's response, decoded in a cell; ReadError if it cannot be decoded."""
        fields = read_head(raw.response_head[:MAX_HEAD_BYTES])
        codings = [value for name, value in fields if name == "content-encoding"]
        # Without a status only the digest is made of a body.
        fetched = Fetched(url="", status=0, content_encoding=", ".join(codings), body=raw.body)
        return (await self._kit.readers.read(fetched)).digest

    def peak_memory_bytes(self) -> int:
        return self._kit.readers.peak_memory_bytes()


def _url_bytes(visit: Visit) -> int:
    return sum(len(target.url) + len(target.referrer) for target in visit.starts)


@asynccontextmanager
async def open_runtime(
    config: RuntimeConfig, clock: Clock, *, fetcher: Fetcher | None = None, resolver: Resolver | None = None
) -> AsyncIterator[Runtime]:
    """A runtime whose processes and connections end with the context; the caller closes what it passed in."""
    async with AsyncExitStack() as stack:
        if fetcher is None:
            fetcher = CurlFetcher(config)
            stack.push_async_callback(fetcher.close)
        if resolver is None:
            resolver = DnsResolver(clock)
            stack.push_async_callback(resolver.close)
        kit = Kit(
            clock=clock,
            resolver=resolver,
            fetcher=fetcher,
            gate=Gate(config.limits),
            slots=asyncio.Semaphore(config.connections),
            bodies=BodyRoom(),
            documents=BodyRoom(DOCUMENT_ROOM_BYTES),
            readers=await stack.enter_async_context(Readers(config.readers, is_jailed=config.is_jailed)),
            engines=await stack.enter_async_context(Engines(is_jailed=config.is_jailed)),
            config=config,
        )
        yield Runtime(kit)
