"""The quick ways into PostgreSQL leave what the command's own statement, row after row, would have left."""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from tests.servers.postgres import PostgresServer
from tests.storage.places import PostgresPlace
from tests.storage.stock import Stock, page, pages

from sterna.query.engine import Engine
from sterna.storage import chunks
from sterna.storage.commands import SqlCommand
from sterna.storage.postgres import Copier, ManyInserter
from sterna.storage.rows import ColumnRows
from sterna.storage.statements import statements_of

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
TEXTS = ["", 'a"b', "x\ny", "\\.", "a\n\\.\nb", "ü€😀", "a,b", "\\N", "NULL", " ", "\r", "\t", '"', "''"]
# As DuckDB writes them; the first column is the row's number.
SIMPLE = [
    *(f"({number}, '{text.replace(chr(39), chr(39) * 2)}', 1, true, 0.5, now(), current_date)"
      for number, text in enumerate(TEXTS)),
    "(20, NULL, NULL, NULL, NULL, NULL, NULL)",
    "(21, 'a', 9223372036854775807, false, 'inf', '2026-01-02 03:04:05.000678+00', '9999-12-31')",
    "(22, 'a', -9223372036854775808, false, '-inf', '0001-01-01 00:00:00+00', '0001-01-01')",
    "(23, 'a', 0, false, 'nan', '9999-12-31 23:59:59.999999+00', '1969-12-31')",
    "(24, 'a', 0, false, 5e-324, '1969-12-31 23:59:59.999999+00', '2000-02-29')",
    "(25, 'a', 0, false, -0.0, NULL, NULL)",
    "(26, 'a', 0, false, 1.7976931348623157e308, NULL, NULL)",
    "(27, 'a', 0, false, 0.1::DOUBLE + 0.2::DOUBLE, NULL, NULL)",
]  # fmt: skip
FAR = [
    "(30, 'a', 0, false, 0, '20000-01-01 00:00:00+00', '20000-01-01')",
    "(31, 'a', 0, false, 0, '0044-03-15 (BC) 00:00:00+00', NULL)",
    "(32, 'a', 0, false, 0, 'infinity', 'infinity')",
    "(33, 'a', 0, false, 0, '-infinity', '-infinity')",
]
TABLE = "(n int, s text, i bigint, b bool, d float8, ts timestamptz, da date)"
TYPES = ["INTEGER", "VARCHAR", "BIGINT", "BOOLEAN", "DOUBLE", "TIMESTAMPTZ", "DATE"]

pytestmark = pytest.mark.servers


def query_of(values: Sequence[str]) -> str:
    names = ("n", "s", "i", "b", "d", "ts", "da")
    columns = ", ".join(f"{name}::{kind} AS {name}" for name, kind in zip(names, TYPES, strict=True))
    rows = " UNION ALL ".join(
        f"SELECT {columns} FROM (VALUES {value}) AS v(n, s, i, b, d, ts, da)" for value in values
    )
    return f"SELECT * FROM ({rows}) ORDER BY n"


@pytest.fixture
def place(postgres: PostgresServer) -> PostgresPlace:
    return PostgresPlace(postgres)


@pytest.fixture
def connection(place: PostgresPlace) -> Iterator[Connection]:
    engine = create_engine(place.url)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.fixture
def reads_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries run in this process, where a test can change how."""
    monkeypatch.setattr(
        "sterna.storage.sink.read_chunks", lambda _, *given, **named: chunks.read_chunks(*given, **named)
    )


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, reads_here: None) -> list[int]:
    """How many rows were written in columns, time after time; all queries are asked over all batches."""
    counts: list[int] = []
    as_csv = ColumnRows.as_csv

    def counted(rows: ColumnRows, places: Sequence[int]) -> memoryview:
        counts.append(len(rows))
        return as_csv(rows, places)

    monkeypatch.setattr(ColumnRows, "as_csv", counted)
    monkeypatch.setattr(chunks, "is_by_row", lambda _: True)
    return counts


def store_both_ways(stock: Stock, place: PostgresPlace, query: str, columns: str) -> None:
    """Into `quick` by the plain INSERT, and into `slow` row after row: two statements are never quick."""
    store_all_both_ways(stock, place, {"": query}, columns)


def store_all_both_ways(stock: Stock, place: PostgresPlace, queries: Mapping[str, str], columns: str) -> None:
    """The same with several queries, each by what its tables have behind their names."""
    names = ", ".join(f":{name.strip()}" for name in columns.split(","))
    rules = f'[connections.main]\nurl = "{place.url}"\n'
    for end, query in queries.items():
        rules += f"""
