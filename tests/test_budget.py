"""Budgets and usage: what is less, what is left, what adds up."""

from sterna.model import Budget, Usage


def test_usages_add_up() -> None:
    one = Usage(requests=2, pages=1, errors={"dns": 1, "timeout": 1}, cpu_seconds=0.5)
    other = Usage(requests=3, unchanged=1, errors={"timeout": 2}, sent_bytes=7)
    assert one.plus(other) == Usage(
        requests=5, pages=1, unchanged=1, errors={"dns": 1, "timeout": 3}, cpu_seconds=0.5, sent_bytes=7
    )


def test_lesser_budget_holds_and_no_limit_gives_way_to_one() -> None:
    one = Budget(pages=10, seconds=60.0, depth=0, requests=0, sent_bytes=500, facts=7)
    other = Budget(pages=20, seconds=5.0, depth=9, requests=30, sent_bytes=0, facts=3)
    lesser = Budget(pages=10, seconds=5.0, depth=0, requests=30, sent_bytes=500, facts=3)
    assert one.lesser(other) == other.lesser(one) == lesser


def test_negative_limit_is_none() -> None:
    assert Budget(requests=-5).lesser(Budget(requests=8)).requests == 8


def test_what_is_used_is_taken_from_the_limits_that_visits_share() -> None:
    budget = Budget(pages=10, requests=5, fetched_bytes=100, cpu_seconds=2.0, wall_seconds=60.0)
    left = budget.minus(Usage(pages=4, requests=3, bytes_received=40, cpu_seconds=0.5), seconds=20.0)
    assert left == Budget(pages=10, requests=2, fetched_bytes=60, cpu_seconds=1.5, wall_seconds=40.0)


def test_limit_that_is_used_up_is_not_no_limit() -> None:
    budget = Budget(requests=5, sent_bytes=10, cpu_seconds=2.0, wall_seconds=60.0)
    left = budget.minus(Usage(requests=9, sent_bytes=10, cpu_seconds=3.0), seconds=99.0)
    assert (left.requests, left.sent_bytes, left.fetched_bytes) == (1, 1, 0)
    assert 0 < left.cpu_seconds < 0.001
    assert 0 < left.wall_seconds < 0.001


def test_budget_knows_whether_the_crawler_has_limits_of_its_own() -> None:
    assert not Budget(pages=1, seconds=1.0, memory_bytes=5).has_own_limits
    assert Budget(wall_seconds=1.0).has_own_limits
