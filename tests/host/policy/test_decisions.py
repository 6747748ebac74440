"""Whether a visit works, rests or ends: what the owner forbids comes before what is short."""

from datetime import UTC, datetime
from typing import Any

import pytest

from sterna.errors import Refused
from sterna.host.policy.hours import Hours
from sterna.host.policy.policy import Caps
from sterna.host.policy.terms import LATE_SECONDS, Decision, Terms, check_open, decide
from sterna.host.state import Left

MONDAY = datetime(2026, 11, 16, 1, tzinfo=UTC).timestamp()
TUESDAY = MONDAY + 24 * 3600.0
MONDAYS = Hours.parse(["Mon 00:00-04:00"], UTC)


def terms(**fields: Any) -> Terms:
    return Terms("ada", Caps(), obey_robots=True, **fields)


@pytest.mark.parametrize(
    ("given", "left", "wall", "busy", "does", "why"),
    [
        (terms(), Left(), MONDAY, "", "work", ""),
        (None, Left(), MONDAY, "", "end", "no longer allows it"),
        (terms(never=True), Left(), MONDAY, "", "end", "no longer allows it"),
        (terms(), Left(pages=0), MONDAY, "", "end", "ration is used up (pages)"),
        (terms(), Left(visits=0), MONDAY, "", "work", ""),  # it is one of them
        (terms(hours=MONDAYS), Left(), MONDAY, "", "work", ""),
        (terms(hours=MONDAYS), Left(), TUESDAY, "", "end", "begin Mon 23 Nov 00:00 UTC"),
        (terms(hours=MONDAYS, outside_hours="keep"), Left(), TUESDAY, "", "rest", "begin Mon 23 Nov"),
        (terms(hours=MONDAYS, outside_hours="keep"), Left(pages=0), TUESDAY, "x", "end", "ration"),
        (terms(), Left(), MONDAY, "90% of the machine", "rest", "the site is busy"),
    ],
)
def test_step_of_a_visit(
    given: Terms | None, left: Left, wall: float, busy: str, does: str, why: str
) -> None:
    step = decide(given, left, wall=wall, busy=busy)
    assert step.does == does
    assert why in step.why
    assert (step == Decision()) == (does == "work")


def test_home_is_not_told_how_busy_the_site_is() -> None:
    step = decide(terms(), Left(), wall=MONDAY, busy="other work takes 90% of the machine")
    assert (step.why, step.detail) == ("the site is busy", "other work takes 90% of the machine")


@pytest.mark.parametrize(
    ("given", "left", "wall", "keeps", "retry_after"),
    [
        (terms(hours=MONDAYS), Left(), TUESDAY, True, 6 * 24 * 3600 - 3600),
        (terms(hours=MONDAYS, outside_hours="keep"), Left(), TUESDAY, False, 6 * 24 * 3600 - 3600),
        (terms(), Left(pages=0), MONDAY, True, 23 * 3600),
        (terms(), Left(visits=0), MONDAY, True, 23 * 3600),
    ],
)
def test_who_may_not_come_is_told_when(
    given: Terms, left: Left, wall: float, keeps: bool, retry_after: float
) -> None:
    with pytest.raises(Refused) as caught:
        check_open(given, left, wall=wall, keeps=keeps)
    assert (caught.value.problem, caught.value.retry_after) == ("closed-now", retry_after)


@pytest.mark.parametrize(
    ("given", "wall"),
    [
        (terms(), TUESDAY),
        (terms(hours=MONDAYS), MONDAY),
        (terms(hours=MONDAYS, outside_hours="keep"), TUESDAY),
    ],
)
def test_who_may_come_or_wait_is_let_in(given: Terms, wall: float) -> None:
    check_open(given, Left(), wall=wall, keeps=True)


def test_any_hours_come_before_a_visit_that_waits_is_given_up() -> None:
    begin = MONDAYS.next_begin(MONDAY + 3 * 3600.0)
    assert begin
    assert begin - MONDAY < LATE_SECONDS
