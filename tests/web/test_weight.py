"""The memory of texts, told before they are decoded."""

import sys

import pytest

from sterna.web.weight import weight_of, weight_of_utf8

TEXTS = ["", "tern", "Küste", "Eidertal € 5", "日本", "Привет", "a \N{BIRD} in " + "words " * 100, "ÿ", "Ā"]


@pytest.mark.parametrize("text", TEXTS)
def test_weight_is_what_python_takes_for_the_characters(text: str) -> None:
    # New strings: a text that was encoded somewhere may hold its UTF-8 as well.
    per_character = (sys.getsizeof(3 * text) - sys.getsizeof(2 * text)) / len(text) if text else 0
    assert (
        weight_of([text])
        == weight_of([text, ""])
        == weight_of_utf8(text.encode())
        == per_character * len(text)
    )


def test_weights_add_up_each_with_its_own_width() -> None:
    assert weight_of(["ab", "\N{BIRD}"]) == 6


def test_what_is_no_utf_8_is_weighed_all_the_same() -> None:
    assert weight_of_utf8(b"\xff" * 10) == 40
