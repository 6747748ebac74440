"""The fields of a page: what is wanted is read, the rest stays empty, and neither changes the other."""

import time
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.web.soup import PIECES
from tests.web.test_html import HOSTILE

from sterna.model import DEFAULT_FIELDS, Field, Link, Links, Selector
from sterna.web import html
from sterna.web.document import Document, Fetched, Manner, read_document
from sterna.web.markup import MAX_DESCRIPTION_LENGTH

ALL: tuple[Field, ...] = get_args(Field)
SELECTORS = (
    Selector("cells", "table td ~ td:nth-child(2n), div div div > p"),
    Selector("all", "*"),
    Selector("hrefs", "body a[href]:not(.x)", "href"),
)
PAGE = """<!DOCTYPE html><html lang=en><title>A tale of terns</title>
<meta name=description content="  Birds that
 migrate "><nav><a href=/menu>Menu</a></nav><h1>The <b>Arctic</b> tern</h1>
<p>Terns fly far, and <a href=far>farther</a> than others.</p><h2>Nests</h2><p>Terns nest on beaches.</p>"""


def read(body: str | bytes, *wants: Field, selectors: tuple[Selector, ...] = (), **changes: Any) -> Document:
    settled = {"url": "http://www.example.org/", "status": 200, "content_type": "text/html"}
    data = body.encode("utf-8", "replace") if isinstance(body, str) else body
    manner = Manner(wants=wants, selectors=selectors).encoded()
    return read_document(Fetched(**{**settled, "body": data, "manner": manner, **changes}))


def test_all_fields_of_a_page_are_read() -> None:
    document = read(PAGE, *ALL, selectors=(Selector("bold", "h1 b"),))
    assert document.title == "A tale of terns"
    assert document.description == "Birds that migrate"
    assert document.headings == ("The Arctic tern", "Nests")
    assert document.text == (
        "Menu The Arctic tern Terns fly far, and farther than others. Nests Terns nest on beaches."
    )
    assert document.keywords[0] == "terns"
    assert "menu" not in document.keywords
    assert (document.language, document.html) == ("en", PAGE)
    assert document.extracts == (("bold", ("Arctic",)),)
    assert list(document.links)[1] == Link("http://www.example.org/far", "farther")


def test_all_fields_cross_to_another_process() -> None:
    document = read(PAGE, *ALL, selectors=SELECTORS)
    assert document.extracts and document.is_selected
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(document), type=Document) == document


@pytest.mark.parametrize("field", ["title", "description", "keywords", "headings", "text", "html"])
def test_what_is_not_wanted_stays_empty(field: Field) -> None:
    document, whole = read(PAGE, field), read(PAGE, *ALL)
    assert getattr(document, field) == getattr(whole, field) != ""
    others = {"title", "description", "keywords", "headings", "text", "html", "extracts"} - {field}
    assert not any(getattr(document, other) for other in others)
    assert (document.language, document.links.urls) == ("en", whole.links.urls)


