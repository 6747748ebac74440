"""Parcels: what an honest host sends comes home as it was, and what a lying one sends is refused."""

import gzip
from collections.abc import Callable
from math import inf, nan
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests import making

from sterna.errors import WireError
from sterna.model import (
    Budget,
    Checkpoint,
    Ended,
    Hold,
    Known,
    Link,
    Links,
    Page,
    Parcel,
    Raw,
    Robots,
    RobotsState,
    Sent,
    StateChange,
    Target,
    Usage,
    Validator,
    Visit,
    marked,
)
from sterna.web.robots import NEVER
from sterna.web.signature import digest_of
from sterna.web.urls import fingerprint
from sterna.wire import parcels
from sterna.wire.known import Marks, marks_of, pack_known, unpack_known
from sterna.wire.merkle import leaf_of
from sterna.wire.parcels import Unpacker, as_sent, pack_parcel
from sterna.wire.records import PageColumns, TargetColumns

SITE = "https://www.example.org"
BEGAN, NOW = 1_700_000_000.0, 1_700_000_600.0
KNOWN_PATHS = ("/", "/a", "/b", "/c")
STARTS = tuple(Target(SITE + path, depth, f"{SITE}/from") for depth, path in enumerate(KNOWN_PATHS))
VALIDATORS = tuple(
    Validator(fingerprint(SITE + path), f'"{path}"', digest=digest_of(path.encode()), likeness=b"likeness")
    for path in KNOWN_PATHS
)
KNOWN = Known(validators=VALIDATORS)
MARKS = marks_of(unpack_known(pack_known(KNOWN)))
NO_MARKS = marks_of(Known())


def visit_of(**changes: Any) -> Visit:
    settled: dict[str, Any] = {
        "part": "",
        "epoch": 3,
        "starts": STARTS,
        "known": KNOWN,
        "budget": Budget(pages=100),
    }
    return making.visit(**settled | changes)


def parcel_of(**changes: Any) -> Parcel:
    return making.parcel(visit_of(), **changes)


def page_of(path: str, **changes: Any) -> Page:
    return making.page(path, **{"depth": 1, "fetched": BEGAN + 5} | changes)


def travelled(parcel: Parcel, marks: Marks = NO_MARKS, **changes: Any) -> Parcel:
    return Unpacker(visit_of(**changes), marks, began=BEGAN).unpack(pack_parcel(parcel, marks), now=NOW)


def received(data: bytes) -> Parcel:
    return Unpacker(visit_of(), NO_MARKS, began=BEGAN).unpack(data, now=NOW)


