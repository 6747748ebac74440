"""A whole parcel is weighed before it is decoded: what many small things together take in memory at home."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests import making
from tests.wire.test_parcel_weight import NOW, SITE, VISIT, packed, pages, unpacked

from sterna.errors import WireError
from sterna.model import Budget, Checkpoint, Known, Links, Page, Target
from sterna.web.weight import objects_in, weight_of_url
from sterna.wire.known import marks_of
from sterna.wire.parcels import Unpacker, pack_parcel
from sterna.wire.records import TARGETS, TargetColumns, pack_targets
from sterna.wire.weight import MAX_WEIGHT_BYTES

MIB = 1 << 20
LARGE = making.visit(part="", epoch=3, starts=(), budget=Budget(pages=1_000_000, urls=1_000_000))


def array(items: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(list(items)))


def urls(count: int, **columns: Any) -> list[Any]:
    usual = TargetColumns()
    given = {"count": count, "urls": "\0".join(f"/{number}" for number in range(count))} | columns
    return [given.get(name, getattr(usual, name)) for name in TargetColumns.__struct_fields__]


def many_pages(count: int, **columns: Any) -> dict[str, Any]:
    return pages(
        count=count,
        urls="\0".join(f"/{number}" for number in range(count)),
        fetched=(int(NOW * 1000), *(0,) * (count - 1)),
        digest_kinds=bytes(count),
        **columns,
    )


# All of these are small enough in bytes, and in each of their lists. Made by the test that needs them.
HEAVY: dict[str, Callable[[], dict[str, Any]]] = {
    "URLs found": lambda: {"found": urls(150_000)},
    "URLs to try again": lambda: {"again": urls(150_000)},
    "URLs of three kinds": lambda: {name: urls(50_000) for name in ("found", "again", "outlinks")},
    "referrers": lambda: {"found": urls(110_000, referrers="/\0" * 109_999 + "/")},
    "failed pages": lambda: many_pages(100_000, errors="\0".join(["timeout"] * 100_000)),
    "facts": lambda: {"rows": array([b"\x92\xa1a\x90"] * 950_000 + [bytes(MIB)] * 15)},
    "facts that are kept": lambda: {"state": [array((n, b"") for n in range(470_000)), [], None]},
    "keywords": lambda: pages(keywords="\n".join(["ab"] * 999_999), headings="\n".join(["ab"] * 999_999)),
    "keywords that are not joined": lambda: pages(keywords=msgspec.Raw(b"\x91" + array(["a"] * 1_500_000))),
    "extracts": lambda: pages(extracts=msgspec.Raw(b"\x91" + array([("a", ("b",))] * 500_000))),
}


@pytest.mark.parametrize("fields", HEAVY.values(), ids=HEAVY)
def test_parcel_of_many_small_things_is_refused_before_they_are_decoded(
    fields: Callable[[], dict[str, Any]],
) -> None:
    data = packed(**fields())
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match=r"parcel 1 takes [\d,]+ bytes of memory; 75,497,472 are allowed"):
            Unpacker(LARGE, marks_of(Known())).unpack(data, now=NOW)
        assert tracemalloc.get_traced_memory()[1] < 32 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "fields",
    [
        {"found": urls(60_000)},
        {"rows": array([b"\x92\xa1a\x90"] * 300_000)},
        {"state": [array((n, b"\x92\xa1a\x90") for n in range(200_000)), [], None]},
        many_pages(20_000),
    ],
    ids=["URLs", "facts", "facts that are kept", "pages"],
)
def test_parcel_takes_no_more_memory_than_it_was_weighed(fields: dict[str, Any]) -> None:
    data = packed(**fields)
    tracemalloc.start()
    try:
        Unpacker(LARGE, marks_of(Known())).unpack(data, now=NOW)
        assert tracemalloc.get_traced_memory()[1] < MAX_WEIGHT_BYTES
    finally:
        tracemalloc.stop()


def test_more_urls_than_the_budget_are_refused_before_they_are_decoded() -> None:
    visit = making.visit(part="", epoch=3, starts=(), budget=Budget(urls=1_000))
    unpacker = Unpacker(visit, marks_of(Known()))
    unpacker.unpack(packed(found=urls(60_000)), now=NOW)
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="more URLs are found than the visit's budget allows"):
            unpacker.unpack(packed(found=urls(60_000), number=2), now=NOW)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


def test_fact_that_rules_send_home_has_at_most_a_megabyte() -> None:
    for size in (MIB, MIB + 1):
        data = packed(rows=[bytes(size)])
        if size > MIB:
            with pytest.raises(WireError, match="a fact of more than 1,048,576 bytes"):
                Unpacker(VISIT, marks_of(Known())).unpack(data, now=NOW)
        else:
            assert len(Unpacker(VISIT, marks_of(Known())).unpack(data, now=NOW).rows) == 1


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        [1, -1, 200, 70_000, 2**40, -(2**40), 1.5, True, None],
        ["", "a", "b" * 31, "c" * 32, "d" * 300, "e" * 70_000],
        [b"", b"a" * 300, b"b" * 70_000],
        [["a", ["b"]], {"c": 1}, msgspec.msgpack.Ext(1, b"d"), msgspec.msgpack.Ext(1, b"ef" * 5)],
        list(range(70_000)),
    ],
)
def test_objects_of_a_message_are_counted_by_their_heads(value: Any) -> None:
    assert objects_in(msgspec.msgpack.encode(value), most=10**6) == count_of(value)


def count_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(count_of(each) for pair in value.items() for each in pair)
    return 1 + sum(map(count_of, value)) if isinstance(value, list) else 1


def test_no_more_objects_are_counted_than_matter() -> None:
    assert objects_in(msgspec.msgpack.encode([0] * 1_000), most=10) == 11


# --- what a host packs


@pytest.mark.parametrize(
    "target",
    [
        Target(f"{SITE}/"),
        Target(f"{SITE}/{'x' * 1_900}", 3, f"{SITE}/{'y' * 1_900}", "sitemap", 2, 4, NOW, 2**40),
        Target("http://b.example/", 1, f"{SITE}/"),
    ],
)
def test_url_is_never_heavier_at_home_than_its_host_reckons(target: Target) -> None:
    several = [target] * 1_000
    data = msgspec.Raw(msgspec.msgpack.encode(pack_targets(several, SITE)))
    at_home = TARGETS.weigh(data, SITE).size_bytes + len(bytes(memoryview(data)))
    assert at_home <= sum(map(weight_of_url, several)) + 1_000


WIDE, LONG = "\N{BIRD}", f"{SITE}/{'x' * 2_000}"
PAGES: dict[str, list[Page]] = {
    "keywords": [
        making.page(f"/{n}", fetched=NOW, keywords=("ab",) * 300_000, headings=("cd",) * 300_000)
        for n in range(3)
    ],
    "extracts": [
        making.page(f"/{n}", fetched=NOW, extracts=(("name", ("ab",) * 400_000),)) for n in range(4)
    ],
    "wide texts that are joined": [
        making.page(f"/{n}", fetched=NOW, text=WIDE + "x" * 8_000, title=WIDE * 1_000, html=WIDE * 3_000)
        for n in range(100)
    ],
    "links": [
        making.page(f"/{n}", fetched=NOW, links=Links("\n".join(f"{LONG}/{k}" for k in range(900))))
        for n in range(10)
    ],
}


@pytest.mark.parametrize("told", PAGES.values(), ids=PAGES)
def test_whatever_pages_a_host_packs_home_takes(told: list[Page]) -> None:
    came = unpacked(tuple(told))
    assert [page.url for page in came] == [page.url for page in told]
    assert any(page.error != "too_large" for page in came)


def test_rows_of_a_page_that_is_given_up_go_with_it() -> None:
    light, heavy, last = (making.page(path, fetched=NOW) for path in ("/light", "/heavy", "/last"))
    rows = (b"first", b"light", *[b"heavy"] * 1_000_000, b"light again")
    parcel = making.parcel(LARGE, pages=(light, heavy, last), rows=rows, row_counts=(1, 1_000_000, 1))
    came = Unpacker(LARGE, marks_of(Known())).unpack(pack_parcel(parcel, {}), now=NOW)
    assert [page.error for page in came.pages] == ["", "too_large", ""]
    assert came.rows == (b"first", b"light", b"light again")
    assert came.row_counts == (1, 0, 1)


def test_parcel_that_home_would_refuse_is_not_packed() -> None:
    found = tuple(Target(f"{SITE}/{number}") for number in range(150_000))
    parcel = making.parcel(LARGE, checkpoint=Checkpoint(found=found))
    with pytest.raises(WireError, match=r"parcel 1 takes [\d,]+ bytes of memory"):
        pack_parcel(parcel, {})
