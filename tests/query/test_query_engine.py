"""Queries: what they see, what they are kept from, and how they are stopped."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sterna.archive.manifest import FactRow
from sterna.archive.parquet import write_segment
from sterna.archive.rows import MORE, PAGE_SCHEMA, fact_table
from sterna.archive.segments import SegmentStore
from sterna.errors import QueryError
from sterna.model import Link, Links, Page
from sterna.query import engine as module
from sterna.query.engine import Engine

SITE = "https://www.example.org"
ENDLESS = "SELECT count(*) FROM range(1e12::BIGINT) a, range(1e6::BIGINT) b"


def page(name: str, day: int, **fields: Any) -> tuple[str, Page]:
    fetched = datetime(2026, 1, day, tzinfo=UTC).timestamp()
    return SITE, Page(url=f"{SITE}/{name}", fingerprint=1, depth=0, fetched=fetched, status=200, **fields)


def stored(
    folder: Path, *batches: list[tuple[str, Page]], facts: Sequence[FactRow] = ()
) -> dict[str, list[Path]]:
    """The files of these batches, one segment each, as the engine takes them."""
    store = SegmentStore(folder)
    tables: dict[str, list[Path]] = {"page": [], "link": [], "fact": []}
    written = [segment for batch in batches for segment in store.write_pages(batch)]
    for segment in written + store.write_pages([], facts=facts):
        tables[segment.table].append(store.path(segment.name))
    return tables


def early(folder: Path, name: str) -> Path:
    """The file of a page as a version wrote it that knew fewer columns."""
    schema = pa.schema([field for field in PAGE_SCHEMA if field.name not in MORE])
    row = {"url": f"{SITE}/{name}", "title": name, "fetched": datetime(2026, 1, 1, tzinfo=UTC)}
    rows = [pa.Table.from_pylist([row], schema=schema)]
    return folder / write_segment(folder, f"{name}.page.parquet", rows=rows, schema=schema).name


def fact(data: str, **fields: Any) -> FactRow:
    known: dict[str, Any] = {"crawler": "health", "site": SITE, "visit": "v1", "received": 1_700_000_000.0}
    return FactRow(**{**known, "template": "clinic", "data": data, **fields})


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


def rows(engine: Engine, sql: str) -> list[tuple[Any, ...]]:
    return list(engine.run(sql).rows)


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
        assert engine.run(f"FROM {table}").columns == PAGE_SCHEMA.names
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
    with pytest.raises(QueryError, match=r"gone\.page\.parquet"):
        Engine({"page": [tmp_path / "gone.page.parquet"]})


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('/etc/*')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_parquet('{other}')",
        "SELECT * FROM '{other}'",
        "SELECT * FROM sniff_csv('/etc/passwd')",
        "SELECT * FROM read_csv('https://www.example.org/x.csv')",
        "SELECT * FROM query('COPY page TO ''{folder}/out.csv''')",
    ],
)
def test_query_reaches_nothing_but_its_segments(engine: Engine, tmp_path: Path, sql: str) -> None:
    other = stored(tmp_path / "other", [page("secret", 1)])["page"][0]
    with pytest.raises(QueryError):
        rows(engine, sql.format(other=other, folder=tmp_path))


@pytest.mark.parametrize(
    "sql",
    [
        "COPY page TO '{folder}/out.csv'",
        "COPY (SELECT 1) TO '{folder}/out.parquet'",
        "EXPORT DATABASE '{folder}/out'",
        "ATTACH '{folder}/out.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET memory_limit = '10GB'",
        "RESET memory_limit",
        "PRAGMA enable_profiling",
        "CALL enable_logging()",
        "CREATE TABLE t (a INT)",
        "DROP VIEW page",
        "DELETE FROM site",
        "EXPLAIN ANALYZE DELETE FROM site",
        "BEGIN",
        "PREPARE p AS SELECT 1",
    ],
)
def test_only_queries_that_read_are_allowed(engine: Engine, tmp_path: Path, sql: str) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(QueryError, match="only SELECT and its like"):
        engine.run(sql.format(folder=tmp_path))
    assert sorted(tmp_path.iterdir()) == before


def test_select_that_changes_data_is_refused(engine: Engine) -> None:
    with pytest.raises(QueryError, match="only queries that read"):
        engine.run("WITH gone AS (DELETE FROM site RETURNING *) SELECT * FROM gone")
    assert rows(engine, "SELECT count(*) FROM site") == [(1,)]


def test_settings_are_locked_below_the_check_of_the_statement(engine: Engine, tmp_path: Path) -> None:
    connection = engine._connection.cursor()
    for sql in ("SET enable_external_access = true", "SET memory_limit = '9GB'", "LOAD httpfs"):
        with pytest.raises(Exception, match=r"locked|disabled"):
            connection.execute(sql)
    with pytest.raises(Exception, match="disabled by configuration"):
        connection.execute(f"COPY (SELECT 1) TO '{tmp_path}/out.csv'")
    connection.close()


def test_variables_of_the_program_are_out_of_reach(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "secret", pa.table({"key": ["hidden"]}), raising=False)
    with pytest.raises(QueryError, match="secret does not exist"):
        engine.run("SELECT * FROM secret")


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("", "the query is empty"),
        (" ; -- nothing", "the query is empty"),
        ("SELECT 1; SELECT 2", "has 2 statements"),
        ("SELECT 1; DROP VIEW page", "has 2 statements"),
    ],
)
def test_query_is_one_statement(engine: Engine, sql: str, complaint: str) -> None:
    with pytest.raises(QueryError, match=complaint):
        engine.run(sql)


@pytest.mark.parametrize(
    "sql", ["SELECT 1;", "FROM site", "WITH x AS (FROM site) FROM x", "DESCRIBE page", "VALUES (1)"]
)
def test_whatever_reads_is_allowed(engine: Engine, sql: str) -> None:
    assert rows(engine, sql)


def test_misspelt_column_is_pointed_out(engine: Engine) -> None:
    with pytest.raises(QueryError) as caught:
        engine.run("SELECT titel FROM page")
    message = str(caught.value)
    assert '"title"' in message
    assert message.splitlines()[-2:] == ["LINE 1: SELECT titel FROM page", "               ^^^^^"]


def test_error_quotes_a_page_harmlessly_and_briefly(tmp_path: Path) -> None:
    tables = stored(tmp_path, [page("a", 1, text="\x1b[31m" + "x" * 10_000)])
    with Engine(tables) as engine, pytest.raises(QueryError) as caught:
        rows(engine, "SELECT text::INTEGER FROM page")
    message = str(caught.value)
    assert "\x1b" not in message
    assert "\\x1b[31mxxx" in message
    assert "to INT32" in message
    assert len(message) < 1_000


def test_hostile_texts_come_back_as_they_are(tmp_path: Path) -> None:
    text = "nul \x00 escape \x1b[2J \u202e \U0001f600 'quote'"
    with Engine(stored(tmp_path, [page("a", 1, text=text)])) as engine:
        assert rows(engine, "SELECT text FROM page") == [(text,)]


def test_endless_query_is_stopped() -> None:
    with Engine({}, time_limit_seconds=0.3) as engine:
        began = time.monotonic()
        with pytest.raises(QueryError, match=r"stopped after 0\.3 seconds: narrow the query"):
            rows(engine, ENDLESS)
        assert time.monotonic() - began < 10
        assert rows(engine, "SELECT 1") == [(1,)]


def test_endless_result_is_stopped_and_takes_no_memory() -> None:
    with Engine({}, time_limit_seconds=0.3) as engine:
        result = engine.run("SELECT * FROM range(1e12::BIGINT)")
        assert next(result.rows) == (0,)
        with pytest.raises(QueryError, match="stopped after"):
            for _ in result.rows:
                pass


def test_time_of_a_slow_reader_does_not_count() -> None:
    with Engine({}, time_limit_seconds=0.5) as engine:
        result = engine.run("SELECT * FROM range(2_000)")
        first = next(result.rows)
        threading.Event().wait(0.7)
        assert [first, *result.rows][-1] == (1_999,)


def test_query_that_needs_too_much_memory_is_stopped() -> None:
    complaint = r"more than the 0\.05 GB of memory"
    with Engine({}, memory_bytes=50_000_000) as engine, pytest.raises(QueryError, match=complaint):
        rows(engine, "SELECT list(range) FROM range(100_000_000)")


def test_query_may_spill_where_it_has_a_folder(tmp_path: Path) -> None:
    sql = "SELECT md5(range::VARCHAR) AS hash FROM range(2_000_000) ORDER BY hash LIMIT 1 OFFSET 1_900_000"
    with Engine({}, memory_bytes=60_000_000, spill_folder=tmp_path / "spill") as engine:
        assert len(rows(engine, sql)) == 1


def test_two_results_can_be_read_side_by_side(engine: Engine) -> None:
    first, second = (engine.run("SELECT * FROM range(3_000)").rows for _ in range(2))
    assert sum(left == right for left, right in zip(first, second, strict=True)) == 3_000


@pytest.mark.alone  # a signal must reach the very thread that waits for DuckDB
def test_ctrl_c_is_not_swallowed_by_the_time_limit() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a script may have it ignored
    try:
        with Engine({}, time_limit_seconds=10.0) as engine:
            timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                rows(engine, ENDLESS)
    finally:
        signal.signal(signal.SIGINT, before)
