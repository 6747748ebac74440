"""Times from outside: what is kept of them, and what is not believed."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sterna.archive.disk import EPOCH, moment
from sterna.archive.rows import last_modified

FETCHED = datetime(2026, 5, 1, tzinfo=UTC)


def test_fetch_time_keeps_its_microseconds() -> None:
    assert moment(1_700_000_000.123456) == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)


@given(st.floats())
@example(math.nan)
@example(math.inf)
def test_any_number_becomes_a_time(seconds: float) -> None:
    assert EPOCH <= moment(seconds) <= datetime(2200, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "stated"),
    [
        ("Wed, 21 Oct 2015 07:28:00 GMT", datetime(2015, 10, 21, 7, 28, tzinfo=UTC)),
        ("Wed, 21 Oct 2015 07:28:00 +0200", datetime(2015, 10, 21, 5, 28, tzinfo=UTC)),
        ("Wed, 21 Oct 2015 07:28:00 -0000", datetime(2015, 10, 21, 7, 28, tzinfo=UTC)),
        ("Wednesday, 21-Oct-15 07:28:00 GMT", datetime(2015, 10, 21, 7, 28, tzinfo=UTC)),
    ],
)
def test_last_modified_is_read_in_the_forms_servers_write(header: str, stated: datetime) -> None:
    assert last_modified(header, fetched=FETCHED) == stated


@pytest.mark.parametrize(
    "header",
    [
        "",
        "yesterday",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "Sun, 03 May 2026 00:00:00 GMT",
        "Wed, 99 Oct 2015 07:28:00 GMT",
        "Wed, 21 Oct 2015 07:28:00 +999999999",
        "Wed, 21 Oct 99999999999999999999 07:28:00 GMT",
    ],
)
def test_last_modified_that_cannot_be_true_is_nothing(header: str) -> None:
    assert last_modified(header, fetched=FETCHED) is None


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ \d+:\d+:\d+ [+-]?\w+"))
def test_no_last_modified_is_too_strange(header: str) -> None:
    stated = last_modified(header, fetched=FETCHED)
    assert stated is None or stated.tzinfo is UTC
