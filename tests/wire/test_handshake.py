"""The handshake gives both sides the same keys, and everything that is not it a WireError."""

import math
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.bindings import crypto_scalarmult_base
from tests.wire.parties import (
    HOME,
    HOST,
    NOW,
    PLATFORM,
    SESSION,
    SITE,
    STRANGER,
    TICKET,
    greeting,
    is_read,
    refusal,
    reply_to,
    session,
    spoiled,
)

from sterna.errors import WireError
from sterna.model import Budget, Record
from sterna.wire import handshake
from sterna.wire.handshake import (
    MAX_HELLO_BYTES,
    MAX_WELCOME_BYTES,
    SUITE,
    Greeting,
    Hello,
    SessionKeys,
    Welcome,
    check_budget,
    read_hello,
    seal,
    unseal,
    welcome,
)
from sterna.wire.keys import Identity

encode = msgspec.msgpack.encode

# Points of low order on Curve25519, of which every multiple by a clamped secret is zero (RFC 7748 6.1).
LOW_ORDER = [
    bytes(32),
    b"\1" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]


def hello(**changes: object) -> Hello:
    usual = Hello(
        home="lab", key=HOME.public.data, audience=SITE, ephemeral=b"\t" * 32, nonce=b"n" * 16, time=NOW
    )
    return msgspec.structs.replace(usual, **changes)


def signed(payload: bytes, *, identity: Identity = HOME, context: str = "hello") -> bytes:
    return encode([payload, identity.sign(context, payload)])


def replied(asked: Greeting, payload: bytes, *, host: Identity = HOST) -> bytes:
    """A reply whose seal and signature are right, whatever the payload."""
    secret = b"\7" * 32
    ephemeral = crypto_scalarmult_base(secret)
    transcript = handshake._with_reply(read_hello(asked.body).transcript, SESSION, ephemeral)
    shared = handshake._shared(secret, read_hello(asked.body).hello.ephemeral)
    plain = encode([payload, host.sign("welcome", transcript + payload)])
    key = handshake._derive(shared, "welcome", transcript)
    return encode([SESSION, ephemeral, seal(key, plain, bound=transcript)])


# -- what it is for


def test_both_sides_have_the_same_keys_and_ticket() -> None:
    home, keys = session()
    assert home.keys == keys
    assert (home.keys.session, home.ticket, home.seconds) == (SESSION, TICKET, 60)
    assert (home.grants, home.platform) == (Budget(pages=500), PLATFORM)


def test_the_host_reads_what_home_said() -> None:
    wants = Budget(pages=7, seconds=1.5)
    read = read_hello(greeting(wants=wants).body)
    assert read.key == HOME.public
    assert (read.hello.home, read.hello.audience, read.hello.time) == ("lab", SITE, NOW)
    assert read.hello.wants == wants


def offering(priority: int) -> Greeting:
    return Greeting.begin(HOME, home="lab", audience=SITE, wants=Budget(), now=NOW, priority=priority)


def test_priority_is_offered_and_granted() -> None:
    asked = offering(7)
    read = read_hello(asked.body)
    assert read.hello.priority == 7
    reply, _ = welcome(read, HOST, grants=Budget(), platform={}, ticket=TICKET, session=SESSION, priority=5)
    assert asked.finish(reply, HOST.public).priority == 5


def test_peers_that_know_no_priority_are_understood_both_ways() -> None:
    """A field at the end that is missing has its default, and one that is not known is passed over."""
    old_hello = encode(list(msgspec.structs.astuple(hello()))[:-1])
    assert read_hello(signed(old_hello)).hello.priority == 0
    asked = offering(7)
    old_welcome = encode(list(msgspec.structs.astuple(Welcome(suite=SUITE, ticket=TICKET)))[:-1])
    assert asked.finish(replied(asked, old_welcome), HOST.public).priority == 0

    class OldHello(Record, frozen=True, kw_only=True):
        """As it was before there were priorities."""

        version: int
        suites: tuple[str, ...]
        home: str
        key: bytes
        audience: str
        ephemeral: bytes
        nonce: bytes
        time: float
        wants: Budget
        understands: tuple[str, ...]

    payload, _ = msgspec.msgpack.decode(asked.body)
    assert msgspec.msgpack.decode(payload, type=OldHello).home == "lab"


