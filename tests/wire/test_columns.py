"""Columns: any rows come through, common ones weigh nothing, and wrong ones are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.errors import WireError
from sterna.wire.columns import (
    pack_flags,
    pack_lists,
    pack_numbers,
    pack_places,
    pack_some,
    pack_texts,
    unpack_flags,
    unpack_lists,
    unpack_numbers,
    unpack_places,
    unpack_some,
    unpack_texts,
)

TEXTS = st.one_of(st.text(), st.sampled_from(["", "\0", "a\0b", "\n", "a\nb"]))


@given(st.lists(TEXTS))
def test_texts_come_through(texts: list[str]) -> None:
    assert list(unpack_texts(pack_texts(texts), len(texts))) == texts


@given(st.lists(st.lists(TEXTS)))
def test_lists_come_through(lists: list[list[str]]) -> None:
    assert list(unpack_lists(pack_lists(lists), len(lists))) == [tuple(texts) for texts in lists]


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_numbers_come_through(numbers: list[int]) -> None:
    column = pack_numbers(numbers)
    came = unpack_numbers(column, len(numbers), least=-(2**63), most=2**63 - 1, name="number")
    assert list(came) == numbers


@given(st.lists(st.booleans()), st.booleans())
def test_flags_come_through(flags: list[bool], usual: bool) -> None:
    assert list(unpack_flags(pack_flags(flags, usual=usual), len(flags), usual=usual)) == flags


@given(st.lists(st.sampled_from([b"", b"1234", b"abcd"])))
def test_what_some_rows_have_comes_through(values: list[bytes]) -> None:
    assert unpack_some(*pack_some(values, 4), 4, count=len(values)) == values


@given(st.sets(st.integers(0, 300_000)))
def test_places_come_through_in_their_order(places: set[int]) -> None:
    assert unpack_places(pack_places(places), 300_001) == sorted(places)


def test_rows_that_are_all_empty_weigh_nothing() -> None:
    assert pack_texts([""] * 9) == ""
    assert pack_lists([()] * 9) == ""
    assert pack_numbers([0] * 9) == ()
    assert pack_flags([True] * 9, usual=True) == b""
    assert pack_some([b""] * 9, 4) == (b"", b"")
    assert pack_places([]) == b""


def test_texts_are_joined_unless_one_of_them_holds_what_is_between_them() -> None:
    assert pack_texts(["a", "", "b"]) == "a\0\0b"
    assert pack_texts(["a\0", "b"]) == ("a\0", "b")
    assert pack_lists([("a", "b"), (), ("c",)]) == "a\nb\0\0c"
    assert pack_lists([("a\nb",)]) == (("a\nb",),)
    assert pack_lists([("",)]) == (("",),)


def test_columns_with_other_numbers_of_rows_are_refused() -> None:
    for column in ("a", "a\0b\0c", ("a",), ("a", "b", "c")):
        with pytest.raises(WireError, match="rows"):
            unpack_texts(column, 2)
    for lists in ("a\nb", (("a",),)):
        with pytest.raises(WireError, match="rows"):
            unpack_lists(lists, 2)
    with pytest.raises(WireError, match="rows"):
        unpack_numbers((1,), 2, least=0, most=9, name="number")
    with pytest.raises(WireError, match="rows"):
        unpack_flags(b"\1", 2, usual=False)
    with pytest.raises(WireError, match="rows"):
        unpack_texts("a", 0)


@pytest.mark.parametrize("numbers", [(0, -1), (0, 10)])
def test_number_out_of_range_is_refused_by_its_name(numbers: tuple[int, ...]) -> None:
    with pytest.raises(WireError, match="a depth is out of range \\(0 to 9\\)"):
        unpack_numbers(numbers, 2, least=0, most=9, name="depth")


@pytest.mark.parametrize(
    ("flags", "joined"),
    [(b"\1", b"1234"), (b"\1\1\1", b"1234"), (b"\1\1", b"1234"), (b"", b"1234"), (b"\2\0", b"1234")],
)
def test_values_that_are_not_of_these_rows_are_refused(flags: bytes, joined: bytes) -> None:
    with pytest.raises(WireError):
        unpack_some(flags, joined, 4, count=2)


@pytest.mark.parametrize(
    "column",
    [
        b"\0\0\0",
        b"\0\0\0\0",  # the place before the first
        b"\0\0\0\x0b",  # behind the last of ten
        b"\xff\xff\xff\xff",
        bytes(6) + b"\1\0",  # twice the same
        bytes(33) + b"\1" * 11,  # eleven of ten
    ],
)
def test_places_that_are_not_there_are_refused(column: bytes) -> None:
    with pytest.raises(WireError):
        unpack_places(column, 10)
