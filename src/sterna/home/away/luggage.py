"""What a crawler takes to a host: which start URLs by name, and what is known of the site.

A page that was read before need not travel as a URL: its fingerprint and digest are known there, and the
crawler comes by it through links from the site's roots, as a browser would. What it did not come by is given
to the next visit by name.
"""

from collections.abc import Container
from dataclasses import dataclass

import msgspec
import zstandard

from sterna.errors import HostGone, WireError
from sterna.model import Budget, Ended, Known, Parcel, Record, Target, Visit
from sterna.web.urls import fingerprint
from sterna.wire.discovery import Offer, decode_offer, encode_offer
from sterna.wire.known import Marks, pack_known

_LEVEL = 3
_ENCODER = msgspec.msgpack.Encoder()


class Packed(Record, frozen=True):
    """What is kept of a crawler that is away; `own` is its budget, where the visit's is what was granted."""

    visit: Visit
    offer: bytes
    own: Budget | None = None


_DECODER = msgspec.msgpack.Decoder(Packed)


def luggage(visit: Visit) -> tuple[tuple[Target, ...], Known]:
    """The start URLs that go by name, in their order, and what is known."""
    validators = tuple(each for each in visit.known.validators if each.digest)
    known = Known(visit.known.fingerprints, validators)
    if not validators:
        return visit.starts, known
    marks = {each.fingerprint for each in validators}
    lowest = min((start.depth for start in visit.starts), default=0)
    # By its rules nothing is come by through links, and in some parts alone not everything.
    is_led = visit.crawler.program.drives_loading or bool(visit.within)
    return tuple(
        start
        for start in visit.starts
        if is_led or _goes_by_name(start, lowest) or fingerprint(start.url) not in marks
    ), known


@dataclass(frozen=True, slots=True)
class Cargo:
    """What goes to the host with the visit, packed."""

    starts: tuple[Target, ...]
    known: bytes
    marks: Marks

    @classmethod
    def of(cls, visit: Visit) -> "Cargo":
        """Takes a while where much is known."""
        starts, known = luggage(visit)
        return cls(starts, pack_known(known), Marks(known))


def _goes_by_name(start: Target, lowest: int) -> bool:
    """Roots do, from which the rest is found, and what was tried before: see with_missed()."""
    return start.depth <= lowest or start.attempts > 0 or start.kind != "page"


def with_missed(parcel: Parcel, visit: Visit, *, reported: Container[int]) -> Parcel:
    """The last parcel of a finished visit with the starts that it did not come by, to be tried again.

    One more attempt is what tells the next visit to take them by name.
    """
    if parcel.ended is not Ended.FINISHED:
        return parcel
    told = {fingerprint(target.url) for target in parcel.checkpoint.again}
    missed = tuple(
        msgspec.structs.replace(start, attempts=start.attempts + 1)
        for start in visit.starts
        for mark in (fingerprint(start.url),)
        if mark not in reported and mark not in told
    )
    checkpoint = msgspec.structs.replace(parcel.checkpoint, again=(*parcel.checkpoint.again, *missed))
    return msgspec.structs.replace(parcel, checkpoint=checkpoint)


def is_negligent(visit: Visit, *, reported: Container[int]) -> bool:
    """True if a visit that finished said nothing of a URL that it was given by name: its host is no good."""
    return any(fingerprint(start.url) not in reported for start in luggage(visit)[0])


def pack(visit: Visit, offer: Offer, own: Budget | None = None) -> bytes:
    """All that it takes to hear of a crawler again after home ended: for the ledger's outbox."""
    data = _ENCODER.encode(Packed(visit, encode_offer(offer), own))
    return zstandard.ZstdCompressor(level=_LEVEL).compress(data)


def unpack(data: bytes) -> tuple[Visit, Offer]:
    """The visit and the offer that pack() was given; HostGone if another version of Sterna packed them."""
    return unpack_all(data)[:2]


def unpack_all(data: bytes) -> tuple[Visit, Offer, Budget | None]:
    """All that pack() was given; HostGone as for unpack()."""
    try:
        packed = _DECODER.decode(zstandard.ZstdDecompressor().decompress(data))
        return packed.visit, decode_offer(packed.offer, packed.visit.site), packed.own
    except (zstandard.ZstdError, msgspec.MsgspecError, WireError) as error:
        raise HostGone(f"what the crawler took along cannot be read any more: {error}") from error
