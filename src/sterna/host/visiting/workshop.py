"""The runtime of a host: its processes start with the first visit, and end some time after the last."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from sterna.host.config import HostConfig
from sterna.host.policy.load import give_way
from sterna.host.site.source import open_source, resolver_of
from sterna.runtime.cell.kernel import give_back_memory
from sterna.runtime.runtime import Runtime, RuntimeConfig, open_runtime
from sterna.web.clock import Clock
from sterna.web.http import Fetcher
from sterna.web.politeness import NO_LIMITS

PARCEL_BYTES = 1024 * 1024  # small enough that the line is never idle while the next one is filled
LEAST_PARCEL_BYTES = 128 * 1024
PARCELS_BYTES = 20 * 1024 * 1024  # of those that all visits fill at once: with many of them each is smaller

OpenSource = Callable[[HostConfig, Clock], AbstractAsyncContextManager[Fetcher]]


class Workshop:
    """Gives the runtime to visits; an async context manager around its processes."""

    def __init__(self, config: HostConfig, clock: Clock, *, open_source: OpenSource = open_source) -> None:
        self._config = config
        self._clock = clock
        self._open_source = open_source
        # Changed in the loop's thread, by use() and the keeper.
        self._users = 0
        self._runtime: asyncio.Future[Runtime] | None = None
        self._changed = asyncio.Event()
        self._keepers: set[asyncio.Task[None]] = set()  # more than one while one of them closes

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Runtime]:
        """The runtime, for as long as it is used; starts it if need be."""
        self._users += 1
        self._changed.set()
        try:
            if self._runtime is None:
                self._runtime = asyncio.get_running_loop().create_future()
                keeper = asyncio.create_task(self._keep(self._runtime))
                self._keepers.add(keeper)
                keeper.add_done_callback(self._keepers.discard)
            yield await asyncio.shield(self._runtime)
        finally:
            self._users -= 1
            self._changed.set()

    async def close(self) -> None:
        """Ends the processes; visits that still use them fail."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    async def _keep(self, promise: asyncio.Future[Runtime]) -> None:
        """Opens and closes in one task, as contexts want it."""
        if self._config.gives_way:
            give_way()
        try:
            async with (
                self._open_source(self._config, self._clock) as fetcher,
                open_runtime(
                    _runtime_config(self._config),
                    self._clock,
                    fetcher=fetcher,
                    resolver=resolver_of(self._config),
                ) as runtime,
            ):
                promise.set_result(runtime)
                await self._wait_until_idle()
                self._runtime = None  # who comes now waits for another one
        except Exception as error:
            self._runtime = None
            if promise.done():
                raise
            promise.set_exception(error)
        finally:
            if not promise.done():
                promise.cancel()
        gc.collect()
        give_back_memory()

    async def _wait_until_idle(self) -> None:
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if self._users else self._config.limits.idle_seconds):
                    await self._changed.wait()
            except TimeoutError:
                if not self._users:
                    return


def _runtime_config(config: HostConfig) -> RuntimeConfig:
    limits = config.limits
    return RuntimeConfig(
        connections=limits.connections,
        readers=limits.readers,
        limits=NO_LIMITS,  # the owner's delay holds, and nothing here is crawled but his own site
        parcel_bytes=min(max(PARCELS_BYTES // limits.crawlers_at_once, LEAST_PARCEL_BYTES), PARCEL_BYTES),
        shares_holds=False,  # one home must not be able to have the site left alone for all
        is_jailed=True,  # whoever sends a crawler to a host is a stranger
    )
