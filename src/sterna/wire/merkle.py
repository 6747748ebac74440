"""The Merkle tree over a visit's pages (RFC 6962 2.1, with BLAKE2b-256): one root for all of them.

Home and host compute the same leaves: the host over each page as it packs it, home over each page as it has
unpacked it. A page that did not change counts by its fingerprint only, since home has the rest from before;
any other by its msgpack without the fingerprint, which home computes itself.
"""

from hashlib import blake2b

import msgspec

from sterna.errors import WireError
from sterna.model import Page

HASH_BYTES = 32
MAX_PROOF = 64  # hashes: as many as any tree has levels

_LEAF, _NODE = b"\x00", b"\x01"  # a node must not be accepted as a leaf
_encode = msgspec.msgpack.Encoder().encode


def leaf_of(page: Page) -> bytes:
    """The leaf of a page."""
    if page.is_unchanged:
        return leaf_hash(b"=" + page.fingerprint.to_bytes(8, "big", signed=True))
    return leaf_hash(_encode(msgspec.structs.replace(page, fingerprint=0)))


def leaf_hash(data: bytes) -> bytes:
    """The leaf over any bytes."""
    return blake2b(_LEAF + data, digest_size=HASH_BYTES).digest()


class Tree:
    """Grows leaf by leaf, and keeps only one hash for each level unless proofs are wanted."""

    def __init__(self, *, keeps_leaves: bool = False) -> None:
        self.count = 0
        # Roots of the full subtrees, the largest first, as the ones in the binary form of `count`.
        self._peaks: list[bytes] = []
        self._leaves: list[bytes] | None = [] if keeps_leaves else None

    def add(self, leaf: bytes) -> None:
        """Adds a leaf, as `leaf_of` makes it."""
        if self._leaves is not None:
            self._leaves.append(leaf)
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

    def proof(self, index: int) -> tuple[bytes, ...]:
        """The proof that this leaf is under the root; only if the tree keeps its leaves."""
        if self._leaves is None:
            raise ValueError("no proof: this tree does not keep its leaves")
        if not 0 <= index < self.count:
            raise IndexError(f"there is no leaf {index} among {self.count}")
        return tuple(_path(self._leaves, index))


def verify(leaf: bytes, *, index: int, count: int, proof: tuple[bytes, ...], root: bytes) -> None:
    """WireError unless the leaf is the one of that index in a tree of `count` leaves with that root."""
    if not 0 <= index < count or len(proof) > MAX_PROOF:
        raise WireError("malformed", f"there is no leaf {index} among {count}")
    found, last = leaf, count - 1
    for sibling in proof:
        if last == 0:
            raise WireError("bad-signature", "the proof is longer than the tree is high")
        if index & 1 or index == last:
            found = _node(sibling, found)
            while not index & 1 and index:  # a level on which it had no sibling
                index, last = index >> 1, last >> 1
        else:
            found = _node(found, sibling)
        index, last = index >> 1, last >> 1
    if last or found != root:
        raise WireError("bad-signature", "the page is not one of those that the host signed")


def _node(left: bytes, right: bytes) -> bytes:
    return blake2b(_NODE + left + right, digest_size=HASH_BYTES).digest()


def _path(leaves: list[bytes], index: int) -> list[bytes]:
    if len(leaves) == 1:
        return []
    middle = _split(len(leaves))
    if index < middle:
        return [*_path(leaves[:middle], index), _root(leaves[middle:])]
    return [*_path(leaves[middle:], index - middle), _root(leaves[:middle])]


def _root(leaves: list[bytes]) -> bytes:
    tree = Tree()
    for leaf in leaves:
        tree.add(leaf)
    return tree.root()


def _split(count: int) -> int:
    # The largest power of two that is smaller.
    return 1 << (count - 1).bit_length() - 1
