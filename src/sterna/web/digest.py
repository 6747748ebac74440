"""The digest of a page's body, by which a change is seen, and what of it may be compared."""

from hashlib import blake2b

DIGEST_BYTES = 16
MIN_PREFIX_BYTES = 5  # of a digest that is told in short: one change in 2^40 is overlooked


def digest_of(body: bytes) -> bytes:
    """The digest of a body as it was sent, decompressed."""
    return blake2b(body, digest_size=DIGEST_BYTES).digest()


def is_digest(known: bytes, digest: bytes) -> bool:
    """True if `known` is the digest, or the first bytes of it."""
    return len(known) >= MIN_PREFIX_BYTES and digest.startswith(known)
