"""The addresses that CSS names."""

import time

import pytest

from sterna.web.css import MAX_URLS, urls_of_css, urls_of_page


@pytest.mark.parametrize(
    ("css", "urls"),
    [
        ("a { background: url(a.png) }", ["a.png"]),
        ("a { background: URL( \"a b.png\" ), url('c.png') }", ["a b.png", "c.png"]),
        ("@import 'a.css'; @import url(b.css); @import \"c.css\" screen;", ["a.css", "b.css", "c.css"]),
        ("/* url(a.png) */ a { src: url(b.woff2) format('woff2'), url(b.woff2) }", ["b.woff2"]),
        ("a { background: url(data:image/png;base64,AA==); mask: url(#m); filter: url() }", []),
        ("", []),
    ],
)
def test_images_fonts_and_imported_sheets_are_found_once_each(css: str, urls: list[str]) -> None:
    assert urls_of_css(css) == urls


@pytest.mark.parametrize(
    ("markup", "urls"),
    [
        ("<style>a { background: url(a.png) }</style><p>url(b.png)", ["a.png"]),
        ('<p style="background: url(&quot;a.png&quot;)">', ["a.png"]),
        ("<p style='background: url(a.png)'><script>x = 'url(b.png)'</script>", ["a.png"]),
        ("<style media=print>@import 'a.css'", ["a.css"]),
    ],
)
def test_only_the_css_of_a_page_is_read(markup: str, urls: list[str]) -> None:
    assert urls_of_page(markup) == urls


def test_no_more_are_taken_than_the_bound() -> None:
    css = "".join(f"a {{ background: url({number}) }}" for number in range(MAX_URLS + 100))
    assert urls_of_css(css) == [str(number) for number in range(MAX_URLS)]


@pytest.mark.parametrize(
    "piece",
    ["url(", "url('", "/*", "@import ", "@import '", "<style>", "<style", " style=", ' style="', "url( "],
)
def test_no_css_takes_long(piece: str) -> None:
    start = time.process_time()
    urls_of_page("url(<style>" + piece * (1_000_000 // len(piece)))
    urls_of_css(piece * (1_000_000 // len(piece)))
    assert time.process_time() - start < 1
