"""The tree of a visit's pages is that of RFC 6962, grows with little memory, and shows what belongs to it."""

from hashlib import blake2b

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import making
from tests.wire.parties import is_read, refusal

from sterna.model import Link, Links, Page
from sterna.wire.merkle import Tree, leaf_hash, leaf_of, verify

LEAVES = [leaf_hash(bytes([number])) for number in range(70)]
URL = "https://www.example.org/a"
PAGE = making.page(
    URL,
    depth=2,
    fetched=1_700_000_000.123456,
    title="A",
    text="a text",
    digest=b"d" * 32,
    links=Links.of(Link(f"{URL}/b", "b")),
)


def root_by_definition(leaves: list[bytes]) -> bytes:
    """RFC 6962 2.1, word for word."""
    if not leaves:
        return blake2b(b"", digest_size=32).digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    halves = root_by_definition(leaves[:split]) + root_by_definition(leaves[split:])
    return blake2b(b"\1" + halves, digest_size=32).digest()


def tree_of(leaves: list[bytes]) -> Tree:
    tree = Tree(keeps_leaves=True)
    for leaf in leaves:
        tree.add(leaf)
    return tree


def test_every_root_is_that_of_the_definition() -> None:
    tree = Tree()
    assert tree.root() == root_by_definition([])
    for count, leaf in enumerate(LEAVES, start=1):
        tree.add(leaf)
        assert tree.root() == root_by_definition(LEAVES[:count])
        assert tree.count == count


def test_a_tree_keeps_one_hash_for_each_level() -> None:
    tree = Tree()
    for _ in range(100_000):
        tree.add(LEAVES[0])
    assert len(tree._peaks) <= 17


def test_every_leaf_of_every_tree_can_be_shown() -> None:
    for count in range(1, 40):
        tree = tree_of(LEAVES[:count])
        for index in range(count):
            proof = tree.proof(index)
            assert len(proof) <= (count - 1).bit_length()
            verify(LEAVES[index], index=index, count=count, proof=proof, root=tree.root())


def test_no_proof_shows_what_is_not_so() -> None:
    tree = tree_of(LEAVES[:13])
    root = tree.root()
    for index in range(13):
        proof = tree.proof(index)
        wrong = [
            (LEAVES[13], index, 13, proof, root),
            (LEAVES[index], index, 13, proof, LEAVES[0]),
            (LEAVES[index], index, 13, proof[:-1], root),
            (LEAVES[index], index, 13, (*proof, LEAVES[0]), root),
            (LEAVES[index], index, 13, proof[::-1], root) if len(set(proof)) > 1 else None,
            (LEAVES[index], 13, 13, proof, root),
            (LEAVES[index], -1, 13, proof, root),
            (LEAVES[index], index, 0, proof, root),
            (LEAVES[index], index, 13, (LEAVES[0],) * 65, root),
            *((LEAVES[index], other, 13, proof, root) for other in range(13) if other != index),
        ]
        for leaf, at, count, path, top in filter(None, wrong):
            problem = refusal(verify_all, leaf, at, count, path, top)
            assert problem in {"malformed", "bad-signature"}


def verify_all(leaf: bytes, index: int, count: int, proof: tuple[bytes, ...], root: bytes) -> None:
    verify(leaf, index=index, count=count, proof=proof, root=root)


def test_a_node_does_not_pass_for_a_leaf() -> None:
    tree = tree_of(LEAVES[:2])
    assert leaf_hash(LEAVES[0] + LEAVES[1]) != tree.root()
    assert tree_of([leaf_hash(b"\1" + LEAVES[0] + LEAVES[1])]).root() != tree.root()


@settings(deadline=None)
@given(
    st.binary(max_size=40),
    st.integers(-5, 2**70),
    st.integers(-5, 2**70),
    st.lists(st.binary(max_size=40), max_size=70),
)
def test_any_proof_is_refused(leaf: bytes, index: int, count: int, proof: list[bytes]) -> None:
    assert not is_read(verify_all, leaf, index, count, tuple(proof), b"r" * 32)


def test_order_and_number_of_leaves_matter() -> None:
    assert tree_of(LEAVES[:4]).root() != tree_of(LEAVES[3::-1]).root()
    assert tree_of(LEAVES[:4]).root() != tree_of([*LEAVES[:4], LEAVES[3]]).root()


def test_without_leaves_there_is_no_proof() -> None:
    tree = Tree()
    tree.add(LEAVES[0])
    with pytest.raises(ValueError, match="does not keep"):
        tree.proof(0)
    with pytest.raises(IndexError):
        tree_of(LEAVES[:3]).proof(3)


# -- leaves of pages


def test_the_leaf_of_a_page_covers_all_but_its_fingerprint() -> None:
    assert leaf_of(PAGE) == leaf_of(msgspec.structs.replace(PAGE, fingerprint=0))
    for name, value in {
        "url": URL + "b",
        "depth": 3,
        "fetched": 1.0,
        "status": 404,
        "title": "B",
        "text": "",
        "digest": b"",
        "links": Links(),
        "is_kept": False,
        "headers": (("a", "b"),),
    }.items():
        assert leaf_of(msgspec.structs.replace(PAGE, **{name: value})) != leaf_of(PAGE), name


def test_the_leaf_of_an_unchanged_page_is_its_fingerprint() -> None:
    unchanged = msgspec.structs.replace(PAGE, is_unchanged=True)
    bare = Page(url="", fingerprint=PAGE.fingerprint, depth=0, fetched=0.0, is_unchanged=True)
    assert leaf_of(unchanged) == leaf_of(bare) != leaf_of(PAGE)
    packed = b"\0=" + PAGE.fingerprint.to_bytes(8, "big", signed=True)
    assert leaf_of(bare) == blake2b(packed, digest_size=32).digest()


def test_the_least_and_the_largest_fingerprint_have_leaves() -> None:
    bare = [
        Page(url="", fingerprint=mark, depth=0, fetched=0.0, is_unchanged=True)
        for mark in (-(2**63), 2**63 - 1)
    ]
    assert len(set(map(leaf_of, bare))) == 2


def test_the_leaf_survives_msgpack() -> None:
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(PAGE), type=Page)
    assert leaf_of(again) == leaf_of(PAGE)
