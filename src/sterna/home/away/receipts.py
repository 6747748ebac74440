"""Receipts at home: held against what home itself saw of the visit, then signed, and kept either way."""

import math
from collections.abc import Awaitable, Callable

from sterna.errors import WireError
from sterna.home.ledger.desk import LedgerDesk
from sterna.model import Ended, Record, Usage
from sterna.wire.keys import Identity
from sterna.wire.receipts import Receipt, decode_receipt

# What a host may have written into a stream that was cut, and what never came: the largest parcel.
LOST_BYTES = 64 << 20
SKEW_SECONDS = 300.0  # between two clocks that agreed well enough for a greeting, and on the way

Keep = Callable[[str, str, bytes], Awaitable[None]]  # the visit, its site and the signed receipt


class Witnessed(Record, frozen=True, kw_only=True):
    """What home knows of a visit without its receipt; times are the host's."""

    visit: str
    site: str
    host: bytes  # its key
    is_whole: bool  # seen from the first parcel to the proven end
    ended: Ended | None
    costs: Usage  # as the parcels say
    root: bytes
    received_bytes: int  # of all streams, until the receipt
    lost_streams: int  # that were cut, or of which nobody here knows
    earliest: float
    latest: float


class Signing(Record, frozen=True):
    """What became of a receipt."""

    signature: bytes = b""  # home's, if it signed
    reason: str = ""  # why it did not


async def forget(visit: str, site: str, data: bytes) -> None:
    """For those who send crawlers and keep nothing, such as a look at one that is away."""


def kept_in(desk: LedgerDesk) -> Keep:
    """Keeps receipts in the ledger."""

    async def keep(visit: str, site: str, data: bytes) -> None:
        await desk.do(lambda ledger: ledger.add_receipt(visit, site, data))

    return keep


class Countersigning:
    """Takes the receipts of this home's visits."""

    def __init__(self, identity: Identity, *, keep: Keep = forget) -> None:
        self._identity = identity
        self._keep = keep

    async def take(self, packed: bytes, seen: Witnessed) -> Signing:
        """Keeps the receipt, signed if it can be; one that proves nothing is not kept."""
        try:
            signed = decode_receipt(packed)
            receipt = signed.open()
            check_parties(receipt, seen, home=self._identity.public.data)
        except WireError as error:
            return Signing(reason=f"the receipt is none: {error}")
        reason = dispute(receipt, seen)
        if not reason:
            signed = signed.countersign(self._identity)
        await self._keep(seen.visit, seen.site, signed.encode())
        return Signing(b"" if reason else signed.by_home, reason)


def check_parties(receipt: Receipt, seen: Witnessed, *, home: bytes) -> None:
    """WireError unless it is the receipt of this visit, between this home and this host."""
    if (receipt.visit, receipt.site) != (seen.visit, seen.site):
        raise WireError("malformed", "it is of another visit")
    if (receipt.home, receipt.host) != (home, seen.host):
        raise WireError("bad-signature", "it is between others")


def dispute(receipt: Receipt, seen: Witnessed) -> str:
    """Why home does not sign it, in a few words; "" if all of it can be."""
    costs = seen.costs
    counted = (receipt.pages, receipt.requests, receipt.read_bytes)
    most_bytes = seen.received_bytes + seen.lost_streams * LOST_BYTES
    doubts = {
        "home has not seen all of the visit": not seen.is_whole,
        "it is of other pages than those that came": (receipt.ended, receipt.root) != (seen.ended, seen.root),
        "it counts other pages, requests or bytes than the parcels do": counted
        != (costs.pages, costs.requests, costs.bytes_received),
        "it counts other CPU seconds than the parcels do": not math.isclose(
            receipt.cpu_seconds, costs.cpu_seconds, rel_tol=1e-6, abs_tol=1e-3
        ),
        f"it says that {receipt.sent_bytes:,} bytes were sent, {seen.received_bytes:,} came": not (
            seen.received_bytes <= receipt.sent_bytes <= most_bytes
        ),
        "its times are not those of the visit": receipt.began < seen.earliest - SKEW_SECONDS
        or receipt.over > seen.latest + SKEW_SECONDS,
    }
    return next((doubt for doubt, holds in doubts.items() if holds), "")
