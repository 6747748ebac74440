"""What a crawler at a host holds: the reply to a query, as data. Home runs the SQL."""

import os
from typing import Annotated

import msgspec
import zstandard
from msgspec import Meta

from sterna.errors import WireError
from sterna.model import Record, Usage
from sterna.web.weight import MAX_FACT_BYTES
from sterna.wire.handshake import Random, SessionKeys, seal
from sterna.wire.orders import MAX_FACTS, Count, Report, unsealed
from sterna.wire.parcels import check_usage
from sterna.wire.problems import array_length, malformed, size_of

MAX_HOLDINGS_BYTES = 64 * 1024 * 1024  # unpacked; a host may send less
MAX_SEALED_BYTES = MAX_HOLDINGS_BYTES + 1024 * 1024  # what zstd cannot make smaller grows a little
MAX_DEPTHS = 1_000
MAX_PARCELS = 10_000
QUERY_SECONDS = 60.0  # that a home waits for the reply
_MAX_SMALL_BYTES = 512 * 1024  # of everything but facts and parcels
_LEVEL = 3


class Waiting(Record, frozen=True):
    """URLs of one depth in the frontier."""

    depth: Count
    urls: Count


class Holdings(Record, frozen=True, kw_only=True):
    """A crawler as of its last parcel; facts and parcels that exceed the host's limit are left out."""

    report: Report
    at: Annotated[float, Meta(ge=0, le=1e11)] = 0.0  # when the last parcel was made, by the host's clock
    usage: Usage = Usage()  # of all parcels
    waiting: Annotated[tuple[Waiting, ...], Meta(max_length=MAX_DEPTHS)] = ()
    done: Count = 0  # URLs that are done, or were reported as those of other sites
    facts_total: Count = 0
    facts: tuple[bytes, ...] = ()  # that the crawler keeps
    parcels: tuple[bytes, ...] = ()  # the newest that are not acknowledged, as they travel


class _Unread(Record, frozen=True):
    report: msgspec.Raw
    at: msgspec.Raw
    usage: msgspec.Raw
    waiting: msgspec.Raw
    done: msgspec.Raw
    facts_total: msgspec.Raw
    facts: msgspec.Raw
    parcels: msgspec.Raw


_UNREAD = msgspec.msgpack.Decoder(_Unread)
_HOLDINGS = msgspec.msgpack.Decoder(Holdings)
_encode = msgspec.msgpack.Encoder().encode


def seal_holdings(keys: SessionKeys, holdings: Holdings, *, random: Random = os.urandom) -> bytes:
    """The reply to Query; WireError if it is larger than any home reads."""
    plain = _encode(holdings)
    if len(plain) > MAX_HOLDINGS_BYTES:
        raise WireError("too-large", f"what a crawler holds has {len(plain):,} bytes")
    packed = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False).compress(plain)
    return keys.session + seal(keys.report, packed, bound=keys.session, random=random)


def open_holdings(keys: SessionKeys, body: bytes) -> Holdings:
    """What the host says that its crawler holds; WireError if it is malformed or too large."""
    packed = unsealed(keys, keys.report, body, max_bytes=MAX_SEALED_BYTES)
    with malformed("the holdings"):
        try:
            if not 0 <= zstandard.frame_content_size(packed) <= MAX_HOLDINGS_BYTES:
                raise WireError("too-large", f"holdings unpack to {MAX_HOLDINGS_BYTES:,} bytes at most")
            plain = zstandard.ZstdDecompressor().decompress(packed, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise WireError("malformed", "the holdings are not valid zstd") from error
        _weigh(_UNREAD.decode(plain))
        holdings = _HOLDINGS.decode(plain)
    if max(map(len, holdings.facts), default=0) > MAX_FACT_BYTES:
        raise WireError("malformed", f"a fact of more than {MAX_FACT_BYTES:,} bytes")
    check_usage(holdings.usage)
    return holdings


def _weigh(unread: _Unread) -> None:
    # Before it is decoded: the smallest objects take forty times their bytes.
    if array_length(unread.facts) > MAX_FACTS or array_length(unread.parcels) > MAX_PARCELS:
        raise WireError("too-large", "the holdings have too many facts or parcels")
    if size_of(unread.usage) + size_of(unread.waiting) + size_of(unread.report) > _MAX_SMALL_BYTES:
        raise WireError("too-large", "the counts of the holdings are too large")
