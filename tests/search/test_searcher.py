"""What is found, in which order, and how it is shown."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.search.shelf import SITE, Shelf, page

from sterna.errors import StorageError
from sterna.search import generations
from sterna.search.indexer import Indexer
from sterna.search.results import Found, Piece
from sterna.search.searcher import Searcher

NOBODY = 65534


def test_all_words_must_be_there(shelf: Shelf) -> None:
    shelf.add([page("both", "whales and terns"), page("one", "whales"), page("other", "terns")])
    shelf.index()
    assert shelf.found("whales terns") == ["both"]


def test_if_no_page_has_all_words_those_with_some_are_found_and_it_is_said(shelf: Shelf) -> None:
    shelf.add([page("one", "whales"), page("other", "terns")])
    shelf.index()
    found = shelf.search("whales elephants")
    assert [hit.url for hit in found.hits] == [f"{SITE}/one"]
    assert found.note == "no page has all of these words; these have some of them"


def test_a_phrase_is_found_in_its_order(shelf: Shelf) -> None:
    shelf.add([page("right", "the arctic tern migrates"), page("wrong", "a tern that is not arctic")])
    shelf.index()
    assert shelf.found('"arctic tern"') == ["right"]
    assert sorted(shelf.found("arctic tern")) == ["right", "wrong"]


def test_words_can_be_excluded(shelf: Shelf) -> None:
    shelf.add([page("a", "whales and terns"), page("b", "whales", title="Draft"), page("c", "whales")])
    shelf.index()
    assert sorted(shelf.found("whales -terns")) == ["b", "c"]
    assert sorted(shelf.found("whales -title:draft")) == ["a", "c"]
    assert shelf.found('whales -"whales and" -draft') == ["c"]


def test_the_title_can_be_asked_for(shelf: Shelf) -> None:
    shelf.add([page("a", "whales", title="Terns of the north"), page("b", "terns", title="Whales")])
    shelf.index()
    assert shelf.found("title:terns") == ["a"]
    assert shelf.found('title:"of the north"') == ["a"]
    assert shelf.found('title:"north the"') == []


def test_a_site_can_be_asked_for(shelf: Shelf) -> None:
    urls = [
        "https://www.example.org/a",
        "http://docs.example.org:8080/b",
        "https://example.net/c",
        "http://127.0.0.1:8000/d",
        "http://[::1]:8000/e",
    ]
    shelf.add([page(url, "whales", title=url) for url in urls])
    shelf.index()

    def found(words: str) -> set[str]:
        return {hit.url.rpartition("/")[2] for hit in shelf.search(words).hits}

    assert found("whales site:example.org") == {"a", "b"}
    assert found("site:docs.example.org") == found("site:docs.example.org:8080") == {"b"}
    assert found("whales site:https://example.net/anything") == {"c"}
    assert found("whales -site:example.org -site:example.net") == {"d", "e"}
    assert found("site:127.0.0.1:8000") == found("site:127.0.0.1") == {"d"}
    assert found("site:[::1]:8000") == {"e"}
    assert found("site:example.org site:example.net") == {"a", "b", "c"}
    assert found("whales site:1") == set()


def test_the_title_weighs_more_than_the_text(shelf: Shelf) -> None:
    filler = "some other words that all of the pages have in common"
    shelf.add(
        [page(f"p{number}", f"{filler} {number}") for number in range(20)]
        + [page("text", f"whales {filler}"), page("title", f"{filler} whales", title="Whales")]
    )
    shelf.index()
    assert shelf.found("whales") == ["title", "text"]


def test_of_two_alike_the_one_that_others_link_to_comes_first(shelf: Shelf) -> None:
    text = "whales and their songs"
    links = [(f"{SITE}/p{number}", f"{SITE}/linked") for number in range(30)]
    shelf.add([page("alone", f"{text} one"), page("linked", f"{text} two")], links)
    shelf.index()
    found = shelf.search("whales")
    assert [hit.url for hit in found.hits] == [f"{SITE}/linked", f"{SITE}/alone"]
    assert [hit.inbound for hit in found.hits] == [30, 0]


def test_words_are_stemmed_by_the_language_of_the_page(shelf: Shelf) -> None:
    shelf.add(
        [
            page("en", "the crawlers were crawling", language="en-US"),
            page("de", "die alten Häuser am Meer", language="de"),
            page("none", "crawling without a language"),
        ]
    )
    shelf.index()
    assert sorted(shelf.found("crawled")) == ["en"]
    assert sorted(shelf.found("crawling")) == ["en", "none"]
    assert shelf.found("Haus") == shelf.found("hauser") == ["de"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("東京都の天気は晴れです。", "天気"),
        ("東京都の天気は晴れです。", "京都"),
        ("搜索引擎的工作原理", "工作 引擎"),
        ("한국어는 한국에서 쓰인다", "한국"),
        ("ภาษาไทยเป็นภาษาที่มีระดับเสียง", "ระดับ"),
        ("Der Fluß fließt", "fluß"),
        ("ΑΘΗΝΑ η πόλη", "αθηνα"),
        ("мама мыла раму", "МЫЛА"),
    ],
)
def test_every_script_is_found(shelf: Shelf, text: str, words: str) -> None:
    shelf.add([page("a", text), page("b", "other words")])
    shelf.index()
    found = shelf.search(words)
    assert [hit.url for hit in found.hits] == [f"{SITE}/a"]
    assert any(piece.is_marked for piece in found.hits[0].snippet)


def test_a_snippet_shows_the_words_marked(shelf: Shelf) -> None:
    text = f"{'Nothing of it here. ' * 40}Über die Wale: sie  \n singen\x00 Wale. {'And nothing here. ' * 40}"
    shelf.add([page("a", text, title="Die Lieder (der Wale)")])
    shelf.index()
    (hit,) = shelf.search("wale").hits
    assert "".join(piece.text for piece in hit.snippet).startswith("… ")
    assert "Über die Wale: sie singen" in "".join(piece.text for piece in hit.snippet)
    assert [piece.text for piece in hit.snippet if piece.is_marked] == ["Wale", "Wale"]
    assert hit.title_pieces == (Piece("Die Lieder (der "), Piece("Wale", is_marked=True), Piece(")"))
    assert sum(len(piece.text) for piece in hit.snippet) < 300


def test_a_page_found_by_its_title_shows_its_beginning(shelf: Shelf) -> None:
    shelf.add([page("a", "Some words. " * 100, title="Whales"), page("b", title="Whales too")])
    shelf.index()
    hits = {hit.url: hit for hit in shelf.search("whales").hits}
    snippet = "".join(piece.text for piece in hits[f"{SITE}/a"].snippet)
    assert snippet.startswith("Some words. Some words.")
    assert snippet.endswith("…")
    assert hits[f"{SITE}/b"].snippet == ()


def test_a_word_far_down_in_a_long_text_is_shown(shelf: Shelf) -> None:
    shelf.add([page("a", f"{'something else ' * 5_000} whales {'something else ' * 5_000}")])
    shelf.index()
    (hit,) = shelf.search("Whales").hits
    assert [piece.text for piece in hit.snippet if piece.is_marked] == ["whales"]


def test_what_is_in_the_index_is_seen_within_a_second(shelf: Shelf) -> None:
    shelf.add([page("a", "whales")])
    shelf.index()
    with Searcher(shelf.index_folder) as searcher, Indexer(shelf.index_folder) as indexer:
        assert searcher.page_count() == 1
        shelf.add([page("b", "whales and terns")])
        indexer.catch_up(shelf.snapshot(), stop=threading.Event())
        indexer.commit()
        committed = time.monotonic()
        while searcher.page_count() < 2:
            assert time.monotonic() - committed < 5
            time.sleep(0.02)
        assert len(searcher.search("whales").hits) == 2


def test_many_threads_search_at_once(shelf: Shelf) -> None:
    shelf.add([page(f"p{number}", f"whales {number} words", language="en") for number in range(300)])
    shelf.index()
    found: list[Found] = []
    with Searcher(shelf.index_folder) as searcher:

        def work() -> None:
            for number in range(40):
                found.append(searcher.search(f"whales word {number}"))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 320
    assert all(each.hits[0].url == f"{SITE}/p{each.words.split()[-1]}" for each in found)


@contextmanager
def without_write_access(folder: Path) -> Iterator[None]:
    """As a user who may read the folder and nothing else."""
    user, group = os.geteuid(), os.getegid()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
        if user != 0:
            path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        if user == 0:
            os.setegid(NOBODY)
            os.seteuid(NOBODY)
        yield
    finally:
        if user == 0:
            os.seteuid(user)
            os.setegid(group)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_index_of_somebody_else_is_searched_and_what_they_add_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sterna.search.searcher.LOOK_SECONDS", 0.0)
    with TemporaryDirectory() as place:  # other users may not look into pytest's own folders
        folder = Path(place)
        shelf = Shelf(folder / "c")
        shelf.add([page("one", "whales")])
        shelf.index()
        with without_write_access(folder), Searcher(shelf.index_folder) as searcher:
            assert searcher.search("whales").total == 1
            assert generations.read_position(shelf.index_folder) == 1
        shelf.add([page("two", "whales")])
        shelf.index()
        with without_write_access(folder):
            assert searcher.search("whales").total == 2
            with pytest.raises(StorageError, match="permission denied"), Indexer(shelf.index_folder):
                pass