def test_host_cannot_hold_home_to_more_than_it_offered() -> None:
    asked = offering(3)
    payload = encode(Welcome(suite=SUITE, ticket=TICKET, priority=4))
    assert refusal(asked.finish, replied(asked, payload), HOST.public) == "malformed"


@pytest.mark.parametrize("priority", [-1, 11, 2.5, "5"])
def test_priority_that_cannot_be_is_refused(priority: object) -> None:
    assert refusal(read_hello, signed(encode(hello(priority=priority)))) == "malformed"


def test_no_key_is_used_for_two_purposes() -> None:
    _, keys = session()
    assert len({keys.order, keys.stream, keys.acknowledge, keys.report}) == 4


def test_every_session_has_keys_of_its_own() -> None:
    asked = greeting()
    assert reply_to(asked.body)[1].order != reply_to(asked.body)[1].order
    assert greeting().body != greeting().body


def test_keys_are_read_back_from_a_file() -> None:
    _, keys = session()
    assert SessionKeys.decode(keys.encode()) == keys
    assert refusal(SessionKeys.decode, keys.encode()[:-1]) == "malformed"
    assert refusal(SessionKeys.decode, keys.encode() + b"x") == "malformed"


def test_secrets_are_not_shown() -> None:
    asked = greeting()
    home, keys = session()
    shown = repr(asked) + repr(home) + repr(keys)
    assert not any(
        repr(secret)[2:-1] in shown for secret in (asked.ephemeral, home.ticket, keys.order, keys.stream)
    )


def test_messages_are_small() -> None:
    asked = greeting()
    reply, _ = reply_to(asked.body)
    assert len(asked.body) < 320
    assert len(reply) < 360


def test_a_handshake_takes_less_than_5_ms_of_cpu() -> None:
    def spent() -> float:
        start = time.process_time()
        session()
        return time.process_time() - start

    assert min(spent() for _ in range(10)) < 0.005


# -- request 1


def test_every_changed_or_cut_request_is_refused() -> None:
    for body in spoiled(greeting().body):
        assert refusal(read_hello, body) in {"malformed", "bad-signature", "version"}


def test_a_request_signed_by_another_key_is_refused() -> None:
    body = signed(encode(hello()), identity=STRANGER)
    assert refusal(read_hello, body) == "bad-signature"


def test_a_signature_for_another_purpose_is_refused() -> None:
    body = signed(encode(hello()), context="welcome")
    assert refusal(read_hello, body) == "bad-signature"


def test_the_audience_is_part_of_what_is_signed() -> None:
    """By it a host tells what is meant for another: it answers "wrong-audience"."""
    body = greeting(audience="https://other.example").body
    assert read_hello(body).hello.audience == "https://other.example"
    moved = body.replace(b"https://other.example", b"https://owner.example")
    assert refusal(read_hello, moved) == "bad-signature"


def test_no_suite_in_common_has_its_problem() -> None:
    for suites in ((), ("rot13",), (SUITE + "x",)):
        assert refusal(read_hello, signed(encode(hello(suites=suites)))) == "version"
    assert read_hello(signed(encode(hello(suites=("new", SUITE))))).hello.suites == ("new", SUITE)


def test_another_version_has_its_problem_whatever_else_it_says() -> None:
    assert refusal(read_hello, signed(encode(hello(version=2)))) == "version"
    assert refusal(read_hello, signed(encode([2, {"all": "is new"}]))) == "version"
    assert refusal(read_hello, signed(encode([2**64 - 1]))) == "version"


def test_a_field_that_a_later_release_adds_is_passed_over() -> None:
    longer = [*msgspec.to_builtins(hello(), builtin_types=(bytes,)), "new"]
    assert read_hello(signed(encode(longer))).hello == hello()