[commands.Quick{end}]
connection = "main"
sql = "INSERT INTO quick{end} ({columns}) VALUES ({names})"
[commands.Slow{end}]
connection = "main"
sql = ["INSERT INTO slow{end} ({columns}) VALUES ({names})", "SELECT 1"]
[[rules.quick.store]]
query = {json.dumps(query, ensure_ascii=False)}
commands = ["Quick{end}"]
[[rules.slow.store]]
query = {json.dumps(query, ensure_ascii=False)}
commands = ["Slow{end}"]
"""
    stock.rules(rules)
    for standing in stock.store():
        assert standing.error == ""


def both(place: PostgresPlace, end: str = "") -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """What is in both tables, as text: Python has no time for some of it."""
    one, other = (place.run(f"SELECT t::text FROM {name}{end} AS t") for name in ("quick", "slow"))
    return one, other


# -- columns -------------------------------------------------------------------------------------------------


def test_columns_arrive_as_rows_do(stock: Stock, place: PostgresPlace, written: list[int]) -> None:
    place.run(f"CREATE TABLE quick {TABLE}", f"CREATE TABLE slow {TABLE}")
    stock.put(pages(0, 1))
    store_both_ways(stock, place, query_of(SIMPLE), "n, s, i, b, d, ts, da")
    quick, slow = both(place)
    # now() is that of the query, and each rule has its own.
    assert len(quick) == len(slow) == len(SIMPLE)
    assert quick[len(TEXTS) :] == slow[len(TEXTS) :]
    texts = place.run("SELECT s FROM quick WHERE n <= 20 ORDER BY n")
    assert [text for (text,) in texts] == [*TEXTS, None]
    assert written == [len(SIMPLE)]


def test_only_column_may_be_null_empty_or_look_like_an_end(
    stock: Stock, place: PostgresPlace, written: list[int]
) -> None:
    place.run("CREATE TABLE quick (s text)", "CREATE TABLE slow (s text)")
    stock.put(pages(0, 1))
    query = query_of([*SIMPLE[: len(TEXTS)], "(20, NULL, 1, NULL, NULL, NULL, NULL)"])
    store_both_ways(stock, place, query, "s")
    found = [text for (text,) in place.run("SELECT s FROM quick")]
    assert (found, written) == ([*TEXTS, None], [len(TEXTS) + 1])
    assert place.run("SELECT s FROM slow") == [(text,) for text in found]


def test_times_that_python_lacks_arrive_as_rows_do(
    stock: Stock, place: PostgresPlace, written: list[int]
) -> None:
    place.run(f"CREATE TABLE quick {TABLE}", f"CREATE TABLE slow {TABLE}")
    stock.put(pages(0, 1))
    store_both_ways(stock, place, query_of([*SIMPLE[len(TEXTS) :], *FAR]), "n, s, i, b, d, ts, da")
    quick, slow = both(place)
    assert quick == slow
    assert "20000-01-01" in str(quick)
    assert written == []


# Values of DuckDB, and the types of columns that PostgreSQL turns them into.
TURNED = [
    ("'3f2504e0-4f89-11d3-9a0c-0305e82c3301'::UUID", "text"),
    ("'3f2504e0-4f89-11d3-9a0c-0305e82c3301'::UUID", "uuid"),
    ("170141183460469231731687303715884105727", "numeric"), ("0.1::FLOAT", "float8"),
    ("1.50::DECIMAL(5, 2)", "numeric"), ("['a', NULL]", "text[]"), ("MAP {'a': 'b'}", "jsonb"),
    ("'{}'::JSON", "json"), ("'ab'::BLOB", "bytea"), ("TIME '01:02:03'", "time"),
    ("'a'::ENUM ('a')", "text"), ("TIMESTAMP '2026-01-02 03:04:05'", "timestamp"), ("NULL", "int"),
    ("TIMESTAMPTZ '2026-01-02 03:04:05+00'", "text"), ("TIMESTAMPTZ '2026-01-02 03:04:05+00'", "date"),
    ("0.1::DOUBLE", "text"), ("0.1::DOUBLE", "numeric"), ("0.1::DOUBLE", "real"), ("1", "text"),
    ("1", "float8"), ("2.5::DOUBLE", "int"), ("true", "text"), ("DATE '2026-01-02'", "timestamptz"),
    ("'17'", "int"), ("18446744073709551615::UBIGINT", "numeric"), ("'2026-01-02'", "timestamptz"),
    ("'[1]'", "jsonb"), ("'abc '", "char(5)"), ("'{1,2}'", "int[]"),
]  # fmt: skip


def test_value_of_any_type_arrives_as_by_rows(stock: Stock, place: PostgresPlace) -> None:
    for number, (_, kind) in enumerate(TURNED):
        place.run(*(f"CREATE TABLE {name}{number} (url text, v {kind})" for name in ("quick", "slow")))
    stock.put(pages(0, 20))
    queries = {str(number): f"SELECT url, {value} AS v FROM page" for number, (value, _) in enumerate(TURNED)}
    store_all_both_ways(stock, place, queries, "url, v")
    for number, turned in enumerate(TURNED):
        quick, slow = both(place, str(number))
        assert (len(quick), sorted(quick)) == (20, sorted(slow)), turned


def test_parameters_go_to_their_columns_whatever_the_order(
    stock: Stock, place: PostgresPlace, written: list[int]
) -> None:
    for name in ("quick", "slow"):
        place.run(f"CREATE TABLE {name} (size int, id serial, url text)")
    stock.put(pages(0, 30))
    store_both_ways(stock, place, "SELECT title, url, size FROM page", "size, url")
    quick, slow = both(place)
    assert (quick, len(quick), written) == (slow, 30, [30])


def test_row_with_nul_waits_alone(stock: Stock, place: PostgresPlace, written: list[int]) -> None:
    place.run("CREATE TABLE quick (url text, v text)", "CREATE TABLE slow (url text, v text)")
    stock.put(pages(0, 30))
    query = "SELECT url, CASE WHEN size = 17 THEN 'a' || chr(0) ELSE title END AS v FROM page"
    store_both_ways(stock, place, query, "url, v")
    quick, slow = both(place)
    assert (len(quick), sorted(quick), written) == (29, sorted(slow), [30])
    waiting = place.run("SELECT row_json, error FROM sterna_waiting ORDER BY rule")
    assert len(waiting) == 2
    assert waiting[0] == waiting[1]


@pytest.mark.usefixtures("reads_here")
def test_many_pieces_and_a_refused_row_in_each(
    stock: Stock, place: PostgresPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 40)
    monkeypatch.setattr(chunks, "_FETCHED_ROWS", 20)
    for name in ("quick", "slow"):
        place.run(f"CREATE TABLE {name} (url text, size int CHECK (size % 40 <> 7))")
    stock.put(pages(0, 200))
    store_both_ways(stock, place, "SELECT url, size FROM page", "url, size")
    quick, slow = both(place)
    assert (len(quick), sorted(quick)) == (195, sorted(slow))
    stored = place.run("SELECT rule, stored FROM sterna_storage ORDER BY rule")
    assert stored == [("quick", 195), ("slow", 195)]


def test_database_of_another_encoding_gets_its_texts(
    stock: Stock, postgres: PostgresServer, written: list[int]
) -> None:
    database = postgres.new_database()
    postgres.run("postgres", f"ALTER DATABASE {database} SET client_encoding = 'LATIN1'")
    postgres.run(database, "CREATE TABLE quick (title text)", "CREATE TABLE slow (title text)")
    stock.put([page(number, title=f"ü{number}") for number in range(20)])
    place = PostgresPlace(postgres)
    place.url = postgres.url(database)
    store_both_ways(stock, place, "SELECT title FROM page", "title")
    for name in ("quick", "slow"):
        found = postgres.run(database, "SET client_encoding = 'UTF8'", f"SELECT title FROM {name}")
        assert sorted(found) == sorted((f"ü{number}",) for number in range(20))
    assert written == []


def test_rows_of_columns_are_those_of_duckdb(stock: Stock) -> None:
    stock.put(pages(0, 1))
    query = query_of([*SIMPLE, *FAR]).replace("now()", "TIMESTAMPTZ '2026-01-02 03:04:05+00'")
    with Engine(stock.collection.snapshot().tables) as engine:
        expected = list(engine.run(query).rows)
        found = engine.run_arrow(query)
        rows = ColumnRows(pa.Table.from_batches(list(found.batches)))
    # NaN is not equal to itself, and the zone must be the same too.
    assert repr(list(rows)) == repr(expected)
    assert (len(rows), repr(rows[0]), repr(rows[3:5])) == (
        len(expected),
        repr(expected[0]),
        repr(expected[3:5]),
    )


# -- many rows in one statement ------------------------------------------------------------------------------


def outcome(connection: Connection, sql: str, rows: Sequence[tuple[Any, ...]], *, at_once: bool) -> object:
    """What is in the table `t` afterwards, or what the database said; nothing of it stays."""
    columns = [f"p{number}" for number in range(len(rows[0]))]
    command = SqlCommand("Add", statements_of(sql))
    transaction = connection.begin()
    try:
        for some in [rows] if at_once else [[row] for row in rows]:
            command.run(connection, columns, some)
        return connection.exec_driver_sql("SELECT t::text FROM t ORDER BY ctid").fetchall()
    except DBAPIError as error:
        return getattr(error.orig, "sqlstate", None)
    except Exception as error:
        return getattr(error, "sqlstate", None) or getattr(error.__cause__, "sqlstate", None)
    finally:
        transaction.rollback()


KINDS = [
    "text", "varchar(3)", "char(5)", "int", "smallint", "bigint", "numeric", "numeric(4,1)", "float8",
    "real", "bool", "timestamptz", "timestamp", "date", "json", "jsonb", "uuid", "bytea", "text[]", "int[]",
    "mood", "inet", "small",
]  # fmt: skip
VALUES: list[Any] = [
    "a", "abcdef", "17", "1.25", "true", "2026-01-02", "2026-01-02 03:04:05+02", '{"a": 1}', "{1,2}",
    "{a,b}", "sad", "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "10.0.0.1", "", 1, 40_000, 2**40, 2**70, -1,
    0.1, float("nan"), True, MOMENT, MOMENT.replace(tzinfo=None), date(2026, 1, 2), Decimal("1.25"),
    uuid.UUID(int=5), b"ab", ["a", None], [1, 2], [], None,
]  # fmt: skip


@pytest.fixture
def stored_many(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether many rows went in by one statement, time after time; COPY is out of the way."""
    said: list[bool] = []
    store = ManyInserter.store

    def told(way: ManyInserter, *given: Any) -> bool:
        said.append(store(way, *given))
        return said[-1]

    monkeypatch.setattr(ManyInserter, "store", told)
    monkeypatch.setattr(Copier, "store", lambda *_: False)
    return said