HTML = "<title>Über uns</title>" + "<p>Text" * 50
FULL = page_of(
    "/full?q=1",
    depth=4,
    fetched=BEGAN + 7.125,
    content_type="text/html",
    title="Über uns",
    text="Text und mehr",
    language="de",
    digest=digest_of(HTML.encode()),
    size=len(HTML.encode()),
    modified="Wed, 21 Oct 2015 07:28:00 GMT",
    etag='W/"5627-3e8"',
    referrer=f"{SITE}/",
    links=Links.of(
        Link(f"{SITE}/x", "X", "nofollow"), Link("https://b.example.net/", "B"), Link(f"{SITE}/y/")
    ),
    raw=Raw(b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", HTML.encode(), "192.0.2.1", is_http2=True),
    description="Was wir tun",
    keywords=("text", "mehr"),
    headings=("Eins", "Zwei und drei"),
    html=HTML,
    headers=(("content-type", "text/html"), ("x-empty", "")),
    extracts=(("price", ("1 €", "2 €")), ("picture", ("a.png",))),
    likeness=b"8 bytes!",
)
PAGES = (
    FULL,
    page_of("/plain", digest=b"0123456789abcdef", size=77, content_type="text/plain", is_kept=False),
    page_of("/gone", status=404, fetched=BEGAN + 3),
    page_of("/error", status=0, error="timeout"),
    page_of("/moved", status=301, links=Links.of(Link(f"{SITE}/to", rel="redirect"))),
)
PARCEL = parcel_of(
    number=7,
    pages=PAGES,
    outlinks=(
        Target("https://b.example.net/", 2, f"{SITE}/a"),
        Target("http://www.example.org/", 0, f"{SITE}/"),
    ),
    checkpoint=Checkpoint(
        found=(
            Target(f"{SITE}/x", 5, f"{SITE}/full?q=1"),
            Target(f"{SITE}/sitemap.xml", 1, kind="sitemap", hops=2),
            Target(f"{SITE}/best", 2, f"{SITE}/", priority=-7),
        ),
        done=(fingerprint(f"{SITE}/s"), -1, 2**63 - 1),
        again=(Target(f"{SITE}/late", 3, f"{SITE}/", attempts=2, not_before=NOW + 30.25),),
    ),
    state=StateChange(added=((1, b"fact"), (9, b"")), removed=(4,), memory=b"memory"),
    rows=(b"row", b"another"),
    usage=Usage(requests=9, bytes_received=1000, pages=2, errors={"http_404": 1}, cpu_seconds=0.5),
    ended=Ended.FINISHED,
)


# What an honest host sends


def test_parcel_comes_home_as_it_was_sent() -> None:
    assert travelled(PARCEL) == PARCEL


def test_empty_parcel_is_small() -> None:
    assert travelled(parcel_of()) == parcel_of()
    assert len(pack_parcel(parcel_of(), NO_MARKS)) < 200


def test_holds_and_delay_stay_at_the_host() -> None:
    parcel = parcel_of(holds=(Hold("site", NOW),), delay_seconds=3.0)
    assert travelled(parcel) == parcel_of()


def test_state_of_robots_txt_travels_without_its_rules() -> None:
    robots = Robots(RobotsState.DISQUALIFIED, NOW + 0.0004, 3, NEVER, b"secret", "HTTP\n503" + "!" * 300)
    told = Robots(RobotsState.DISQUALIFIED, NOW, 3, NEVER, b"", "HTTP503" + "!" * 192)
    assert travelled(parcel_of(robots=robots)) == parcel_of(robots=told)
    assert b"secret" not in pack_parcel(parcel_of(robots=robots), NO_MARKS)


@pytest.mark.parametrize(
    "word",
    [
        ["disqualified", -1, 1, 0, ""],
        ["disqualified", 0, 1, 2**60, ""],
        ["disqualified", 0, -1, 0, ""],
        ["disqualified", 0, 1, 0, "a\x1b[31m"],
        ["disqualified", 0, 1, 0, "x" * 2_000],
        ["open", 0, 1, 0, ""],
        ["qualified", 0.5, 1, 0, ""],
        "qualified",
    ],
)
def test_state_of_robots_txt_that_makes_no_sense_is_refused(word: object) -> None:
    packed = msgspec.msgpack.decode(pack_parcel(parcel_of(), NO_MARKS))
    with pytest.raises(WireError, match="malformed"):
        received(msgspec.msgpack.encode([*packed[:-1], word]))


def test_parcel_of_a_host_that_says_nothing_of_robots_txt_is_read() -> None:
    packed = msgspec.msgpack.decode(pack_parcel(parcel_of(), NO_MARKS))
    assert received(msgspec.msgpack.encode(packed[:-1])) == parcel_of()


PATHS = st.integers(0, 10**6).map("/p{}".format)
TEXTS = st.one_of(st.just(""), st.text(max_size=40), st.sampled_from(["a\0b", "\n", "\0", "a\nb"]))
NAMES = st.lists(TEXTS, max_size=3).map(tuple)
LINKS = st.lists(
    st.builds(
        Link,
        st.sampled_from([f"{SITE}/l1", f"{SITE}/", "https://b.example.net/b", "http://www.example.org/"]),
        st.sampled_from(["", "text", "ü"]),
        st.sampled_from(["", "nofollow"]),
    ),
    max_size=4,
).map(lambda links: Links.of(*links))
HONEST_PAGES = st.builds(
    page_of,
    PATHS,
    depth=st.integers(0, 10**6),
    fetched=st.floats(BEGAN, NOW),
    status=st.sampled_from([200, 204, 301, 404, 999]),
    content_type=TEXTS,
    title=TEXTS,
    text=TEXTS,
    language=TEXTS,
    digest=st.one_of(st.just(b""), st.binary(min_size=16, max_size=16)),
    size=st.integers(0, 2**40),
    modified=TEXTS,
    etag=TEXTS,
    referrer=st.sampled_from(["", f"{SITE}/", "https://b.example.net/"]),
    links=LINKS,
    is_kept=st.booleans(),
    description=TEXTS,
    keywords=NAMES,
    headings=NAMES,
    html=TEXTS,
    headers=st.lists(st.tuples(TEXTS, TEXTS), max_size=2).map(tuple),
    extracts=st.lists(st.tuples(TEXTS, NAMES), max_size=2).map(tuple),
    likeness=st.sampled_from([b"", b"8 bytes!"]),
)


@settings(deadline=None)
@given(st.lists(HONEST_PAGES, max_size=6, unique_by=lambda page: page.url))
def test_any_honest_pages_come_home_with_the_same_leaves(pages: list[Page]) -> None:
    sent = as_sent(parcel_of(pages=tuple(pages)), NO_MARKS)
    came = travelled(parcel_of(pages=tuple(pages)))
    assert came == sent
    assert [leaf_of(page) for page in came.pages] == [leaf_of(page) for page in sent.pages]
    for page, twin in zip(pages, came.pages, strict=True):
        # Half a millisecond, and what a float of this size leaves out: .0005 may be rounded either way.
        assert twin.fetched == pytest.approx(page.fetched, rel=0, abs=0.000_501)


def test_digest_and_size_do_not_travel_where_they_follow_from_the_html() -> None:
    page = page_of("/", html=HTML, digest=digest_of(HTML.encode()), size=len(HTML.encode()))
    packed = pack_parcel(parcel_of(pages=(page,)), NO_MARKS)
    assert page.digest not in packed
    assert travelled(parcel_of(pages=(page,))).pages == (page,)
    latin = replace(page, digest=digest_of(HTML.encode("latin-1")), size=len(HTML.encode("latin-1")))
    assert travelled(parcel_of(pages=(latin,))).pages == (latin,)


def test_pages_that_did_not_change_are_one_byte_or_so_each_and_made_again_at_home() -> None:
    unchanged = [
        page_of(path, is_unchanged=True, fetched=BEGAN + at, html=HTML, depth=50)
        for at, path in enumerate(KNOWN_PATHS[1:])
    ]
    parcel = parcel_of(pages=(unchanged[0], FULL, *unchanged[1:]))
    came = travelled(parcel, MARKS)
    assert came.pages[0] == FULL
    assert [page.fingerprint for page in came.pages[1:]] == sorted(page.fingerprint for page in unchanged)
    by_url = {page.url: page for page in came.pages[1:]}
    assert by_url[f"{SITE}/b"] == page_of(
        "/b",
        is_unchanged=True,
        status=304,
        depth=2,
        fetched=BEGAN + 2,
        etag='"/b"',
        digest=digest_of(b"/b"),
        referrer=f"{SITE}/from",
        likeness=b"likeness",
    )
    bare = len(pack_parcel(parcel_of(pages=(FULL,)), MARKS))
    assert len(pack_parcel(parcel, MARKS)) - bare < 30


def test_leaves_are_those_of_the_parcel_as_it_is_sent() -> None:
    unchanged = [page_of(path, is_unchanged=True) for path in KNOWN_PATHS]
    parcel = parcel_of(pages=(*unchanged, *PAGES))
    leaves = [leaf_of(page) for page in as_sent(parcel, MARKS).pages]
    assert leaves == [leaf_of(page) for page in travelled(parcel, MARKS).pages]
    assert as_sent(as_sent(parcel, MARKS), MARKS) == as_sent(parcel, MARKS)


def test_thousand_unchanged_pages_take_about_a_bit_each() -> None:
    urls = [f"{SITE}/{n}" for n in range(1200)]
    validators = tuple(Validator(fingerprint(url), digest=b"x" * 16) for url in urls)
    marks = marks_of(Known(validators=validators))
    pages = tuple(page_of(f"/{n}", is_unchanged=True) for n in range(1200))
    assert len(gzip.compress(pack_parcel(parcel_of(pages=pages), marks))) < 300


def test_what_home_sent_as_known_is_not_told_as_found_unless_it_was_raised() -> None:
    found = (Target(f"{SITE}/a"), Target(f"{SITE}/new"), Target(f"{SITE}/b", priority=5))
    came = travelled(parcel_of(checkpoint=Checkpoint(found=found)), MARKS)
    assert came.checkpoint.found == found[1:]


def test_validator_that_would_break_a_head_stays_at_the_host() -> None:
    odd = page_of("/one", etag='"a\r"', modified="Mon\n")
    came = travelled(parcel_of(pages=(odd,)))
    assert (came.pages[0].etag, came.pages[0].modified) == ("", "")
    sent = as_sent(parcel_of(pages=(odd,)), MARKS)
    assert leaf_of(came.pages[0]) == leaf_of(sent.pages[0])


def test_page_that_is_too_large_to_travel_is_given_up_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "MAX_PARCEL_BYTES", 5_000)
    small, large = (
        page_of("/small", html="x" * 3_000),
        page_of("/large", html="y" * 6_000, referrer=f"{SITE}/"),
    )
    given_up = page_of("/large", status=0, error="too_large", referrer=f"{SITE}/")
    assert travelled(parcel_of(pages=(large, small))).pages == (given_up, small)


