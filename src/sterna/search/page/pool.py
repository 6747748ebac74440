"""The desk: work that blocks is done in threads, some at once, some that wait, and nobody waits for long."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class Busy(Exception):
    """So many wait already that nobody else is taken."""


class TooSlow(Exception):
    """The work took too long."""


class Desk:
    """Does work for requests; made inside a running loop."""

    def __init__(self, *, at_once: int, waiting: int, seconds: float) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._waiting = 0  # requests without a place; changed by `_take` alone
        self._most_waiting = waiting
        self._seconds = seconds

    async def do(self, work: Callable[[], T]) -> T:
        """What the work gives; Busy or TooSlow if it cannot be had in time."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._take()
                return await self._start(work)
        except TimeoutError:
            raise TooSlow from None

    async def _take(self) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        if self._waiting >= self._most_waiting:
            raise Busy
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1

    def _start(self, work: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            result, error = _outcome(work)
            with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                loop.call_soon_threadsafe(self._finish, answer, result, error)

        # A thread cannot be stopped: its place stays taken until it ends, also where nobody waits for it any
        # more. It must not hold up the end of the process.
        threading.Thread(target=run, name="search", daemon=True).start()
        return answer

    def _finish(self, answer: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
        self._free.release()
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)


def _outcome(work: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:  # a panic of Rust is no Exception; it belongs to the one who asked, too
        return None, error
