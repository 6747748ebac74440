"""Parts of a collection: some batches, one visit, crawlers of some names."""

from pathlib import Path
from typing import Any

import pytest
from tests.query.histories import SITE, Archive, fact, page, rows

from sterna.archive.manifest import UNWANTED
from sterna.archive.rows import fact_table
from sterna.model import Link, Links
from sterna.query.engine import Engine
from sterna.query.scan import Within

CLINIC = '{"template": "clinic", "slots": {"name": "A"}}'


def linking(name: str, day: int, to: str, **fields: Any) -> Any:
    return page(name, day, links=Links.of(Link(f"{SITE}/{to}")), **fields)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    archive = Archive(tmp_path_factory.mktemp("archive"))
    archive.add_old([linking("a", 1, "zero", digest=b"0")])
    archive.add([linking("a", 2, "one", digest=b"1"), linking("b", 2, "two", digest=b"2")], visit="v1")
    archive.add([linking("a", 3, "three", digest=b"3")], visit="v2", facts=[fact(CLINIC, visit="v2")])
    archive.add([page("b", 4, status=404)], visit="v3", crawler="news")
    return archive


def urls(engine: Engine, table: str) -> list[str]:
    return sorted(url.removeprefix(f"{SITE}/") for (url,) in rows(engine, f"SELECT url FROM {table}"))


def test_visit_shows_what_it_brought_and_nothing_else(archive: Archive) -> None:
    with Engine(archive.tables, within=Within(visit="v2")) as engine:
        assert urls(engine, "page") == urls(engine, "page_history") == ["a"]
        assert rows(engine, "SELECT to_url FROM link") == [(f"{SITE}/three",)]
        assert rows(engine, "SELECT name FROM clinic") == [("A",)]
        assert rows(engine, "SELECT kind, visit FROM event") == [("updated", "v2")]
    with Engine(archive.tables, within=Within(visit="v1")) as engine:
        assert sorted(rows(engine, "SELECT to_url FROM link")) == [(f"{SITE}/one",), (f"{SITE}/two",)]
        assert rows(engine, "SELECT count(*) FROM fact") == [(0,)]


def test_batches_show_what_came_in_them(archive: Archive) -> None:
    with Engine(archive.tables, within=Within(after=1, upto=3)) as engine:
        assert urls(engine, "page") == ["a", "b"]
        assert rows(engine, "SELECT to_url FROM link") == [(f"{SITE}/three",)]
        assert sorted(rows(engine, "SELECT url, kind FROM event")) == [
            (f"{SITE}/a", "updated"),
            (f"{SITE}/b", "deleted"),
        ]


def test_rows_of_earlier_sternas_are_of_batch_zero(archive: Archive) -> None:
    with Engine(archive.tables, within=Within(upto=0)) as engine:
        assert rows(engine, "SELECT digest FROM page") == [("30",)]
        assert rows(engine, "SELECT to_url FROM link") == [(f"{SITE}/zero",)]
        assert rows(engine, "SELECT kind FROM event") == [("created",)]


def test_later_batches_change_nothing_about_earlier_ones(archive: Archive) -> None:
    with Engine(archive.tables, within=Within(after=0, upto=1)) as engine:
        assert sorted(rows(engine, "SELECT url, kind FROM event")) == [
            (f"{SITE}/a", "updated"),
            (f"{SITE}/b", "created"),
        ]


def test_crawlers_are_chosen_by_a_pattern(archive: Archive) -> None:
    with Engine(archive.tables, within=Within(after=0, crawler="n*s")) as engine:
        assert urls(engine, "page") == ["b"]
        assert rows(engine, "SELECT count(*) FROM link") == [(0,)]
        assert rows(engine, "SELECT kind FROM event") == [("deleted",)]
    with Engine(archive.tables, within=Within(after=0, crawler="health")) as engine:
        assert urls(engine, "page") == ["a", "a", "b"]
        assert rows(engine, "SELECT count(*) FROM fact") == [(1,)]


def test_what_crawlers_remember_is_no_part_of_a_batch(archive: Archive) -> None:
    own = fact_table([fact(CLINIC, visit="", received=None)])
    with Engine(archive.tables, extra={"fact": own}) as engine:
        assert rows(engine, "SELECT count(*) FROM fact") == [(2,)]
    with Engine(archive.tables, extra={"fact": own}, within=Within(after=0)) as engine:
        assert rows(engine, "SELECT _kind FROM clinic") == [("row",)]


@pytest.mark.parametrize("name", ["'; DROP TABLE page; --", "v1' OR '1'='1", "{0}", '"'])
def test_names_of_visits_and_crawlers_are_only_names(archive: Archive, name: str) -> None:
    for part in (Within(visit=name), Within(crawler=name)):
        with Engine(archive.tables, within=part) as engine:
            assert rows(engine, "SELECT count(*) FROM page") == [(0,)]
            assert rows(engine, "SELECT count(*) FROM event") == [(0,)]
            assert rows(engine, "SELECT count(*) FROM link") == [(0,)]


def test_how_rows_are_found_again_is_not_shown(archive: Archive) -> None:
    with Engine(archive.tables) as engine:
        for table in ("page", "page_history", "link"):
            assert {"batch", "again"} & set(engine.run(f"FROM {table}").columns) == set()
        assert rows(engine, "SELECT visit, crawler FROM page ORDER BY url") == [
            ("v2", "health"),
            ("v3", "news"),
        ]


def test_tombstone_ends_a_page_and_stays_in_its_history(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "archive")
    archive.add([page("a", 1, digest=b"1"), page("b", 1, digest=b"2"), page("never", 1, digest=b"3")])
    archive.add([page("a", 2, error=UNWANTED), page("b", 2, status=404, error=UNWANTED)])
    archive.add([page("a", 3, digest=b"4")])
    with Engine(archive.tables) as engine:
        assert urls(engine, "page") == ["a", "never"]
        assert urls(engine, "page_history") == ["a", "a", "a", "b", "b", "never"]
        told = rows(engine, f"SELECT kind FROM event WHERE url = '{SITE}/a' ORDER BY fetched")
        assert told == [("created",), ("deleted",), ("created",)]
        for _ in range(2):  # the second query leaves outdated rows out in another way
            assert rows(engine, "SELECT count(*) FROM page") == [(2,)]
    with Engine(archive.tables, within=Within(after=1, upto=2)) as engine:
        assert urls(engine, "page") == []
        assert rows(engine, "SELECT DISTINCT kind FROM event") == [("deleted",)]