def test_facts_that_are_too_much_for_any_parcel_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "MAX_PARCEL_BYTES", 1000)
    with pytest.raises(WireError, match="too-large"):
        pack_parcel(parcel_of(rows=(bytes(1000),)), NO_MARKS)


def test_every_field_travels_but_what_home_computes_and_what_is_noted_here() -> None:
    at_home = {"fingerprint", "is_unchanged", "note"}
    assert set(Page.__struct_fields__) - set(marked(Page, Sent)) == at_home
    assert list(Target.__struct_fields__) == list(marked(Target, Sent))


# What a lying host sends

Lie = Callable[[Any], Any]


PARTS = {"pages": PageColumns, "found": TargetColumns, "outlinks": TargetColumns, "usage": Usage}


def part(name: str, changes: dict[str, Any], *, into: str = "") -> Lie:
    """A part of the parcel with other fields, which may be sent as another part."""

    def lie(packed: Any) -> Any:
        truth = msgspec.msgpack.decode(getattr(packed, name), type=PARTS[name])
        return replace(packed, **{into or name: replace(truth, **changes)})

    return lie


def pages(**changes: Any) -> Lie:
    return part("pages", changes)


def found(**changes: Any) -> Lie:
    return part("found", changes)


def usage(**changes: Any) -> Lie:
    return part("usage", changes)


