"""Rows as JSON lines, CSV and Parquet: what other tools read back is what the collection answers."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.export.exported import export, page, source_of

from sterna.api.query import open_collection
from sterna.errors import EmptyCollection, UsageError
from sterna.export.progress import ExportProgress, Form
from sterna.export.tables import write_rows
from sterna.home.folder import CollectionFolder
from sterna.query.terminal import as_plain, as_text


def answer(folder: Path, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """What the collection itself says."""
    with open_collection(CollectionFolder(folder)) as engine:
        result = engine.run(sql)
        return result.columns, sorted(result.rows, key=repr)


@pytest.mark.servers
def test_jsonl_is_read_back_by_python_and_by_duckdb(real_collection: Path, tmp_path: Path) -> None:
    out = export(real_collection, "jsonl", tmp_path / "pages.jsonl")
    columns, expected = answer(real_collection, "SELECT * FROM page")
    objects = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(objects) == len(expected) > 50
    assert {tuple(each) for each in objects} == {tuple(columns)}
    plain = [[as_plain(value) for value in row] for row in expected]
    assert sorted([list(each.values()) for each in objects], key=repr) == sorted(plain, key=repr)
    longest = max(len(each["text"] or "") for each in objects)
    sql = f"SELECT count(DISTINCT url), max(length(text)) FROM read_json('{out}')"
    assert duckdb.execute(sql).fetchall() == [(len(objects), longest)]


@pytest.mark.servers
def test_csv_of_links_is_read_back_by_python(real_collection: Path, tmp_path: Path) -> None:
    out = export(real_collection, "csv", tmp_path / "links.csv", table="link")
    columns, expected = answer(real_collection, "SELECT * FROM link")
    with out.open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == columns
    assert len(rows) > 1_000
    assert sorted(rows) == sorted([[as_text(value) for value in row] for row in expected])


@pytest.mark.servers
def test_parquet_keeps_the_types(real_collection: Path, tmp_path: Path) -> None:
    out = export(real_collection, "parquet", tmp_path / "pages.parquet", where="status = 200")
    columns, expected = answer(real_collection, "SELECT * FROM page WHERE status = 200")
    table = pq.read_table(out)
    assert table.column_names == columns
    assert table.schema.field("fetched").type.tz == "UTC"
    found = sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)
    assert [row[0] for row in found] == [row[0] for row in expected]
    assert duckdb.execute(f"SELECT count(*) FROM '{out}'").fetchall() == [(len(expected),)]


@pytest.mark.servers
@pytest.mark.parametrize("table", ["page_history", "site", "visit", "event", "fact"])
def test_every_table_can_be_exported(real_collection: Path, tmp_path: Path, table: str) -> None:
    out = export(real_collection, "jsonl", tmp_path / "rows.jsonl", table=table)
    _, expected = answer(real_collection, f"SELECT * FROM {table}")
    assert len(out.read_text().splitlines()) == len(expected)


def written(form: Form, texts: list[str], *, safe_cells: bool = False) -> bytes:
    out = io.BytesIO()
    with source_of(*(page(f"/{number}", text=text) for number, text in enumerate(texts))) as source:
        count = write_rows(source, out, table="page", form=form, safe_cells=safe_cells)
    assert count == len(texts)
    return out.getvalue()


def test_safe_cells_put_an_apostrophe_before_formulas() -> None:
    rows = list(csv.DictReader(io.StringIO(written("csv", ["=1+1", "a=b"], safe_cells=True).decode())))
    assert [(row["text"], row["status"]) for row in rows] == [("'=1+1", "200"), ("a=b", "200")]


# No archive holds lone surrogates: they are replaced when a page is stored.
wild = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=100)


@settings(max_examples=10, deadline=None)
@given(wild)
def test_jsonl_carries_any_text(texts: list[str]) -> None:
    data = written("jsonl", texts)
    assert [json.loads(line)["text"] for line in data.split(b"\n")[:-1]] == texts


@settings(max_examples=10, deadline=None)
@given(wild)
def test_csv_carries_any_text(texts: list[str]) -> None:
    rows = csv.DictReader(io.StringIO(written("csv", texts).decode(), newline=""))
    assert [row["text"] for row in rows] == texts


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_progress_ends_at_its_total(form: Form) -> None:
    seen = ExportProgress()
    with source_of(
        *(page(f"/{number}") for number in range(250)), where="url LIKE '%1%'", progress=seen
    ) as source:
        count = write_rows(source, io.BytesIO(), table="page", form=form)
    assert count == seen.total == seen.done == sum("1" in str(number) for number in range(250))


@pytest.mark.parametrize("where", ["status = 200 -- and so on", "status = 200\n", "title IS NULL OR true"])
def test_condition_is_taken_as_a_whole(where: str) -> None:
    with source_of(page("/a"), page("/b", status=404), where=where) as source:
        assert [url for (url,) in source.rows("url", and_where="url LIKE '%/a'")] == [page("/a").url]


@pytest.mark.parametrize(
    "where", ["titel = 'x'", "status =", "1 = 1); SELECT (1", "url = 'x", "read_text('/etc/passwd') = ''"]
)
def test_wrong_condition_is_one_line(where: str) -> None:
    with source_of(page("/a"), where=where) as source, pytest.raises(UsageError) as caught:
        source.check()
    assert str(caught.value).startswith("--where: ")
    assert "\n" not in str(caught.value)


def test_unknown_table_is_one_line() -> None:
    with (
        source_of(page("/a")) as source,
        pytest.raises(UsageError, match=r"^--table birds: .*birds") as caught,
    ):
        source.check("birds")
    assert "\n" not in str(caught.value)


def test_empty_collection_says_so() -> None:
    with source_of() as source, pytest.raises(EmptyCollection, match="holds no pages yet"):
        write_rows(source, io.BytesIO(), table="page", form="csv")