@pytest.mark.parametrize("wants", [(), ("links",), ("links", "language", "headers"), ("html",)])
def test_no_tree_is_built_where_a_scan_is_enough(
    wants: tuple[Field, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "read_tree", lambda *_, **__: pytest.fail("a tree was built"))
    document = read(PAGE, *wants)
    assert document.links == Links("http://www.example.org/menu\nhttp://www.example.org/far")
    assert document.language == "en"


def test_links_alone_have_no_texts_even_if_only_a_tree_can_tell_them() -> None:
    links = read("<a href=x>1<table><a href=y>2", "links").links
    assert {link.url for link in links} == {"http://www.example.org/x", "http://www.example.org/y"}
    assert links.texts == ""


@pytest.mark.parametrize(
    ("markup", "description"),
    [
        ("<meta name=Description content=' a\n b '>", "a b"),
        ("<meta property=og:description content=b><meta name=description content=a>", "a"),
        ("<meta property='og:description' content=b>", "b"),
        ("<meta name='og:description' content=b>", "b"),
        ("<meta name=description content=''><meta name=description content=c>", "c"),
        ("<meta name=description content='  '><meta property=og:description content=b>", "b"),
        ("<meta name=description>", ""),
        ("<meta name=twitter:description content=b>", ""),
        (
            f"<meta name=description content='{'x' * (MAX_DESCRIPTION_LENGTH + 1)}'>",
            "x" * MAX_DESCRIPTION_LENGTH,
        ),
    ],
)
def test_the_description_is_the_page_s_own_or_else_the_shared_one(markup: str, description: str) -> None:
    assert read(markup, "description").description == description


@pytest.mark.parametrize(
    ("markup", "headings"),
    [
        ("<h2>b</h2><h1>a</h1><h6>c</h6>", ("b", "a", "c")),
        ("<h1> a\n <span>b</span>c<br>d </h1>", ("a bc d",)),
        ("<h1></h1><h2> </h2><h3><img alt=x></h3><h4>y</h4>", ("y",)),
        ("<h1><a href=x>linked</a></h1>", ("linked",)),
        ("<h1>a<h2>b</h2>", ("a", "b")),
        ("<h1>a<div>b<h2>c</h2></div></h1>", ("a b c", "c")),
        ("<svg><text>x</text></svg><noscript><h1>x</h1></noscript><template><h1>x</h1></template>", ()),
        ("<h1>a<script>x</script></h1>", ("a",)),
        ("<h7>a</h7><header>b</header>", ()),
        ("<h1>" + "x" * 300 + "</h1>", ("x" * 200,)),
        ("<h1>x</h1>" * 300, ("x",) * 200),
        ("<h1> </h1>" * 300 + "<h1>x</h1>", ("x",)),
    ],
)
def test_headings_are_listed_in_their_order_and_bounded(markup: str, headings: tuple[str, ...]) -> None:
    assert read(markup, "headings").headings == headings


def test_the_html_is_what_was_decoded() -> None:
    body = "<p>Привет\0".encode("koi8-r")
    assert read(body, "html", content_type="text/html; charset=koi8-r").html == "<p>Привет\ufffd"


def test_what_may_not_be_indexed_has_no_fields() -> None:
    by_header = read(PAGE, *ALL, selectors=SELECTORS, x_robots="noindex")
    by_meta = read("<meta name=robots content=noindex>" + PAGE, *ALL, selectors=SELECTORS)
    for document in (by_header, by_meta):
        assert (document.title, document.description, document.text, document.html) == ("", "", "", "")
        assert (document.headings, document.keywords, document.extracts) == ((), (), ())
        assert len(document.links) == 2


def test_plain_text_has_keywords_too() -> None:
    text = "the clinic and the nurse and the clinic"
    document = read(text, "keywords", content_type="text/plain")
    assert (document.keywords, document.text) == (("clinic", "nurse"), "")
    assert read(text, "title", content_type="text/plain").keywords == ()


MORE_PIECES = [
    "<h1>", "</h1>", "<h2>", "<nav>", "</nav>", "<header>", "</header>", "<aside>", "<footer>", "<object>",
    "</object>", "<meta name=description content=d>", "one", "two",
]  # fmt: skip
SOUP = st.lists(st.sampled_from(PIECES + MORE_PIECES), max_size=30).map("".join)
OLD = ("digest", "size", "content_type", "title", "text", "language", "links", "marks")


@settings(max_examples=200, deadline=None)
@given(SOUP)
def test_no_other_field_changes_those_of_always(markup: str) -> None:
    plain, full = read(markup, *DEFAULT_FIELDS), read(markup, *ALL, selectors=SELECTORS)
    assert [getattr(plain, name) for name in OLD] == [getattr(full, name) for name in OLD]


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.binary(max_size=300), SOUP.map(lambda text: text.encode("utf-8", "replace"))))
def test_any_bytes_are_read_whatever_is_wanted(body: bytes) -> None:
    document = read(body, *ALL, selectors=SELECTORS)
    strings = [document.title, document.description, document.text, document.html]
    strings += [
        *document.headings,
        *document.keywords,
        *(each for _, found in document.extracts for each in found),
    ]
    assert all("\0" not in each and each.encode() is not None for each in strings)
    assert all(each and each == " ".join(each.split()) for each in document.headings)


WIDE_AND_DEEP = {
    **HOSTILE,
    "headings": "<h1>x</h1>" * 40_000,
    "open headings": "<h1>" * 100_000 + "x",
    "nested headings": "<h1><object>" * 30_000 + "x",
    "nested blocks of a megabyte": "<div>" * 200_000 + "x",
    "nested frames": "<nav>" * 100_000 + "x",
    "many frames": "<nav>x</nav>" * 40_000,
    "links in a row": "<a href=x>y</a>" * 40_000,
    "descriptions": "<meta name=description content=' '>" * 30_000,
    "different words": " ".join(f"word{n}" for n in range(200_000)),
    "words of Han characters": "<h1>" + "漢字" * 150_000,
    "one long word": "<h1>" + "x" * 1_500_000,
    "signs": "\u2014" * 1_000_000,
    "a wide table": "<table><tr>" + "<td>x" * 40_000,
    "many options": "<select>" + "<option>x" * 80_000,
}


@pytest.mark.parametrize("name", WIDE_AND_DEEP)
def test_no_page_takes_long_whatever_is_wanted(name: str) -> None:
    body = WIDE_AND_DEEP[name].encode()
    start = time.process_time()
    read(body, *ALL, selectors=SELECTORS)
    assert time.process_time() - start < 3  # 0.6 s at most; with the square of the page it takes minutes
