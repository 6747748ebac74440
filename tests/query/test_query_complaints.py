"""What is wrong with a query is said in one line, and shown in the query."""

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.query.histories import SITE, Archive, fact, page, rows

from sterna.errors import QueryError, UnknownTable
from sterna.query.engine import Engine


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    archive = Archive(tmp_path_factory.mktemp("archive"))
    data = '{"template": "clinic", "slots": {"name": "A", "beds": 3}}'
    archive.add([page("a", 1, title="A", text="word")], facts=[fact(data)])
    with Engine(archive.tables, extra={"site": pa.table({"site": [SITE]})}, time_limit_seconds=30) as opened:
        yield opened


@pytest.fixture(scope="module")
def empty() -> Iterator[Engine]:
    with Engine({}) as opened:
        yield opened


def complaint(engine: Engine, sql: str, **parameters: object) -> list[str]:
    with pytest.raises(QueryError) as caught:
        rows(engine, sql, **parameters)
    return str(caught.value).splitlines()


def test_misspelt_table_is_shown_with_those_that_are_there(engine: Engine) -> None:
    said, shown, mark = complaint(engine, "SELECT url FROM pagee")
    assert said == (
        'line 1, column 17: there is no table "pagee", did you mean "page"?;'
        " there are page, page_history, link, event, fact, site, clinic"
    )
    assert (shown, mark) == ("  SELECT url FROM pagee", "                  ^^^^^")


def test_only_a_missing_table_is_an_unknown_table(engine: Engine) -> None:
    with pytest.raises(UnknownTable):
        rows(engine, "SELECT url FROM pagee")
    with pytest.raises(QueryError, match="there is no table") as caught:
        rows(engine, "SELECT 'there is no table'::INTEGER")
    assert not isinstance(caught.value, UnknownTable)


def test_misspelt_column_is_shown_with_those_that_are_there(engine: Engine) -> None:
    said, shown, mark = complaint(engine, "SELECT url,\n  titel\nFROM page")
    assert said.startswith(
        'line 2, column 3: there is no column "titel", did you mean "title"?; page has url, site, status'
    )
    assert (shown, mark) == ("    titel", "    ^^^^^")


def test_misspelt_column_of_a_named_table_is_shown_too(engine: Engine) -> None:
    said, shown, mark = complaint(engine, "SELECT p.titel FROM page p")
    assert 'there is no column "titel", did you mean "title"?' in said
    assert mark.index("^") >= shown.index("p.titel")


def test_misspelt_slot_is_shown_with_those_of_its_template(engine: Engine) -> None:
    said, *_ = complaint(engine, "SELECT bed FROM clinic")
    assert 'no column "bed", did you mean "beds"?; clinic has name, beds, _crawler' in said


def test_syntax_error_is_marked(engine: Engine) -> None:
    said, shown, mark = complaint(engine, "SELEC url FROM page")
    assert said == 'line 1, column 1: syntax error at or near "SELEC"'
    assert (shown, mark) == ("  SELEC url FROM page", "  ^^^^^")


def test_mark_stands_below_the_place_behind_other_letters(engine: Engine) -> None:
    said, shown, mark = complaint(engine, "SELECT 'äöü日本', titel FROM page")
    assert said.startswith("line 1, column 17:")
    assert shown.index("titel") + len("日本") == mark.index("^")  # each takes two columns


def test_long_line_is_cut_around_the_place(engine: Engine) -> None:
    said, shown, mark = complaint(engine, f"SELECT {'url, ' * 200} titel, {'url, ' * 200} url FROM page")
    assert len(said) < 500
    assert len(shown) < 100
    assert shown[mark.index("^") :].startswith("titel")


def test_function_that_is_not_there_is_named(engine: Engine) -> None:
    said, shown, mark = complaint(engine, "SELECT lenght(text) FROM page")
    assert "lenght" in said
    assert shown[mark.index("^") :].startswith("lenght")


