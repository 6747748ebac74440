"""What a host packs, any home takes: what is too much is given up before, the largest pages first."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import making
from tests.wire.test_parcel_weight import NOW, SITE, VISIT

from sterna.model import Known, Links, Page, Parcel, Raw, StateChange
from sterna.wire.fitting import needed_by
from sterna.wire.known import marks_of
from sterna.wire.parcels import Unpacker, as_sent, pack_parcel
from sterna.wire.records import PAGES, pack_pages

MIB = 1 << 20
BIRD = "\N{BIRD}"


def facts(count: int) -> StateChange:
    return StateChange(added=tuple((number, bytes(MIB)) for number in range(count)))


def page(number: int, **fields: Any) -> Page:
    return making.page(f"/{number}", fetched=NOW, links=Links(), **fields)


def parcel(*pages: Page, state: StateChange | None = None) -> Parcel:
    return making.parcel(VISIT, pages=pages, state=state or StateChange())


# Made by the test that needs them; with how many pages are given up.
HEAVY: dict[str, tuple[Callable[[], Parcel], int]] = {
    "a large page beside facts": (lambda: parcel(page(1, text="x" * 20_000_000), page(2), state=facts(7)), 1),
    "pages beside many facts": (
        lambda: parcel(*(page(n, text="x" * 2_000_000) for n in range(4)), state=facts(20)),
        1,
    ),
    "a large page beside joined columns": (
        lambda: parcel(
            page(1, text="x" * 20_000_000),
            *(
                page(n, title="t" * 9_000, description="d" * 9_000, etag="e" * 9_000, modified="m" * 9_000)
                for n in range(2, 118)
            ),
        ),
        1,
    ),
    "many headings": (lambda: parcel(page(1, headings=("h" * 200_000,) * 70), page(2)), 1),
    "extracts": (lambda: parcel(page(1, extracts=(("a", ("b" * 200_000,) * 45),)), page(2)), 1),
    "wide headings": (lambda: parcel(page(1, headings=("h" * 200_000,) * 20), page(2, headings=(BIRD,))), 1),
    "raw responses": (
        lambda: parcel(*(page(n, raw=Raw(b"", b"", bytes(5_000_000), "")) for n in range(6))),
        1,
    ),
    "text and HTML": (lambda: parcel(*(page(n, text="x" * 13_000_000) for n in range(2)), page(3)), 0),
}


@pytest.mark.parametrize(("make", "count"), HEAVY.values(), ids=HEAVY)
def test_only_as_many_of_the_largest_pages_are_given_up_as_home_would_not_take(
    make: Callable[[], Parcel], count: int
) -> None:
    made = make()
    sent = as_sent(made, {})
    came = Unpacker(VISIT, marks_of(Known())).unpack(pack_parcel(made, {}), now=NOW)
    assert came.pages == sent.pages
    assert came.state == made.state
    assert [each.url for each in came.pages] == [each.url for each in made.pages]
    sizes = [len(msgspec.msgpack.encode(each)) for each in made.pages]
    given_up = [size for size, each in zip(sizes, came.pages, strict=True) if each.error == "too_large"]
    assert sorted(given_up, reverse=True) == sorted(sizes, reverse=True)[:count]


texts = st.text(alphabet=st.sampled_from(["a", "\xfc", "\u0434", BIRD, "\n"]), max_size=60)
short = texts.map(lambda text: text.replace("\n", ""))
pages = st.builds(
    Page,
    url=st.integers(0, 99).map(lambda number: f"{SITE}/{number}"),
    fingerprint=st.just(1),
    depth=st.integers(0, 2**31 - 1),
    fetched=st.floats(0, 2e9),
    title=texts,
    description=texts,
    text=texts,
    html=texts,
    content_type=short,
    language=st.sampled_from(["", "en"]),
    modified=short,
    etag=short,
    referrer=st.sampled_from(["", f"{SITE}/", "https://b.example/"]),
    digest=st.sampled_from([b"", bytes(16)]),
    size=st.integers(0, 2**53),
    likeness=st.sampled_from([b"", bytes(8)]),
    links=st.builds(Links, texts, texts, texts),
    keywords=st.lists(texts, max_size=3).map(tuple),
    headings=st.lists(texts, max_size=3).map(tuple),
    headers=st.lists(st.tuples(short, short), max_size=3).map(tuple),
    extracts=st.lists(st.tuples(short, st.lists(texts, max_size=3).map(tuple)), max_size=3).map(tuple),
    raw=st.none() | st.builds(Raw, *[st.binary(max_size=60)] * 3, short),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(pages, min_size=1, max_size=4))
def test_pages_never_need_more_than_their_host_reckons(some: list[Page]) -> None:
    needed = needed_by([(each, ()) for each in some])
    data = msgspec.msgpack.encode(pack_pages(some, SITE))
    weight = PAGES.weigh(msgspec.Raw(data), SITE)
    assert len(data) <= needed.sent_bytes
    assert len(data) + weight.size_bytes <= needed.memory_bytes
