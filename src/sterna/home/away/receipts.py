"""Receipts at home: compared with what home saw of the visit, countersigned, and stored either way."""

import math
from collections.abc import Awaitable, Callable

from sterna.errors import WireError
from sterna.home.ledger.interface import LedgerDesk
from sterna.model import Ended, Record, Usage
from sterna.wire.keys import Identity
from sterna.wire.receipts import Receipt, decode_receipt

LOST_BYTES = 64 << 20  # that may be lost on the way when a stream is cut: the largest parcel
SKEW_SECONDS = 300.0  # between two clocks that agree well enough for a greeting

Keep = Callable[[str, str, bytes], Awaitable[None]]  # the visit, its site and the signed receipt


class Witnessed(Record, frozen=True, kw_only=True):
    """What home knows of a visit without its receipt; times are by the host's clock."""

    visit: str
    site: str
    host: bytes  # its key
    is_whole: bool  # from the first parcel to the proven end
    ended: Ended | None
    costs: Usage  # the sum of the parcels
    root: bytes
    received_bytes: int  # of all streams, up to the receipt
    lost_streams: int  # that were cut, or of an earlier run
    earliest: float
    latest: float


async def forget(visit: str, site: str, data: bytes) -> None:
    """Stores nothing: for commands that only look at a visit."""


def kept_in(desk: LedgerDesk) -> Keep:
    async def keep(visit: str, site: str, data: bytes) -> None:
        await desk.do(lambda ledger: ledger.add_receipt(visit, site, data))

    return keep


async def countersign(packed: bytes, seen: Witnessed, identity: Identity, *, keep: Keep) -> tuple[bytes, str]:
    """Stores a valid receipt; home's signature if it agrees with what was seen, or why home did not sign."""
    try:
        signed = decode_receipt(packed)
        receipt = signed.open()
        if (receipt.visit, receipt.site) != (seen.visit, seen.site):
            raise WireError("malformed", "it belongs to another visit")
        if (receipt.home, receipt.host) != (identity.public.data, seen.host):
            raise WireError("bad-signature", "it names another home or host")
    except WireError as error:
        return b"", f"invalid receipt: {error}"
    reason = dispute(receipt, seen)
    if not reason:
        signed = signed.countersign(identity)
    await keep(seen.visit, seen.site, signed.encode())
    return b"" if reason else signed.by_home, reason


def dispute(receipt: Receipt, seen: Witnessed) -> str:
    """Why home does not sign the receipt; "" if it agrees with all that was seen."""
    costs = seen.costs
    counted = (receipt.pages, receipt.requests, receipt.read_bytes)
    most_bytes = seen.received_bytes + seen.lost_streams * LOST_BYTES
    doubts = {
        "home has not seen all of the visit": not seen.is_whole,
        "its pages differ from those received": (receipt.ended, receipt.root) != (seen.ended, seen.root),
        "its counts of pages, requests or bytes differ from those of the parcels": counted
        != (costs.pages, costs.requests, costs.bytes_received),
        "its CPU seconds differ from those of the parcels": not math.isclose(
            receipt.cpu_seconds, costs.cpu_seconds, rel_tol=1e-6, abs_tol=1e-3
        ),
        f"it claims {receipt.sent_bytes:,} bytes sent, but {seen.received_bytes:,} were received": not (
            seen.received_bytes <= receipt.sent_bytes <= most_bytes
        ),
        "its times are outside the visit": receipt.began < seen.earliest - SKEW_SECONDS
        or receipt.over > seen.latest + SKEW_SECONDS,
    }
    return next((doubt for doubt, holds in doubts.items() if holds), "")
