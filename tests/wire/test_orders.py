"""Orders, acknowledgements and reports are read by the one they are for, as they were, or not at all."""

import math
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import making
from tests.wire.parties import SESSION, SITE, TICKET, is_read, refusal, session, spoiled

from sterna.errors import WireError
from sterna.model import (
    Budget,
    Crawler,
    Ended,
    Etiquette,
    Keep,
    Predicate,
    Program,
    Scope,
    State,
    Target,
)
from sterna.wire.handshake import seal
from sterna.wire.orders import (
    MAX_CRAWLER_BYTES,
    MAX_FACTS,
    MAX_SMALL_BYTES,
    MAX_STARTS,
    MAX_UNPACKED_BYTES,
    Acknowledgement,
    Agent,
    Kill,
    Look,
    Order,
    Report,
    Resume,
    Send,
    open_acknowledgement,
    open_order,
    open_report,
    seal_acknowledgement,
    seal_order,
    seal_report,
    session_of,
)

encode = msgspec.msgpack.encode
HOME_SESSION, KEYS = session()
AGENT = Agent("Sterna/0.5 (+https://lab.example.org/crawler)", "Sterna", "crawler@lab.example.org")
START = Target(f"{SITE}/")
VISIT = "0123456789abcdef"
PLAIN = Send(visit=VISIT, agent=AGENT, starts=(START,))
RICH = Send(
    visit=VISIT,
    part="/news/",
    epoch=7,
    crawler=Crawler(
        name="health",
        scope=Scope(include=("*/news/*",), max_depth=5),
        program=Program(
            select=Predicate(
                "and", parts=(Predicate("like", "title", ("%flu%",)), Predicate("not_null", "text"))
            ),
            keep=Keep(fields=("title", "text"), share=0.5),
        ),
        facts=(b"fact",),
    ),
    agent=AGENT,
    starts=(START, Target(f"{SITE}/b", 2, f"{SITE}/", not_before=5.5, priority=-3)),
    known=b"packed",
    state=State(((1, b"own"),), b"memory"),
    budget=Budget(pages=100),
    level=9,
)
ORDERS: list[Order] = [PLAIN, RICH, Resume(VISIT, 12, 9), Look(VISIT), Kill(VISIT)]


def packed(plain: bytes, **options: Any) -> bytes:
    """A request 2 whose seal is right, whatever is inside."""
    content = zstandard.ZstdCompressor(**options).compress(plain)
    return sealed(content)


def sealed(content: bytes) -> bytes:
    return KEYS.session + seal(KEYS.order, content, bound=KEYS.session)


def as_plain(order: object, *, ticket: object = TICKET) -> bytes:
    return encode([ticket, order])


def changed(**changes: object) -> bytes:
    return packed(as_plain(msgspec.structs.replace(RICH, **changes)))


# -- orders


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_an_order_is_read_as_it_was_given(order: Order) -> None:
    body = seal_order(HOME_SESSION.keys, HOME_SESSION.ticket, order)
    assert session_of(body) == SESSION
    assert open_order(KEYS, body) == (TICKET, order)


def test_an_order_with_what_the_host_adds_is_a_visit() -> None:
    order = RICH
    agent = order.agent
    etiquette = Etiquette(user_agent=agent.user_agent, robots_name=agent.robots_name, sender=agent.sender)
    visit = making.visit(
        *order.starts,
        id=order.visit,
        part=order.part,
        epoch=order.epoch,
        crawler=order.crawler,
        etiquette=etiquette,
        budget=order.budget,
        state=order.state,
    )
    hosts_own = {"site", "robots", "holds", "may_be_private", "allow_private", "closed"}
    sent = {"id" if name == "visit" else name for name in Send.__struct_fields__} | {"etiquette"}
    assert set(visit.__struct_fields__) - hosts_own <= sent


def test_order_of_a_home_that_knows_no_priority_and_no_parts_is_read() -> None:
    fields = ["send", *(getattr(RICH, name) for name in RICH.__struct_fields__[:-2])]
    assert open_order(KEYS, packed(as_plain(fields))) == (TICKET, RICH)


def test_host_that_knows_no_priority_and_no_parts_passes_them_over() -> None:
    names = Send.__struct_fields__[:-2]
    old_send = msgspec.defstruct("old_send", names, frozen=True, array_like=True, tag="send")
    order = msgspec.structs.replace(RICH, priority=5, within=("/news/",))
    read = msgspec.msgpack.decode(encode(order), type=old_send)
    assert [getattr(read, name) for name in ("visit", "level")] == [VISIT, 9]


def test_order_with_priority_and_parts_is_read() -> None:
    order = msgspec.structs.replace(RICH, priority=5, within=("/", "/news/"))
    assert open_order(KEYS, packed(as_plain(order))) == (TICKET, order)


@pytest.mark.parametrize(
    "wrong", [{"priority": 11}, {"priority": -1}, {"within": ("/a/",) * 257}, {"within": ("/" + "a" * 2048,)}]
)
def test_priority_and_parts_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    assert refusal(open_order, KEYS, changed(**wrong)) == "malformed"


