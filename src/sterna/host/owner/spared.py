"""The sums of a host's receipts by home, for its status page; read again only when the file has changed."""

import time
from collections.abc import Sequence
from pathlib import Path

from sterna.host.owner.receipts import FILE, KeptReceipt, read_book
from sterna.model import Record
from sterna.wire.keys import PublicKey

LEAST_SECONDS = 60.0  # between two readings: each verifies every signature
MAX_HOMES = 50


class Spared(Record, frozen=True):
    """What the visits of one home cost and spared."""

    home: str
    visits: int
    signed: int  # by the home too
    requests: int  # that were spared
    bytes: int
    cpu_seconds: float


class ReceiptSums:
    """Calls give the sums as they were at most a minute ago."""

    def __init__(self, state: Path) -> None:
        self._state = state
        # Changed by a call alone.
        self._seen: tuple[int, int] = (0, 0)
        self._due = 0.0
        self._sums: Sequence[Spared] = ()

    def __call__(self) -> Sequence[Spared]:
        try:
            status = (self._state / FILE).stat()
        except FileNotFoundError:
            return ()
        seen = (status.st_mtime_ns, status.st_size)
        if seen != self._seen and time.monotonic() >= self._due:
            self._sums, self._seen = sums_of(read_book(self._state).rows), seen
            self._due = time.monotonic() + LEAST_SECONDS
        return self._sums


def sums_of(rows: Sequence[KeptReceipt]) -> list[Spared]:
    """By home, those who spared most bytes first."""
    sums: dict[bytes, Spared] = {}
    for kept in rows:
        receipt = kept.receipt
        name = kept.name or PublicKey(receipt.home).text
        before = sums.get(receipt.home, Spared(name, 0, 0, 0, 0, 0.0))
        sums[receipt.home] = Spared(
            before.home,
            before.visits + 1,
            before.signed + kept.is_countersigned,
            before.requests + receipt.spared_requests,
            before.bytes + receipt.spared_bytes,
            before.cpu_seconds + receipt.cpu_seconds,
        )
    return sorted(sums.values(), key=lambda each: -each.bytes)[:MAX_HOMES]
