"""The pages as HTML: what they show, what they leave out, and that what strangers wrote does nothing."""

import re
from typing import Any
from urllib.parse import unquote

import pytest
from tests.search.page.fakes import found_of, hit_of
from tests.search.page.hostile_hits import LINKS, NO_LINKS, TEXTS, hostile_hits
from tests.search.page.trees import Tree, read

from sterna.search.page.api import Bounds
from sterna.search.page.html import Face, hints_for, problem_page, results_page, start_page
from sterna.search.results import Hit, Piece

FACE = Face(name="Terns & gulls")
_ELEMENTS = (
    "html head meta title link body a header main footer form label input button h1 h2 p q span bdi time mark"
    " ol ul li details summary nav img code dl dt dd section"
)
_ATTRIBUTES = (
    "lang charset name content rel href type class id tabindex src alt width height role action method for"
    " value maxlength required autocomplete autocapitalize spellcheck enterkeyhint autofocus start dir"
    " datetime aria-hidden aria-label aria-current aria-labelledby"
)


def results(*hits: Hit, words: str = "tern", **fields: object) -> Tree:
    return read(results_page(FACE, found_of(words, *hits, **fields)))


TERN = hit_of(
    "https://birds.example.org/terns/arctic.html",
    "The arctic tern",
    title_pieces=(Piece("The arctic "), Piece("tern", is_marked=True)),
    snippet=(Piece("The "), Piece("tern", is_marked=True), Piece(" flies < 80,000 km & back")),
)


def test_start_page_has_a_labelled_form_and_says_how_much_there_is() -> None:
    page = read(start_page(FACE, page_count=1234))
    assert page.texts("h1") == ["Terns & gulls"]
    assert page.texts("title") == ["Search Terns & gulls"]
    assert page.texts('label[for="q"]') == ["Words to search for"]
    assert page.texts(".count") == ["1,234 pages to search"]
    assert page.values('form[role="search"]', "action") == ["/"]
    assert page.values("input", "maxlength") == ["500"]


def test_hit_is_linked_marked_and_dated() -> None:
    page = results(TERN)
    assert page.values("h2 a", "href") == ["https://birds.example.org/terns/arctic.html"]
    assert page.values("h2 a", "rel") == ["noreferrer nofollow ugc"]
    assert page.texts("h2 a") == ["The arctic tern"]
    assert page.texts(".snippet") == ["The tern flies < 80,000 km & back"]
    assert page.texts("mark") == ["tern", "tern"]
    assert page.texts(".where bdi") == ["birds.example.org", "/terns/arctic.html"]
    assert page.texts("time") == ["fetched 16 Nov 2026"]
    assert page.values("time", "datetime") == ["2026-11-16T13:00:00Z"]
    assert page.texts(".about")[0].startswith("English")
    assert page.values("h2", "lang") == ["en"]


def test_mark_of_what_was_cut_never_stands_alone_in_a_line() -> None:
    assert results(hit_of("http://a.test/", "A", "so it goes on …")).texts(".snippet") == [
        "so it goes on\u00a0…"
    ]


def test_form_keeps_the_words() -> None:
    page = results(TERN, words='"arctic tern" -gull')
    assert page.values("input", "value") == ['"arctic tern" -gull']
    assert page.texts("title") == ['"arctic tern" -gull - Terns & gulls']


@pytest.mark.parametrize(
    ("fields", "heading"),
    [
        ({"total": 1}, "1 page for tern in 0.004 s"),
        ({"total": 1234}, "1,234 pages for tern in 0.004 s"),
        ({"total": 1000, "is_exact": False}, "About 1,000 pages for tern in 0.004 s"),
    ],
)
def test_count_says_whether_it_is_exact(fields: dict[str, Any], heading: str) -> None:
    assert results(TERN, **fields).texts("h1") == [heading]


def test_more_from_the_same_site_is_a_link_unless_a_site_was_asked_for() -> None:
    page = results(TERN, words="a & b")
    assert page.values(".about a", "href") == ["/?q=a+%26+b+site%3Abirds.example.org"]
    assert page.texts(".about a") == ["Only this site, birds.example.org"]
    assert results(TERN, words="tern site:birds.example.org").texts(".about a") == []


def test_near_duplicates_are_counted_and_listed_up_to_a_bound() -> None:
    one = hit_of("http://a.test/", "A", folded=("http://b.test/x",))
    page = results(one)
    assert page.texts("summary") == ["and 1 alike"]
    assert page.values("details a", "href") == ["http://b.test/x"]
    many = hit_of("http://a.test/", "A", folded=tuple(f"http://b.test/{n}" for n in range(1000)))
    page = results(many)
    assert page.texts("summary") == ["and 1,000 alike"]
    assert len(page.texts("details a")) == 8
    assert page.texts("details li")[-1] == "and 992 more"


def test_page_without_a_title_is_named_by_its_address() -> None:
    assert results(hit_of("http://a.test/x/y.html", "")).texts("h2 a") == ["x/y.html"]
    assert results(hit_of("http://a.test/", " \u200b ")).texts("h2 a") == ["a.test"]


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e300, float("nan"), float("inf")])
def test_time_that_no_clock_shows_is_left_out(seconds: float) -> None:
    assert results(hit_of("http://a.test/", "A", fetched=seconds)).texts("time") == []


