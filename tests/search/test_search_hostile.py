"""Pages and searches made to break an index."""

import time

import pytest
from tests.search.shelf import SITE, Shelf, page

from sterna.archive.disk import clean
from sterna.search.documents import MAX_BODY_CHARS, hosts_of, pack, unpack


def test_pages_that_are_too_much_are_indexed_within_bounds(shelf: Shelf) -> None:
    shelf.add(
        [
            page("large", f"whales {'many different words ' * 100_000} unreachable"),
            page("word", f"whales {'x' * 900_000} terns"),
            page("nul", "whales\x00terns\x00", title="\x00"),
            page("heads", "whales", headings=["h" * 10_000] * 1_000, keywords=["k"] * 10_000),
            page("title", "whales", title="whales " * 100_000),
            page("controls", "whales \x1b[2J \u202e \u2028 \ufdd0 \U0010ffff"),
            page("empty"),
            page("spaces", " \n\t\u3000 "),
        ]
    )
    began = time.monotonic()
    shelf.index()
    assert time.monotonic() - began < 30
    assert shelf.held() == shelf.expected()
    found = shelf.search("whales", limit=20)
    assert {hit.url.rpartition("/")[2] for hit in found.hits} == {
        *("large", "word", "nul", "heads", "title", "controls")
    }
    assert all(sum(len(piece.text) for piece in hit.snippet) < 400 for hit in found.hits)
    assert shelf.found("word terns") == ["word"]
    assert shelf.found("unreachable") == []


def test_thousands_of_languages_are_no_more_than_a_label(shelf: Shelf) -> None:
    rows = [page(f"p{number}", f"whales {number}", language=f"l{number}" * 20) for number in range(3_000)]
    shelf.add(rows)
    shelf.index()
    found = shelf.search("whales 2999")
    assert found.hits[0].url == f"{SITE}/p2999"
    assert found.hits[0].language == ("l2999" * 20)[:35]


@pytest.mark.parametrize(
    "words",
    [
        "", " ", "-", "--", "-whales", '"', '""', '"""', "'", "(", "(" * 1_000, "((whales) OR (terns", "*",
        "whales*", "/wha.*/", "whales~2", "whales^1000000", "[a TO z]", "{a TO z}", "all_en:whales",
        "position", "kind:position", "number:[0 TO *]", "NOT whales", "AND", "OR OR", "a AND", "+whales",
        "\\", "\\\"", "%00", "\x00", "\ud800", "\udcff whales", "😀", "👩‍👩‍👧 whales", "title:", "site:",
        "-site:", "site:\x00", "site:" + "a" * 10_000, "title:\"", "whales " * 20_000, "x" * 100_000,
        "é" * 5_000, "\u202ewhales", "ﬁ", "whales\u200bterns", "．whales", "東" * 500, "\n".join("abcdefgh"),
    ],
    ids=lambda words: f"{len(words)}-{sum(map(ord, words[:40])) % 9973}",
)  # fmt: skip
def test_no_search_fails(words: str, filled: Shelf) -> None:
    found = filled.search(words)
    assert found.words == clean(words)
    assert found.total >= len(found.hits) >= 0
    assert found.seconds < 5


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    shelf = Shelf(tmp_path_factory.mktemp("filled"))
    shelf.add([page("a", "whales and terns", language="en"), page("b", "東京の天気"), page("c", "whales")])
    shelf.index()
    return shelf


def test_what_holds_no_word_is_said(filled: Shelf) -> None:
    assert filled.search("😀 whales").note == "not searched: '😀'"
    assert filled.search("-whales").note == "the query contains nothing that can be searched for"
    assert filled.search("-whales").hits == ()
    assert filled.search("").note == ""


def test_the_position_is_no_page(filled: Shelf) -> None:
    assert filled.search("position").hits == ()
    assert len(filled.search(f"site:{SITE} -nothing").hits) == 3


def test_a_text_is_kept_for_snippets_up_to_a_bound() -> None:
    text = "wörds 東京 😀 " * 100_000
    assert unpack(pack(text)) == text[:MAX_BODY_CHARS]
    assert unpack(pack("")) == ""


@pytest.mark.parametrize(
    ("site", "hosts"),
    [
        (
            "https://www.example.org",
            ["https://www.example.org", "www.example.org", "example.org", "org"],
        ),
        ("http://h:80", ["http://h:80", "h:80", "h"]),
        ("http://127.0.0.1:1", ["http://127.0.0.1:1", "127.0.0.1:1", "127.0.0.1"]),
        ("http://[::1]", ["http://[::1]", "[::1]", "::1"]),
    ],
)
def test_a_site_is_found_by_its_host_and_its_domains(site: str, hosts: list[str]) -> None:
    assert list(hosts_of(site)) == hosts
