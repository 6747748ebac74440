"""Acknowledgements of stored parcels, which the host may then delete: batched, one call at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sterna.errors import LineBroken, Refused, WireError

EVERY_PARCELS = 8
EVERY_BYTES = 8 << 20
EVERY_SECONDS = 2.0  # after a parcel at the latest: a host with little space waits for it
LAST_SECONDS = 5.0

# Takes the number of the last stored parcel and, for the last acknowledgement, home's signature.
Send = Callable[[int, bytes], Awaitable[None]]


class Acknowledgements:
    """note() collects parcels; run() sends, and parcels noted meanwhile go with the next call."""

    def __init__(self, send: Send) -> None:
        self._send = send
        # Changed by note(), run() and finish(), all in the loop's thread.
        self._noted = 0
        self._sent = 0
        self._parcels = 0  # noted since the last call
        self._bytes = 0
        self._news = asyncio.Event()
        self._enough = asyncio.Event()
        self._sending = asyncio.Lock()
        self.failure: Refused | WireError | None = None  # set by run(); a new session may succeed

    def note(self, number: int, size_bytes: int) -> None:
        """Home has stored this parcel and all before it."""
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
                async with asyncio.timeout(EVERY_SECONDS):
                    await self._enough.wait()
            try:
                await self._send_noted()
            except LineBroken:
                await asyncio.sleep(EVERY_SECONDS)  # the next call covers these parcels too
            except (Refused, WireError) as error:
                self.failure = error
                return

    async def finish(self, receipt: bytes = b"") -> None:
        """Sends the last one, with home's signature of the visit's receipt."""
        # A loss does no harm: hosts delete parcels after a while anyway, and home has the receipt.
        with suppress(LineBroken, Refused, WireError, TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await self._send_noted(receipt)

    async def _send_noted(self, receipt: bytes = b"") -> None:
        async with self._sending:
            number = self._noted
            if number == self._sent and not receipt:
                return
            self._parcels = self._bytes = 0
            self._news.clear()
            self._enough.clear()
            try:
                await self._send(number, receipt)
                self._sent = number
            except BaseException:
                self._news.set()
                raise
