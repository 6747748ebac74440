"""Pages as rows: which are kept, and what hostile ones become."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.making import page

from sterna.archive.manifest import Batch, FactRow
from sterna.archive.rows import (
    FACT_SCHEMA,
    LINK_SCHEMA,
    MORE,
    PAGE_SCHEMA,
    fact_table,
    link_table,
    page_table,
)
from sterna.model import Link, Links

SITE = "https://www.example.org"


BATCH = Batch(number=7, crawler="health", visits=("v1", "v2", "v3"), again=(False, True, True))


def test_every_field_reaches_its_column() -> None:
    full = page(
        url=f"{SITE}/a",
        depth=3,
        status=200,
        content_type="text/html",
        title="Title",
        text="Some text",
        language="en",
        digest=b"\x01\xff",
        size=12,
        modified="Wed, 21 Oct 2015 07:28:00 GMT",
        etag='"x"',
        referrer=f"{SITE}/",
        description="What it is about",
        keywords=("clinic", "health"),
        headings=("First", "Second"),
        html="<p>Some text",
        headers=(("server", "nginx"),),
        extracts=(("price", ("1", "2")), ("none", ())),
        note="cut",
    )
    assert page_table([(SITE, full)], BATCH).to_pylist() == [
        {
            "url": f"{SITE}/a",
            "site": SITE,
            "status": 200,
            "error": None,
            "content_type": "text/html",
            "title": "Title",
            "text": "Some text",
            "language": "en",
            "digest": "01ff",
            "size": 12,
            "depth": 3,
            "fetched": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
            "modified": datetime(2015, 10, 21, 7, 28, tzinfo=UTC),
            "etag": '"x"',
            "referrer": f"{SITE}/",
            "description": "What it is about",
            "keywords": ["clinic", "health"],
            "headings": ["First", "Second"],
            "html": "<p>Some text",
            "headers": [("server", "nginx")],
            "extracts": [("price", ["1", "2"]), ("none", [])],
            "note": "cut",
            "visit": "v1",
            "crawler": "health",
            "batch": 7,
            "again": False,
        }
    ]


def test_page_without_an_answer_has_no_status() -> None:
    (row,) = page_table([(SITE, page(status=0, error="timeout"))]).to_pylist()
    assert (row["status"], row["error"], row["digest"]) == (None, "timeout", None)


def test_links_stand_beside_the_page_they_come_from() -> None:
    first = page("/1", links=Links.of(Link(f"{SITE}/a", "A", "next"), Link(f"{SITE}/b")))
    second = page("/2", links=Links.of(Link(f"{SITE}/a", "again")))
    rows = link_table([(SITE, first), (SITE, page()), (SITE, second)]).to_pylist()
    assert [tuple(row.values())[:4] for row in rows] == [
        (f"{SITE}/1", f"{SITE}/a", "A", "next"),
        (f"{SITE}/1", f"{SITE}/b", None, None),
        (f"{SITE}/2", f"{SITE}/a", "again", None),
    ]
    assert {row["fetched"].timestamp() for row in rows} == {first.fetched}


def test_unchanged_page_leaves_neither_row_nor_links() -> None:
    unchanged = page(is_unchanged=True, status=304, links=Links.of(Link(f"{SITE}/a")))
    assert page_table([(SITE, unchanged)]).num_rows == 0
    assert link_table([(SITE, unchanged)]).num_rows == 0


def test_page_that_is_not_wanted_leaves_neither_row_nor_links() -> None:
    unwanted = page(is_kept=False, status=200, links=Links.of(Link(f"{SITE}/a")))
    assert page_table([(SITE, unwanted), (SITE, page("/b"))])["url"].to_pylist() == [f"{SITE}/b"]
    assert link_table([(SITE, unwanted)]).num_rows == 0


def test_fields_that_a_page_lacks_are_null_beside_one_that_has_them() -> None:
    bare, full = page_table([(SITE, page()), (SITE, page(keywords=("a",)))]).to_pylist()
    assert [bare[name] for name in MORE] == [None] * len(MORE)
    assert (full["keywords"], full["headings"], full["headers"]) == (["a"], None, None)


def test_header_that_is_repeated_very_often_takes_no_long_time() -> None:
    """A host may send hundreds of thousands: joined one by one, they took minutes."""
    headers = (("vary", "a" * 20),) * 300_000
    began = time.process_time()
    (row,) = page_table([(SITE, page(headers=headers))]).to_pylist()
    assert time.process_time() - began < 5
    assert len(row["headers"][0][1]) == 22 * 300_000 - 2


def test_headers_of_one_name_become_one_entry() -> None:
    headers = (("Vary", "a"), ("server", "x"), ("vary", "b"))
    (row,) = page_table([(SITE, page(headers=headers))]).to_pylist()
    assert row["headers"] == [("vary", "a, b"), ("server", "x")]


def test_extracts_of_one_name_become_one_list() -> None:
    (row,) = page_table([(SITE, page(extracts=(("a", ("1",)), ("b", ()), ("a", ("2",)))))]).to_pylist()
    assert row["extracts"] == [("a", ["1", "2"]), ("b", [])]


def test_names_that_differ_only_in_what_utf8_cannot_hold_become_one() -> None:
    odd = page(headers=(("\ud800", "1"), ("\ud801", "2")), extracts=(("\udfff", ("\ud800",)),))
    (row,) = page_table([(SITE, odd)]).to_pylist()
    assert row["headers"] == [("\ufffd", "1, 2")]
    assert row["extracts"] == [("\ufffd", ["\ufffd"])]


def test_fact_reaches_its_columns() -> None:
    row = FactRow(
        crawler="health", site=SITE, visit="v1", template="clinic", data='{"a": 1}', received=1_700_000_000.0
    )
    own = FactRow(crawler="", site=SITE, visit="", template="seen", data="[]", received=None)
    assert [tuple(each.values()) for each in fact_table([row, own], BATCH).to_pylist()] == [
        ("health", SITE, "v1", "clinic", '{"a": 1}', datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), 7),
        (None, SITE, None, "seen", "[]", None, 7),
    ]


def test_rows_say_how_they_came_also_where_some_pages_leave_none() -> None:
    links = Links.of(Link(f"{SITE}/x"), Link(f"{SITE}/y"))
    pages = [(SITE, page(is_unchanged=True)), (SITE, page(is_kept=False)), (SITE, page(links=links))]
    (row,) = page_table(pages, BATCH).to_pylist()
    assert (row["visit"], row["crawler"], row["batch"], row["again"]) == ("v3", "health", 7, True)
    rows = link_table(pages, BATCH).to_pylist()
    assert [(row["to_url"], row["crawler"], row["batch"]) for row in rows] == [
        (f"{SITE}/x", "health", 7),
        (f"{SITE}/y", "health", 7),
    ]


def test_rows_without_a_batch_do_not_say_how_they_came() -> None:
    pages = [(SITE, page(links=Links.of(Link(f"{SITE}/x"))))]
    (row,), (link,) = page_table(pages).to_pylist(), link_table(pages).to_pylist()
    assert [row[name] for name in ("visit", "crawler", "batch", "again")] == [None] * 4
    assert (link["crawler"], link["batch"]) == (None, None)


def test_no_pages_give_empty_tables_of_the_right_schema() -> None:
    assert page_table([]).schema == PAGE_SCHEMA
    assert link_table([]).schema == LINK_SCHEMA
    assert fact_table([]).schema == FACT_SCHEMA


@pytest.mark.parametrize(
    ("hostile", "kept"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\ud83d\ude00", "\U0001f600"),
        ("nul\x00 escape\x1b[31m", "nul\x00 escape\x1b[31m"),
        ("\udcff", "\ufffd"),
    ],
)
def test_text_that_utf8_cannot_hold_is_replaced(hostile: str, kept: str) -> None:
    clean, other = page_table([(SITE, page(title=hostile)), (SITE, page(title="untouched"))])["title"]
    assert (clean.as_py(), other.as_py()) == (kept, "untouched")


@given(st.text(st.characters(), min_size=1))
def test_any_text_can_be_kept(text: str) -> None:
    hostile = page(
        url=text,
        title=text,
        text=text,
        etag=text,
        links=Links(text, text, text),
        keywords=(text,),
        headers=((text, text), (text * 2, text)),
        extracts=((text, (text,)),),
    )
    fact = FactRow(crawler=text, site=text, visit=text, template=text, data=text, received=1.0)
    assert fact_table([fact]).num_rows == 1
    batch = Batch(number=1, crawler=text, visits=(text,), again=(True,))
    assert page_table([(text, hostile)], batch).num_rows == 1
    assert link_table([(text, hostile)], batch).num_rows == text.count("\n") + 1


@given(st.text("a\n"), st.text("a\n"), st.text("a\n"))
def test_columns_of_any_length_are_made_one_length(urls: str, texts: str, rels: str) -> None:
    links = Links(urls, texts, rels)
    found = link_table([(SITE, page(links=links))]).to_pylist()
    assert [(row["to_url"] or "", row["text"] or "", row["rel"] or "") for row in found] == [
        (link.url, link.text, link.rel) for link in links
    ]


@given(st.integers(), st.integers(), st.integers(), st.floats())
def test_any_number_can_be_kept(status: int, size: int, depth: int, fetched: float) -> None:
    (row,) = page_table([(SITE, page(status=status, size=size, depth=depth, fetched=fetched))]).to_pylist()
    assert row["status"] is None or 1 <= row["status"] <= 999
    assert row["size"] >= 0
    assert row["depth"] >= 0
