"""Problems say why, in JSON that both sides read alike; what is no problem is a WireError."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.parties import is_read, refusal

from sterna.errors import Refused, WireError
from sterna.wire.problems import (
    MAX_PROBLEM_BYTES,
    PROBLEMS,
    Problem,
    decode_problem,
    encode_problem,
    problem,
    problem_of,
    refusal_of,
)

STATUSES = {
    "malformed": 400,
    "version": 400,
    "bad-signature": 401,
    "stale": 401,
    "unknown-home": 403,
    "refused": 403,
    "replayed": 409,
    "ticket-spent": 409,
    "ticket-expired": 410,
    "gone": 410,
    "too-large": 413,
    "wrong-audience": 421,
    "internal": 500,
    "busy": 503,
    "closed-now": 503,
    "stopped": 503,
    "no-jail": 503,
}


def test_every_problem_has_its_status() -> None:
    assert {name: status for name, (status, _) in PROBLEMS.items()} == STATUSES


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_is_read_as_it_was_said(name: str) -> None:
    said = problem(name, "a detail", retry_after=30, time=1_700_000_000.25)
    read = decode_problem(encode_problem(said))
    assert read == said
    assert (read.name, read.status) == (name, STATUSES[name])


def test_a_problem_is_rfc_9457() -> None:
    assert json.loads(encode_problem(problem("busy", "4 crawlers are here", retry_after=1.2))) == {
        "type": "urn:sterna:problem:busy",
        "title": "Too many crawlers are here",
        "status": 503,
        "detail": "4 crawlers are here",
        "retry_after": 2,
    }


def test_headers_say_when_to_ask_again() -> None:
    headers = dict(problem("busy", retry_after=7).headers)
    assert headers == {
        "Content-Type": "application/problem+json",
        "Cache-Control": "no-store",
        "Retry-After": "7",
    }
    assert "WWW-Authenticate" in dict(problem("stale").headers)


@pytest.mark.parametrize(("seconds", "said"), [(-5, 0), (0.1, 1), (10**9, 7 * 24 * 3600)])
def test_a_wait_is_whole_seconds_within_a_week(seconds: float, said: int) -> None:
    assert problem("busy", retry_after=seconds).retry_after == said


def test_an_error_at_the_host_is_the_same_error_at_home() -> None:
    error = Refused("stale", "the clocks differ by 500 s", retry_after=5, time=12.5)
    back = refusal_of(decode_problem(encode_problem(problem_of(error))))
    assert (back.problem, back.detail, back.retry_after, back.time) == ("stale", error.detail, 5, 12.5)


def test_a_wire_error_keeps_its_name() -> None:
    said = problem_of(WireError("wrong-audience", "this is the host of a, not of b"))
    assert (said.name, said.status, said.detail) == ("wrong-audience", 421, "this is the host of a, not of b")


def test_an_error_without_a_problem_of_its_own_is_malformed() -> None:
    said = problem_of(WireError("cut off", "the stream ended"))
    assert (said.name, said.detail) == ("malformed", "cut off: the stream ended")


def test_a_problem_without_a_detail_says_its_title() -> None:
    assert refusal_of(problem("gone")).detail == "There is no such visit"


def test_an_unheard_name_is_kept_for_the_reader() -> None:
    later = {"type": "urn:sterna:problem:too-hot", "status": 418, "title": "Tea", "new": [1]}
    assert refusal_of(decode_problem(json.dumps(later).encode())).problem == "too-hot"


def test_what_is_shown_has_no_control_characters() -> None:
    said = {"type": "urn:sterna:problem:busy", "status": 503, "detail": "\x1b[2J\r\n\u202eevil" + "x" * 5_000}
    detail = decode_problem(json.dumps(said).encode()).detail
    assert detail.isprintable() and len(detail) == 1_000
    assert problem("busy", "a\nb").detail == "a b"


BUSY = b'{"type":"urn:sterna:problem:busy","status":503'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>502 Bad Gateway</html>",
        b"[]",
        b"null",
        b"{}",
        BUSY,
        BUSY + b"} ,",
        BUSY + b',"status":503}',
        b'{"type":"about:blank","status":503}',
        b'{"type":"urn:sterna:problem:","status":503}',
        b'{"type":"urn:sterna:problem:B%","status":503}',
        b'{"type":"urn:sterna:problem:busy","status":200}',
        b'{"type":"urn:sterna:problem:busy","status":"503"}',
        b'{"type":"urn:sterna:problem:busy","status":1e400}',
        b'{"type":"urn:sterna:problem:busy","status":' + b"9" * 10_000 + b"}",
        BUSY + b',"retry_after":-1}',
        BUSY + b',"retry_after":1e9}',
        BUSY + b',"retry_after":99999999}',
        BUSY + b',"time":NaN}',
        BUSY + b',"time":Infinity}',
        BUSY + b',"time":1e999}',
        BUSY + b',"time":1e308}',
        BUSY + b',"time":-1}',
        BUSY + b',"detail":"\xff"}',
        BUSY + b',"detail":"\\ud800"}',
        BUSY + b',"new":' + b"[" * 8_000 + b"}",
        "\ufeff".encode() + BUSY + b"}",
    ],
)
def test_what_is_no_problem_is_refused(data: bytes) -> None:
    assert refusal(decode_problem, data) == "malformed"


def test_a_large_problem_is_refused_unread() -> None:
    assert refusal(decode_problem, BUSY + b"}" + b" " * MAX_PROBLEM_BYTES) == "malformed"


@settings(max_examples=120, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    is_read(decode_problem, data)


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_any_change_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(encode_problem(problem("stale", "a detail", retry_after=3, time=1.5)))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert isinstance(decode_problem(bytes(whole)), Problem)
    except WireError:
        return
