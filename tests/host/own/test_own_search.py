"""Search over the own site: the right page first, its words marked, and no query that breaks it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.host.own.own_pages import DAY, NOW, SITE, gone, page, survey

from sterna.host.own.index import MAX_QUERY, MAX_WORDS, Found, Index, phrases_of, search
from sterna.host.site.closed import Closed

FILLER = "lorem ipsum dolor sit amet consetetur sadipscing elitr " * 10


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    state = tmp_path_factory.mktemp("state")
    survey(
        state,
        page("/title", FILLER, title="The arctic tern"),
        page("/heading", f"{FILLER} birds", title="Birds", headings=("All about the tern",)),
        page("/text", f"{FILLER} a tern flies {FILLER}", title="Travel"),
        page("/often", f"{FILLER} tern and tern and tern {FILLER}", title="Often"),
        page("/german", "Die Küstenseeschwalbe zieht über weite Strecken.", title="Küste"),
        page("/japanese", "キョクアジサシは北極と南極の間を渡る鳥です。東京都", title="鳥"),
        page("/thai", "นกนางนวลแกลบขั้วโลกเหนือ", title="นก"),
        page("/code", "RewriteRule in mod_rewrite.c of C++ or .htaccess", title="Code"),
        page("/quote", 'he said "never again" to me', title="Quote"),
        page("/and", "bread AND butter OR jam NOT salt NEAR me", title="Operators"),
        page("/control", "an evil\x00\x1b[31m page \x02with\x03 signs", title="Con\x07trol"),
        page("/missing", "tern", title="tern"),
    )
    survey(state, gone("/missing"), now=NOW + DAY)
    opened = Index(state)
    yield opened
    opened.close()


def paths(found: list[Found]) -> list[str]:
    return [each.url.removeprefix(SITE) for each in found]


def test_word_in_a_title_weighs_most_and_often_more_than_once(index: Index) -> None:
    assert paths(search(index, "tern")) == ["/title", "/heading", "/often", "/text"]


def test_words_of_the_excerpt_are_marked(index: Index) -> None:
    found = next(each for each in search(index, "TERN flies") if each.url.endswith("/text"))
    assert [found.excerpt[first:last] for first, last in found.marked] == ["tern flies"] or [
        found.excerpt[first:last] for first, last in found.marked
    ] == ["tern", "flies"]
    assert found.excerpt.startswith("…")
    assert len(found.excerpt) < 300
    assert found.title == "Travel"


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("kustenseeschwalbe", "/german"),  # without its dots
        ("KÜSTENSEESCHWALBE", "/german"),
        ("küstenseesch", "/german"),  # a word that begins so
        ("東京", "/japanese"),
        ("北極", "/japanese"),
        ("鳥", "/japanese"),
        ("ขั้วโลก", "/thai"),
        ("mod_rewrite", "/code"),
        ("C++", "/code"),
        (".htaccess", "/code"),
        ('"never again"', "/quote"),
        ('"never again', "/quote"),
        ("AND", "/and"),
        ("bread AND butter", "/and"),
        ("NOT", "/and"),
        ("NEAR(", "/and"),
        ("evil", "/control"),
    ],
)
def test_page_is_found(index: Index, query: str, first: str) -> None:
    assert paths(search(index, query))[0] == first


def test_all_words_come_before_some_and_some_only_if_there_are_no_all(index: Index) -> None:
    assert paths(search(index, "arctic tern")) == ["/title"]
    assert set(paths(search(index, "arctic kustenseeschwalbe"))) == {"/title", "/german"}


def test_pages_that_are_the_same_are_found_once(tmp_path: Path) -> None:
    survey(tmp_path, *(page(f"/{n}", "heron " * 20) for n in range(5)), page("/other", "heron and stork"))
    index = Index(tmp_path)
    try:
        assert sorted(paths(search(index, "heron"))) == ["/0", "/other"]
        assert len(search(index, "heron", most=1)) == 1
    finally:
        index.close()


def test_phrase_is_no_set_of_words(index: Index) -> None:
    assert paths(search(index, '"again never"')) == []
    assert paths(search(index, "again never")) == ["/quote"]


def test_signs_that_steer_a_terminal_are_in_no_excerpt(index: Index) -> None:
    found = search(index, "evil")[0]
    assert [found.excerpt[first:last] for first, last in found.marked] == ["evil"]
    assert not set(found.excerpt) & {"\x00", "\x1b", "\x02", "\x03"}


def test_scripts_without_spaces_read_as_they_are_written(index: Index) -> None:
    found = search(index, "東京")[0]
    assert "南極の間を渡る" in found.excerpt
    assert [found.excerpt[first:last] for first, last in found.marked] == ["東京"]


def test_number_of_pages_is_bounded_and_what_is_closed_is_left_out(index: Index) -> None:
    assert len(search(index, "tern", most=2)) == 2
    assert paths(search(index, "tern", closed=Closed(["/title", "/often"]))) == ["/heading", "/text"]


@given(st.one_of(st.text(), st.text(alphabet="\"*()^:-+{}ANDORNEAR \x00'abtern;%_")))
@example("\x00")
@example('"')
@example('""')
@example("*")
@example("tern*")
@example("^tern")
@example("title:tern")
@example("{title text}: tern")
@example("-tern")
@example("' OR 1=1 --")
@example("AND OR NOT NEAR")
@example("NEAR(a b, 5)")
@example("\ud800")
@example("a" * 100_000)
@example("tern " * 10_000)
@example('"' * 999)
@settings(max_examples=300, deadline=None)
def test_no_query_is_an_error(index: Index, query: str) -> None:
    for found in search(index, query):
        assert found.url.startswith(SITE)
        assert all(0 <= first <= last <= len(found.excerpt) for first, last in found.marked)


def test_long_query_is_cut() -> None:
    assert len(phrases_of("a " * 10_000)) == MAX_WORDS
    assert phrases_of("b" * 5_000) == [f'"{"b" * MAX_QUERY}"']
    assert phrases_of('*** "" - \x00') == []


def test_page_that_changed_is_found_by_its_new_words_alone(tmp_path: Path) -> None:
    survey(tmp_path, page("/a", "heron " * 20))
    survey(tmp_path, page("/a", "stork " * 20), now=NOW + DAY)
    index = Index(tmp_path)
    try:
        assert (paths(search(index, "stork")), paths(search(index, "heron"))) == (["/a"], [])
    finally:
        index.close()
