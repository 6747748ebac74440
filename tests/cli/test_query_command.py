"""`sterna query`: formats, files, visits, crawlers' files, and what is refused."""

import io
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from tests.crawl.running import crawl_here, sterna
from tests.servers.pages import PageServer, linking
from tests.servers.plain import Reply

from sterna.cli import query as command
from sterna.crawler.facts import Fact, Symbol, encode
from sterna.crawler.pack import PackedCrawler, SavedProgress
from sterna.crawler.pack import encode as encode_crawler
from sterna.errors import QueryError, SpecError, UsageError
from sterna.model import Crawler, State, Target

A = "127.0.5.7"


def query(*, what: Path, sql: str | None = None, **options: Any) -> None:
    """The command in this process."""
    command.query([str(what), *([sql] if sql is not None else [])], **options)


class Site:
    """A small site that was crawled, changed, and crawled again."""

    def __init__(self, folder: Path, origin: str) -> None:
        self.folder = folder
        self.origin = origin

    def ask(self, sql: str, tmp_path: Path, **options: Any) -> list[dict[str, Any]]:
        out = tmp_path / "out.json"
        query(what=self.folder, sql=sql, out=out, form="json", **options)
        rows: list[dict[str, Any]] = json.loads(out.read_text())
        return rows


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("query") / "c"
    pages: dict[str, Any] = {"/": linking("/a", "/b", "/gone", title="Start"), "/b": "<title>B</title>"}
    pages["/a"] = [Reply(body=b"<title>old</title>"), Reply(body=b"<title>new</title>")]
    with PageServer({A: pages}).run_in_thread() as server:
        crawl_here(folder, server.url(A))
        crawl_here(folder, server.url(A), refresh=0.0)
        yield Site(folder, server.url(A, ""))


def test_each_format_holds_the_same_rows(site: Site, tmp_path: Path) -> None:
    sql = "SELECT url, title, status, fetched FROM page WHERE status = 200 ORDER BY url"
    for form in ("table", "csv", "json", "jsonl", "parquet"):
        query(what=site.folder, sql=sql, out=tmp_path / f"rows.{form}", form=form)
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["title"] for row in rows] == ["Start", "new", "B"]
    assert [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()] == rows
    with duckdb.connect() as db:
        read = db.execute(f"SELECT url, title, status FROM '{tmp_path}/rows.parquet'").fetchall()
    assert read == [(row["url"], row["title"], row["status"]) for row in rows]
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 4
    assert (tmp_path / "rows.table").read_text().endswith("(3 rows)\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"rows.{form}" for form in ("table", "csv", "json", "jsonl", "parquet")
    )


def test_parquet_holds_nested_columns_and_names_that_come_twice(site: Site, tmp_path: Path) -> None:
    sql = "SELECT url, url, headers, keywords, sum(size) OVER () AS bytes FROM page"
    query(what=site.folder, sql=sql, out=tmp_path / "rows.parquet", form="parquet")
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.column_names == ["url", "url_2", "headers", "keywords", "bytes"]
    assert table.num_rows == 4


@pytest.mark.servers
def test_parquet_goes_into_a_pipe(site: Site) -> None:
    result = sterna("query", site.folder, "SELECT 1 AS n", "--format", "jsonl")
    assert result.stdout == '{"n": 1}\n'
    command = ["query", str(site.folder), "SELECT url FROM page", "--format", "parquet"]
    assert pq.read_table(io.BytesIO(_raw(*command))).num_rows == 4


def _raw(*words: str) -> bytes:
    from tests.crawl.running import COMMAND  # noqa: PLC0415

    return subprocess.run([*COMMAND, *words], capture_output=True, check=True).stdout


def test_failed_query_leaves_what_was_there(site: Site, tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    out.write_text("before")
    with pytest.raises(QueryError):
        query(what=site.folder, sql="SELECT title::INTEGER FROM page", out=out, form="csv")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]
    assert out.read_text() == "before"
    with pytest.raises(UsageError, match=r"cannot write .*: the folder .* does not exist"):
        query(what=site.folder, sql="SELECT 1", out=tmp_path / "no" / "rows.csv", form="csv")