def said(**changes: Any) -> Lie:
    return lambda packed: replace(packed, **changes)


TRUTH = parcel_of(
    pages=(page_of("/one", html="<p>", title="One"), page_of("/two")),
    checkpoint=Checkpoint(found=(Target(f"{SITE}/three", 2, f"{SITE}/one"),)),
    outlinks=(Target("https://b.example.net/", 1),),
)
MS = 1000
LIES = [
    (said(visit="v2"), "another visit"),
    (said(epoch=2), "another visit"),
    (said(part="/a"), "another visit"),
    (said(number=0), "number 0"),
    (said(number=-1), "number -1"),
    (pages(count=1), "rows"),
    (pages(count=-1), "-1 pages"),
    (pages(count=10**9), "1000000000 pages"),
    (pages(urls="/one"), "rows"),
    (pages(urls="/one\0/one"), "twice"),
    (pages(urls="/one\0https://b.example.net/"), "another site"),
    (pages(urls="/one\0http://www.example.org/"), "another site"),
    (pages(urls="/one\0https://www.example.org.evil.net/"), "another site"),
    (pages(urls="/one\0/a/../b"), "canonical"),
    (pages(urls="/one\0/%7Ea"), "canonical"),
    (pages(urls="/one\0/a#b"), "canonical"),
    (pages(urls="/one\0javascript:alert(1)"), "canonical"),
    (pages(urls="/one\0"), "empty"),
    (pages(urls="/one\0/" + "x" * 3000), "canonical"),
    (pages(depths=(1, -1)), "depth"),
    (pages(depths=(1, 2**40)), "depth"),
    (pages(depths=(1,)), "rows"),
    (pages(statuses=(200, -1)), "status"),
    (pages(statuses=(200, 1000)), "status"),
    (pages(fetched=(int(NOW + 121) * MS, 0)), "fetched"),
    (pages(fetched=(int(BEGAN - 121) * MS, 0)), "fetched"),
    (pages(fetched=(int(BEGAN) * MS, int(BEGAN) * MS)), "fetched"),
    (pages(fetched=()), "rows"),
    (pages(errors="\0Not a kind"), "name of an error"),
    (pages(errors="\0" + "x" * 65), "name of an error"),
    (pages(titles="One\0" + "x" * 300_000), "field of more"),
    (pages(etags="\0" + "x" * 300_000), "field of more"),
    (pages(etags='"a"\r\nX-More: yes\0'), "line break"),
    (pages(etags=('"a"\r\nX-More: yes', "")), "line break"),
    (pages(modified=("", "Mon\nX-More: yes")), "line break"),
    (pages(keywords="\0" + "x" * 300_000), "field of more"),
    (pages(digests=b"short"), "bytes in a column"),
    (pages(digest_kinds=b"\0\3"), "digest of kind 3"),
    (pages(digest_kinds=b"\0"), "rows"),
    (pages(digest_kinds=b""), "rows"),
    (pages(sizes=(-4, 0)), "negative size"),
    (pages(sizes=(2**60, 0)), "size"),
    (pages(referrers="ftp://x/\0"), "canonical"),
    (pages(link_urls="ftp://x/\0"), "not an http"),
    (pages(link_urls="https://a.test/ b\0"), "not an http"),
    (pages(link_urls="/a\n\n/b\0"), "not an http"),
    (pages(link_urls="/a\n" * 10_001 + "\0"), "more than 10,000 links"),
    (pages(link_texts="a\nb\0"), "more texts"),
    (pages(link_urls="/a\0", link_rels="a\nb\0"), "more texts"),
    (pages(headers="name\0"), "without a value"),
    (pages(likenesses=b"more"), "bytes in a column"),
    (pages(extracts=((),)), "rows"),
    (pages(raws=(None,)), "rows"),
    (pages(is_kept=b"\1"), "rows"),
    (found(urls="https://b.example.net/"), "another site"),
    (found(urls="three"), "canonical"),
    (found(depths=(-1,)), "depth"),
    (found(count=10**9), "1000000000 URLs"),
    (found(count=-1), "-1 URLs"),
    (found(hops=(-1,)), "redirects"),
    (found(attempts=(2000,)), "attempts"),
    (found(not_before=(-1,)), "another try"),
    (found(not_before=(int(NOW + 3 * 86_400) * MS,)), "another try"),
    (found(priorities=(2**63,)), "priority"),
    (found(referrers="mailto:x"), "canonical"),
    (found(is_sitemap=b"\1\1"), "rows"),
    (part("found", {"urls": "https://b.example.net/"}, into="again"), "another site"),
    (part("outlinks", {"urls": "/a"}), "this site"),
    (said(done=b"1234567"), "done"),
    (said(unchanged=b"\0\0\0\5"), "place"),
    (said(unchanged=b"\0\0\0\0"), "place"),
    (said(unchanged=b"\0\0\0"), "places"),
    (said(unchanged=b"\0\0\0\1", unchanged_at=0), "fetched"),
    (said(unchanged=b"\0\0\0\1", unchanged_at=int(NOW + 500) * MS), "fetched"),
    (said(rows=(bytes(17_000_000),)), "fact of more"),
    (said(rows=(b"",) * 1_000_001), "facts in a parcel"),
    (said(state=StateChange(added=((-1, b""),))), "fact is out of range"),
    (said(state=StateChange(removed=(2**60,))), "fact is out of range"),
    (said(state=StateChange(added=((1, bytes(17_000_000)),))), "fact of more"),
    (usage(requests=-1), "count"),
    (usage(sent_bytes=2**60), "count"),
    (usage(cpu_seconds=nan), "count"),
    (usage(cpu_seconds=inf), "count"),
    (usage(cpu_seconds=2.0**40), "count"),
    (usage(errors={"http_404": -1}), "count"),
    (usage(errors={"Not a kind": 1}), "name of an error"),
    (usage(errors={f"e{n}": 1 for n in range(1001)}), "kinds of errors"),
    (usage(pages=101), "more pages"),
]


