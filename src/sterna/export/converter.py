"""Stored pages converted to Markdown in a jailed process, for an export that waits for each of them."""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from sterna.export.markdown_cell import MAX_CONVERSION_BYTES, MAX_MARKDOWN_BYTES, Conversion, Converted
from sterna.runtime.cell.frame import framed, message_decoder
from sterna.runtime.cell.jail import JailLimits
from sterna.runtime.cell.workers import Manner, TaskFailed, Workers

_log = logging.getLogger(__name__)

MANNER = Manner(
    entry="sterna.export.markdown_cell:serve",
    limits=JailLimits(memory_bytes=2 * 1024**3, cpu_seconds=math.inf),
    seconds=60.0,
    most_bytes=MAX_MARKDOWN_BYTES,
)
_T = TypeVar("_T")
_read_answer: Callable[[bytes], Converted] = message_decoder(Converted)


class Converter(AbstractContextManager["Converter"]):
    """Has pages converted; its caller may run in an event loop of its own, so this has one in a thread."""

    def __init__(self, manner: Manner = MANNER) -> None:
        self._manner = manner
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="converter", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._workers = self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._workers.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> Workers[Converted]:
        return Workers(1, self._manner, decode=_read_answer)

    def convert(self, page: Conversion) -> str:
        """The page in Markdown; of one that its cell cannot convert, its text."""
        try:
            return self._run(self._convert(page))
        except (TaskFailed, ValueError) as error:
            _log.warning("%s is exported as plain text: %s", page.url, error)
        try:
            return self._run(self._convert(replace(page, html="", record=b"")))
        except (TaskFailed, ValueError) as error:
            _log.warning("%s is left out: %s", page.url, error)
            return ""

    async def _convert(self, page: Conversion) -> str:
        return (await self._workers.answer(framed(page, most_bytes=MAX_CONVERSION_BYTES))).markdown

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        done = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return done.result()
        except BaseException:  # Ctrl-C: nobody waits for it any more
            done.cancel()
            raise
