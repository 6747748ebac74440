"""Links that C joins: the same columns and marks as Python makes of them, whatever the hrefs and the base."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.model import DEFAULT_FIELDS
from sterna.web.markup import Joined
from sterna.web.native.reader import NativeReader
from sterna.web.urls import Canonical
from sterna.web.walk import read_tree

NATIVE = NativeReader()
BASES = (
    "http://www.example.org/", "http://www.example.org/a/b/c.html", "https://www.example.org:8443/a/?q=1",
    "http://127.0.0.1:8080/d", "http://[::1]/a/b", "http://www.example.org/a/b/", "http://www.example.org/x%2Fy/z",
)  # fmt: skip
PIECES = (
    "a", "b.html", "..", ".", "/", "//", "../", "?q=1", "#f", "%41", ";jsessionid=1", "http://", "https://",
    "HTTP://", "www.example.org", "WWW.Example.ORG", "xn--bcher-kva.de", "127.0.0.1", "0x7f.1", "a.b", "a..b",
    "-a.de", "a-.de", "de", ":80", "user@", "~x", "_y", "-", "é", " ", "\\", "javascript:", "mailto:x@y",
    "&utm_source=z", "*",
)  # fmt: skip
HREFS = st.lists(st.lists(st.sampled_from(PIECES), max_size=5).map("".join), max_size=12)


def joined(hrefs: list[str], base: str) -> tuple[Joined, Joined]:
    """What C and what Python makes of them."""
    words = [f'<a href="{href}"{" rel=nofollow" * (at % 5 == 0)}>{at}</a>' for at, href in enumerate(hrefs)]
    page = "<!doctype html><p>" + " ".join(words)
    found = NATIVE.read(page, agent="sterna", wants=DEFAULT_FIELDS)
    assert found is not None
    ours = found.joined(base, Canonical())
    return ours, read_tree(page, agent="sterna").joined(base, Canonical())


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(PIECES), max_size=5).map("".join), max_size=12), st.sampled_from(BASES)
)
def test_links_are_joined_as_python_joins_them(hrefs: list[str], base: str) -> None:
    ours, theirs = joined(hrefs, base)
    assert ours == theirs


@pytest.mark.parametrize("base", BASES)
def test_many_links_are_joined_as_python_joins_them(base: str) -> None:
    dice = random.Random(3)
    hrefs = ["".join(dice.choices(PIECES, k=dice.randrange(1, 6))) for _ in range(3_000)]
    ours, theirs = joined(hrefs, base)
    assert ours == theirs
    assert ours.urls.count("\n") > 300


def test_links_beyond_the_limit_are_left_out() -> None:
    ours, theirs = joined([f"p{number}" for number in range(10_050)], BASES[0])
    assert ours == theirs
    assert ours.urls.count("\n") == 9_999


@pytest.mark.parametrize("length", [0, 1, 100, 127, 128, 129, 255, 256, 257, 1_900, 2_047, 2_100])
def test_marks_are_fingerprints_of_urls_of_any_length(length: int) -> None:
    ours, theirs = joined(["x" * length, "y" * length], BASES[0])
    assert ours == theirs