@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_have_the_types_of_one(
    place: PostgresPlace, connection: Connection, stored_many: list[bool], kind: str
) -> None:
    place.run(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN small AS int CHECK (VALUE < 100)",
        f"CREATE TABLE t (v {kind})",
    )
    for value in (":p0", "coalesce(:p0, null)", ":p0::text", "lower(:p0)"):
        sql = f"INSERT INTO t (v) VALUES ({value}) ON CONFLICT DO NOTHING"
        for each in VALUES:
            one = outcome(connection, sql, [(each,)], at_once=False)
            stored_many.clear()
            many = outcome(connection, sql, [(each,)] * 9, at_once=True)
            assert many == (one * 9 if isinstance(one, list) else one), (value, each)
            assert stored_many == [True] or not isinstance(one, list), (value, each)


@pytest.mark.parametrize("kind", ["text", "numeric", "float8", "bigint"])
def test_rows_of_mixed_types_are_each_taken_by_themselves(
    place: PostgresPlace, connection: Connection, stored_many: list[bool], kind: str
) -> None:
    place.run(f"CREATE TABLE t (v {kind})")
    rows = [(each,) for each in (1, "2", 2.5, None, 2**40, Decimal("3.50"), "7", 40_000, 1.0)]
    sql = "INSERT INTO t (v) VALUES (:p0) ON CONFLICT DO NOTHING"
    slow = outcome(connection, sql, rows, at_once=False)
    assert outcome(connection, sql, rows, at_once=True) == slow
    if isinstance(slow, list):
        assert stored_many == [True]


