"""Acknowledgements of stored parcels: few of them, one at a time, so that the host can forget the parcels."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sterna.errors import LineBroken, Refused, WireError

EVERY_PARCELS = 8
EVERY_BYTES = 8 << 20
EVERY_SECONDS = 2.0  # after a parcel at the latest: a host with little room waits for it
LAST_SECONDS = 5.0

# Takes the number of the last parcel that home has; with the last acknowledgement goes home's signature.
Send = Callable[[int, bytes], Awaitable[None]]


class Acknowledgements:
    """note() collects them; run() sends, and what is noted meanwhile goes with the next."""

    def __init__(self, send: Send, *, every_seconds: float = EVERY_SECONDS) -> None:
        self._send = send
        self._every_seconds = every_seconds
        # Changed by note() and by whoever sends, both in the loop's thread.
        self._noted = 0
        self._told = 0
        self._parcels = 0  # noted since the last one went
        self._bytes = 0
        self._news = asyncio.Event()
        self._enough = asyncio.Event()
        self._sending = asyncio.Lock()
        self.failure: Refused | WireError | None = (
            None  # set when the host refuses: a new session may succeed
        )

    def note(self, number: int, size_bytes: int) -> None:
        """Home has this parcel for good, and all before it."""
        self._noted = number
        self._parcels += 1
        self._bytes += size_bytes
        self._news.set()
        if self._parcels >= EVERY_PARCELS or self._bytes >= EVERY_BYTES:
            self._enough.set()

    async def run(self) -> None:
        """Runs until cancelled or until the host refuses."""
        while True:
            await self._news.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_seconds):
                    await self._enough.wait()
            try:
                await self._tell()
            except LineBroken:
                await asyncio.sleep(self._every_seconds)  # the next one covers this too
            except (Refused, WireError) as error:
                self.failure = error
                return

    async def finish(self, receipt: bytes = b"") -> None:
        """Sends the last one, with home's signature under the visit's receipt.

        If it is lost no harm is done: hosts forget by themselves in time, and home has the receipt.
        """
        with suppress(LineBroken, Refused, WireError, TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await self._tell(receipt)

    async def _tell(self, receipt: bytes = b"") -> None:
        async with self._sending:
            number = self._noted
            if number == self._told and not receipt:
                return
            self._parcels = self._bytes = 0
            self._news.clear()
            self._enough.clear()
            try:
                await self._send(number, receipt)
                self._told = number
            except BaseException:
                self._news.set()
                raise
