"""Scores: what checks make of a host, and how long that counts."""

from math import comb

import pytest

from sterna.trust.score import (
    DAY,
    HALF_LIFE_SECONDS,
    MOST_ALONE_DAYS,
    TRUSTED,
    Score,
    alone_seconds,
    belief,
    below,
    counted,
    faded,
    quantile,
    succeeded,
)

UNKNOWN = Score()


def at_least(successes: int, tries: int, chance: float) -> float:
    """The binomial tail, which is the beta distribution seen from the other side."""
    return sum(comb(tries, n) * chance**n * (1 - chance) ** (tries - n) for n in range(successes, tries + 1))


@pytest.mark.parametrize(("a", "b"), [(1, 1), (2, 5), (30, 1), (60, 3), (400, 20), (1, 40)])
@pytest.mark.parametrize("x", [0.01, 0.3, 0.5, 0.9, 0.999])
def test_beta_distribution_is_the_binomial_tail(a: int, b: int, x: float) -> None:
    assert below(x, a, b) == pytest.approx(at_least(a, a + b - 1, x), abs=1e-9)


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (3.5, 1.25), (59.0, 2.0), (1000.0, 10.0)])
def test_quantile_is_where_that_share_lies_below(a: float, b: float) -> None:
    assert below(quantile(0.05, a, b), a, b) == pytest.approx(0.05, abs=1e-9)


def test_ends_of_the_distribution_are_nothing_and_all() -> None:
    assert (below(0.0, 3, 4), below(1.0, 3, 4)) == (0.0, 1.0)


def test_unknown_host_may_be_anything() -> None:
    assert belief(UNKNOWN, 0.0).mean == 0.5
    assert belief(UNKNOWN, 0.0).lower == pytest.approx(0.05)
    assert not belief(UNKNOWN, 0.0).is_trusted


@pytest.mark.parametrize(("good", "is_trusted"), [(27, False), (28, True), (59, True)])
def test_host_is_trusted_after_28_good_pages(good: int, is_trusted: bool) -> None:
    of = belief(counted(UNKNOWN, good=good, bad=0, now=5.0), 5.0)
    assert of.lower == pytest.approx(0.05 ** (1 / (good + 1)))
    assert of.is_trusted is is_trusted is (of.lower >= TRUSTED)


def test_score_fades_by_half_in_thirty_days() -> None:
    score = counted(UNKNOWN, good=40, bad=0, now=0.0)
    assert faded(score, HALF_LIFE_SECONDS) == Score(20.0, 0.0, HALF_LIFE_SECONDS)
    assert belief(score, 0.0).is_trusted
    assert not belief(score, 2 * HALF_LIFE_SECONDS).is_trusted


def test_clock_that_was_set_back_makes_nothing_count_more() -> None:
    assert faded(Score(10.0, 2.0, 100.0), 50.0) == Score(10.0, 2.0, 50.0)


def test_one_lie_costs_all_that_was_earned() -> None:
    proven = counted(UNKNOWN, good=500, bad=0, now=0.0)
    caught = counted(proven, good=58, bad=1, now=0.0)
    assert (caught.good, caught.bad) == (0.0, 1.0)
    assert belief(caught, 0.0).lower < belief(UNKNOWN, 0.0).lower


def test_liar_can_earn_trust_again_in_time() -> None:
    score = counted(UNKNOWN, good=0, bad=1, now=0.0)
    for month in range(1, 5):
        score = counted(score, good=20, bad=0, now=month * HALF_LIFE_SECONDS)
    assert belief(score, score.at).is_trusted


def test_new_key_has_earned_nothing_and_washes_nothing_off() -> None:
    assert succeeded(Score(50.0, 2.0, 7.0)) == Score(0.0, 2.0, 7.0)


@pytest.mark.parametrize(("bad", "days"), [(1, 1.0), (12, 12.0), (500, MOST_ALONE_DAYS)])
def test_liar_is_left_alone_for_a_day_for_each_bad_page(bad: int, days: float) -> None:
    assert alone_seconds(counted(UNKNOWN, good=0, bad=bad, now=3.0)) == days * DAY