def lied(lie: Lie) -> bytes:
    packed = msgspec.msgpack.decode(pack_parcel(TRUTH, MARKS), type=parcels._Packed[msgspec.Raw])
    return msgspec.msgpack.encode(lie(packed))


def test_the_truth_is_believed() -> None:
    assert Unpacker(visit_of(), MARKS, began=BEGAN).unpack(lied(lambda packed: packed), now=NOW) == TRUTH


@pytest.mark.parametrize(("lie", "said"), LIES, ids=range(len(LIES)))
def test_invalid_value_is_refused_in_one_clear_line(lie: Lie, said: str) -> None:
    with pytest.raises(WireError, match=said) as refusal:
        Unpacker(visit_of(), MARKS, began=BEGAN).unpack(lied(lie), now=NOW)
    assert refusal.value.problem == "malformed"
    assert "\n" not in str(refusal.value)


def test_page_that_is_changed_and_unchanged_at_once_is_refused() -> None:
    truth = parcel_of(pages=(page_of("/a"), page_of("/b", is_unchanged=True)))
    packed = msgspec.msgpack.decode(pack_parcel(truth, MARKS), type=parcels._Packed[msgspec.Raw])
    both = msgspec.msgpack.encode(pages(urls="/b")(packed))
    with pytest.raises(WireError, match="twice"):
        Unpacker(visit_of(), MARKS).unpack(both, now=NOW)


