"""The index of the own site: what is in it, when a page changed, what is gone."""

import sqlite3
from pathlib import Path

import pytest
from tests.host.own.own_pages import (
    DAY,
    NOW,
    OTHER,
    SITE,
    TEXT,
    all_changes,
    changes,
    date,
    gone,
    listed,
    page,
    survey,
)

from sterna.errors import StorageError, UsageError
from sterna.host.own.index import NAME, Index
from sterna.host.own.register import Standing, date_of, standing_of
from sterna.model import Link, Links, Page

# -- dates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("modified", "known"),
    [
        (date(NOW - DAY), NOW - DAY),
        (date(NOW), None),  # a program wrote the time of the request
        (date(NOW - 30), None),
        (date(NOW + DAY), None),
        (date(0), None),  # as images of read-only file systems have it
        ("", None),
        ("yesterday", None),
        ("Mon, 99 Foo 2026 77:00:00 GMT", None),
        ("Sat, 31 Dec 99999 00:00:00 GMT", None),
    ],
)
def test_date_of_a_server_is_believed_if_it_can_be_true(modified: str, known: float | None) -> None:
    assert date_of(modified, NOW) == known


def test_first_survey_takes_the_servers_dates_and_creates_nothing(tmp_path: Path) -> None:
    found = survey(tmp_path, page("/dated", modified=date(NOW - DAY)), page("/undated"))
    assert listed(tmp_path) == {"/dated": NOW - DAY, "/undated": None}
    assert changes(tmp_path) == [("updated", "/dated", NOW - DAY)]
    assert (found.created, found.updated, found.deleted) == (0, 0, 0)


def test_change_is_dated_by_the_server_only_if_it_lies_between_two_surveys(tmp_path: Path) -> None:
    paths = ("/between", "/old", "/now", "/undated")
    survey(tmp_path, *(page(path, TEXT, modified=date(NOW - DAY)) for path in paths))
    later = NOW + 10 * DAY
    dates = (date(NOW + DAY), date(NOW - 9 * DAY), date(later), "")
    found = survey(
        tmp_path,
        *(page(path, OTHER, modified=modified) for path, modified in zip(paths, dates, strict=True)),
        now=later,
    )
    assert listed(tmp_path) == {"/between": NOW + DAY, "/old": later, "/now": later, "/undated": later}
    assert found.updated == 4


def test_page_that_was_touched_and_is_the_same_did_not_change(tmp_path: Path) -> None:
    survey(tmp_path, page("/a", TEXT, modified=date(NOW - DAY), etag='"1"'))
    found = survey(tmp_path, page("/a", TEXT, modified=date(NOW + DAY), etag='"2"'), now=NOW + 2 * DAY)
    assert listed(tmp_path) == {"/a": NOW - DAY}
    assert (found.created, found.updated, len(changes(tmp_path))) == (0, 0, 1)


def test_clock_in_a_page_without_a_date_is_no_change_but_small_changes_add_up(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(200)]
    survey(tmp_path, page("/a", " ".join(["12:00:01", *words])))
    found = survey(tmp_path, page("/a", " ".join(["12:00:09", *words])), now=NOW + DAY)
    assert (found.updated, listed(tmp_path)) == (0, {"/a": None})
    updated = 0
    for day in range(2, 12):  # every day some words are others
        text = " ".join([*words[day * 15 :], *(f"new{number}" for number in range(day * 15))])
        updated += survey(tmp_path, page("/a", text), now=NOW + day * DAY).updated
    assert 1 <= updated < 10


def test_smallest_change_counts_where_the_server_dates_it(tmp_path: Path) -> None:
    words = " ".join(f"word{number}" for number in range(500))
    survey(tmp_path, page("/a", f"{words} ten", modified=date(NOW - DAY)))
    survey(tmp_path, page("/a", f"{words} two", modified=date(NOW + DAY)), now=NOW + 2 * DAY)
    assert listed(tmp_path) == {"/a": NOW + DAY}
    # The same date under other bytes says nothing: it is as if there were none.
    survey(tmp_path, page("/a", f"{words} six", modified=date(NOW + DAY)), now=NOW + 3 * DAY)
    assert listed(tmp_path) == {"/a": NOW + DAY}


