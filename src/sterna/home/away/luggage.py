"""What a crawler takes to a host: the start URLs that are sent as text, and what is known of the site.

A page that was read before need not be sent as a URL: its fingerprint and digest are sent, and the crawler
reaches it through links from the site's roots, as a browser would. Pages that it did not reach are sent as
URLs with the next visit.
"""

from collections.abc import Container

import msgspec
import zstandard

from sterna.errors import HostGone, WireError
from sterna.model import Budget, Ended, Known, Parcel, Record, Target, Visit
from sterna.web.urls import fingerprint
from sterna.wire.discovery import Offer, decode_offer, encode_offer

_LEVEL = 3


class Packed(Record, frozen=True):
    """An entry of the outbox; `own` is the crawler's own budget, the visit's is what was granted."""

    visit: Visit
    offer: bytes
    own: Budget | None = None


def luggage(visit: Visit) -> tuple[tuple[Target, ...], Known]:
    """The start URLs to send, in their order, and what is known of the site."""
    validators = tuple(each for each in visit.known.validators if each.digest)
    known = Known(visit.known.fingerprints, validators)
    if not validators:
        return visit.starts, known
    marks = {each.fingerprint for each in validators}
    lowest = min((start.depth for start in visit.starts), default=0)
    # Rules that drive loading follow no links, and links of some parts do not reach every page.
    is_led = visit.crawler.program.drives_loading or bool(visit.within)
    starts = tuple(
        start
        for start in visit.starts
        # Roots, from which the rest is found, and URLs that were missed before: see with_missed().
        if is_led
        or (start.depth <= lowest or start.attempts > 0 or start.kind != "page")
        or fingerprint(start.url) not in marks
    )
    return starts, known


def with_missed(parcel: Parcel, visit: Visit, *, reported: Container[int]) -> Parcel:
    """Adds the start URLs that a finished visit did not reach to its last parcel, to be tried again.

    Their raised number of attempts makes the next visit send them as URLs.
    """
    if parcel.ended is not Ended.FINISHED:
        return parcel
    retried = {fingerprint(target.url) for target in parcel.checkpoint.again}
    missed = tuple(
        msgspec.structs.replace(start, attempts=start.attempts + 1)
        for start in visit.starts
        for mark in (fingerprint(start.url),)
        if mark not in reported and mark not in retried
    )
    checkpoint = msgspec.structs.replace(parcel.checkpoint, again=(*parcel.checkpoint.again, *missed))
    return msgspec.structs.replace(parcel, checkpoint=checkpoint)


def is_negligent(visit: Visit, *, reported: Container[int]) -> bool:
    """True if a finished visit did not report a URL that it was sent."""
    return any(fingerprint(start.url) not in reported for start in luggage(visit)[0])


def pack(visit: Visit, offer: Offer, own: Budget | None = None) -> bytes:
    """All that is needed to resume the visit after a restart of home: for the ledger's outbox."""
    data = msgspec.msgpack.encode(Packed(visit, encode_offer(offer), own))
    return zstandard.ZstdCompressor(level=_LEVEL).compress(data)


def unpack(data: bytes) -> tuple[Visit, Offer, Budget | None]:
    """What pack() was given; raises HostGone if another version of Sterna packed it."""
    try:
        packed = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(data), type=Packed)
        return packed.visit, decode_offer(packed.offer, packed.visit.site), packed.own
    except (zstandard.ZstdError, msgspec.MsgspecError, WireError) as error:
        raise HostGone(f"cannot read the crawler's entry in the outbox: {error}") from error
