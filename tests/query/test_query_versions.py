"""The newest version of each page, its links and its events, against a plain reading of random histories."""

import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.query.histories import SITE, Archive, page, rows

from sterna.model import Link, Links
from sterna.query.engine import Engine
from sterna.query.scan import Within
from sterna.query.tables import Tables
from sterna.query.versions import Way


class Drawn(NamedTuple):
    """One answer under one URL."""

    url: str
    day: int
    status: int
    digest: bytes


class History(NamedTuple):
    old: list[list[Drawn]]  # batches of an earlier Sterna
    new: list[list[Drawn]]
    merges: list[tuple[str, int, int]]
    is_refreshed: bool  # what came again was fetched after all that came first, by this Sterna


_DRAWN = st.builds(
    Drawn,
    st.sampled_from("abcde"),
    st.integers(1, 4),
    st.sampled_from([200, 200, 204, 404, 410, 500, 301]),
    st.sampled_from([b"x", b"y", b""]),
)
_BATCHES = st.lists(st.lists(_DRAWN, min_size=1, max_size=5), max_size=5)
_MERGES = st.lists(
    st.tuples(st.sampled_from(["page", "link"]), st.integers(0, 4), st.integers(1, 9)), max_size=4
)
_HISTORIES = st.builds(History, _BATCHES, _BATCHES, _MERGES, st.booleans())
_SLOWLY = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Stored(NamedTuple):
    """A row as it lies in a file, in the order that decides which version is the newest."""

    fetched: object
    batch: int
    file: str
    row: int
    url: str
    title: str
    status: int
    digest: str | None


def archive_of(history: History, folder: Path) -> Archive:
    archive = Archive(folder)
    number = 0
    seen: set[str] = set()
    for is_old, batches in ((True, history.old), (False, history.new)):
        for batch in batches:
            pages = []
            for each in batch:
                number += 1
                links = Links.of(Link(f"{SITE}/to/{number}"))
                fields = {"status": each.status, "digest": each.digest, "title": f"{number}", "links": links}
                day = each.day + 10 if history.is_refreshed and each.url in seen else each.day
                seen.add(each.url)
                pages.append(page(each.url, day, **fields))
            if is_old and not history.is_refreshed:
                archive.add_old(pages)
            else:
                archive.add(pages)
    for table, begin, length in history.merges:
        archive.merge(table, begin, begin + length)
    return archive


def stored_rows(paths: Iterable[Path]) -> list[Stored]:
    """Every row of the files, read without the engine."""
    found = []
    for path in paths:
        for number, row in enumerate(pq.read_table(path).to_pylist()):
            key = (row["fetched"], row.get("batch") or 0, str(path), number)
            found.append(Stored(*key, row["url"], row["title"], row["status"], row["digest"]))
    return sorted(found, key=lambda row: row[:4])


def by_url(found: Iterable[Stored]) -> dict[str, list[Stored]]:
    versions: defaultdict[str, list[Stored]] = defaultdict(list)
    for row in found:
        versions[row.url].append(row)
    return versions


def events_of(found: Iterable[Stored]) -> list[tuple[str, str, str | None, str | None]]:
    """What became of each page, by the words of the definition: (title, kind, digest, digest before)."""
    events: list[tuple[str, str, str | None, str | None]] = []
    for versions in by_url(found).values():
        before: Stored | None = None
        for row in versions:
            is_good, is_gone = 200 <= row.status <= 299, row.status in (404, 410)
            was_good = before is not None and before.status < 300
            if is_good and not was_good:
                events.append((row.title, "created", row.digest, None))
            elif is_good and before and row.digest != before.digest:
                events.append((row.title, "updated", row.digest, before.digest))
            elif is_gone and before and was_good:
                events.append((row.title, "deleted", None, before.digest))
            if is_good or is_gone:
                before = row
    return sorted(events)


@given(_HISTORIES)
@_SLOWLY
def test_page_and_link_are_those_of_the_newest_version_in_any_history(history: History) -> None:
    with tempfile.TemporaryDirectory() as folder:
        archive = archive_of(history, Path(folder))
        found = stored_rows(archive.tables["page"])
        newest = {url: versions[-1] for url, versions in by_url(found).items()}
        current = [row for row in found if row[:2] == newest[row.url][:2]]
        with Engine(archive.tables) as engine:
            for _ in range(2):  # the second query may find them in another way
                assert sorted(rows(engine, "SELECT url, title FROM page")) == sorted(
                    (url, row.title) for url, row in newest.items()
                )
            assert rows(engine, "SELECT count(*) FROM page") == [(len(newest),)]
            assert rows(engine, "SELECT count(*) FROM page_history") == [(len(found),)]
        with Engine(archive.tables) as engine:
            for _ in range(2):
                assert sorted(rows(engine, "SELECT from_url, to_url FROM link")) == sorted(
                    (row.url, f"{SITE}/to/{row.title}") for row in current
                )


@given(_HISTORIES)
@_SLOWLY
def test_events_are_as_they_are_defined_in_any_history(history: History) -> None:
    with tempfile.TemporaryDirectory() as folder:
        archive = archive_of(history, Path(folder))
        expected = events_of(stored_rows(archive.tables["page"]))
        with Engine(archive.tables) as engine:
            found = rows(engine, "SELECT kind, digest, digest_before FROM event")
            assert sorted(found, key=str) == sorted((event[1:] for event in expected), key=str)


@given(_HISTORIES)
@settings(_SLOWLY, max_examples=4)
def test_batches_one_by_one_give_all_of_the_archive_once(history: History) -> None:
    with tempfile.TemporaryDirectory() as folder:
        archive = archive_of(history, Path(folder))
        found = stored_rows(archive.tables["page"])
        for number in range(max((row.batch for row in found), default=0) + 1):
            told = [row for row in found if row.batch <= number]
            mine = [row.title for row in told if row.batch == number]
            with Engine(archive.tables, within=Within(after=number - 1, upto=number)) as engine:
                assert sorted(rows(engine, "SELECT title FROM page")) == sorted((each,) for each in mine)
                assert rows(engine, "SELECT count(*) FROM page_history") == [(len(mine),)]
                assert rows(engine, "SELECT count(*) FROM link") == [(len(mine),)]
                expected = [event[1:] for event in events_of(told) if event[0] in mine]
                events = rows(engine, "SELECT kind, digest, digest_before FROM event")
                assert sorted(events, key=str) == sorted(expected, key=str)


def plan_of(engine: Engine) -> str:
    """How DuckDB counts the pages."""
    rows(engine, "SELECT url FROM page")
    with engine._connection.cursor() as cursor:
        return str(cursor.execute("EXPLAIN SELECT count(*) FROM page").fetchall()).upper()


def test_collection_without_second_versions_reads_its_files_as_they_are(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.add([page("a", 1), page("b", 1)])
    archive.add([page("c", 2)])
    with Engine(archive.tables) as engine:
        assert "JOIN" not in plan_of(engine)
    archive.add([page("a", 3)])
    with Engine(archive.tables) as engine:
        assert "JOIN" in plan_of(engine)


def test_first_query_and_later_ones_leave_out_old_versions_in_different_ways(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.add([page("a", 1, title="old"), page("b", 1, title="only")])
    archive.add([page("a", 2, title="new")])
    with Engine(archive.tables) as engine:
        for way in (Way.BY_URL, Way.BY_PLACE, Way.BY_PLACE):
            assert sorted(rows(engine, "SELECT title FROM page")) == [("new",), ("only",)]
            assert isinstance(engine._tables, Tables)
            assert engine._tables._way is way
