"""What a visit takes against its limits, in words."""

import pytest

from sterna.host.owner.status import (
    HostStatus,
    VisitStatus,
    amounts_of,
    host_amounts,
    seconds_text,
    size_text,
)
from sterna.model import Budget


def texts(state: str = "running") -> dict[str, tuple[str, float]]:
    visit = VisitStatus(
        visit="v1",
        home="k",
        name="ada",
        crawler="c",
        state=state,
        since=100.0,
        pages=50,
        requests=60,
        read_bytes=1_500_000,
        cpu_seconds=90.0,
        memory_bytes=3_000,
        limits=Budget(pages=200, seconds=600.0, cpu_seconds=60.0, fetched_bytes=0),
    )
    return {each.label: (each.text, each.share) for each in amounts_of(visit, now=130.0)}


def test_amounts_stand_beside_their_limits() -> None:
    found = texts()
    assert found["pages"] == ("50 of 200", 0.25)
    assert found["time"] == ("30.0 s of 10 min", 0.05)
    assert found["cpu"] == ("2 min of 1 min", 1.0)  # it is about to be ended


def test_where_there_is_no_limit_none_is_shown() -> None:
    found = texts()
    assert found["requests"] == ("60", 0.0)
    assert found["read"] == ("1.5 MB", 0.0)


def test_time_of_a_visit_that_is_over_does_not_go_on() -> None:
    assert texts("finished")["time"] == ("over", 0.0)


def test_host_as_a_whole() -> None:
    status = HostStatus(
        site="s", version="1", began=0, now=0, pid=1, crawlers=1, most_crawlers=4, memory_bytes=10
    )
    assert [each.text for each in host_amounts(status)] == ["1 of 4", "0", "0 B", "10 B"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (size_text(999), "999 B"),
        (size_text(1_234_567), "1.2 MB"),
        (size_text(5e15), "5000.0 TB"),
        (seconds_text(59.9), "59.9 s"),
        (seconds_text(3600), "60 min"),
        (seconds_text(86_400), "24.0 h"),
    ],
)
def test_numbers_are_for_people(text: str, expected: str) -> None:
    assert text == expected
