"""Queries: what they see."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.query.histories import SITE, early, fact, page, rows, stored

from sterna.archive.rows import PAGE_SCHEMA, fact_table
from sterna.errors import DamagedSegment
from sterna.model import Link, Links
from sterna.query.engine import Engine

SHOWN = [name for name in PAGE_SCHEMA.names if name not in ("batch", "again")]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    batches = (
        [page("a", 1, title="first", links=Links.of(Link(f"{SITE}/b", "to b"))), page("b", 1, title="only")],
        [page("a", 3, title="newest", links=Links.of(Link(f"{SITE}/b", "to b")))],
        [page("a", 2, title="between", links=Links.of(Link(f"{SITE}/gone", "to gone")))],
    )
    site = pa.table({"site": [SITE], "pages": [2], "since": [datetime(2026, 1, 1, tzinfo=UTC)]})
    with Engine(stored(tmp_path, *batches), extra={"site": site}, time_limit_seconds=30) as opened:
        yield opened


def test_page_is_the_newest_version_of_each_url(engine: Engine) -> None:
    assert rows(engine, "SELECT title FROM page ORDER BY url") == [("newest",), ("only",)]


def test_page_history_has_every_version(engine: Engine) -> None:
    found = rows(engine, f"SELECT title FROM page_history WHERE url = '{SITE}/a' ORDER BY fetched")
    assert found == [("first",), ("between",), ("newest",)]


def test_url_fetched_twice_at_one_instant_is_one_page(tmp_path: Path) -> None:
    tables = stored(tmp_path, [page("a", 1), page("a", 1)], [page("a", 1)])
    with Engine(tables) as engine:
        assert rows(engine, "SELECT count(*) FROM page") == [(1,)]


def test_page_and_its_history_have_the_columns_of_the_archive(engine: Engine) -> None:
    columns = engine.run("FROM page").columns
    assert columns[:3] == ["url", "site", "status"]
    assert columns == engine.run("FROM page_history").columns
    assert engine.run("FROM link").columns == ["from_url", "to_url", "text", "rel"]


RICH: dict[str, Any] = {
    "description": "about",
    "keywords": ("clinic", "health"),
    "headings": ("One",),
    "html": "<p>",
    "headers": (("server", "nginx"), ("vary", "a"), ("Vary", "b")),
    "extracts": (("price", ("1", "2")),),
}


def test_fields_of_a_page_can_be_asked_for(tmp_path: Path) -> None:
    with Engine(stored(tmp_path, [page("a", 1, **RICH), page("b", 1)])) as engine:
        sql = "SELECT description, keywords[1], headers['vary'], extracts['price'][2] FROM page ORDER BY url"
        assert rows(engine, sql) == [("about", "clinic", "a, b", "2"), (None, None, None, None)]
        assert rows(engine, "SELECT url FROM page WHERE list_contains(headings, 'One')") == [(f"{SITE}/a",)]


@pytest.mark.parametrize("table", ["page", "page_history"])
@pytest.mark.parametrize("is_mixed", [False, True])
def test_early_segments_have_every_column(tmp_path: Path, table: str, is_mixed: bool) -> None:
    tables = stored(tmp_path, [page("rich", 2, **RICH)] if is_mixed else [])
    tables["page"] += [early(tmp_path, "old"), early(tmp_path, "older")]
    with Engine(tables) as engine:
        assert engine.run(f"FROM {table}").columns == SHOWN
        types = dict(rows(engine, f"SELECT column_name, column_type FROM (DESCRIBE {table})"))
        found = rows(
            engine, f"SELECT title, description, keywords, extracts FROM {table} WHERE title = 'old'"
        )
        described = rows(engine, f"SELECT url FROM {table} WHERE description = 'about'")
    assert (types["headers"], types["extracts"]) == ("MAP(VARCHAR, VARCHAR)", "MAP(VARCHAR, VARCHAR[])")
    assert found == [("old", None, None, None)]
    assert len(described) == is_mixed


def test_fact_has_rows_and_what_crawlers_remember(tmp_path: Path) -> None:
    emitted = [fact('{"template": "clinic", "slots": {"name": "A", "beds": 3}}')]
    remembered = [fact('{"template": "seen", "values": ["x", 1]}', template="seen", visit="", received=None)]
    with Engine(stored(tmp_path, facts=emitted), extra={"fact": fact_table(remembered)}) as engine:
        names = "kind, crawler, site, visit, template, data, received"
        assert ", ".join(engine.run("FROM fact").columns) == names
        assert rows(engine, f"SELECT {names.removesuffix(', received')} FROM fact ORDER BY kind DESC") == [
            ("row", "health", SITE, "v1", "clinic", '{"name":"A","beds":3}'),
            ("own", "health", SITE, None, "seen", '["x",1]'),
        ]
        assert rows(engine, "SELECT received IS NULL, kind FROM fact ORDER BY 1") == [
            (False, "row"),
            (True, "own"),
        ]


def test_slots_and_values_of_a_fact_can_be_asked_for(tmp_path: Path) -> None:
    facts = [
        fact('{"template": "clinic", "slots": {"name": "A", "beds": 3}}'),
        fact('{"template": "pair", "values": ["x", 7]}', template="pair"),
    ]
    with Engine(stored(tmp_path, facts=facts)) as engine:
        sql = "SELECT data->>'name', (data->>'beds')::INTEGER + 1 FROM fact WHERE template = 'clinic'"
        assert rows(engine, sql) == [("A", 4)]
        assert rows(engine, "SELECT data->>0, data->>1 FROM fact WHERE template = 'pair'") == [("x", "7")]


def test_fact_that_is_no_json_spoils_no_query(tmp_path: Path) -> None:
    facts = [fact('{"template": "t", "values": []}'), fact("{not json", template="odd")]
    with Engine(stored(tmp_path, facts=facts)) as engine:
        assert rows(engine, "SELECT template, data FROM fact ORDER BY 1") == [
            ("clinic", "[]"),
            ("odd", '"{not json"'),
        ]


def test_fact_is_empty_where_nobody_made_any() -> None:
    with Engine({}) as engine:
        assert rows(engine, "SELECT kind, data FROM fact") == []
        types = dict(rows(engine, "SELECT column_name, column_type FROM (DESCRIBE fact)"))
        assert (types["data"], types["received"]) == ("JSON", "TIMESTAMP WITH TIME ZONE")


def test_link_is_of_the_newest_version_of_its_page(engine: Engine) -> None:
    assert rows(engine, "FROM link") == [(f"{SITE}/a", f"{SITE}/b", "to b", None)]


def test_links_and_extra_tables_can_be_joined(engine: Engine) -> None:
    sql = "SELECT link.text, site.pages FROM link JOIN page ON url = from_url JOIN site USING (site)"
    assert rows(engine, sql) == [("to b", 2)]


def test_times_are_in_utc_whatever_the_machine_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        with Engine(stored(tmp_path, [page("a", 1)])) as engine:
            sql = "SELECT fetched, fetched::VARCHAR, now() > fetched FROM page"
            ((fetched, text, is_past),) = rows(engine, sql)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (fetched, text, is_past) == (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01 00:00:00+00", True)


def test_collection_without_segments_has_empty_tables_of_the_right_types() -> None:
    with Engine({"page": []}) as engine:
        assert rows(engine, "SELECT count(*), sum(length(text)), max(fetched) FROM page") == [(0, None, None)]
        types = dict(rows(engine, "SELECT column_name, column_type FROM (DESCRIBE page)"))
        assert (types["fetched"], types["status"]) == ("TIMESTAMP WITH TIME ZONE", "SMALLINT")
        assert rows(engine, "SELECT to_url FROM link") == []


@pytest.mark.parametrize("name", ["it's", "we[ir]d*", "site=x", "a b"])
def test_strange_folder_names_are_read(tmp_path: Path, name: str) -> None:
    with Engine(stored(tmp_path / name, [page("a", 1)])) as engine:
        assert rows(engine, "SELECT site FROM page") == [(SITE,)]


def test_files_may_be_named_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = stored(tmp_path, [page("a", 1)])
    monkeypatch.chdir(tmp_path)
    with Engine({"page": [Path(path.name) for path in tables["page"]]}) as engine:
        monkeypatch.chdir("/")
        assert rows(engine, "SELECT count(*) FROM page") == [(1,)]


def test_missing_segment_is_named(tmp_path: Path) -> None:
    gone = {"page": [tmp_path / "gone.page.parquet"]}
    with Engine(gone) as engine, pytest.raises(DamagedSegment, match=r"gone\.page\.parquet' is damaged"):
        engine.run("FROM page")


def test_hostile_texts_come_back_as_they_are(tmp_path: Path) -> None:
    text = "nul \x00 escape \x1b[2J \u202e \U0001f600 'quote'"
    with Engine(stored(tmp_path, [page("a", 1, text=text)])) as engine:
        assert rows(engine, "SELECT text FROM page") == [(text,)]


def test_tables_can_be_listed_and_described(engine: Engine) -> None:
    names = {name for (name, *_) in rows(engine, "SHOW TABLES")}
    assert names == {"page", "page_history", "link", "event", "fact", "site"}
    described = rows(engine, "DESCRIBE event")
    assert [name for name, *_ in described] == [
        *("url", "site", "kind", "fetched", "status", "digest", "digest_before", "visit"),
    ]


def test_table_is_found_by_a_name_that_the_query_makes(engine: Engine) -> None:
    assert rows(engine, "SELECT count(*) FROM query_table('pa' || 'ge')") == [(2,)]


def test_result_can_be_had_in_columns(engine: Engine) -> None:
    schema, batches = engine.run_arrow("SELECT url, size + 1 AS n FROM page ORDER BY url")
    table = pa.Table.from_batches(batches, schema)
    assert table.to_pylist() == [{"url": f"{SITE}/a", "n": 1}, {"url": f"{SITE}/b", "n": 1}]


def test_pages_that_are_given_are_all_there_is(tmp_path: Path) -> None:
    given = pa.Table.from_pylist([{"url": "x", "status": 200}], schema=PAGE_SCHEMA)
    with Engine(stored(tmp_path, [page("a", 1)]), pages=given) as engine:
        for table in ("page", "page_history", "event"):
            assert rows(engine, f"SELECT url FROM {table}") == [("x",)]
