"""Markdown of the main content: what is left out of a page, and what never is."""

import time
from html import escape

import pytest

from sterna.export.markdown import to_markdown

URL = "https://www.example.org/birds/tern.html"
TEXT = "The arctic tern has the longest migration of all birds, from the north to the ice of the south. " * 3
MENU = "<ul>" + "".join(f"<li><a href=/{n}>Section {n}</a>" for n in range(8)) + "</ul>"
PAGE = f"""<!doctype html><title>Tern</title>
<header><a href=/>Example</a> MASTHEAD</header><nav>{MENU} NAVIGATION</nav>
<div id=cookie-consent>COOKIES <button>Accept</button></div>
{{content}}
<aside>ASIDE</aside><footer>FOOTER <a href=/imprint>Imprint</a></footer>"""
NOISE = ("MASTHEAD", "NAVIGATION", "COOKIES", "Accept", "ASIDE", "FOOTER", "Section 3")


def main_of(content: str) -> str:
    return to_markdown(PAGE.format(content=content), URL, is_main=True)


@pytest.mark.parametrize(
    "content",
    [
        f"<main><h1>Arctic tern</h1><p>{TEXT}</main>",
        f"<div role=main><h1>Arctic tern</h1><p>{TEXT}</div>",
        f"<article class=sidebar-layout><header><h1>Arctic tern</h1></header><p>{TEXT}</article>",
        f"<div class=wrapper><h1>Arctic tern</h1><p>{TEXT}</div>",
        f"<div>{MENU}</div><table><tr><td>{MENU}<td><h1>Arctic tern</h1><p>{TEXT}</table>",
    ],
)
def test_content_is_kept_and_frames_are_left_out(content: str) -> None:
    markdown = main_of(content)
    assert "Arctic tern" in markdown
    assert TEXT.split(". ", maxsplit=1)[0] in markdown
    assert [word for word in NOISE if word in markdown] == []


def test_lists_of_links_within_a_text_stay() -> None:
    sources = "".join(f"<li><a href=/{n}>Study {n}</a>, a study of terns of the year {n}." for n in range(8))
    markdown = main_of(f"<main><h1>Tern</h1><p>{TEXT}<ul>{sources}</ul><p>See <a href=x>x</a>.</main>")
    assert "[Study 7](https://www.example.org/7), a study" in markdown
    assert "See [x](https://www.example.org/birds/x)" in markdown


def test_page_that_is_nothing_but_a_menu_is_kept_whole() -> None:
    assert "Section 3" in main_of("<p>A short one.")


def test_what_follows_the_main_element_is_not_written() -> None:
    assert "AFTER" not in main_of(f"<main><p>{TEXT}</main><p>AFTER the content there is more.")


def test_without_the_option_everything_is_written() -> None:
    markdown = to_markdown(PAGE.format(content=f"<main><p>{TEXT}</main>"), URL)
    assert all(word in markdown for word in NOISE if word != "Accept")


@pytest.mark.parametrize(
    "html",
    [
        "<div>" * 50_000,
        "<nav><ul><li><a href=/>x</a>" * 20_000,
        "<p class=menu>word" * 50_000,
        "<main>" * 20_000,
    ],
)
def test_time_is_in_proportion_to_the_page(html: str) -> None:
    began = time.process_time()
    to_markdown(html + escape(TEXT), URL, is_main=True)
    assert time.process_time() - began < 6