def test_smallest_change_counts_in_a_file_that_was_saved_just_now(tmp_path: Path) -> None:
    words = " ".join(f"word{number}" for number in range(500))
    later = NOW + DAY
    survey(
        tmp_path,
        page("/file", f"{words} ten", modified=date(NOW - DAY)),
        page("/made", f"{words} ten", modified=date(NOW)),
    )
    survey(
        tmp_path,
        page("/file", f"{words} two", modified=date(later - 1)),
        page("/made", f"{words} two", modified=date(later)),
        now=later,
    )
    assert listed(tmp_path) == {"/file": later, "/made": None}


def test_new_title_is_a_change(tmp_path: Path) -> None:
    survey(tmp_path, page("/a", TEXT, title="Terns"))
    survey(tmp_path, page("/a", f"{TEXT}x", title="Herons"), now=NOW + DAY)
    assert changes(tmp_path) == [("updated", "/a", NOW + DAY)]


def test_page_of_a_later_survey_was_created(tmp_path: Path) -> None:
    survey(tmp_path, page("/"))
    found = survey(
        tmp_path,
        page("/"),
        page("/new", modified=date(NOW + DAY)),
        page("/copied", modified=date(NOW - DAY)),
        page("/undated"),
        now=NOW + 2 * DAY,
    )
    at = NOW + 2 * DAY
    assert sorted(changes(tmp_path)) == [
        ("created", "/copied", at),
        ("created", "/new", NOW + DAY),
        ("created", "/undated", at),
    ]
    assert listed(tmp_path) == {"/": None, "/new": NOW + DAY, "/copied": NOW - DAY, "/undated": at}
    assert found.created == 3


def test_nothing_is_created_as_long_as_no_survey_saw_all(tmp_path: Path) -> None:
    survey(tmp_path, page("/"), is_whole=False)
    survey(tmp_path, page("/"), page("/more"), now=NOW + DAY)
    assert changes(tmp_path) == []
    survey(tmp_path, page("/"), page("/more"), page("/new"), now=NOW + 2 * DAY)
    assert changes(tmp_path) == [("created", "/new", NOW + 2 * DAY)]


# -- what is gone ------------------------------------------------------------------------------------------


def test_missing_page_leaves_the_list_at_once_and_is_deleted_when_it_is_missed_again(tmp_path: Path) -> None:
    survey(tmp_path, page("/a", title="A"), page("/b"))
    found = survey(tmp_path, gone("/a"), page("/b"), now=NOW + DAY)
    assert (list(listed(tmp_path)), changes(tmp_path), found.deleted) == (["/b"], [], 0)
    found = survey(tmp_path, gone("/a"), page("/b"), now=NOW + 2 * DAY)
    assert changes(tmp_path) == [("deleted", "/a", NOW + DAY)]  # when it was first missed
    assert (found.deleted, all_changes(tmp_path)[0].title) == (1, "A")


def test_page_that_says_it_is_gone_is_deleted_at_once(tmp_path: Path) -> None:
    survey(tmp_path, page("/a"))
    survey(tmp_path, gone("/a", 410), now=NOW + DAY)
    assert changes(tmp_path) == [("deleted", "/a", NOW + DAY)]


@pytest.mark.parametrize("text", [TEXT, OTHER])
def test_page_that_comes_back_was_never_deleted(tmp_path: Path, text: str) -> None:
    survey(tmp_path, page("/a", TEXT))
    survey(tmp_path, gone("/a"), now=NOW + DAY)
    survey(tmp_path, page("/a", text), now=NOW + 2 * DAY)
    assert list(listed(tmp_path)) == ["/a"]
    assert [kind for kind, _, _ in changes(tmp_path)] == ([] if text == TEXT else ["updated"])


