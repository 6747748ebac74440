"""What follows of a site's robots.txt, or of having none (Agarwal 3.4)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.web.robots_files import FORBID_ALL, SITE

from sterna.model import Robots, RobotsState, RobotsTimes
from sterna.web.robots import (
    MAX_BYTES,
    NEVER,
    TIMES,
    RobotsAnswer,
    Rules,
    is_due,
    is_try_again,
    judge,
)

KEEP_SECONDS, RETRY_HOURS, MAX_FAILURES = TIMES.keep_seconds, TIMES.retry_hours, TIMES.max_failures
NOW = 1_700_000_000.0


def test_new_site_is_due_and_not_qualified() -> None:
    assert is_due(Robots(), NOW)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 418, 451, 499])
def test_site_without_robots_txt_is_qualified_without_rules(status: int) -> None:
    before = Robots(RobotsState.DISQUALIFIED, failures=3, retry_at=NOW, rules=b"")
    after = judge(RobotsAnswer(status, FORBID_ALL), before, now=NOW)
    assert after == Robots(
        RobotsState.QUALIFIED, tried_at=NOW, failures=0, rules=b"", reason=f"HTTP {status}: no rules"
    )


@pytest.mark.parametrize("status", [200, 203, 204, 206, 299])
def test_site_with_rules_is_qualified_with_them(status: int) -> None:
    after = judge(RobotsAnswer(status, FORBID_ALL), Robots(failures=2), now=NOW)
    assert after == Robots(RobotsState.QUALIFIED, tried_at=NOW, rules=FORBID_ALL)


@pytest.mark.parametrize(
    "body",
    [
        b"<!DOCTYPE html><title>Home</title>\n<p>Our robots: <b>all</b> allow\n<p>Disallow: /\n",
        b"\xef\xbb\xbf\r\n <html><script>var a = {allow: '/', 'user-agent': '*'}</script>\n",
        b'<?xml version="1.0"?>\n<!DOCTYPE html>\n',
        b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4 + FORBID_ALL,
        bytes(range(128, 192)) * 4 + b"\n" + FORBID_ALL,
        FORBID_ALL.decode().encode("utf-16-le"),
        FORBID_ALL.decode().encode("utf-32"),
    ],
    ids=["html", "html after a mark", "xhtml", "binary", "not utf-8", "utf-16 without mark", "utf-32"],
)
def test_site_that_sends_something_else_is_qualified_without_rules(body: bytes) -> None:
    after = judge(RobotsAnswer(200, body), Robots(), now=NOW)
    assert after.state is RobotsState.QUALIFIED
    assert after.rules == b""
    assert "no rules" in after.reason
    assert Rules.parse(body, "Sterna").may_fetch(SITE + "/a")


def test_rules_inside_an_html_page_are_kept_without_its_markup() -> None:
    body = b"<html><body><pre>" + FORBID_ALL + b"Sterna: https://example.com/host\n</pre></body></html>"
    after = judge(RobotsAnswer(200, body), Robots(), now=NOW)
    assert (after.state, after.reason) == (RobotsState.QUALIFIED, "")
    assert FORBID_ALL in after.rules
    assert b"Sterna: https://example.com/host" in after.rules
    assert b"<" not in after.rules
    assert not Rules.parse(after.rules, "Sterna").may_fetch(SITE + "/a")


def test_rules_announced_as_html_are_rules() -> None:
    after = judge(RobotsAnswer(200, FORBID_ALL), Robots(), now=NOW)
    assert after.rules == FORBID_ALL


def test_long_file_is_kept_up_to_its_last_whole_line() -> None:
    body = FORBID_ALL + b"Allow: /ab\n" * MAX_BYTES
    after = judge(RobotsAnswer(200, body), Robots(), now=NOW)
    assert after.state is RobotsState.QUALIFIED
    assert MAX_BYTES - 11 < len(after.rules) <= MAX_BYTES
    assert after.rules.endswith(b"Allow: /ab\n")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (RobotsAnswer(200, FORBID_ALL, is_truncated=True), "truncated"),
        (RobotsAnswer(0), "no answer from any address"),
        (RobotsAnswer(301), "HTTP 301 left after at most 5 redirects"),
        (RobotsAnswer(304), "HTTP 304 left after at most 5 redirects"),
        (RobotsAnswer(429), "HTTP 429 on every address"),
        (RobotsAnswer(500), "HTTP 500 on every address"),
        (RobotsAnswer(503), "HTTP 503 on every address"),
        (RobotsAnswer(999), "HTTP 999 on every address"),
    ],
)
def test_site_whose_rules_are_not_to_be_had_is_disqualified(answer: RobotsAnswer, reason: str) -> None:
    before = Robots(RobotsState.QUALIFIED, tried_at=NOW - KEEP_SECONDS, rules=b"User-agent: *\n")
    after = judge(answer, before, now=NOW)
    assert after == Robots(
        RobotsState.DISQUALIFIED, tried_at=NOW, failures=1, retry_at=NOW + 3600, rules=b"", reason=reason
    )


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (400, RobotsState.QUALIFIED),
        (404, RobotsState.QUALIFIED),
        (410, RobotsState.QUALIFIED),
        (401, RobotsState.DISQUALIFIED),
        (403, RobotsState.DISQUALIFIED),
        (429, RobotsState.DISQUALIFIED),
        (451, RobotsState.DISQUALIFIED),
    ],
)
def test_strict_reading_takes_three_statuses_for_no_rules(status: int, state: RobotsState) -> None:
    assert judge(RobotsAnswer(status), Robots(), now=NOW, is_strict=True).state is state


def test_intervals_are_those_that_were_chosen() -> None:
    times = RobotsTimes(keep_seconds=600.0, retry_hours=(0.5, 2.0), max_failures=3)
    robots, waits = Robots(), []
    for _ in range(2):
        robots = judge(RobotsAnswer(503), robots, now=NOW, times=times)
        waits.append((robots.retry_at - NOW) / 3600)
    assert waits == [0.5, 2.0]
    assert judge(RobotsAnswer(503), robots, now=NOW, times=times).retry_at == NEVER
    qualified = judge(RobotsAnswer(404), robots, now=NOW, times=times)
    assert not is_due(qualified, NOW + 599, keep_seconds=times.keep_seconds)
    assert is_due(qualified, NOW + 600, keep_seconds=times.keep_seconds)


def test_reason_of_the_caller_goes_before_ours() -> None:
    assert judge(RobotsAnswer(0, reason="no address found"), Robots(), now=NOW).reason == "no address found"


def test_retries_come_ever_later_and_end() -> None:
    robots = Robots()
    waits = []
    while robots.retry_at < NEVER:
        robots = judge(RobotsAnswer(503), robots, now=NOW)
        waits.append((robots.retry_at - NOW) / 3600)
    assert waits[:-1] == [*RETRY_HOURS, 24, 24, 24]
    assert robots.failures == MAX_FAILURES
    assert "given up" in robots.reason
    assert not is_due(robots, NOW + 100 * 365 * 24 * 3600)


def test_success_forgets_the_failures() -> None:
    failing = judge(RobotsAnswer(503), Robots(failures=5), now=NOW)
    working = judge(RobotsAnswer(404), failing, now=NOW)
    assert working.failures == 0
    assert judge(RobotsAnswer(503), working, now=NOW).retry_at == NOW + 3600


def test_qualified_site_is_due_after_a_day() -> None:
    robots = judge(RobotsAnswer(404), Robots(), now=NOW)
    assert not is_due(robots, NOW + KEEP_SECONDS - 1)
    assert is_due(robots, NOW + KEEP_SECONDS)


def test_qualified_site_is_due_if_the_clock_was_set_back() -> None:
    assert is_due(judge(RobotsAnswer(404), Robots(), now=NOW), NOW - 3600)


def test_disqualified_site_is_due_when_its_retry_is_reached() -> None:
    robots = judge(RobotsAnswer(500), Robots(), now=NOW)
    assert not is_due(robots, robots.retry_at - 1)
    assert is_due(robots, robots.retry_at)


@pytest.mark.parametrize(
    ("status", "expected"),
    [(0, True), (429, True), (500, True), (503, True), (599, True), (200, False), (301, False), (404, False)],
)
def test_status_of_a_bad_connection_sends_to_the_next_address(status: int, expected: bool) -> None:
    assert is_try_again(status) is expected


@given(st.binary(), st.integers(0, 599), st.booleans(), st.integers(0, MAX_FAILURES))
def test_any_answer_leads_to_a_state_that_can_be_kept(
    body: bytes, status: int, is_truncated: bool, failures: int
) -> None:
    before = Robots(RobotsState.DISQUALIFIED, failures=failures)
    after = judge(RobotsAnswer(status, body, is_truncated), before, now=NOW)
    assert after.state is not RobotsState.UNKNOWN
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(after), type=Robots) == after
