"""The tree of a visit's pages is that of RFC 6962 and grows with little memory."""

from hashlib import blake2b

import msgspec
from tests import making

from sterna.model import Link, Links, Page
from sterna.wire.merkle import Tree, leaf_hash, leaf_of

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
    tree = Tree()
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


def test_a_node_does_not_pass_for_a_leaf() -> None:
    tree = tree_of(LEAVES[:2])
    assert leaf_hash(LEAVES[0] + LEAVES[1]) != tree.root()
    assert tree_of([leaf_hash(b"\1" + LEAVES[0] + LEAVES[1])]).root() != tree.root()


def test_order_and_number_of_leaves_matter() -> None:
    assert tree_of(LEAVES[:4]).root() != tree_of(LEAVES[3::-1]).root()
    assert tree_of(LEAVES[:4]).root() != tree_of([*LEAVES[:4], LEAVES[3]]).root()


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