def test_the_default_crawler_travels_in_less_than_half_a_kilobyte() -> None:
    assert len(seal_order(KEYS, TICKET, PLAIN)) < 500


def test_an_order_is_never_sealed_alike_twice() -> None:
    assert seal_order(KEYS, TICKET, PLAIN) != seal_order(KEYS, TICKET, PLAIN)


def test_every_changed_or_cut_order_is_refused_before_it_is_read() -> None:
    for body in spoiled(seal_order(KEYS, TICKET, RICH)):
        problem = refusal(open_order, KEYS, body)
        assert problem == "bad-signature" or (problem == "malformed" and len(body) < 16 + 24 + 16)


def test_an_order_of_another_session_is_refused() -> None:
    _, others = session()
    assert refusal(open_order, others, seal_order(KEYS, TICKET, PLAIN)) == "bad-signature"
    other_id = msgspec.structs.replace(KEYS, session=b"x" * 16)
    assert refusal(open_order, other_id, seal_order(KEYS, TICKET, PLAIN)) == "bad-signature"
    moved = b"x" * 16 + seal_order(KEYS, TICKET, PLAIN)[16:]
    assert refusal(open_order, other_id, moved) == "bad-signature"


def test_one_kind_of_message_does_not_pass_for_another() -> None:
    acknowledgement = seal_acknowledgement(KEYS, VISIT, 3)
    report = seal_report(KEYS, Report(visit=VISIT, state="running"))
    order = seal_order(KEYS, TICKET, Look(VISIT))
    for reader, others in (
        (open_order, (acknowledgement, report)),
        (open_acknowledgement, (order, report)),
        (open_report, (order, acknowledgement)),
    ):
        assert [refusal(reader, KEYS, other) for other in others] == ["bad-signature"] * 2


def test_a_session_id_has_16_bytes() -> None:
    assert refusal(session_of, b"x" * 15) == "malformed"


# -- what a home that is allowed may still not say


@pytest.mark.parametrize(
    "changes",
    [
        {"visit": ""},
        {"visit": "../../etc/passwd"},
        {"visit": "a.b"},
        {"visit": "a\n"},
        {"visit": "a" * 65},
        {"visit": None},
        {"part": "x" * 2049},
        {"epoch": -1},
        {"epoch": 2**63},
        {"level": 0},
        {"level": 23},
        {"known": "text"},
        {"agent": Agent("Sterna\r\nHost: other", "Sterna")},
        {"agent": Agent("S" * 401, "Sterna")},
        {"agent": Agent("Sterna", "Stern\xe4")},
        {"starts": (Target("x" * 2049),)},
        {"starts": (Target("x", referrer="x" * 2049),)},
        {"starts": (Target("x", not_before=math.nan),)},
        {"starts": (Target("x", priority=2**64 - 1),)},
        {"starts": ("x",)},
        {"starts": None},
        {"budget": Budget(pages=-1)},
        {"budget": Budget(seconds=math.inf)},
        {"state": State(((2**64 - 1, b""),))},
        {"state": None},
        {"crawler": Crawler(scope=Scope(max_depth=2**64 - 1))},
        {"crawler": Crawler(program=Program(least_change=math.nan))},
        {"crawler": Crawler(program=Program(select=Predicate("=", "x", (math.inf,))))},
        {"crawler": {"scope": {"unheard": 1}}},
        {"crawler": 5},
    ],
)
def test_an_order_that_cannot_be_is_malformed(changes: dict[str, object]) -> None:
    assert refusal(open_order, KEYS, changed(**changes)) == "malformed"


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"\xc1",
        as_plain(PLAIN)[:-1],
        as_plain(PLAIN) + b"\0",
        as_plain(PLAIN, ticket=b"short"),
        as_plain(PLAIN, ticket="text" * 8),
        as_plain(["unheard", VISIT]),
        as_plain([]),
        as_plain({"send": 1}),
        as_plain(["send"]),
        encode([TICKET]),
        as_plain(Resume(VISIT, 0)),
        as_plain(["send", VISIT, "", 0, {}, [], [], b"", 5]),
        as_plain(["look", VISIT])[:-16] + b"\xff" * 16,  # not UTF-8
        b"\x92\xc4\x20" + TICKET + b"\x91" * 100_000,
        b"\x92\xc4\x20" + TICKET + b"\xdd\xff\xff\xff\xff",
    ],
)
def test_plaintexts_made_to_hurt_are_malformed(plain: bytes) -> None:
    assert refusal(open_order, KEYS, packed(plain)) == "malformed"


def test_the_least_integer_of_clips_may_be_asked_for() -> None:
    least = Program(select=Predicate("=", "size", (-(2**63),)))
    assert is_read(open_order, KEYS, changed(crawler=Crawler(program=least)))


def test_nested_conditions_do_not_break_the_reader() -> None:
    deep = Predicate("x")
    for _ in range(100):
        deep = Predicate("not", parts=(deep,))
    assert is_read(open_order, KEYS, changed(crawler=Crawler(program=Program(select=deep))))
    layer = encode(Predicate("not", parts=(deep,)))[: -len(encode(deep))]
    crawler = b"\x81\xa7program\x92\xc0" + layer * 200_000
    body = packed(as_plain(RICH).replace(encode(RICH.crawler), crawler))
    assert refusal(open_order, KEYS, body) == "malformed"


