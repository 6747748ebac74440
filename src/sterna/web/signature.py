"""What two versions of a page are compared by: the digest of its body, and a signature of its words.

The signature says in eight bytes how like two texts are: one-permutation min-wise hashing (Li, Owen, Zhang
2012) with one bit of each minimum (Li, König 2010). The hashes of the words fall into 64 buckets, and the
least of each bucket gives a bit; an empty one takes that of the next. Two texts agree in a bit where they
share that word, and by chance in half of the others.
"""

from bisect import bisect_left
from hashlib import blake2b
from zlib import crc32

DIGEST_BYTES = 16
MIN_PREFIX_BYTES = 5  # of an abbreviated digest: one change in 2^40 goes unnoticed
LIKENESS_BYTES = 8
_BITS = 8 * LIKENESS_BYTES
_BUCKETS = range(0, 2**32, 2**32 // _BITS)  # where each begins
_MIX, _MASK = 0x9E3779B1, 2**32 - 1  # a CRC is linear; multiplied, the hashes of words that are alike are not
_BIT = 12  # of a hash: neither the one that chose the bucket nor one that the product hardly mixed


def digest_of(body: bytes) -> bytes:
    """The digest of a body as it was sent, decompressed."""
    return blake2b(body, digest_size=DIGEST_BYTES).digest()


def is_digest(known: bytes, digest: bytes) -> bool:
    """True if `known` is the digest, or the first bytes of it."""
    return len(known) >= MIN_PREFIX_BYTES and digest.startswith(known)


def likeness_of(text: str) -> bytes:
    """The signature of a text's words, regardless of order and number; empty without words."""
    words = set(text.lower().encode().split())
    if not words:
        return b""
    hashes = sorted([crc32(word) * _MIX & _MASK for word in words])
    hashes.append(hashes[0])  # after the last bucket comes the first
    end = len(words)
    bits = 0
    for begin in _BUCKETS:
        bits = bits << 1 | hashes[bisect_left(hashes, begin, 0, end)] >> _BIT & 1
    return bits.to_bytes(LIKENESS_BYTES, "big")


def change_between(one: bytes, other: bytes) -> float:
    """The approximate share of words that changed, 0 to 1; 1 if one text has no signature."""
    if not len(one) == len(other) == LIKENESS_BYTES:
        return 1.0
    differing = (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).bit_count()
    common = max(0.0, 1 - 2 * differing / _BITS)  # of all words of both: chance hides half of what differs
    return (1 - common) / (1 + common)
