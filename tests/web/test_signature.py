"""Likeness: what eight bytes of each tell of how much a text changed."""

import random
import subprocess
import sys
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.web.signature import LIKENESS_BYTES, change_between, likeness_of

WORDS = [f"word{n}" for n in range(1000)]


def changed(words: list[str], share: float, seed: int = 0) -> list[str]:
    """The words with so many of them replaced, here and there."""
    gone = set(random.Random(seed).sample(words, round(share * len(words))))
    return [f"new{seed}{word}" if word in gone else word for word in words]


@given(st.text(), st.text())
def test_signature_has_eight_bytes_and_change_is_a_share(one: str, other: str) -> None:
    first, second = likeness_of(one), likeness_of(other)
    assert len(first) == (LIKENESS_BYTES if one.lower().encode().split() else 0)
    assert 0 <= change_between(first, second) <= 1
    assert change_between(first, first) == (0 if first else 1)
    assert change_between(first, second) == change_between(second, first)


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.2, 0.3, 0.5])
def test_change_is_estimated_as_large_as_it_is(share: float) -> None:
    estimates = [
        change_between(likeness_of(" ".join(words)), likeness_of(" ".join(changed(words, share, seed))))
        for seed in range(200)
        for words in ([f"{seed}{word}" for word in WORDS],)
    ]
    assert mean(estimates) == pytest.approx(share, rel=0.15)


def test_small_change_seldom_passes_for_a_large_one() -> None:
    before = likeness_of(" ".join(WORDS))
    estimates = [
        change_between(before, likeness_of(" ".join(changed(WORDS, 0.05, seed)))) for seed in range(300)
    ]
    assert sum(estimate >= 0.2 for estimate in estimates) <= 3


def test_other_text_is_changed_nearly_whole() -> None:
    others = [" ".join(f"other{seed}x{n}" for n in range(1000)) for seed in range(100)]
    before = likeness_of(" ".join(WORDS))
    assert mean(change_between(before, likeness_of(other)) for other in others) > 0.85


def test_order_case_and_number_of_words_do_not_count() -> None:
    shuffled = random.Random(1).sample(WORDS, len(WORDS))
    assert likeness_of(" ".join(shuffled).upper()) == likeness_of(" ".join([*WORDS, *WORDS]))


def test_text_of_few_words_has_a_signature_that_changes_with_them() -> None:
    assert len({likeness_of(word) for word in WORDS}) > 1
    assert change_between(likeness_of("a few words only"), likeness_of("a few words only")) == 0
    many = {likeness_of(f"a few words and {word}") for word in WORDS}
    assert len(many) > 1


def test_what_has_no_signature_has_changed_whole() -> None:
    assert likeness_of(" \n") == b""
    assert change_between(b"", likeness_of("a")) == 1
    assert change_between(likeness_of("a"), b"") == 1
    assert change_between(b"", b"") == 1


def test_signature_is_the_same_in_every_process() -> None:
    code = "from sterna.web.signature import likeness_of; print(likeness_of('Ein Wort für alle').hex())"
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert said == {likeness_of("Ein Wort für alle").hex()}