def test_rows_go_into_devices_and_pipes_which_are_not_replaced(site: Site, tmp_path: Path) -> None:
    null, pipe, rows = tmp_path / "null", tmp_path / "pipe", tmp_path / "rows"
    null.symlink_to("/dev/null")
    os.mkfifo(pipe)
    query(what=site.folder, sql="SELECT 1 AS n", out=null, form="csv")
    assert null.is_char_device()
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        query(what=site.folder, sql="SELECT 1 AS n", out=pipe, form="csv")
        assert reader.communicate(timeout=20)[0] == b"n\n1\n"
    assert pipe.is_fifo()
    with rows.open("wb") as file:  # what /dev/stdout is, after a shell's `> rows`
        descriptor = tmp_path / "descriptor"
        descriptor.symlink_to(f"/proc/self/fd/{file.fileno()}")
        query(what=site.folder, sql="SELECT 1 AS n", out=descriptor, form="csv")
    assert descriptor.is_symlink()
    assert rows.read_text() == "n\n1\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["descriptor", "null", "pipe", "rows"]


def test_link_to_a_file_is_replaced_and_the_file_stays(site: Site, tmp_path: Path) -> None:
    mine, out = tmp_path / "mine", tmp_path / "out"
    mine.write_text("mine")
    for name in ("out", "out.new"):
        (tmp_path / name).symlink_to(mine)
    query(what=site.folder, sql="SELECT 1 AS n", out=out, form="csv")
    assert (out.read_text(), out.is_symlink(), mine.read_text()) == ("n\n1\n", False, "mine")


def test_socket_and_folder_are_not_written(site: Site, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "socket"))
        for out in (tmp_path / "socket", tmp_path):
            with pytest.raises(UsageError, match=r"name a file"):
                query(what=site.folder, sql="SELECT 1", out=out, form="csv")
        assert (tmp_path / "socket").is_socket()


