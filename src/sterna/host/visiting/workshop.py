"""The runtime of a host: its processes start with the first visit and end some time after the last."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar

from sterna.host.config import HostConfig
from sterna.host.policy.load import give_way
from sterna.host.site.source import open_source, resolver_of
from sterna.runtime.access import RuntimeConfig
from sterna.runtime.cell.kernel import give_back_memory
from sterna.runtime.runtime import Runtime, open_runtime
from sterna.web.clock import Clock
from sterna.web.http import Fetcher
from sterna.web.politeness import NO_LIMITS

PARCEL_BYTES = 1024 * 1024  # small enough that the line is never idle while the next one is filled
RULED_PAGES = 50  # in a parcel: home can run the rules of a whole one again
LEAST_PARCEL_BYTES = 128 * 1024
PARCELS_BYTES = 20 * 1024 * 1024  # of all parcels being filled: with many visits each parcel is smaller

OpenSource = Callable[[HostConfig, Clock], AbstractAsyncContextManager[Fetcher]]


class Workshop:
    """Lends the runtime to visits: jailed or, if `is_own`, for the owner's crawler, if the machine can."""

    def __init__(
        self,
        config: HostConfig,
        clock: Clock,
        *,
        open_source: OpenSource = open_source,
        is_own: bool = False,
    ) -> None:
        self._config = config
        self._clock = clock
        self._is_jailed = None if is_own else True  # other crawlers at a host come from strangers
        self._open_source = open_source
        # Changed in the loop's thread, by use(), aclose() and the keeper.
        self._users = 0
        self._is_over = False
        self._runtime: asyncio.Future[Runtime] | None = None
        self._changed = asyncio.Event()
        self._keepers: set[asyncio.Task[None]] = set()  # more than one while one of them closes

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Runtime]:
        """The runtime, started if needed."""
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

    async def aclose(self) -> None:
        """Ends the processes; visits that still use them fail."""
        self._is_over = True  # not cancelled: a keeper that is closing its processes would leave some behind
        self._changed.set()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    async def _keep(self, promise: asyncio.Future[Runtime]) -> None:
        """Opens and closes the runtime in one task, as its contexts require."""
        if self._config.gives_way:
            give_way()
        try:
            async with (
                self._open_source(self._config, self._clock) as fetcher,
                open_runtime(
                    _runtime_config(self._config, is_jailed=self._is_jailed),
                    self._clock,
                    fetcher=fetcher,
                    resolver=resolver_of(self._config),
                ) as runtime,
            ):
                promise.set_result(runtime)
                await self._wait_until_idle()
                self._runtime = None  # from now on a visit gets another one
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
        while not self._is_over:
            self._changed.clear()
            try:
                async with asyncio.timeout(None if self._users else self._config.limits.idle_seconds):
                    await self._changed.wait()
            except TimeoutError:
                if not self._users:
                    return


def _runtime_config(config: HostConfig, *, is_jailed: bool | None) -> RuntimeConfig:
    limits = config.limits
    return RuntimeConfig(
        connections=limits.connections,
        readers=limits.readers,
        limits=NO_LIMITS,  # the owner's delay holds, and nothing but the owner's site is crawled here
        parcel_bytes=min(max(PARCELS_BYTES // limits.crawlers_at_once, LEAST_PARCEL_BYTES), PARCEL_BYTES),
        ruled_pages=RULED_PAGES,
        shares_holds=False,  # one home must not be able to keep the others from the site
        is_jailed=is_jailed,
    )


# -- lines that rules write --------------------------------------------------------------------------------

_rules_log = logging.getLogger("sterna.runtime.handler")
_write_line: ContextVar[Callable[[str], None] | None] = ContextVar("write_line", default=None)


def _divert(record: logging.LogRecord) -> bool:
    """Sends the lines that a crawler's rules write to its home: strangers must not fill the owner's log."""
    write = _write_line.get()
    if not write or record.levelno != logging.INFO:
        return True
    write(record.getMessage())
    return False


def redirect_rules(write: Callable[[str], None]) -> None:
    """From now on `write` takes the lines that rules write in this task and in those that it starts."""
    if _divert not in _rules_log.filters:
        _rules_log.addFilter(_divert)
        _rules_log.setLevel(logging.INFO)
    _write_line.set(write)