def test_unchanged_page_that_is_not_in_the_lease_is_refused() -> None:
    parcel = parcel_of(pages=(page_of("/a", is_unchanged=True),))
    assert len(travelled(parcel, MARKS).pages) == 1
    with pytest.raises(WireError, match="not asked for"):
        travelled(parcel, MARKS, starts=STARTS[:1])


def test_pages_of_all_parcels_together_keep_within_the_budget() -> None:
    unpacker = Unpacker(visit_of(budget=Budget(pages=3)), NO_MARKS, began=BEGAN)
    good = pack_parcel(parcel_of(pages=(page_of("/1"), page_of("/2"), page_of("/3", status=404))), NO_MARKS)
    more = pack_parcel(parcel_of(pages=(page_of("/4"), page_of("/5"))), NO_MARKS)
    assert len(unpacker.unpack(good, now=NOW).pages) == 3
    with pytest.raises(WireError, match="more pages than the 3"):
        unpacker.unpack(more, now=NOW)


def test_clocks_may_differ_by_a_little() -> None:
    ahead = page_of("/", fetched=NOW + 100)
    behind = page_of("/a", fetched=BEGAN - 100)
    assert travelled(parcel_of(pages=(ahead, behind))).pages == (ahead, behind)


def test_parcel_of_too_many_bytes_is_not_even_read() -> None:
    with pytest.raises(WireError, match="too-large"):
        Unpacker(visit_of(), NO_MARKS).unpack(bytes(parcels.MAX_PARCEL_BYTES + 1), now=NOW)


@given(st.binary(max_size=300))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(WireError):
        Unpacker(visit_of(), MARKS).unpack(garbage, now=NOW)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_changed_bytes_are_refused_or_make_a_parcel_of_this_site(data: st.DataObject) -> None:
    packed = bytearray(pack_parcel(PARCEL, MARKS))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        parcel = Unpacker(visit_of(), MARKS, began=BEGAN).unpack(bytes(packed), now=NOW)
    except WireError:
        return
    assert (parcel.visit, parcel.epoch, parcel.site) == ("v1", 3, SITE)
    assert all(page.url.startswith(f"{SITE}/") and page.depth >= 0 for page in parcel.pages)
    assert all(page.fingerprint == fingerprint(page.url) for page in parcel.pages)


def test_rows_travel_with_the_number_that_each_page_has() -> None:
    old = page_of("/a", is_unchanged=True, status=304)
    sent = parcel_of(
        pages=(page_of("/1"), old, page_of("/2")), rows=(b"first", b"1", b"2", b"2"), row_counts=(1, 0, 2)
    )
    assert travelled(sent, MARKS).row_counts == (1, 2, 0)  # unchanged pages come last
    assert as_sent(sent, MARKS).row_counts == (1, 2, 0)


def test_sitemap_that_home_knows_as_a_page_is_sent_as_found() -> None:
    sitemap = Target(f"{SITE}/a", 1, kind="sitemap")
    sent = parcel_of(checkpoint=Checkpoint(found=(sitemap, Target(f"{SITE}/b", 1))))
    assert travelled(sent, MARKS).checkpoint.found == (sitemap,)


def test_parcel_of_an_older_host_has_no_numbers_of_rows() -> None:
    fields = msgspec.msgpack.decode(pack_parcel(parcel_of(pages=(page_of("/1"),), rows=(b"1",)), NO_MARKS))
    older = msgspec.msgpack.encode(fields[:-1])
    got = Unpacker(visit_of(), NO_MARKS, began=BEGAN).unpack(older, now=NOW)
    assert (got.rows, got.row_counts) == ((b"1",), ())


@pytest.mark.parametrize("counts", [b"\0\0\0\2", b"\0\0\0", b"\0\0\0\1\0\0\0\1", b"\xff\xff\xff\xff"])
def test_numbers_of_rows_that_do_not_fit_are_refused(counts: bytes) -> None:
    fields = msgspec.msgpack.decode(pack_parcel(parcel_of(pages=(page_of("/1"),), rows=(b"1",)), NO_MARKS))
    packed = msgspec.msgpack.encode([*fields[:-2], counts, fields[-1]])
    with pytest.raises(WireError, match="row"):
        Unpacker(visit_of(), NO_MARKS, began=BEGAN).unpack(packed, now=NOW)
