"""Which pages are in the index: the newest good version of each, and no page twice."""

import threading
from typing import Any

import pytest
from tests.search.shelf import SITE, Shelf, page

from sterna.errors import CollectionInUse, IndexUnusable
from sterna.search.indexer import Indexer


def check(shelf: Shelf) -> None:
    shelf.index()
    assert shelf.held() == shelf.expected()


def test_pages_are_found_by_their_words(shelf: Shelf) -> None:
    shelf.add([page("a", "a text about whales"), page("b", "a text about terns", title="Birds")])
    check(shelf)
    assert shelf.found("whales") == ["a"]
    assert shelf.found("birds") == ["b"]
    assert shelf.found("elephants") == []


def test_the_newest_version_takes_the_place_of_the_one_before(shelf: Shelf) -> None:
    shelf.add([page("a", "first version")])
    check(shelf)
    shelf.add([page("a", "second version", again=True)])
    shelf.add([page("a", "third version", again=True), page("b", "another one")])
    check(shelf)
    assert shelf.found("first") == shelf.found("second") == []
    assert shelf.found("third") == ["a"]


def test_two_versions_in_one_commit_leave_the_last(shelf: Shelf) -> None:
    shelf.add([page("a", "first version")])
    shelf.add([page("a", "second version", again=True)])
    check(shelf)
    assert shelf.found("version") == ["a"]


@pytest.mark.parametrize("status", [404, 410])
def test_a_page_that_is_gone_leaves(shelf: Shelf, status: int) -> None:
    shelf.add([page("a", "whales"), page("b", "whales too")])
    check(shelf)
    shelf.add([page("a", status=status, digest=None, again=True)])
    check(shelf)
    assert shelf.found("whales") == ["b"]
    shelf.add([page("a", "whales are back", again=True)])
    check(shelf)
    assert sorted(shelf.found("whales")) == ["a", "b"]


def test_a_page_that_may_no_longer_be_indexed_leaves(shelf: Shelf) -> None:
    shelf.add([page("a", "whales")])
    shelf.index()
    shelf.add([page("a", digest=None, again=True)])
    check(shelf)
    assert shelf.held() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"status": 500, "digest": None},
        {"status": 301, "digest": None},
        {"status": None, "error": "timeout", "digest": None},
        {"status": 200, "error": "too_large", "digest": None},
    ],
    ids=["server", "moved", "timeout", "unread"],
)
def test_other_failures_leave_the_version_before(shelf: Shelf, fields: dict[str, Any]) -> None:
    shelf.add([page("a", "whales")])
    shelf.index()
    shelf.add([page("a", again=True, **fields), page("never", **fields)])
    check(shelf)
    assert shelf.found("whales") == ["a"]


def test_rows_from_before_batches_count_by_their_time(shelf: Shelf) -> None:
    old = {"again": None, "fetched": 1_000_000}
    shelf.add([page("a", "newer", again=None, fetched=2_000_000)], batch=None)
    shelf.add([page("a", "older", **old), page("b", "only", **old)], batch=None)
    check(shelf)
    assert shelf.found("newer") == ["a"]
    shelf.add([page("a", "newest", again=True)])
    check(shelf)
    assert shelf.found("newest") == ["a"]


def test_what_came_while_it_was_away_is_caught_up(shelf: Shelf) -> None:
    with Indexer(shelf.index_folder) as indexer:
        assert indexer.batch == -1
        for number in range(5):
            shelf.add([page(f"p{number}", "whales")])
            indexer.catch_up(shelf.snapshot(), stop=threading.Event())
    with Indexer(shelf.index_folder) as indexer:
        assert indexer.batch == 5
        shelf.add([])
        indexer.catch_up(shelf.snapshot(), stop=threading.Event())
        assert indexer.batch == 6
    assert shelf.held() == shelf.expected()


def test_it_stops_at_the_end_of_a_batch_and_goes_on(shelf: Shelf) -> None:
    for number in range(3):
        shelf.add([page(f"p{number}-{each}", "whales") for each in range(4)])
    stop = threading.Event()
    stop.set()
    with Indexer(shelf.index_folder) as indexer:
        indexer.catch_up(shelf.snapshot(), stop=stop)
        assert indexer.batch < 3
    assert len(shelf.held()) in (0, 4)
    check(shelf)


def test_a_missing_segment_takes_nothing_half(shelf: Shelf) -> None:
    shelf.add([page("a", "whales")])
    shelf.add([page("b", "terns")])
    snapshot = shelf.snapshot()
    lost = snapshot.tables["page"][1]
    kept = lost.read_bytes()
    lost.unlink()
    with Indexer(shelf.index_folder) as indexer, pytest.raises(Exception, match="damaged"):
        indexer.catch_up(snapshot, stop=threading.Event())
    lost.write_bytes(kept)
    check(shelf)


def test_there_is_one_writer(shelf: Shelf) -> None:
    with Indexer(shelf.index_folder), pytest.raises(CollectionInUse, match="is locked by a crawl"):
        Indexer(shelf.index_folder).__enter__()
    shelf.index()


def test_an_index_that_knows_more_than_the_archive_is_not_believed(shelf: Shelf) -> None:
    for _ in range(3):
        shelf.add([page("a", "whales", again=True)])
    shelf.index()
    shelf.batch = 1
    with pytest.raises(IndexUnusable, match=r"is ahead of the archive.*sterna index .* --anew"):
        shelf.index()


def test_headings_keywords_and_the_url_are_searched_too(shelf: Shelf) -> None:
    shelf.add(
        [
            page("docs/whale-watching.html", "nothing of it"),
            page("b", "text", headings=["Great white sharks"], keywords=["tern", "migration"]),
            page("%E6%9D%B1%E4%BA%AC?q=gr%C3%BC%C3%9Fe", "another one"),
        ]
    )
    shelf.index()
    assert shelf.found("whale") == shelf.found("url:watching") == ["docs/whale-watching.html"]
    assert shelf.found("sharks") == shelf.found("migration") == ["b"]
    assert shelf.found("grüße") == ["%E6%9D%B1%E4%BA%AC?q=gr%C3%BC%C3%9Fe"]
    assert shelf.found("example") == []
    assert len(shelf.found(f"site:{SITE}")) == 3
