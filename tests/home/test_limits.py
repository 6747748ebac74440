"""What is left of a crawler's own limits when home goes on at a site."""

from tests import making

from sterna.home.limits import Spent, has_limits, rest_of
from sterna.model import Budget, Usage


def test_next_visit_gets_what_the_ones_before_left() -> None:
    spent = Spent()
    budget = Budget(requests=100, fetched_bytes=1_000, sent_bytes=500, cpu_seconds=9.0, wall_seconds=60.0)
    rest_of(budget, spent, now=1_000.0)

    spent.add(making.parcel(usage=Usage(requests=30, bytes_received=400, sent_bytes=100, cpu_seconds=2.5)))
    rest = rest_of(budget, spent, now=1_020.0)

    assert (rest.requests, rest.fetched_bytes, rest.sent_bytes) == (70, 600, 400)
    assert (rest.cpu_seconds, rest.wall_seconds) == (6.5, 40.0)


def test_limit_that_is_used_up_does_not_become_no_limit() -> None:
    spent = Spent()
    budget = Budget(requests=10, cpu_seconds=1.0, wall_seconds=5.0)
    rest_of(budget, spent, now=0.0)
    spent.add(making.parcel(usage=Usage(requests=99, cpu_seconds=9.0)))

    rest = rest_of(budget, spent, now=99.0)

    assert rest.requests == 1
    assert 0 < rest.cpu_seconds < 1e-6
    assert 0 < rest.wall_seconds < 1e-6


def test_no_limit_stays_no_limit() -> None:
    spent = Spent()
    spent.add(making.parcel(usage=Usage(requests=99, bytes_received=9, cpu_seconds=9.0)))

    assert rest_of(Budget(), spent, now=9.0) == Budget()
    assert not has_limits(Budget())
    assert has_limits(Budget(wall_seconds=1.0))
