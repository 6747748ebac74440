"""The Merkle tree over a visit's pages (RFC 6962 2.1, with BLAKE2b-256): one root for all of them.

Home and host compute the same leaves: the host over each page as it packs it, home over each page as it has
unpacked it. A page that did not change counts by its fingerprint only, since home has the rest from before;
any other by its msgpack without the fingerprint, which home computes itself.
"""

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from sterna.model import Page

HASH_BYTES = 32

_LEAF, _NODE = b"\x00", b"\x01"  # a node must not be accepted as a leaf
_FIELDS = Page.__struct_fields__.index("note")  # which does not travel
_encode = msgspec.msgpack.Encoder().encode


def leaf_of(page: Page) -> bytes:
    if page.is_unchanged:
        return leaf_hash(b"=" + page.fingerprint.to_bytes(8, "big", signed=True))
    fields = msgspec.structs.astuple(msgspec.structs.replace(page, fingerprint=0))
    return leaf_hash(_encode(fields[:_FIELDS]))


def leaf_hash(data: bytes) -> bytes:
    leaf = blake2b(_LEAF, digest_size=HASH_BYTES)
    leaf.update(data)  # which may be large
    return leaf.digest()


class Tree:
    """Grows leaf by leaf, and keeps only one hash for each level."""

    def __init__(self, count: int = 0, peaks: Sequence[bytes] = ()) -> None:
        """Grows on from these leaves, of which only the peaks are needed; ValueError if they do not fit."""
        if len(peaks) != count.bit_count():
            raise ValueError(f"{len(peaks)} peaks of a tree of {count} leaves")
        self.count = count
        # Roots of the full subtrees, the largest first, as the ones in the binary form of `count`.
        self._peaks = list(peaks)

    @property
    def peaks(self) -> tuple[bytes, ...]:
        return tuple(self._peaks)

    def add(self, leaf: bytes) -> None:
        full = self.count
        while full & 1:
            leaf = _node(self._peaks.pop(), leaf)
            full >>= 1
        self._peaks.append(leaf)
        self.count += 1

    def root(self) -> bytes:
        """The hash over all leaves so far; without leaves, the hash of the empty string."""
        if not self._peaks:
            return blake2b(digest_size=HASH_BYTES).digest()
        *left, root = self._peaks
        for peak in reversed(left):
            root = _node(peak, root)
        return root


def _node(left: bytes, right: bytes) -> bytes:
    return blake2b(_NODE + left + right, digest_size=HASH_BYTES).digest()
