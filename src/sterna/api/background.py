"""A crawl in a thread with an event loop of its own: waited for, awaited, or read page by page.

A caller's loop, such as that of a notebook, has other work and other libraries in it, and indexing after
a crawl blocks. So the crawl runs beside it, wherever there is one.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

import uvloop

from sterna.archive.rows import is_stored
from sterna.model import Page, Parcel

MOST_AHEAD = 1_000  # pages that wait for their reader; what one commit brings comes on top
T = TypeVar("T")


Wait = Callable[[Coroutine[Any, Any, T]], T]
Work = Callable[[Wait[T]], T]  # blocking work, which is given what runs a coroutine to its end


def wait_for(work: Work[T], *, stop: asyncio.Event) -> T:
    """The result of the work; Ctrl-C stops it cleanly where this thread has a loop already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work(uvloop.run)
    beside = Beside(work, stop=stop)
    try:
        return beside.result.result()
    except KeyboardInterrupt:
        beside.end()
        beside.result.exception()  # until it has stopped
        raise


class Beside(Generic[T]):
    """Work in a thread and loop of its own, which `stop` ends."""

    def __init__(self, work: Work[T], *, stop: asyncio.Event) -> None:
        self._stop = stop
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None  # the next two are changed under the lock
        self._is_ended = False
        self.result: Future[T] = Future()
        threading.Thread(target=self._run, args=(work,), name="crawl", daemon=True).start()

    def end(self) -> None:
        """Has the work stop soon; may be called from any thread."""
        with self._lock:
            self._is_ended = True
            if self._loop:
                with suppress(RuntimeError):  # it is closed: the work is done
                    self._loop.call_soon_threadsafe(self._stop.set)

    def call(self, function: Callable[[], object]) -> None:
        """Calls the function in the work's loop, if there is one."""
        with self._lock:
            if self._loop:
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(function)

    async def finished(self) -> T:
        """The result; if the caller is cancelled, the work is stopped first, and nothing is left running."""
        waiting = asyncio.wrap_future(self.result)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            self.end()
            with suppress(Exception):  # the caller asked for an end, and gets that
                await waiting
            raise

    def _run(self, work: Work[T]) -> None:
        try:
            self.result.set_result(work(self._wait))
        except BaseException as error:  # belongs to whoever waits for the result
            self.result.set_exception(error)

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        async def noted() -> T:
            with self._lock:
                self._loop = asyncio.get_running_loop()
                if self._is_ended:
                    self._stop.set()
            return await coroutine

        return uvloop.run(noted())


class PageStream:
    """Pages on their way from the crawl's thread to a reader in another loop, for whom the crawl waits."""

    def __init__(self) -> None:
        self._pages: deque[Page] = deque()  # appended to by the crawl, taken from by the reader
        self._reader: asyncio.AbstractEventLoop | None = None  # set by read(), before the crawl begins
        self._has_more = asyncio.Event()  # of the reader's loop
        self._has_room = asyncio.Event()  # of the crawl's loop
        self._is_left = False

    def __len__(self) -> int:
        return len(self._pages)

    # -- called in the crawl's thread

    def put(self, parcels: tuple[Parcel, ...]) -> bool:
        """Passes the pages on that were just stored; True once nobody reads them."""
        self._pages.extend(page for parcel in parcels for page in parcel.pages if is_stored(page))
        self.wake()
        return self._is_left

    async def drain(self) -> None:
        while len(self._pages) >= MOST_AHEAD and not self._is_left:
            self._has_room.clear()
            if len(self._pages) >= MOST_AHEAD and not self._is_left:
                await self._has_room.wait()

    def wake(self) -> None:
        assert self._reader
        with suppress(RuntimeError):  # the reader's loop is closed: nobody reads any more
            self._reader.call_soon_threadsafe(self._has_more.set)

    # -- called in the reader's loop

    async def read(self, begin: Callable[[], Beside[Any]]) -> AsyncIterator[Page]:
        """The pages until the crawl is over; raises its error. Who leaves earlier ends the crawl."""
        self._reader = asyncio.get_running_loop()
        crawl = begin()
        crawl.result.add_done_callback(lambda _: self.wake())
        try:
            while True:
                self._has_more.clear()
                is_over = crawl.result.done()
                while self._pages:
                    yield self._pages.popleft()
                    if len(self._pages) == MOST_AHEAD // 2:
                        crawl.call(self._has_room.set)
                if is_over:
                    break
                await self._has_more.wait()
            crawl.result.result()
        finally:
            self._is_left = True
            self._pages.clear()
            crawl.end()
            crawl.call(self._has_room.set)
            with suppress(Exception):  # raised above, unless the reader has left
                await asyncio.shield(asyncio.wrap_future(crawl.result))