def test_many_rows_keep_their_order_and_their_numbers(
    place: PostgresPlace, connection: Connection, stored_many: list[bool]
) -> None:
    place.run(
        "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY, url text UNIQUE, low text,"
        " twice int GENERATED ALWAYS AS (length(url) * 2) STORED, at timestamptz DEFAULT now())"
    )
    rows = [(f"Url {number % 900}", number) for number in range(2_345)]
    sql = "INSERT INTO t (url, low) VALUES (:p0, lower(:p0) || :p1) ON CONFLICT (url) DO NOTHING"
    query = "SELECT id, url, low, twice FROM t ORDER BY id"
    found = []
    for at_once in (True, False):
        with connection.begin():
            connection.exec_driver_sql("TRUNCATE t RESTART IDENTITY")
            command = SqlCommand("Add", statements_of(sql))
            for some in [rows] if at_once else [[row] for row in rows]:
                command.run(connection, ["p0", "p1"], some)
            found.append(connection.exec_driver_sql(query).fetchall())
    assert found[0] == found[1]
    assert (len(found[0]), stored_many) == (900, [True])


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(
            ("CREATE TRIGGER later AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION note()",), id="trigger"
        ),
        pytest.param(("CREATE RULE also AS ON INSERT TO t DO ALSO INSERT INTO log SELECT 1",), id="rule"),
        pytest.param(("ALTER TABLE t ADD c bigint DEFAULT counted()",), id="default"),
        pytest.param(("ALTER TABLE t ADD CHECK (counted() < 1000)",), id="check"),
        pytest.param(("ALTER TABLE t ADD UNIQUE (v), ADD up text REFERENCES t (v)",), id="reference"),
        pytest.param(("ALTER TABLE t RENAME TO u", "CREATE VIEW t AS SELECT v FROM u"), id="view"),
        pytest.param(("DROP TABLE t", "CREATE TABLE t (v text) PARTITION BY LIST (v)",
                      "CREATE TABLE u PARTITION OF t DEFAULT"), id="partitions"),
    ],
)  # fmt: skip
def test_tables_where_rows_may_see_each_other_get_one_after_the_other(
    place: PostgresPlace, connection: Connection, stored_many: list[bool], more: tuple[str, ...]
) -> None:
    place.run(
        "CREATE TABLE t (v text)",
        "CREATE TABLE log (n bigint)",
        "CREATE FUNCTION counted() RETURNS bigint LANGUAGE plpgsql AS"
        " $$BEGIN RETURN (SELECT count(*) FROM log); END$$",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN INSERT INTO log SELECT count(*) FROM t; RETURN NEW; END$$",
        *more,
    )
    command = SqlCommand("Add", statements_of("INSERT INTO t (v) VALUES (lower(:v))"))
    with connection.begin():
        command.run(connection, ["v"], [(str(number),) for number in range(20)])
    assert stored_many == [False]
    assert place.run("SELECT count(*) FROM t") == [(20,)]
    if "TRIGGER" in more[0]:
        assert sorted(place.run("SELECT n FROM log")) == [(number,) for number in range(1, 21)]