def test_query_and_its_values_can_come_from_outside(site: Site, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("-- a comment\nSELECT title FROM page WHERE title = $word")
    out = tmp_path / "rows.csv"
    query(what=site.folder, file=tmp_path / "q.sql", values=["word=new"], out=out, form="csv")
    assert out.read_text() == "title\nnew\n"
    with pytest.raises(QueryError, match=r"needs a value for \$word"):
        query(what=site.folder, file=tmp_path / "q.sql", out=out, form="csv")
    with pytest.raises(UsageError, match=r"cannot read --file .*: No such file"):
        query(what=site.folder, file=tmp_path / "gone.sql")
    with pytest.raises(UsageError, match="write it as NAME=VALUE"):
        query(what=site.folder, sql="SELECT 1", values=["word"])
    for both in ({}, {"sql": "SELECT 1", "file": tmp_path / "q.sql"}):
        with pytest.raises(UsageError, match="give the query either as SQL or by --file"):
            query(what=site.folder, **both)  # type: ignore[arg-type]


def test_visit_shows_what_one_crawler_brought(site: Site, tmp_path: Path) -> None:
    visits = site.ask("SELECT visit FROM visit ORDER BY began", tmp_path)
    assert len(visits) == 2
    first, second = (each["visit"] for each in visits)
    assert len(site.ask("SELECT * FROM page", tmp_path, visit=first)) == 4
    (changed,) = site.ask("SELECT url, title FROM page WHERE status = 200", tmp_path, visit=second)
    assert changed == {"url": f"{site.origin}/a", "title": "new"}
    assert site.ask("SELECT visit FROM visit", tmp_path, visit=second) == [{"visit": second}]
    assert site.ask("SELECT kind FROM event", tmp_path, visit=second) == [{"kind": "updated"}]
    assert len(site.ask("SELECT * FROM link", tmp_path, visit=first)) == 3
    with pytest.raises(UsageError, match="unknown visit 'nobody': the table visit lists them"):
        query(what=site.folder, sql="SELECT 1", visit="nobody")


def test_events_tell_what_became_of_the_pages(site: Site, tmp_path: Path) -> None:
    events = site.ask(
        "SELECT url, kind, digest_before IS NULL AS is_first FROM event ORDER BY fetched, url", tmp_path
    )
    assert [(event["url"].removeprefix(site.origin), event["kind"]) for event in events][-1] == (
        "/a",
        "updated",
    )
    assert sorted(event["kind"] for event in events) == ["created", "created", "created", "updated"]


def test_crawlers_file_is_asked_in_the_same_way(tmp_path: Path) -> None:
    first = encode(Fact("topic", slots=(("word", "tern"), ("least", 3))))
    kept = encode(Fact("seen", values=("x", Symbol("y"))))
    progress = SavedProgress(
        state=State(((7, kept),)), frontier=(Target("https://a.example/", 2, "https://b.example/"),)
    )
    path = tmp_path / "health.crawler"
    packed = PackedCrawler(crawler=Crawler(name="health", facts=(first,)), progress=progress)
    path.write_bytes(encode_crawler(packed))
    asked = Site(path, "")
    assert asked.ask("SELECT word, least, _kind, _crawler FROM topic", tmp_path) == [
        {"word": "tern", "least": 3, "_kind": "first", "_crawler": "health"}
    ]
    assert asked.ask("SELECT value_1, value_2, _kind FROM seen", tmp_path) == [
        {"value_1": "x", "value_2": "y", "_kind": "own"}
    ]
    assert asked.ask("SELECT * FROM target", tmp_path) == [
        {"url": "https://a.example/", "depth": 2, "priority": 0, "referrer": "https://b.example/"}
    ]
    with pytest.raises(UsageError, match="a crawler's file contains no visits"):
        query(what=path, sql="SELECT 1", visit="v")
    (tmp_path / "bad.crawler").write_bytes(b"nothing")
    with pytest.raises(SpecError, match="is not a crawler file"):
        query(what=tmp_path / "bad.crawler", sql="SELECT 1")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"memory": "much"}, "--memory much is invalid: a size"),
        ({"memory": "5"}, "10MB at least"),
        ({"seconds": 0.0}, "--seconds 0 is invalid"),
        ({"seconds": float("nan")}, "--seconds nan is invalid"),
    ],
)
def test_bounds_must_make_sense(site: Site, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        query(what=site.folder, sql="SELECT 1", **options)


def test_bounds_are_held(site: Site, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"stopped after 0\.2 seconds"):
        site.ask("SELECT count(*) FROM range(1e12::BIGINT) a, range(1e6::BIGINT) b", tmp_path, seconds=0.2)
    with pytest.raises(QueryError, match=r"more than the 0\.02 GB of memory"):
        site.ask("SELECT list(range) FROM range(100_000_000)", tmp_path, memory="20MB")


@pytest.mark.servers
def test_wrong_query_is_a_line_and_its_place_and_code_2(site: Site) -> None:
    result = sterna("query", site.folder, "SELECT titel FROM page")
    said, shown, mark = result.stderr.splitlines()
    assert (result.returncode, result.stdout) == (2, "")
    assert said.startswith('sterna: line 1, column 8: there is no column "titel", did you mean "title"?')
    assert (shown, mark) == ("  SELECT titel FROM page", "         ^^^^^")


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_text_that_grows_beyond_the_memory_ends_the_query(site: Site, tmp_path: Path, form: Any) -> None:
    """Such a text is not among what DuckDB counts."""
    sql = f"SELECT repeat('{'x' * 100}', 30_000_000) AS text"
    with pytest.raises(QueryError, match=r"more than the 0\.1 GB of memory"):
        query(what=site.folder, sql=sql, out=tmp_path / "out", form=form, memory="100MB")


def test_safe_cells_are_for_csv(site: Site, tmp_path: Path) -> None:
    out, sql = tmp_path / "rows.csv", "SELECT '=1+1' AS \"=n\", -5 AS five"
    query(what=site.folder, sql=sql, out=out, form="csv", safe_cells=True)
    assert out.read_text() == "'=n,five\n'=1+1,-5\n"
    for form in ("table", "json", "jsonl", "parquet"):
        with pytest.raises(
            UsageError, match=f"--safe-cells goes with --format csv, not with --format {form}"
        ):
            query(what=site.folder, sql=sql, out=out, form=form, safe_cells=True)
    shown = sterna("query", site.folder, sql, "--format", "csv", "--safe-cells")
    assert shown.stdout == "'=n,five\n'=1+1,-5\n"
