"""What one visit costs its site, counted as it goes; at its end a receipt is made of it."""

import asyncio
import logging

from sterna.errors import StorageError
from sterna.host.owner.receipts import Receipts
from sterna.model import Ended, Usage, Visit
from sterna.wire.keys import PublicKey
from sterna.wire.receipts import LEAST_CALLS, MAX_TIME, Receipt, SignedReceipt, spared

CALLS_OF_A_STREAM = 2  # a greeting and an order
MAX_BILLS = 8  # of one visit: a home that resumes it at its end again and again fills no disk

_log = logging.getLogger(__name__)


class Account:
    """One visit's; changed in the loop's thread only."""

    def __init__(self, visit: Visit, *, home: str, name: str, receipts: Receipts | None) -> None:
        self._visit = visit.id
        self._site = visit.site
        self._agent = visit.etiquette.user_agent
        self._home = home
        self._name = name
        self._receipts = receipts
        self._began: float | None = None
        self._over = 0.0
        self._ended: Ended | None = None
        self._usage = Usage()
        self._root = b""
        self._bills = 0
        self._bill: SignedReceipt | None = None  # the last one
        self._billed_bytes = 0
        # These grow by whoever serves the home.
        self.streams = 0
        self.calls = 0  # besides those for streams
        self.sent_bytes = 0  # by all streams

    def begin(self) -> None:
        """The crawler begins its work."""
        self._began = self._now()

    def end(self, usage: Usage, ended: Ended | None, *, root: bytes) -> None:
        """The visit is over; without `ended` it was broken off."""
        self._over = self._now()
        self._usage = usage
        self._ended = ended
        self._root = root

    async def bill(self) -> bytes:
        """The receipt of a visit that is over, noted and as it travels; b"" where none is kept.

        It counts what all streams have written by now. So another one is made for a stream that was resumed.
        """
        is_due = self._bill is None or self.sent_bytes > self._billed_bytes
        if is_due and self._bills < MAX_BILLS and (made := self._make()):
            await asyncio.to_thread(self._note, made)
        return self._bill.encode() if self._bill else b""

    def close(self) -> None:
        """Notes the receipt of a visit whose home never came for its end."""
        if self._bill is None and (made := self._make()):
            self._note(made)

    def _now(self) -> float:
        # A clock can show anything, and dates end some day.
        return min(max(self._receipts.wall(), 0.0), MAX_TIME) if self._receipts else 0.0

    def _make(self) -> SignedReceipt | None:
        if self._receipts is None or self._began is None:
            return None
        usage, calls = self._usage, max(CALLS_OF_A_STREAM * self.streams + self.calls, LEAST_CALLS)
        receipt = Receipt(
            visit=self._visit,
            site=self._site,
            home=PublicKey.parse(self._home).data,
            host=self._receipts.key,
            began=self._began,
            over=max(self._over, self._began),  # a clock can be set back
            ended=self._ended or Ended.LOST,
            pages=usage.pages,
            requests=usage.requests,
            read_bytes=usage.bytes_received,
            sent_bytes=self.sent_bytes,
            cpu_seconds=usage.cpu_seconds,
            spared_requests=spared(usage.requests, calls),
            spared_bytes=spared(usage.bytes_received, self.sent_bytes),
            root=self._root,
        )
        self._bills += 1
        self._billed_bytes = self.sent_bytes
        self._bill = self._receipts.sign(receipt)
        return self._bill

    def _note(self, made: SignedReceipt) -> None:
        assert self._receipts
        try:
            self._receipts.note(made, name=self._name, agent=self._agent)
        except StorageError as error:
            # Home has it all the same; and the visit is over, whatever the disk says.
            _log.error("the receipt of visit %s is not kept: %s", self._visit, error)
