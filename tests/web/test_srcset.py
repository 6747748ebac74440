"""Which candidates of a srcset usual screens show."""

import time

import pytest

from sterna.web.srcset import candidates_of, shown

WIDTHS = "300.jpg 300w, 768.jpg 768w, 1024.jpg 1024w, 1536.jpg 1536w, 2560.jpg 2560w, 4000.jpg 4000w"


@pytest.mark.parametrize(
    ("srcset", "sizes", "urls"),
    [
        (WIDTHS, "300px", {"300.jpg", "768.jpg"}),
        (WIDTHS, "(max-width: 1024px) 100vw, 1024px", {"1024.jpg", "2560.jpg"}),
        (WIDTHS, "(min-width: 1500px) 300px, 50vw", {"300.jpg", "768.jpg", "1536.jpg"}),
        (WIDTHS, "20em", {"768.jpg"}),
        (WIDTHS, "", {"1536.jpg", "2560.jpg"}),
        (WIDTHS, "calc(100vw - 2em)", {"1536.jpg", "2560.jpg"}),
        (WIDTHS, "5000px", {"4000.jpg"}),
        ("a.jpg, b.jpg 2x, c.jpg 3x", "", {"a.jpg", "b.jpg"}),
        ("a.jpg 2x", "", {"a.jpg"}),
        ("a.jpg nonsense, b.jpg 0w", "", {"a.jpg"}),
    ],
)
def test_what_usual_screens_show_is_chosen_as_chromium_does(srcset: str, sizes: str, urls: set[str]) -> None:
    assert shown(candidates_of(srcset), sizes) == urls


@pytest.mark.parametrize("piece", ["(", "(max-width:", "(max-width:1px) and ", "1px,", ",", "9" * 50, "( )"])
def test_no_sizes_take_long(piece: str) -> None:
    start = time.process_time()
    shown(candidates_of("a 1w, " * 10_000), piece * 200_000)
    assert time.process_time() - start < 1
