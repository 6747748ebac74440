"""Runs blocking work in threads: some at once, some waiting, none for longer than its time."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class Overloaded(Exception):
    """Too many requests are waiting already."""


class TimedOut(Exception):
    """The work took too long."""


class ThreadPool:
    """Does work for requests; made inside a running loop."""

    def __init__(self, *, at_once: int, waiting: int, seconds: float) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._waiting = 0  # requests without a place; changed by `_take` alone
        self._most_waiting = waiting
        self._seconds = seconds

    async def do(self, work: Callable[[], T]) -> T:
        """The result of the work; Overloaded or TimedOut if there is none in time."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._take()
                return await self._start(work)
        except TimeoutError:
            raise TimedOut from None

    async def _take(self) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        if self._waiting >= self._most_waiting:
            raise Overloaded
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
            with suppress(RuntimeError):  # the loop is closed: nobody waits for the result
                loop.call_soon_threadsafe(self._finish, answer, result, error)

        # A thread cannot be cancelled: its place stays taken until it ends, even if nobody waits for it any
        # more. As a daemon it does not delay the end of the process.
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
    except BaseException as error:  # a Rust panic is no Exception; it too belongs to the request
        return None, error
