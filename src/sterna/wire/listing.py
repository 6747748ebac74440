"""The listing of a site by its host's own index: which pages it has, and a digest of each. For everybody."""

import math

import msgspec

from sterna.errors import WireError
from sterna.model import Known, Record, Validator
from sterna.wire.known import pack_known, unpack_known
from sterna.wire.problems import malformed

MAX_LISTED = 1_000_000  # pages; further ones are not listed
MAX_LISTING_BYTES = 16 * 1024 * 1024
VERSION = 1


class Listing(Record, frozen=True, kw_only=True):
    """The pages that everybody may see, as they were when the survey began, or later."""

    version: int = VERSION
    site: str
    began: float  # seconds since 1970, by the host's clock
    pages: tuple[Validator, ...] = ()  # of each its fingerprint, and the first bytes of its digest


class _Packed(Record, frozen=True, kw_only=True):
    version: int
    site: str
    began: float
    known: bytes  # as `wire.known` packs it


def pack_listing(listing: Listing) -> bytes:
    known = pack_known(Known(validators=listing.pages))
    return msgspec.msgpack.encode(
        _Packed(version=listing.version, site=listing.site, began=listing.began, known=known)
    )


def unpack_listing(data: bytes, site: str) -> Listing:
    """The listing of this site; WireError if it is malformed, of a later version, or of another site."""
    with malformed("the listing"):
        packed = msgspec.msgpack.decode(data, type=_Packed)
    if packed.version != VERSION:
        raise WireError("version", f"a listing of version {packed.version}")
    if packed.site != site:
        raise WireError("malformed", "the listing is of another site")
    if not math.isfinite(packed.began):
        raise WireError("malformed", "the listing has no time")
    return Listing(
        site=site, began=packed.began, pages=unpack_known(packed.known, most=MAX_LISTED).validators
    )