def test_failing_cast_quotes_the_page_harmlessly_and_briefly(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.add([page("a", 1, text="\x1b[31m" + "x" * 10_000)])
    with Engine(archive.tables) as engine:
        said = "\n".join(complaint(engine, "SELECT text::INTEGER FROM page"))
    assert "\x1b" not in said
    assert "\\x1b[31mxxx" in said
    assert "INT32" in said
    assert len(said) < 1_000


@given(st.text(max_size=60))
@settings(max_examples=12, deadline=None)
def test_no_query_disturbs_the_terminal_or_raises_anything_else(empty: Engine, text: str) -> None:
    for sql in (text, f'SELECT "{text}" FROM page', f"SELECT * FROM {text}"):
        try:
            rows(empty, sql)
        except QueryError as error:
            said = str(error)
            assert all(character.isprintable() or character in "\n\u200c\u200d" for character in said)
            assert said.count("\n") in (0, 2)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('/etc/*')",
        "SELECT * FROM read_json('/etc/passwd')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM read_csv('https://www.example.org/x.csv')",
        "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
        "SELECT * FROM sniff_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd.csv'",
        "SELECT * FROM 'https://www.example.org/x.parquet'",
        "SELECT count(*) FROM page, read_csv('/etc/passwd')",
    ],
)
def test_reading_files_is_refused_in_one_clear_line(engine: Engine, sql: str) -> None:
    said, *shown = complaint(engine, sql)
    assert "a query reads the tables of its collection and no files or addresses" in said
    assert len(said) < 300
    assert len(shown) in (0, 2)


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("COPY page TO '/tmp/out.csv'", "COPY"),
        ("ATTACH '/tmp/out.db'", "ATTACH"),
        ("INSTALL httpfs", "LOAD"),
        ("SET memory_limit = '10GB'", "SET"),
        ("SET enable_external_access = true", "SET"),
        ("PRAGMA enable_profiling", "PRAGMA"),
        ("CREATE TABLE t (a INT)", "CREATE"),
        ("DELETE FROM site", "DELETE"),
    ],
)
def test_whatever_does_not_read_is_refused_in_one_line(engine: Engine, sql: str, word: str) -> None:
    (said,) = complaint(engine, sql)
    assert "only SELECT and its like are allowed" in said
    assert word in said


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n FROM t) SELECT count(*) FROM t",
        "SELECT count(*) FROM range(1e12::BIGINT) a, range(1e6::BIGINT) b",
        "SELECT sum(length(repeat(a::VARCHAR, 50))) FROM range(1e12::BIGINT) t(a)",
    ],
)
def test_endless_query_ends_in_one_line(sql: str) -> None:
    with Engine({}, time_limit_seconds=0.3) as engine:
        began = time.monotonic()
        (said,) = complaint(engine, sql)
        assert time.monotonic() - began < 10
    assert said.startswith("stopped after 0.3 seconds: narrow the query")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT list(range) FROM range(100_000_000)",
        "SELECT count(DISTINCT md5(range::VARCHAR)) FROM range(100_000_000)",
        "SELECT count(*) FROM (SELECT md5(range::VARCHAR) AS h FROM range(100_000_000) ORDER BY h)",
    ],
)
def test_query_that_needs_too_much_memory_ends_in_one_line(sql: str) -> None:
    with Engine({}, memory_bytes=50_000_000) as engine:
        (said,) = complaint(engine, sql)
    assert said.startswith("the query needs more than the 0.05 GB of memory that it may use")


def test_parameters_must_be_those_of_the_query(engine: Engine) -> None:
    assert rows(engine, "SELECT url FROM page WHERE text = $word", word="word") == [(f"{SITE}/a",)]
    assert rows(engine, "SELECT count(*) FROM page WHERE text = $word", word="' OR true --") == [(0,)]
    assert complaint(engine, "SELECT $word") == [
        "the query needs a value for $word: set it with --set word=VALUE"
    ]
    assert complaint(engine, "SELECT $word", word="x", other="y") == [
        "the query has no parameter $other: it has $word"
    ]


@pytest.mark.parametrize("text", ["'; DROP TABLE site; --", '"; DELETE FROM site; --', "$1 {0} %s", "\\'"])
def test_texts_of_pages_are_never_sql(tmp_path: Path, text: str) -> None:
    archive = Archive(tmp_path)
    archive.add([page("a", 1, title=text, text=text)])
    archive.add([page("a", 2, title=text, text=text)], visit=text, crawler=text)
    with Engine(archive.tables, extra={"site": pa.table({"site": [text]})}) as engine:
        assert rows(engine, "SELECT title, visit, crawler FROM page") == [(text, text, text)]
        assert rows(engine, "SELECT page.text FROM page JOIN site ON page.title = site.site") == [(text,)]
        assert rows(engine, "SELECT count(*) FROM event") == [(1,)]