@pytest.mark.parametrize(
    "changes",
    [
        {"key": b"k" * 31},
        {"ephemeral": b"e" * 33},
        {"nonce": b""},
        {"home": ""},
        {"home": "x" * 101},
        {"home": "lab\n"},
        {"home": "\x1b[2J"},
        {"home": "a\u202eb"},
        {"audience": ""},
        {"audience": "https://www.example.org\n"},
        {"audience": "x" * 301},
        {"suites": (SUITE,) * 33},
        {"understands": ("a b",)},
        {"time": math.nan},
        {"time": math.inf},
        {"time": "now"},
        {"wants": Budget(pages=-1)},
        {"wants": Budget(seconds=math.nan)},
        {"wants": Budget(seconds=math.inf)},
        {"wants": Budget(cpu_seconds=-0.5)},
        {"wants": Budget(sent_bytes=2**64 - 1)},
        {"wants": "much"},
        {"wants": None},
    ],
)
def test_a_signed_request_that_cannot_be_is_malformed(changes: dict[str, object]) -> None:
    assert refusal(read_hello, signed(encode(hello(**changes)))) == "malformed"


def test_a_budget_may_be_as_large_as_can_be_counted() -> None:
    check_budget(Budget(pages=2**63 - 1, seconds=1e15))


def test_a_large_request_is_refused_unread() -> None:
    assert refusal(read_hello, bytes(MAX_HELLO_BYTES + 1)) == "too-large"


@settings(max_examples=120, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_refused_as_request(data: bytes) -> None:
    assert not is_read(read_hello, data)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(-5, 5), inner),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(json_like)
def test_any_signed_payload_is_read_or_refused(payload: object) -> None:
    is_read(read_hello, signed(encode(payload)))
    is_read(read_hello, encode(payload))
    is_read(greeting().finish, encode(payload), HOST.public)


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_any_change_within_a_signed_payload_is_read_or_refused(data: st.DataObject) -> None:
    payload = bytearray(encode(hello()))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    is_read(read_hello, signed(bytes(payload)))


@pytest.mark.parametrize(
    "payload",
    [
        b"\x91" * 5_000,  # nested
        b"\x81\xa1a" * 2_000,
        b"\xdd\xff\xff\xff\xff",  # four thousand million elements
        b"\x9a\x01\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x9a\x01\x91\xa2\xff\xff",  # not UTF-8
        b"\x9a\x01\xc7\x00\x05",  # an extension type
        b"\x9a\xcb\x7f\xf8\0\0\0\0\0\0",  # NaN for a version
        b"\xc1",
    ],
)
def test_payloads_made_to_hurt_are_refused(payload: bytes) -> None:
    assert refusal(read_hello, signed(payload)) in {"malformed", "too-large"}
    assert refusal(read_hello, payload) in {"malformed", "too-large"}
    asked = greeting()
    assert refusal(asked.finish, replied(asked, payload), HOST.public) == "malformed"


# -- reply 1


def test_every_changed_or_cut_reply_is_refused() -> None:
    asked = greeting()
    reply, _ = reply_to(asked.body)
    for body in spoiled(reply):
        assert refusal(asked.finish, body, HOST.public) in {"malformed", "bad-signature"}


def test_a_reply_to_another_request_is_refused() -> None:
    asked, other = greeting(), greeting()
    reply, _ = reply_to(other.body)
    assert refusal(asked.finish, reply, HOST.public) == "bad-signature"


def test_a_reply_to_the_same_ephemeral_key_but_another_request_is_refused() -> None:
    """Whoever could change what home asked for would have to make the host sign that it was asked so."""
    asked = greeting()
    said = read_hello(asked.body).hello
    changed = signed(encode(msgspec.structs.replace(said, wants=Budget(pages=9))))
    reply, _ = reply_to(changed)
    assert refusal(asked.finish, reply, HOST.public) == "bad-signature"


def test_a_reply_by_another_key_is_refused() -> None:
    asked = greeting()
    reply, _ = reply_to(asked.body, host=STRANGER)
    assert refusal(asked.finish, reply, HOST.public) == "bad-signature"