def test_note_is_shown() -> None:
    assert results(TERN, note="site: <b>").texts(".note") == ["Site: <b>"]


# -- pages of results --------------------------------------------------------------------------------------


def steps(page: Tree) -> list[tuple[str, str]]:
    return list(zip(page.values("nav a", "rel"), page.values("nav a", "href"), strict=True))


def test_first_page_leads_to_the_second() -> None:
    page = results(TERN, words="a b", total=25)
    assert steps(page) == [("next", "/?q=a+b&page=2")]
    assert page.texts('nav [aria-current="page"]') == ["Page 1 of 3"]
    assert page.values("nav", "aria-label") == ["Pages of results"]


def test_middle_page_leads_both_ways() -> None:
    page = results(TERN, total=25, offset=10)
    assert steps(page) == [("prev", "/?q=tern"), ("next", "/?q=tern&page=3")]
    assert page.values("ol.hits", "start") == ["11"]
    assert page.texts("title") == ["tern (page 2) - Terns & gulls"]


def test_last_page_leads_back_only() -> None:
    assert steps(results(TERN, total=25, offset=20)) == [("prev", "/?q=tern&page=2")]


def test_all_on_one_page_needs_no_pages() -> None:
    assert results(TERN, total=10).texts("nav") == []


def test_number_of_pages_is_not_told_where_it_is_not_known() -> None:
    assert results(TERN, total=25, is_exact=False).texts('[aria-current="page"]') == ["Page 1"]


def test_page_behind_the_last_leads_to_the_first() -> None:
    page = results(total=25, offset=90)
    assert page.texts("h1") == ["No more pages for tern"]
    assert page.values("main p a", "href") == ["/?q=tern"]
    assert steps(page) == []


def test_pages_end_at_the_bound_and_say_so() -> None:
    face = Face(name="T", bounds=Bounds(pages=3))
    page = read(results_page(face, found_of("tern", TERN, total=5000, offset=20)))
    assert steps(page) == [("prev", "/?q=tern&page=2")]
    assert "Only the first 30 hits are shown" in page.texts("main")[0]


# -- nothing found, and what goes wrong --------------------------------------------------------------------


def test_nothing_found_gives_hints_that_fit() -> None:
    page = results(words='"x y" site:a.test -b')
    assert page.texts("h1") == ['Nothing found for "x y" site:a.test -b']
    assert len(page.texts("main > ul li")) == 5
    assert page.texts("dt code")[0] == '"forked tail"'
    assert hints_for("tern") == ["Check the spelling of each word."]


def test_problem_page_keeps_the_form() -> None:
    page = read(problem_page(FACE, "Bad Request", "too <long>", words='a"b'))
    assert page.texts("h1") == ["Bad Request"]
    assert "too <long>" in page.texts("main")[0]
    assert page.values("input", "value") == ['a"b']


# -- hostile -----------------------------------------------------------------------------------------------


def check_harmless(html: str) -> None:
    """Nothing but our own elements and attributes, and links to the web and to ourselves."""
    for tag, attributes in read(html).elements():
        assert tag in _ELEMENTS.split(), tag
        assert set(attributes) <= set(_ATTRIBUTES.split()), attributes
        for name in ("href", "src", "action"):
            value = attributes.get(name, "/")
            assert value and re.match(r"https?://|/(?!/)|#main$", value), value
    assert not re.search("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]", html)


def test_hostile_hits_are_only_text() -> None:
    html = results_page(FACE, found_of(TEXTS[0], *hostile_hits(), note=TEXTS[1]))
    check_harmless(html)
    assert len(html) < 400_000
    page = read(html)
    assert len(page.texts("ol.hits > li")) == len(hostile_hits())
    assert "<script>alert(1)</script>" in page.texts("h2")[0]
    assert "&lt;script&gt;" in page.texts("h2")[5]
    assert max(map(len, page.texts("h2"))) <= 160
    assert max(map(len, page.texts(".where"))) <= 200


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_hostile_words_names_and_reasons_are_only_text(number: int) -> None:
    text = TEXTS[number]
    face = Face(name=text or "x")
    check_harmless(results_page(face, found_of(text, TERN, total=30, offset=10)))
    check_harmless(results_page(face, found_of(text)))
    check_harmless(start_page(face, page_count=0))
    check_harmless(problem_page(face, "Bad Request", text, words=text))


@pytest.mark.parametrize("url", NO_LINKS)
def test_what_is_no_page_of_the_web_is_not_linked(url: str) -> None:
    page = results(hit_of(url, "click me"))
    assert page.texts("h2") == ["click me"]
    assert page.texts("h2 a") == page.texts(".about a") == []


@pytest.mark.parametrize("number", range(len(LINKS)))
def test_address_of_a_link_stays_whole(number: int) -> None:
    (href,) = results(hit_of(LINKS[number], "click me")).values("h2 a", "href")
    assert href and href.isascii()
    assert unquote(href) == unquote(LINKS[number].encode("utf-8", "replace").decode())
