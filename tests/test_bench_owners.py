"""How bench.owners tells a fair share from an unfair one."""

import pytest
from bench.owners_parts.fairness import jain, shares_of


def test_equal_shares_have_an_index_of_one_and_a_single_winner_one_of_all() -> None:
    assert jain([7, 7, 7, 7]) == pytest.approx(1.0)
    assert jain([9, 0, 0, 0]) == pytest.approx(0.25)
    assert jain([0, 0]) == 0.0


def test_shares_count_from_when_all_have_begun_until_the_first_is_done() -> None:
    # c begins at 4; a is done with its last page at 8.
    asked = ["a", "a", "b", "a", "c", "b", "c", "b", "a", "b", "c", "c"]

    within, so_far = shares_of(asked, ["a", "b", "c"])

    assert within == [0, 2, 2]
    assert so_far == [3, 3, 2]


def test_crawler_that_never_came_leaves_no_share_to_anybody() -> None:
    assert shares_of(["a", "a"], ["a", "b"]) == ([0, 0], [0, 0])
