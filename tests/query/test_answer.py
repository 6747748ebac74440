"""A collection asked from Python."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from tests.crawl.running import crawl_here
from tests.servers.pages import PageServer, linking

import sterna
from sterna import Collection
from sterna.errors import NotACollection, QueryError

A = "127.0.5.8"


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    folder = tmp_path_factory.mktemp("answer") / "c"
    pages = {"/": linking("/1", "/2", title="Start"), "/1": "<title>One</title>", "/2": "<title>Two</title>"}
    with PageServer({A: pages}).run_in_thread() as server:
        crawl_here(folder, server.url(A))
    yield Collection(folder)


TITLES = "SELECT title, depth FROM page ORDER BY url"


def test_rows_are_dicts_of_pythons_own_values(collection: Collection) -> None:
    answer = collection.query(TITLES)
    assert answer.columns == ["title", "depth"]
    assert list(answer) == [
        {"title": "Start", "depth": 0},
        {"title": "One", "depth": 1},
        {"title": "Two", "depth": 1},
    ]
    (row,) = collection.query("SELECT fetched, [1, 2] AS l, MAP {'a': 1} AS m FROM page LIMIT 1")
    assert isinstance(row["fetched"], datetime)
    assert (row["l"], row["m"]) == ([1, 2], {"a": 1})


def test_values_of_every_type_of_duckdb_come_over(collection: Collection) -> None:
    """Some of Arrow's types may repeat values at will, and no frame has them: DuckDB sends none."""
    samples = (
        "true", "1::TINYINT", "1::UBIGINT", "1::HUGEINT", "1::UHUGEINT", "1::BIGNUM", "1.5::FLOAT",
        "1.5::DOUBLE", "1.50::DECIMAL(4, 2)", "1::DECIMAL(38, 0)", "NULL", "repeat('long', 99)",
        "'\\xAA'::BLOB", "'101'::BIT", "uuid()", "DATE '2026-01-02'", "TIME '01:02:03'",
        "TIMETZ '01:02:03+01'", "TIME_NS '01:02:03.000000001'", "TIMESTAMP '2026-01-02'",
        "TIMESTAMPTZ '2026-01-02'", "TIMESTAMP_S '2026-01-02'", "TIMESTAMP_MS '2026-01-02'",
        "TIMESTAMP_NS '2026-01-02'", "INTERVAL 3 DAY", "['a', NULL]", "[[1], []]", "[1, 2]::INTEGER[2]",
        "{'a': ['x']}", "MAP {'k': [1]}", "union_value(n := 1)", "'a'::ENUM('a', 'b')", "'[1]'::JSON",
    )  # fmt: skip
    columns = ", ".join(f"{sample} AS c{number}" for number, sample in enumerate(samples))
    found = collection.query(f"SELECT {columns} FROM range(3)").arrow()
    assert found.shape == (3, len(samples))


def test_rows_are_read_once_as_they_come(collection: Collection) -> None:
    answer = collection.query("SELECT range AS n FROM range(1_000_000_000)")
    rows = answer.rows()
    assert [next(rows)["n"], next(rows)["n"]] == [0, 1]
    with pytest.raises(QueryError, match="the rows were read already: run the query again"):
        answer.arrow()
    answer.close()


def test_arrow_keeps_the_rows(collection: Collection) -> None:
    answer = collection.query(TITLES)
    table = answer.arrow()
    assert isinstance(table, pa.Table)
    assert table.column("title").to_pylist() == ["Start", "One", "Two"]
    assert answer.arrow() is table
    assert [row["depth"] for row in answer] == [row["depth"] for row in answer.rows()] == [0, 1, 1]


def test_pandas_gives_the_same_rows(collection: Collection) -> None:
    pytest.importorskip("pandas")
    assert collection.query(TITLES).pandas()["title"].tolist() == ["Start", "One", "Two"]


def test_polars_gives_the_same_rows(collection: Collection) -> None:
    pytest.importorskip("polars")
    assert collection.query(TITLES).polars()["title"].to_list() == ["Start", "One", "Two"]


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_library_that_is_not_installed_is_named(
    collection: Collection, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(QueryError, match=f"{name} is not installed: pip install {name}"):
        getattr(collection.query(TITLES), name)()


def test_parameters_bounds_and_visits_are_as_in_the_command(collection: Collection) -> None:
    (visit,) = collection.query("SELECT visit FROM visit")
    sql = "SELECT count(*) AS n FROM page WHERE depth = $depth"
    assert list(collection.query(sql, {"depth": 1}, visit=visit["visit"])) == [{"n": 2}]
    with pytest.raises(QueryError, match=r"stopped after 0\.2 seconds"):
        collection.query(
            "SELECT count(*) FROM range(1e12::BIGINT) a, range(1e6::BIGINT)", seconds=0.2
        ).arrow()
    with pytest.raises(QueryError, match="GB of memory"):
        collection.query("SELECT list(range) FROM range(100_000_000)", memory_bytes=30_000_000).arrow()


def test_wrong_query_is_told_at_once(collection: Collection) -> None:
    with pytest.raises(QueryError, match="line 1, column 15: there is no table"):
        collection.query("SELECT * FROM pages")


def test_error_among_the_rows_is_told_when_it_comes(collection: Collection) -> None:
    # DuckDB computes about 1 MB of rows ahead of the reader: the wrong row lies far behind that.
    answer = collection.query(
        "SELECT CASE WHEN range < 5_000_000 THEN '1' ELSE title END::INTEGER AS n FROM range(5_000_001), page"
    )
    with pytest.raises(QueryError, match="Could not convert string"):
        answer.arrow()


def test_folder_that_is_no_collection_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotACollection, match="is not a collection"):
        Collection(tmp_path)


def test_import_of_the_package_loads_nothing_heavy() -> None:
    script = (
        "import sys, sterna\n"
        "sterna.Collection\n"
        "heavy = ('duckdb', 'pyarrow', 'pycurl', 'tantivy', 'sqlalchemy')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
    assert "Collection" in sterna.__all__
