"""What is written where: `-o` of crawl and ask, `sterna list`, and why there is nothing."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from tests.cli.test_commands import A, one_line
from tests.crawl.running import sterna
from tests.servers import nginx
from tests.servers.pages import Page, PageServer, linking
from tests.servers.plain import Reply

from sterna.cli.lines import bytes_text

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    pages = {f"/{n}": f"<title>Page {n}</title><h1>Page {n}</h1><p>tern number {n}" for n in range(1, 6)}
    with PageServer({A: {"/": linking(*pages, "/gone", title="Start"), **pages}}).run_in_thread() as running:
        yield running


@pytest.fixture(scope="module")
def crawled(server: PageServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crawled") / "c"
    sterna("crawl", server.url(A), "--into", folder, "--delay", "0")
    return folder


def titles(path: Path) -> list[str]:
    if path.suffix == ".jsonl":
        return [json.loads(line)["title"] for line in path.read_text().splitlines()]
    if path.suffix == ".csv":
        with path.open() as file:
            return [row["title"] for row in csv.DictReader(file)]
    return [title for (title,) in duckdb.execute(f"SELECT title FROM '{path}'").fetchall()]


@pytest.mark.parametrize("name", ["pages.jsonl", "PAGES.CSV", "my pages.parquet"])
def test_crawl_writes_its_pages_too(server: PageServer, crawled: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    out.write_text("of an earlier run")
    result = sterna("crawl", "--into", crawled, "-o", out)
    assert result.returncode == 0
    assert f"7 rows -> {out}" in result.stdout
    written = out.with_suffix(out.suffix.lower())
    if written != out:
        out.rename(written)
    assert {"Start", "Page 5"} <= set(titles(written))


def test_folder_gets_markdown_and_is_replaced(crawled: Path, tmp_path: Path) -> None:
    for _ in range(2):
        result = sterna("crawl", "--into", crawled, "-o", f"{tmp_path}/pages/")
        assert "6 pages -> " in result.stdout
    files = sorted(path.name for path in (tmp_path / "pages").rglob("*.md"))
    assert files == ["1.md", "2.md", "3.md", "4.md", "5.md", "index.md"]


def test_folder_with_other_files_is_left_alone(crawled: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("years of work")
    result = sterna("crawl", "--into", crawled, "-o", tmp_path / "mine")
    assert result.returncode == 2
    assert "mine/thesis.tex is no Markdown of an earlier export: name another" in one_line(result.stderr)
    assert (tmp_path / "mine/thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.parquet"])
def test_ask_writes_its_rows(server: PageServer, tmp_path: Path, name: str) -> None:
    sql = "SELECT title FROM page WHERE title LIKE 'Page%' ORDER BY title"
    result = sterna("ask", sql, server.url(A), "--delay", "0", "-o", tmp_path / name)
    size = bytes_text((tmp_path / name).stat().st_size)
    assert result.stdout == f"5 rows -> {tmp_path / name} ({size})\n"
    assert titles(tmp_path / name) == [f"Page {n}" for n in range(1, 6)]


def test_ask_makes_markdown_of_rows_with_url_and_text(server: PageServer, tmp_path: Path) -> None:
    sql = "SELECT url, title AS \"A: b\", text FROM page WHERE title = 'Page 2'"
    sterna("ask", sql, server.url(A), "--delay", "0", "-o", f"{tmp_path}/rows/")
    (path,) = (tmp_path / "rows").rglob("*.md")
    url = f"{server.url(A)}2"
    assert path.read_text() == f'---\nurl: "{url}"\n"A: b": "Page 2"\n---\n\nPage 2 tern number 2\n'
    result = sterna("ask", "SELECT title FROM page", server.url(A), "--delay", "0", "-o", f"{tmp_path}/x/")
    assert result.stderr.splitlines()[-1].startswith("sterna: Markdown is made of url and text")


def test_other_kinds_are_refused_before_anything_is_fetched(tmp_path: Path) -> None:
    for words in (("crawl",), ("ask", "SELECT title FROM page")):
        result = sterna(*words, "https://www.example.org/", "-o", tmp_path / "pages.xlsx")
        assert result.returncode == 2
        assert "write FILE.jsonl, FILE.csv or FILE.parquet, or FOLDER/" in one_line(result.stderr)


def test_subtree_is_not_left(server: PageServer, tmp_path: Path) -> None:
    result = sterna("crawl", server.url(A), "--subtree", "/3", "--into", tmp_path / "c", "--delay", "0")
    assert result.stdout.startswith("2 pages in")


# -- why there is nothing


def test_ask_says_which_condition_no_page_met(server: PageServer) -> None:
    sql = "SELECT url FROM page WHERE text LIKE '%albatross%' AND title LIKE 'Page%' AND depth < 3"
    result = sterna("ask", sql, server.url(A), "--delay", "0", "--quiet")
    assert result.stdout.endswith("\n(0 rows)\n")
    said = sterna("ask", sql, server.url(A), "--delay", "0").stderr
    assert "no row: 6 pages read, none of them wanted; failed: " in said
    assert 'albatross%" (6)' in said
    assert '"Page%" (1)' in said
    assert "not fetched: pages for which not (" in said
    assert "errors: http_404 1" in said


def test_ask_says_that_a_site_could_not_be_read(tmp_path: Path) -> None:
    said = sterna("ask", "SELECT url FROM page", "http://127.0.5.2:9/", "--delay", "0").stderr
    assert "no row: not one page could be read" in said
    assert "its robots.txt could not be fetched" in said


def test_crawl_says_which_condition_no_page_met(server: PageServer, tmp_path: Path) -> None:
    spec = tmp_path / "gulls.toml"
    spec.write_text(f'name = "gulls"\nseeds = ["{server.url(A)}"]\n[select]\nkeywords_any = ["gull"]\n')
    result = sterna("crawl", spec, "--into", tmp_path / "c", "--delay", "0")
    assert re.search(r"^6 of 6 were not wanted; failed: the page .* \(6\)$", result.stdout, re.MULTILINE)


def test_crawl_says_why_a_site_waits(tmp_path: Path) -> None:
    busy = {"/": Reply(503, headers={"Retry-After": "3600"})}
    with PageServer({A: busy}).run_in_thread() as server:
        url = server.url(A)
        flags = ("--into", tmp_path / "c", "--delay", "0", "--wait", "0")
        for again in ((url,), ()):
            result = sterna("crawl", *again, *flags)
            (line,) = [each for each in result.stdout.splitlines() if "may be visited again at" in each]
            assert line.endswith(": it asked for a pause (HTTP 503)")


def test_site_that_refuses_its_robots_txt_is_asked_again_without_strict_robots(tmp_path: Path) -> None:
    site: dict[str, Page] = {"/": linking(title="Start"), "/robots.txt": Reply(403)}
    with PageServer({A: site}).run_in_thread() as server:
        flags = ("--into", tmp_path / "c", "--delay", "0")
        strict = sterna("crawl", server.url(A), *flags, "--strict-robots")
        assert strict.returncode == 1
        assert "its robots.txt was refused (HTTP 403)" in strict.stdout
        assert sterna("crawl", *flags).returncode == 1  # the wait is not over
        assert sterna("crawl", *flags, "--no-strict-robots").stdout.startswith("1 page in ")


def test_start_address_of_a_server_without_tls_is_told_how_to_be_written(tmp_path: Path) -> None:
    (tmp_path / "quick.toml").write_text("robots_pause = 0\n")
    with nginx.serve(tmp_path, folder=tmp_path / "nginx") as server:
        place = server.url.removeprefix("http://")
        result = sterna("crawl", place, "--into", tmp_path / "c", "--config", tmp_path / "quick.toml")
    assert f"the server may speak plain HTTP: write http://{place}/" in result.stdout


def test_rules_that_fail_leave_no_collection(server: PageServer, tmp_path: Path) -> None:
    (tmp_path / "r.clp").write_text("(defrule broken (page (titel ?x)) => (keep))")
    spec = tmp_path / "gulls.toml"
    spec.write_text(f'name = "gulls"\nseeds = ["{server.url(A)}"]\nrules = ["r.clp"]\n')
    folder = tmp_path / "made" / "c"
    result = sterna("crawl", spec, "--into", folder)
    assert (result.returncode, folder.exists()) == (2, False)
    sterna("crawl", server.url(A), "--into", folder, "--delay", "0")
    assert sterna("crawl", spec, "--into", folder).returncode == 2
    assert (folder / "ledger.sqlite").exists()  # what was crawled before stays


def test_crawl_says_how_many_links_its_scope_left_out(server: PageServer, tmp_path: Path) -> None:
    flags = ("--into", tmp_path / "c", "--delay", "0", "--include", "/nothing/")
    result = sterna("crawl", server.url(A), *flags)
    assert result.stdout.startswith("1 page in ")
    assert "\n6 links left out by --include, --exclude or --subtree\n" in result.stdout


# -- sterna list


def test_list_shows_collections_below_a_folder(crawled: Path, tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "deep/er/c").symlink_to(crawled)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/collection.json").write_text("{")
    text = sterna("list", crawled.parent).stdout
    head, row = text.splitlines()
    assert head.split() == ["pages", "to", "go", "sites", "last", "crawl", "size"]
    assert row.split()[:3] == ["6", "0", "1"]
    assert row.endswith(str(crawled))
    (broken,) = json.loads(sterna("list", tmp_path, "--json").stdout)["collections"]
    assert broken["collection"] == str(tmp_path / "broken")
    assert "cannot read" in broken["trouble"]
    assert "no collection below" in sterna("list", tmp_path / "deep").stdout
    assert "is not a folder" in one_line(sterna("list", tmp_path / "none").stderr)
