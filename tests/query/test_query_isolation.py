"""What a query is kept from, and how it is stopped."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.query.histories import SITE, page, rows, stored

from sterna.errors import QueryError
from sterna.query import engine as module
from sterna.query.engine import Engine

ENDLESS = "SELECT count(*) FROM range(1e12::BIGINT) a, range(1e6::BIGINT) b"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    tables = stored(tmp_path_factory.mktemp("archive"), [page("a", 1), page("b", 1)])
    with Engine(tables, extra={"site": pa.table({"site": [SITE]})}, time_limit_seconds=30) as opened:
        yield opened


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
    with pytest.raises(QueryError, match=r"there is no table .secret."):
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


def test_endless_query_is_stopped() -> None:
    with Engine({}, time_limit_seconds=0.3) as engine:
        began = time.monotonic()
        with pytest.raises(QueryError, match=r"stopped after 0\.3 seconds: narrow the query"):
            rows(engine, ENDLESS)
        assert time.monotonic() - began < 10
        engine._time_limit_seconds = 30.0  # a busy machine may need longer than the endless one got
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


def test_query_may_spill_where_it_has_a_folder(tmp_path: Path) -> None:
    sql = "SELECT md5(range::VARCHAR) AS hash FROM range(300_000) ORDER BY hash LIMIT 1 OFFSET 285_000"
    with Engine({}, memory_bytes=20_000_000) as engine, pytest.raises(QueryError, match="memory"):
        rows(engine, sql)
    with Engine({}, memory_bytes=20_000_000, spill_folder=tmp_path / "spill") as engine:
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


@pytest.mark.alone  # a signal must reach the very thread that waits for DuckDB
@pytest.mark.parametrize("is_arrow", [False, True], ids=["rows", "columns"])
def test_ctrl_c_ends_a_query_at_once(is_arrow: bool) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a script may have it ignored
    try:
        with Engine({}, time_limit_seconds=60.0) as engine:
            timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                list(engine.run_arrow(ENDLESS).batches if is_arrow else engine.run(ENDLESS).rows)
            assert time.monotonic() - began < 10
            assert rows(engine, "SELECT 1") == [(1,)]
    finally:
        signal.signal(signal.SIGINT, before)