@pytest.mark.parametrize(
    ("answer", "standing"),
    [
        (page("/a"), "shown"),
        (page("/a", status=304), "shown"),
        (page("/a", content_type="application/pdf"), "shown"),
        (page("/a", content_type="image/png"), "missing"),
        (page("/a", digest=b""), "closed"),  # noindex, as the runtime tells it
        (page("/a", status=304, headers=(("x-robots-tag", "noindex"),)), "closed"),
        (page("/a", status=304, headers=(("x-robots-tag", "googlebot: noindex"),)), "shown"),
        (page("/a", status=0, error="robots"), "closed"),
        (page("/a", status=0, error="refused"), "closed"),
        (page("/a", status=0, error="timeout"), "unknown"),
        (page("/a", error="parser"), "unknown"),
        (gone("/a", 410), "gone"),
        (gone("/a", 301), "missing"),
        (gone("/a", 403), "missing"),
        (gone("/a", 429), "unknown"),
        (gone("/a", 500), "unknown"),
    ],
)
def test_answers_say_where_a_page_stands(answer: Page, standing: Standing) -> None:
    assert standing_of(answer) == standing


@pytest.mark.parametrize("status", [500, 503, 429])
def test_failing_server_changes_nothing(tmp_path: Path, status: int) -> None:
    survey(tmp_path, page("/a", modified=date(NOW - DAY)))
    for day in (1, 2, 3):
        survey(tmp_path, gone("/a", status), now=NOW + day * DAY)
    assert listed(tmp_path) == {"/a": NOW - DAY}


def test_page_that_is_hidden_leaves_with_all_that_was_told_of_it(tmp_path: Path) -> None:
    survey(tmp_path, page("/secret", modified=date(NOW - DAY)), page("/deleted"))
    survey(tmp_path, page("/secret", digest=b""), gone("/deleted", 410), now=NOW + DAY)
    assert (listed(tmp_path), [path for _, path, _ in changes(tmp_path)]) == ({}, ["/deleted"])
    with sqlite3.connect(tmp_path / NAME) as db:
        assert db.execute("SELECT count(*) FROM words").fetchone() == (0,)


def test_copy_is_left_out_while_the_page_that_it_names_is_there(tmp_path: Path) -> None:
    links = Links.of(Link(f"{SITE}/a", rel="canonical"))
    copy = page("/a?print", links=links)
    survey(tmp_path, page("/a"))
    survey(tmp_path, page("/a"), copy, now=NOW + DAY)
    assert (list(listed(tmp_path)), changes(tmp_path)) == (["/a"], [])
    survey(tmp_path, gone("/a"), copy, now=NOW + 2 * DAY)
    assert list(listed(tmp_path)) == ["/a?print"]


def test_page_of_a_folder_is_listed_once(tmp_path: Path) -> None:
    survey(
        tmp_path,
        page("/a/", TEXT),
        page("/a/index.html", TEXT),
        page("/b/", TEXT),
        page("/b/index.html", OTHER),
    )
    assert list(listed(tmp_path)) == ["/a/", "/b/", "/b/index.html"]


def test_pages_that_name_each_other_are_both_there(tmp_path: Path) -> None:
    one = page("/1", links=Links.of(Link(f"{SITE}/2", rel="canonical")))
    two = page("/2", links=Links.of(Link(f"{SITE}/1", rel="canonical")))
    elsewhere = page("/3", links=Links.of(Link("http://other.test/3", rel="canonical")))
    survey(tmp_path, one, two, elsewhere)
    assert list(listed(tmp_path)) == ["/1", "/2", "/3"]


def test_clock_that_is_set_back_deletes_and_keeps_the_same(tmp_path: Path) -> None:
    survey(tmp_path, page("/a"), page("/b"))
    survey(tmp_path, gone("/a"), page("/b"), now=NOW + 9 * DAY)
    survey(tmp_path, gone("/a"), page("/b"), now=NOW - 9 * DAY)
    assert changes(tmp_path) == [("deleted", "/a", NOW + 9 * DAY)]
    assert list(listed(tmp_path)) == ["/b"]


# -- the file ----------------------------------------------------------------------------------------------


def test_index_that_cannot_be_used_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="make it with 'sterna host index"):
        Index(tmp_path)
    survey(tmp_path, page("/"))
    with pytest.raises(UsageError, match=r"is the index of http://site\.test"):
        Index(tmp_path, site="http://other.test")
    with sqlite3.connect(tmp_path / NAME) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StorageError, match="has format 99"):
        Index(tmp_path)
    for name in (NAME, f"{NAME}-wal", f"{NAME}-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / NAME).write_bytes(b"no database at all" * 100)
    with pytest.raises(StorageError, match="delete it and run 'sterna host index' again"):
        Index(tmp_path)
