"""The discovery document is read as it was written, for the site that it is of, or not at all."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.parties import HOME, HOST, SITE, is_read, refusal

from sterna.wire.discovery import MAX_OFFER_BYTES, Offer, announced, decode_offer, encode_offer
from sterna.wire.handshake import SUITE
from sterna.wire.keys import Succession, follows

OFFER = Offer(
    site=SITE,
    key=HOST.public.text,
    endpoint=f"{SITE}/sterna",
    sources=("root", "http"),
    platform={"sterna": "0.5.0"},
    policy={"pages": 500, "hours": ("02:00-05:00",), "is_open": False, "note": None},
    succession=(Succession.sign(HOME, HOST.public).text,),
    max_age=3600,
)


def document(**changes: Any) -> bytes:
    """The document with other values; those that are ... are left out."""
    values = {**json.loads(encode_offer(OFFER)), **changes}
    return json.dumps({name: value for name, value in values.items() if value is not ...}).encode()


def test_an_offer_is_read_as_it_was_written() -> None:
    assert decode_offer(encode_offer(OFFER), SITE) == OFFER


def test_an_offer_leads_to_a_key_and_whom_it_follows() -> None:
    offer = decode_offer(encode_offer(OFFER), SITE)
    assert offer.public_key == HOST.public
    assert follows(HOME.public, offer.public_key, offer.chain)


def test_site_key_and_endpoint_are_enough() -> None:
    few = {"version": 1, "site": SITE, "key": HOST.public.text, "endpoint": f"{SITE}/s"}
    offer = decode_offer(json.dumps(few).encode(), SITE)
    assert (offer.suites, offer.sources, offer.is_live_only) == ((SUITE,), ("http",), False)


def test_what_a_later_release_adds_is_passed_over() -> None:
    assert decode_offer(document(new={"a": [1, 2.5]}), SITE) == OFFER


@pytest.mark.parametrize("url", ["https://other.example/x/", "http://192.0.2.7:8700", f"{SITE}/a/b"])
def test_an_endpoint_is_an_address_without_a_last_slash(url: str) -> None:
    assert decode_offer(document(endpoint=url), SITE).endpoint == url.rstrip("/")


def test_a_password_is_no_part_of_an_endpoint() -> None:
    assert decode_offer(document(endpoint="https://a:b@www.example.org/s"), SITE).endpoint == f"{SITE}/s"


def test_an_offer_of_another_site_is_refused() -> None:
    for site in ("https://other.example", "http://www.example.org", "https://www.example.org:8443"):
        assert refusal(decode_offer, encode_offer(OFFER), site) == "wrong-audience"


@pytest.mark.parametrize("changes", [{"version": 2, "key": ...}, {"suites": []}, {"suites": ["rot13"]}])
def test_what_this_home_does_not_speak_has_its_problem(changes: dict[str, Any]) -> None:
    assert refusal(decode_offer, document(**changes), SITE) == "version"


@pytest.mark.parametrize(
    "changes",
    [
        {"version": ...},
        {"version": True},
        {"version": "1"},
        {"site": ...},
        {"site": 5},
        {"key": ...},
        {"key": "ed25519:short"},
        {"key": None},
        {"endpoint": ...},
        {"endpoint": ""},
        {"endpoint": "/sterna"},
        {"endpoint": "file:///etc/passwd"},
        {"endpoint": "javascript:alert(1)"},
        {"endpoint": "https://www.example.org/?a=b"},
        {"endpoint": "https://www.example.org/" + "x" * 2048},
        {"endpoint": "https://[::1"},
        {"suites": SUITE},
        {"suites": [SUITE] * 33},
        {"sources": [1]},
        {"formats": None},
        {"platform": {"a": 1}},
        {"platform": {str(number): "" for number in range(33)}},
        {"policy": []},
        {"policy": {"a": {"b": 1}}},
        {"policy": {"a": 10**30}},
        {"policy": {"a": "x" * 3000}},
        {"policy": {str(number): 1 for number in range(101)}},
        {"is_live_only": "yes"},
        {"succession": ["x y z"]},
        {"succession": OFFER.succession * 17},
        {"max_age": -1},
        {"max_age": 10**9},
        {"max_age": 1.5},
    ],
)
def test_an_offer_that_cannot_be_is_malformed(changes: dict[str, Any]) -> None:
    assert refusal(decode_offer, document(**changes), SITE) == "malformed"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>404</html>",
        b"null",
        b"[1]",
        encode_offer(OFFER)[:-3],
        encode_offer(OFFER) + b"{}",
        document()[:-1] + b',"site":"https://www.example.org"}',
        document()[:-1] + b',"new":NaN}',
        document()[:-1] + b',"new":"\xff"}',
        document()[:-1] + b',"new":"\\udc00"}',
        document()[:-1] + b',"new":' + b"9" * 5_000 + b"}",
        document()[:-1] + b',"new":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
        document().decode().encode("utf-16"),
    ],
)
def test_json_made_to_hurt_is_malformed(data: bytes) -> None:
    assert refusal(decode_offer, data, SITE) == "malformed"


def test_a_large_document_is_refused_unread() -> None:
    assert refusal(decode_offer, encode_offer(OFFER) + b" " * MAX_OFFER_BYTES, SITE) == "too-large"


def test_every_cut_document_is_refused() -> None:
    whole = encode_offer(OFFER).rstrip()
    assert {refusal(decode_offer, whole[:size], SITE) for size in range(len(whole))} == {"malformed"}


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_any_change_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(encode_offer(OFFER))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    is_read(decode_offer, bytes(whole), SITE)
    is_read(decode_offer, data.draw(st.binary(max_size=200)), SITE)


def test_what_was_read_can_be_written_again() -> None:
    offer = decode_offer(document(policy={"a": 2**63 - 1, "b": -(2**63), "c": 1e300, "d": "\u00e4"}), SITE)
    assert decode_offer(encode_offer(offer), SITE) == offer
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(offer), type=Offer) == offer


# -- robots.txt


@pytest.mark.parametrize(
    ("text", "url"),
    [
        (b"Sterna: https://www.example.org/.well-known/sterna", f"{SITE}/.well-known/sterna"),
        (b"User-agent: *\nDisallow: /a\n\nsterna : https://www.example.org/s  # our host\n", f"{SITE}/s"),
        (b"\xef\xbb\xbfSTERNA:https://www.example.org/s\r\nUser-agent: *", f"{SITE}/s"),
        (b"Sterna: https://www.example.org/a\nSterna: https://www.example.org/b", f"{SITE}/a"),
        (b"\tSterna:\thttps://WWW.example.org/a\t\r", f"{SITE}/a"),
    ],
)
def test_a_line_of_robots_txt_announces_a_host(text: bytes, url: str) -> None:
    assert announced(text) == url


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"User-agent: Sterna\nDisallow: /",
        b"# Sterna: https://www.example.org/s",
        b"Disallow: /Sterna: https://www.example.org/s",
        b"Sterna:",
        b"Sterna: /relative",
        b"Sterna: ftp://www.example.org/",
        b"Sterna: https://www.example.org/\xff",
        b"Sterna: https://a b",
        b"Sternas: https://www.example.org/s",
        b"Sterna: https://www.example.org/" + b"x" * 3000,
        b" " * 600_000 + b"\nSterna: https://www.example.org/s",
    ],
)
def test_other_lines_announce_nothing(text: bytes) -> None:
    assert announced(text) is None


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_robots_txt_can_be_asked(text: bytes) -> None:
    announced(text)
    announced(b"Sterna: " + text)
