"""No parcel takes much more memory than its bytes: what would is refused before anything is made of it."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests import making

from sterna.errors import WireError
from sterna.model import Known, Page
from sterna.wire import parcels
from sterna.wire.known import marks_of
from sterna.wire.parcels import Unpacker
from sterna.wire.problems import array_length
from sterna.wire.records import PageColumns, TargetColumns

SITE = "https://www.example.org"
NOW = 1_700_000_000.0
SIZE = 16 * 1024 * 1024
MOST = 3  # times its bytes
VISIT = making.visit(part="", epoch=3, starts=())


def packed(**fields: Any) -> bytes:
    given: dict[str, Any] = {"visit": "v1", "part": "", "epoch": 3, "number": 1}
    names = parcels._Packed.__struct_fields__
    usual = parcels._Packed(**given)
    return msgspec.msgpack.encode([fields.get(name, getattr(usual, name)) for name in names])


def pages(**columns: Any) -> dict[str, Any]:
    """One page whose columns are what the test says, packed already or not."""
    given = {"count": 1, "urls": "/a", "fetched": (int(NOW * 1000),), "digest_kinds": b"\0"} | columns
    usual = PageColumns()
    return {"pages": [given.get(name, getattr(usual, name)) for name in PageColumns.__struct_fields__]}


def targets(count: int) -> list[Any]:
    usual = TargetColumns(count=count)
    return [getattr(usual, name) for name in TargetColumns.__struct_fields__]


def array(item: bytes) -> msgspec.Raw:
    """As many of it as fit."""
    count = SIZE // len(item)
    return msgspec.Raw(b"\xdd" + count.to_bytes(4, "big") + item * count)


def wide(size: int = SIZE) -> str:
    return "\N{BIRD}" + "x" * size


def errors() -> msgspec.Raw:
    """A map with as many names as fit."""
    entries = b"".join(b"\xa4%04x\0" % number for number in range(2**16))
    rounds = SIZE // len(entries)
    return msgspec.Raw(b"\xdf" + (rounds * 2**16).to_bytes(4, "big") + entries * rounds)


# Made by the test that needs it: together they are 200 MB.
HEAVY: dict[str, Callable[[], dict[str, Any]]] = {
    "rows of a column": lambda: pages(titles="\0" * SIZE),
    "lists in a row": lambda: pages(keywords="ab\n" * (SIZE // 3)),
    "texts that are not joined": lambda: pages(titles=array(b"\xa2ab")),
    "lists that are not joined": lambda: pages(keywords=array(b"\x91\xa0")),
    "texts of one list": lambda: pages(headings=[array(b"\xa2ab")]),
    "extracts": lambda: pages(extracts=[array(b"\x92\xa0\x90")]),
    "raw answers": lambda: pages(raws=array(b"\x94\xc4\0\xc4\0\xc4\0\xa0")),
    "numbers": lambda: pages(depths=array(b"\xce\xff\xff\xff\xff")),
    "facts": lambda: {"rows": array(b"\xc4\0")},
    "facts that are kept": lambda: {"state": [array(b"\x92\0\xc4\0"), [], None]},
    "facts that are gone": lambda: {"state": [[], array(b"\xce\xff\xff\xff\xff"), None]},
    "kinds of errors": lambda: {"usage": [0, 0, 0, 0, 0, errors()]},
    "a wide text": lambda: pages(texts=wide()),
    "wide texts that are not joined": lambda: pages(texts=[wide()]),
    "a wide list": lambda: pages(keywords=wide()),
    "texts of several columns": lambda: pages(texts="x" * SIZE, htmls=["y" * SIZE]),
    "wide URLs": lambda: {"found": [1, wide(), *targets(1)[2:]]},
    "links that grow": lambda: pages(link_urls="/\n" * (SIZE // 3)),
    "URLs": lambda: {"found": targets(500_000), "outlinks": targets(500_001)},
}


@pytest.mark.parametrize("fields", HEAVY.values(), ids=HEAVY)
def test_what_would_fill_the_memory_is_refused_before_it_does(fields: Callable[[], dict[str, Any]]) -> None:
    data = packed(**fields())
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match=r"malformed|too-large"):
            Unpacker(VISIT, marks_of(Known())).unpack(data, now=NOW)
        assert tracemalloc.get_traced_memory()[1] < MOST * SIZE
    finally:
        tracemalloc.stop()


def test_parcel_of_one_page_is_light_enough() -> None:
    assert len(Unpacker(VISIT, marks_of(Known())).unpack(packed(**pages()), now=NOW).pages) == 1


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_length_of_an_array_is_told_by_its_head(count: int) -> None:
    assert array_length(msgspec.Raw(msgspec.msgpack.encode([None] * count))) == count


@pytest.mark.parametrize("other", ["text", "x" * 20, b"bytes", 7, {"a": 1}, None])
def test_what_is_no_array_has_no_length(other: object) -> None:
    assert array_length(msgspec.Raw(msgspec.msgpack.encode(other))) == 0


@pytest.mark.parametrize(
    "texts",
    [
        ["a" * 10_000_000, "\N{BIRD}", ""],  # joined, the emoji would make all of them wide
        ["a" * 5_000_000, "\N{BIRD}" * 1_000_000],
        ["\N{BIRD}" + "a" * 5_000_000],
        ["a" * 20_000_000],
        ["ü" * 10_000_000, "short"],
    ],
)
def test_what_a_host_may_read_can_travel(texts: list[str]) -> None:
    told = tuple(making.page(f"/{n}", fetched=NOW, text=text) for n, text in enumerate(texts))
    assert unpacked(told) == told


def test_page_that_takes_too_much_memory_is_given_up_by_its_host() -> None:
    pages = [making.page("/small", fetched=NOW), making.page("/large", fetched=NOW, text=wide(8_000_000))]
    small, large = unpacked(tuple(pages))
    assert small == pages[0]
    assert (large.error, large.status, large.text) == ("too_large", 0, "")


def unpacked(told: tuple[Page, ...]) -> tuple[Page, ...]:
    parcel = making.parcel(VISIT, pages=told)
    return Unpacker(VISIT, marks_of(Known())).unpack(parcels.pack_parcel(parcel, {}), now=NOW).pages
