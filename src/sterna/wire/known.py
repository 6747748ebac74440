"""What is known of a site (the Crawlets paper's F), compact: about 7 bytes a URL, 12 with its digest.

A set of fingerprints is sorted; the differences of their top 16 bits are small numbers, which compress well,
and their other six bytes are random, which nothing shortens. ETag, date and raw response stay at home: a host
reads the page in any case, and compares digests.
"""

import sys
from array import array
from itertools import accumulate, repeat
from operator import lt, sub

import msgspec
import zstandard

from sterna.errors import WireError
from sterna.model import Known, Record, Validator
from sterna.web.signature import LIKENESS_BYTES
from sterna.wire.columns import interleaved, pack_some, unpack_some
from sterna.wire.compression import Unsqueezer
from sterna.wire.problems import malformed

DIGEST_BYTES = 5  # of a page's digest: enough to see a change, but for one in 2^40
MAX_KNOWN = 4_000_000  # URLs in one visit

_TOP, _LOW = 2, 6  # bytes of a fingerprint
_WORD = _TOP + _LOW
_FLIP_SIGN = bytes(each ^ 0x80 for each in range(256))
_LEVEL = 9


Marks = dict[int, int]  # fingerprints and their places


def marks_of(known: Known) -> Marks:
    """The pages of F that have validators, in the order by which both ends number them."""
    return {mark: at for at, mark in enumerate(sorted({each.fingerprint for each in known.validators}))}


class _Marks(Record, frozen=True):
    """A set of fingerprints: the differences of their top 16 bits, compressed, and the rest of each."""

    tops: bytes = b""
    lows: bytes = b""


class _Packed(Record, frozen=True, kw_only=True):
    seen: _Marks  # not to be fetched
    read: _Marks  # those with validators
    has_digest: bytes  # a byte for each of `read`, compressed
    digests: bytes
    has_likeness: bytes
    likenesses: bytes


def pack_known(known: Known) -> bytes:
    """F as it travels; of each digest its first bytes."""
    by_mark = {each.fingerprint: each for each in known.validators}
    marks = sorted(by_mark)
    validators = [by_mark[mark] for mark in marks]
    has_digest, digests = pack_some([each.digest[:DIGEST_BYTES] for each in validators], DIGEST_BYTES)
    has_likeness, likenesses = pack_some([each.likeness for each in validators], LIKENESS_BYTES)
    return msgspec.msgpack.encode(
        _Packed(
            seen=_pack_marks(array("q", known.fingerprints)),
            read=_pack_marks(array("q", marks)),
            has_digest=_compressed(has_digest),
            digests=digests,
            has_likeness=_compressed(has_likeness),
            likenesses=likenesses,
        )
    )


def unpack_known(data: bytes, *, most: int = MAX_KNOWN) -> Known:
    """F with its validators sorted, empty for no bytes; WireError if it is malformed, or has more URLs."""
    if not data:
        return Known()
    with malformed("the list of known pages"):
        packed = msgspec.msgpack.decode(data, type=_Packed)
        seen, read = _unpack_marks(packed.seen, most), _unpack_marks(packed.read, most)
    digests = _unpack_some(packed.has_digest, packed.digests, DIGEST_BYTES, count=len(read))
    likenesses = _unpack_some(packed.has_likeness, packed.likenesses, LIKENESS_BYTES, count=len(read))
    validators = map(Validator, read, repeat(""), repeat(""), digests, repeat(False), likenesses)
    return Known(seen.tobytes(), tuple(validators))


def _unpack_some(has: bytes, joined: bytes, size: int, *, count: int) -> list[bytes]:
    return unpack_some(_decompressed(has, count) if has else b"", joined, size, count=count)


# --- sets of fingerprints


def _pack_marks(marks: "array[int]") -> _Marks:
    if not marks:
        return _Marks()
    words = _big_endian(marks).tobytes()
    # Signed numbers are sorted like unsigned ones whose first bit is turned.
    tops = interleaved((words[0::_WORD].translate(_FLIP_SIGN), words[1::_WORD]))
    heights = _big_endian(array("H", tops))
    steps = _big_endian(array("H", [heights[0], *map(sub, heights[1:], heights)])).tobytes()
    return _Marks(
        _compressed(steps[0::_TOP] + steps[1::_TOP]),
        interleaved([words[plane::_WORD] for plane in range(_TOP, _WORD)]),
    )


def _unpack_marks(packed: _Marks, most: int) -> "array[int]":
    count, rest = divmod(len(packed.lows), _LOW)
    if rest or count > most:
        raise WireError(
            "malformed", f"{len(packed.lows):,} bytes of fingerprints; {_LOW * most:,} are allowed"
        )
    if not count:
        return array("q")
    steps = _decompressed(packed.tops, count * _TOP)
    heights = accumulate(_big_endian(array("H", interleaved((steps[:count], steps[count:])))))
    tops = _big_endian(array("H", heights)).tobytes()
    lows = [packed.lows[plane::_LOW] for plane in range(_LOW)]
    words = array("q", interleaved((tops[0::_TOP].translate(_FLIP_SIGN), tops[1::_TOP], *lows)))
    marks = _big_endian(words)
    if not all(map(lt, marks, marks[1:])):
        raise WireError("malformed", "fingerprints are not sorted")
    return marks


def _big_endian(numbers: "array[int]") -> "array[int]":
    """The numbers with their bytes the other way round, where this machine is little-endian; and back."""
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


# --- small compressed parts


def _compressed(data: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=False, write_checksum=False)
    return compressor.compress(data) if data else b""


def _decompressed(data: bytes, size: int) -> bytes:
    """Exactly `size` bytes; WireError if there are more or fewer."""
    whole = bytes(Unsqueezer(size).add(data, max_bytes=size))
    if len(whole) != size:
        raise WireError("malformed", f"a part of the known pages has {len(whole)} bytes, not {size}")
    return whole
