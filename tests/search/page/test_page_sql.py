"""The SQL page of `sterna serve`: its answers, its bounds, and how it looks in a browser."""

import csv
import io
import json
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest
from tests.crawl.running import crawl_here
from tests.search.page.serving import address_in, serving
from tests.servers.browser import NARROW, is_within_the_window, open_browser, open_window, take_picture
from tests.servers.pages import PageServer, linking

from sterna.search.page.html import Face
from sterna.search.page.sql import Queries, SqlBounds, Table
from sterna.search.page.sql_html import EXAMPLES, sql_page
from sterna.web.http_app import HttpError

pytestmark = pytest.mark.servers
A = "127.0.5.1"
HOSTILE = "<script>alert(1)</script> \u202eevil =cmd()"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pages = {f"/{n}": f"<title>Page {n}</title><p>tern number {n}" for n in range(1, 8)}
    pages["/x"] = f"<title>{HOSTILE.replace('<', '&lt;')}</title>"
    folder = tmp_path_factory.mktemp("sql") / "terns"
    with PageServer({A: {"/": linking(*pages, "/gone"), **pages}}).run_in_thread() as server:
        crawl_here(folder, server.url(A))
    return folder


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    with serving(folder) as (_, line):
        yield address_in(line)


def get(site: str, path: str, **query: str) -> tuple[int, str, dict[str, str]]:
    url = f"{site}{path}" + (f"?{urlencode(query)}" if query else "")
    try:
        with urllib.request.urlopen(url) as reply:
            return reply.status, reply.read().decode(), {k.lower(): v for k, v in reply.headers.items()}
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), {}


def test_page_lists_tables_with_rows_and_columns_and_examples_that_run(site: str) -> None:
    status, text, headers = get(site, "/sql")
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "<script" not in text
    for words in (">page</a> <span>10 rows</span>", ">link</a>", "status <i>smallint", "Dead links"):
        assert words in text
    for _, sql in EXAMPLES:
        assert get(site, "/sql", sql=sql)[0] == 200, sql


def test_page_of_several_collections_lists_each_column_of_the_joined_tables_once(
    folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    with serving(folder, str(other)) as (_, line):
        status, text, _ = get(address_in(line), "/sql")
    assert status == 200
    tables = text.split("<dt>")[1:]
    assert len(tables) > 5
    for table in tables:
        columns = re.findall(r"([^ >,]+) <i>", table)
        assert len(columns) == len(set(columns)), table
        assert columns[0] == "collection"


def test_rows_are_shown_with_links_to_csv_and_json(site: str) -> None:
    sql = "SELECT url, title, depth FROM page WHERE title LIKE 'Page%' ORDER BY url"
    status, text, _ = get(site, "/sql", sql=sql)
    assert status == 200
    assert "7 rows" in text
    assert '<td class="number">1</td>' in text
    links = {kind: unescape(text.split(f'href="/sql.{kind}')[1].split('"')[0]) for kind in ("csv", "json")}
    rows = list(csv.DictReader(io.StringIO(get(site, f"/sql.csv{links['csv']}")[1])))
    again = json.loads(get(site, f"/sql.json{links['json']}")[1])["rows"]
    wanted = [f"Page {n}" for n in range(1, 8)]
    assert [row["title"] for row in rows] == [row["title"] for row in again] == wanted


def test_what_comes_from_pages_is_escaped(site: str) -> None:
    _, text, _ = get(site, "/sql", sql="SELECT title FROM page WHERE url LIKE '%/x'")
    assert "&lt;script&gt;alert(1)" in text
    assert "\u202e" not in text
    _, text, _ = get(site, "/sql", sql="SELECT '</textarea><script>x' AS \"<b>\"")
    assert "<script>x" not in text
    assert "<b>" not in text


@pytest.mark.parametrize(
    ("sql", "status", "words"),
    [
        ("SELEC url", 400, "SELEC"),
        ("SELECT titel FROM page", 400, "title"),
        ("DELETE FROM page", 400, "SELECT"),
        ("SELECT * FROM read_text('/etc/passwd')", 400, "read_text"),
        ("SELECT 1; SELECT 2", 400, "one"),
        ("-- only a comment", 400, ""),
        ("SELECT '" + "x" * 6_000 + "'", 400, "the limit is 5,000"),
    ],
)
def test_mistakes_are_told_on_the_page(site: str, sql: str, status: int, words: str) -> None:
    found, text, _ = get(site, "/sql", sql=sql)
    assert found == status
    assert words in unescape(text)
    assert 'role="alert"' in text


def test_links_without_a_query_say_what_is_missing(site: str) -> None:
    status, text, _ = get(site, "/sql.json")
    assert (status, json.loads(text)["detail"][:14]) == (400, "sql is missing")


def test_page_can_be_left_out(folder: Path) -> None:
    with serving(folder, "--no-sql") as (_, line):
        assert get(address_in(line), "/sql")[0] == 404
        assert "/sql" not in get(address_in(line), "/")[1]


# -- bounds


def queries_by(program: str, **bounds: object) -> Queries:
    return Queries(("python3", "-c", program), ["DIR"], {"PATH": "/usr/bin:/bin"}, SqlBounds(**bounds))  # type: ignore[arg-type]


async def test_endless_output_is_cut_and_its_process_ended() -> None:
    program = "while True: print('word,word')"
    table = await queries_by(program, page_bytes=50_000, rows=100).table("SELECT 1")
    assert (table.is_cut, len(table.rows)) == (True, 100)
    with pytest.raises(HttpError, match="larger than 0 MB"):
        await queries_by(program, link_bytes=50_000).csv("SELECT 1")


async def test_query_that_hangs_is_ended() -> None:
    with pytest.raises(HttpError, match=r"stopped after -4\.9 seconds"):
        await queries_by("import time; time.sleep(1000)", seconds=-4.9).table("SELECT 1")


async def test_too_many_queries_are_refused() -> None:
    with pytest.raises(HttpError, match="Too many queries") as error:
        queries = queries_by("", queries=0, waiting=0)
        await queries.table("SELECT 1")
    assert error.value.status == 503


def test_page_of_no_rows_has_its_columns() -> None:
    table = Table(["url"], [], is_cut=False)
    text = sql_page(Face(name="n"), SqlBounds(), sql="SELECT url", tables=(), table=table)
    assert '<th scope="col">url</th>' in text
    assert "0 rows" in text


def test_page_in_a_browser(site: str) -> None:
    with open_browser() as browser, open_window(browser) as (window, seen):
        window.goto(f"{site}/sql")
        take_picture(window, "sql-start", is_whole=True)
        window.get_by_label("One SELECT").fill("SELECT url, title, status, fetched FROM page ORDER BY url")
        window.get_by_role("button", name="Run").click()
        assert "sql=SELECT" in window.url
        assert window.locator("tbody tr").count() == 10
        assert is_within_the_window(window)
        take_picture(window, "sql")
        window.set_viewport_size(NARROW)
        window.emulate_media(color_scheme="dark")
        assert is_within_the_window(window)
        take_picture(window, "sql-narrow")
        assert not seen.complaints
