"""Ranks: priorities before depths, in one number."""

from hypothesis import given
from hypothesis import strategies as st

from sterna.home.ledger.sqlite.lookup import MAX_DEPTH, MAX_PRIORITY, best, depth_of, priority_of, rank_of
from sterna.model import Target

DEPTHS = st.integers(0, MAX_DEPTH)
PRIORITIES = st.integers(-MAX_PRIORITY, MAX_PRIORITY)
TARGETS = st.builds(lambda depth, priority: Target("u", depth, priority=priority), DEPTHS, PRIORITIES)


@given(TARGETS)
def test_rank_holds_depth_and_priority(target: Target) -> None:
    rank = rank_of(target)
    assert (depth_of(rank), priority_of(rank)) == (target.depth, target.priority)


@given(TARGETS, TARGETS)
def test_lower_rank_is_the_higher_priority_or_the_lower_depth(one: Target, other: Target) -> None:
    expected = (-one.priority, one.depth) < (-other.priority, other.depth)
    assert (rank_of(one) < rank_of(other)) == expected


@given(TARGETS, TARGETS)
def test_best_takes_the_better_of_each(one: Target, other: Target) -> None:
    rank = best(rank_of(one), rank_of(other))
    assert depth_of(rank) == min(one.depth, other.depth)
    assert priority_of(rank) == max(one.priority, other.priority)


@given(st.integers(), st.integers())
def test_any_numbers_have_a_rank_that_the_table_can_hold(depth: int, priority: int) -> None:
    rank = rank_of(Target("u", depth, priority=priority))
    assert -(2**63) <= rank < 2**63
    assert 0 <= depth_of(rank) <= MAX_DEPTH


@given(DEPTHS)
def test_rank_without_a_priority_is_the_depth(depth: int) -> None:
    assert rank_of(Target("u", depth)) == depth