# -- bounds


def array_of(count: int, item: bytes) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + item * count


def with_part(field: str, content: bytes) -> bytes:
    """The rich order with other bytes in place of one of its parts."""
    return packed(as_plain(RICH).replace(encode(getattr(RICH, field)), content, 1))


def test_what_would_unpack_to_too_much_is_refused_before_it_does() -> None:
    bomb = packed(bytes(MAX_UNPACKED_BYTES + 1))
    assert len(bomb) < 10_000
    assert refusal(open_order, KEYS, bomb) == "too-large"
    small = seal_order(KEYS, TICKET, RICH)
    with pytest.raises(WireError, match="too-large"):
        open_order(KEYS, small, max_bytes=100)


def test_what_does_not_say_its_size_is_refused() -> None:
    assert refusal(open_order, KEYS, packed(as_plain(PLAIN), write_content_size=False)) == "malformed"


def test_what_is_no_single_zstd_frame_is_refused() -> None:
    frame = zstandard.compress(as_plain(PLAIN))
    assert is_read(open_order, KEYS, sealed(frame))
    for content in (b"", b"x" * 50, frame[:-1], frame + b"x", frame + frame, frame[:10]):
        assert refusal(open_order, KEYS, sealed(content)) == "malformed"


def test_more_small_things_than_memory_holds_are_refused_before_they_are_made() -> None:
    for body in (
        with_part("starts", array_of(MAX_STARTS + 1, b"\x91\xa0")),
        with_part("state", b"\x92" + array_of(MAX_FACTS + 1, b"\x92\x01\xc4\x00") + b"\xc4\x00"),
        with_part("crawler", b"\x81\xa5facts" + array_of(MAX_CRAWLER_BYTES // 2, b"\xc4\x00")),
    ):
        assert refusal(open_order, KEYS, body) == "too-large"


def test_many_start_urls_are_taken() -> None:
    order = msgspec.structs.replace(
        PLAIN, starts=tuple(Target(f"{SITE}/{number}") for number in range(20_000))
    )
    assert open_order(KEYS, seal_order(KEYS, TICKET, order))[1] == order


# -- any bytes


@settings(max_examples=120, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data: bytes) -> None:
    for body in (data, KEYS.session + data):
        assert not is_read(open_order, KEYS, body)
        assert not is_read(open_acknowledgement, KEYS, body)
        assert not is_read(open_report, KEYS, body)


@settings(max_examples=120, deadline=None)
@given(st.binary(max_size=300))
def test_any_sealed_bytes_are_read_or_refused(data: bytes) -> None:
    is_read(open_order, KEYS, sealed(data))
    is_read(open_order, KEYS, packed(data))
    is_read(open_order, KEYS, packed(b"\x92\xc4\x20" + TICKET + data))
    is_read(open_acknowledgement, KEYS, KEYS.session + seal(KEYS.acknowledge, data, bound=KEYS.session))
    is_read(open_report, KEYS, KEYS.session + seal(KEYS.report, data, bound=KEYS.session))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_change_within_a_sealed_order_is_read_or_refused(data: st.DataObject) -> None:
    plain = bytearray(as_plain(RICH))
    for _ in range(data.draw(st.integers(1, 4))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    is_read(open_order, KEYS, packed(bytes(plain)))


# -- acknowledgements and reports


def test_an_acknowledgement_is_read_as_it_was_given() -> None:
    body = seal_acknowledgement(KEYS, VISIT, 41)
    assert session_of(body) == SESSION
    assert open_acknowledgement(KEYS, body) == Acknowledgement(VISIT, 41)
    assert len(body) < 100


@pytest.mark.parametrize("ended", [None, Ended.BUDGET])
def test_a_report_is_read_as_it_was_given(ended: Ended | None) -> None:
    report = Report(visit=VISIT, state="killed", parcels=9, acknowledged=4, kept_bytes=10**9, ended=ended)
    assert open_report(KEYS, seal_report(KEYS, report)) == report


def test_every_changed_or_cut_acknowledgement_or_report_is_refused() -> None:
    for body in spoiled(seal_acknowledgement(KEYS, VISIT, 41)):
        assert refusal(open_acknowledgement, KEYS, body) in {"malformed", "bad-signature"}
    for body in spoiled(seal_report(KEYS, Report(visit=VISIT, state="running"))):
        assert refusal(open_report, KEYS, body) in {"malformed", "bad-signature"}


def test_an_acknowledgement_that_cannot_be_is_malformed() -> None:
    for visit, number in ((VISIT, -1), ("a/b", 1), (VISIT, 2**63)):
        assert refusal(open_acknowledgement, KEYS, seal_acknowledgement(KEYS, visit, number)) == "malformed"


def test_a_large_acknowledgement_is_refused_unread() -> None:
    assert refusal(open_acknowledgement, KEYS, bytes(MAX_SMALL_BYTES + 1)) == "too-large"
    assert refusal(open_report, KEYS, bytes(MAX_SMALL_BYTES + 1)) == "too-large"