def test_rows_of_many_that_are_refused_wait_alone(stock: Stock, place: PostgresPlace) -> None:
    place.run("CREATE TABLE t (url text, size int CHECK (size % 100 <> 7))")
    stock.put(pages(0, 1_234))
    stock.rules(f"""
[connections.main]
url = "{place.url}"
[commands.Add]
connection = "main"
sql = "INSERT INTO t (url, size) VALUES (lower(:url), :size) ON CONFLICT DO NOTHING"
[rules.pages]
[[rules.pages.store]]
query = "SELECT url, size FROM page"
commands = ["Add"]
""")
    (standing,) = stock.store()
    assert (standing.error, standing.stored, standing.waiting) == ("", 1_221, 13)
    assert place.run("SELECT count(*), count(DISTINCT url) FROM t") == [(1_221, 1_221)]


def test_statement_takes_no_more_parameters_than_postgres_does(
    place: PostgresPlace, connection: Connection, stored_many: list[bool]
) -> None:
    columns = [f"c{number}" for number in range(200)]
    place.run(f"CREATE TABLE t ({', '.join(f'{each} int' for each in columns)})")
    sql = f"INSERT INTO t VALUES ({', '.join(f':{each}' for each in columns)}) ON CONFLICT DO NOTHING"
    with connection.begin():
        SqlCommand("Add", statements_of(sql)).run(connection, columns, [tuple(range(200))] * 700)
    assert place.run("SELECT count(*), min(c199) FROM t") == [(700, 199)]
    assert stored_many == [True]