def test_a_reply_with_anothers_ephemeral_key_or_session_is_refused() -> None:
    asked = greeting()
    first, second = (msgspec.msgpack.decode(reply_to(asked.body)[0]) for _ in range(2))
    for mixed in (
        [first[0], second[1], first[2]],
        [first[0], read_hello(asked.body).hello.ephemeral, first[2]],
        [b"S" * 16, first[1], first[2]],
    ):
        assert refusal(asked.finish, encode(mixed), HOST.public) == "bad-signature"
    assert asked.finish(encode(first), HOST.public).keys.session == SESSION


def test_a_request_that_comes_back_is_no_reply() -> None:
    asked = greeting()
    assert refusal(asked.finish, asked.body, HOST.public) == "malformed"


def test_who_sits_between_cannot_take_the_hosts_signature() -> None:
    """He answers home with keys of his own, and inside what the host signed for an exchange with himself."""
    asked = greeting()
    said = read_hello(asked.body).hello
    his = Greeting.begin(STRANGER, home=said.home, audience=SITE, wants=said.wants, now=NOW)
    reply, _ = reply_to(his.body)
    outer = msgspec.msgpack.decode(reply)
    transcript = handshake._with_reply(read_hello(his.body).transcript, outer[0], outer[1])
    shared = handshake._shared(his.ephemeral, outer[1])
    plain = unseal(handshake._derive(shared, "welcome", transcript), outer[2], bound=transcript)
    ephemeral = crypto_scalarmult_base(his.ephemeral)
    towards_home = handshake._with_reply(read_hello(asked.body).transcript, outer[0], ephemeral)
    key = handshake._derive(handshake._shared(his.ephemeral, said.ephemeral), "welcome", towards_home)
    forged = encode([outer[0], ephemeral, seal(key, plain, bound=towards_home)])
    assert refusal(asked.finish, forged, HOST.public) == "bad-signature"


@pytest.mark.parametrize("point", LOW_ORDER, ids=lambda point: point.hex()[:8])
def test_points_of_low_order_are_refused(point: bytes) -> None:
    body = signed(encode(hello(ephemeral=point)))
    assert refusal(reply_to, body) == "malformed"
    asked = greeting()
    assert refusal(asked.finish, encode([SESSION, point, bytes(200)]), HOST.public) == "malformed"


def test_a_suite_that_was_not_offered_is_refused() -> None:
    asked = greeting()
    payload = encode(Welcome(suite="rot13", ticket=TICKET))
    assert refusal(asked.finish, replied(asked, payload), HOST.public) == "version"


@pytest.mark.parametrize(
    "welcomed",
    [
        Welcome(suite=SUITE, ticket=b"short"),
        Welcome(suite=SUITE, ticket=TICKET, seconds=0),
        Welcome(suite=SUITE, ticket=TICKET, seconds=10**9),
        Welcome(suite=SUITE, ticket=TICKET, grants=Budget(seconds=math.nan)),
        Welcome(suite=SUITE, ticket=TICKET, grants=Budget(pages=-5)),
        Welcome(suite=SUITE, ticket=TICKET, platform={"x" * 65: ""}),
        Welcome(suite=SUITE, ticket=TICKET, platform={"x": "y" * 201}),
        Welcome(suite=SUITE, ticket=TICKET, platform={str(number): "" for number in range(33)}),
    ],
)
def test_a_signed_reply_that_cannot_be_is_malformed(welcomed: Welcome) -> None:
    asked = greeting()
    assert refusal(asked.finish, replied(asked, encode(welcomed)), HOST.public) == "malformed"


def test_a_large_reply_is_refused_unread() -> None:
    assert refusal(greeting().finish, bytes(MAX_WELCOME_BYTES + 1), HOST.public) == "too-large"


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_refused_as_reply(data: bytes) -> None:
    asked = greeting()
    assert not is_read(asked.finish, data, HOST.public)
    assert not is_read(asked.finish, encode([SESSION, b"\t" * 32, data]), HOST.public)
    is_read(asked.finish, replied(asked, data), HOST.public)


def test_the_reasons_are_one_line() -> None:
    with pytest.raises(WireError) as refused:
        read_hello(signed(encode(hello(home="a\nb"))))
    assert "\n" not in str(refused.value)
