"""The feed of changes: Atom by RFC 4287, deleted pages by RFC 6721, and JSON lines."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.host.own.own_pages import DAY, NOW, SITE, date, gone, page, survey

from sterna.host.own import shelf as feed_module
from sterna.host.own.index import Change, Index
from sterna.host.own.shelf import atom_of, lines_of

ATOM, TOMBSTONES = "{http://www.w3.org/2005/Atom}", "{http://purl.org/atompub/tombstones/1.0}"
FEED = f"{SITE}/sterna/changes.atom"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d)")  # RFC 3339


def checked(text: str) -> Xml.Element:
    """The feed, if it is one by the letter of both RFCs."""
    feed = Xml.fromstring(text.encode())
    assert feed.tag == f"{ATOM}feed"
    for name in ("id", "title", "updated"):  # 4.1.1: exactly one
        assert len(feed.findall(f"{ATOM}{name}")) == 1, name
    assert feed.find(f"{ATOM}author/{ATOM}name") is not None  # entries have none of their own
    own = [link for link in feed.findall(f"{ATOM}link") if link.get("rel") == "self"]
    assert [link.get("href") for link in own] == [feed.findtext(f"{ATOM}id")]
    ids = []
    for entry in feed.findall(f"{ATOM}entry"):
        for name in ("id", "title", "updated"):
            assert len(entry.findall(f"{ATOM}{name}")) == 1, name
        links = [link for link in entry.findall(f"{ATOM}link") if link.get("rel") == "alternate"]
        assert len(links) == 1  # 4.1.2: an entry without content has one
        ids.append(entry.findtext(f"{ATOM}id"))
    for stone in feed.findall(f"{TOMBSTONES}deleted-entry"):
        assert TIME.fullmatch(stone.attrib["when"])
        ids.append(stone.attrib["ref"])
    assert len(ids) == len(set(ids))
    dates = [each.text or "" for name in ("updated", "published") for each in feed.iter(f"{ATOM}{name}")]
    assert all(TIME.fullmatch(each) for each in dates)
    return feed


def feed_of(state: Path) -> Xml.Element:
    index = Index(state)
    try:
        return checked("".join(atom_of(index.latest(), site=SITE, url=FEED, now=NOW)))
    finally:
        index.close()


def entries(feed: Xml.Element) -> list[tuple[str, str, str]]:
    """Kind, path and time, in the order of the feed."""
    found = []
    for each in feed:
        if each.tag == f"{ATOM}entry":
            category = each.find(f"{ATOM}category")
            assert category is not None
            found.append(
                (
                    category.get("term", ""),
                    each.findtext(f"{ATOM}id", ""),
                    each.findtext(f"{ATOM}updated", ""),
                )
            )
        elif each.tag == f"{TOMBSTONES}deleted-entry":
            found.append(("deleted", each.get("ref", ""), each.get("when", "")))
    return [(kind, url.removeprefix(SITE), when) for kind, url, when in found]


def test_feed_tells_each_page_once_as_it_last_changed(tmp_path: Path) -> None:
    survey(
        tmp_path, page("/a", "one " * 9), page("/old", modified=date(NOW - DAY)), page("/gone", title="Gone")
    )
    survey(tmp_path, page("/a", "two " * 9), page("/new"), gone("/gone", 410), now=NOW + DAY)
    survey(tmp_path, page("/a", "three " * 9), page("/new"), now=NOW + 2 * DAY)
    assert entries(feed_of(tmp_path)) == [
        ("updated", "/a", "2027-01-17T08:00:00Z"),
        ("deleted", "/gone", "2027-01-16T08:00:00Z"),
        ("created", "/new", "2027-01-16T08:00:00Z"),
        ("updated", "/old", "2027-01-14T08:00:00Z"),
    ]
    new = feed_of(tmp_path).find(f"{ATOM}entry[{ATOM}id='{SITE}/new']")
    assert new is not None
    assert new.findtext(f"{ATOM}published") == "2027-01-16T08:00:00Z"
    assert new.findtext(f"{ATOM}title") == "/new"  # it has none of its own


def test_page_that_is_missing_is_in_no_feed_until_it_is_deleted(tmp_path: Path) -> None:
    survey(tmp_path, page("/a", modified=date(NOW - DAY)))
    survey(tmp_path, gone("/a"), now=NOW + DAY)
    assert entries(feed_of(tmp_path)) == []


def test_feed_without_changes_is_one_too(tmp_path: Path) -> None:
    survey(tmp_path, page("/a"))
    feed = feed_of(tmp_path)
    assert (entries(feed), feed.findtext(f"{ATOM}updated")) == ([], "2027-01-15T08:00:00Z")


def test_feed_is_bounded_and_begins_with_the_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "MOST", 3)
    survey(tmp_path, page("/"))
    for day in range(1, 6):
        survey(tmp_path, page("/"), page(f"/{day}"), now=NOW + day * DAY)
    assert [path for _, path, _ in entries(feed_of(tmp_path))] == ["/5", "/4", "/3"]


@given(st.text(), st.text(), st.sampled_from(["created", "updated", "deleted"]))
@settings(max_examples=200, deadline=None)
def test_whatever_a_page_is_called_the_feed_is_well_formed(title: str, path: str, kind: str) -> None:
    change = Change(1, f"{SITE}/{path}", title, kind, NOW, NOW, NOW)
    feed = checked("".join(atom_of([change], site=SITE, url=FEED, now=NOW)))
    assert len(entries(feed)) == 1


def test_lines_tell_all_changes_in_their_order(tmp_path: Path) -> None:
    survey(tmp_path, page("/a", "one " * 9, title='<"A"\n\x1b[1m>'))
    survey(tmp_path, page("/a", "two " * 9, title="B"), now=NOW + DAY)
    survey(tmp_path, gone("/a", 410), now=NOW + 2 * DAY)
    index = Index(tmp_path)
    try:
        lines = [json.loads(line) for line in lines_of(index.changes())]
        later = [json.loads(line) for line in lines_of(index.changes(since=NOW + 2 * DAY))]
    finally:
        index.close()
    assert [(line["kind"], line["url"], line["title"]) for line in lines] == [
        ("updated", f"{SITE}/a", "B"),
        ("deleted", f"{SITE}/a", "B"),
    ]
    assert [line["n"] for line in lines] == sorted(line["n"] for line in lines)
    assert (later[0]["kind"], later[0]["at"]) == ("deleted", "2027-01-17T08:00:00Z")


def test_whoever_asks_again_misses_nothing(tmp_path: Path) -> None:
    """A change counts from when a survey saw it; what was dated before any did, from its own date."""
    survey(
        tmp_path,
        page("/old", modified=date(NOW - 9 * DAY)),
        page("/late", modified=date(NOW - DAY)),
        page("/a"),
    )
    survey(tmp_path, page("/a", "new " * 9, modified=date(NOW + DAY)), now=NOW + 5 * DAY)
    index = Index(tmp_path)
    try:
        since = [
            [change.url.removeprefix(SITE) for change in index.changes(since=NOW + days * DAY)]
            for days in (-10, -2, 0, 3, 6)
        ]
    finally:
        index.close()
    assert since == [["/old", "/late", "/a"], ["/late", "/a"], ["/a"], ["/a"], []]


def test_old_changes_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.host.own.register.MAX_CHANGES", 2)
    survey(tmp_path, page("/"))
    for day in range(1, 6):
        survey(tmp_path, page("/"), page(f"/{day}"), now=NOW + day * DAY)
    index = Index(tmp_path)
    try:
        assert [change.url for change in index.changes()] == [f"{SITE}/4", f"{SITE}/5"]
    finally:
        index.close()
