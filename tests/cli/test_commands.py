"""The commands as a user and a script meet them: words, exit codes, JSON."""

import csv
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crawl.running import COMMAND, rows, start, sterna, sterna_process, stored_urls, summary_of
from tests.servers.pages import PageServer, linking
from tests.servers.plain import Reply

from sterna.cli.app import _load
from sterna.cli.commands import COMMANDS, HOST_COMMANDS

pytestmark = pytest.mark.servers

A = "127.0.5.1"
PAGES = 40


@pytest.fixture
def server() -> Iterator[PageServer]:
    with site().run_in_thread() as running:
        yield running


def site() -> PageServer:
    pages = {f"/{n}": f"<title>Page {n}</title><p>tern number {n}" for n in range(1, PAGES)}
    sites = {A: {"/": linking(*pages, "/gone", title="Start"), **pages}}
    return PageServer(sites, latency_seconds=0.01)


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[PageServer, Path]:
    """A collection of the whole site, for tests that only read it."""
    folder = tmp_path_factory.mktemp("crawled") / "c"
    with site().run_in_thread() as server:
        sterna("crawl", server.url(A), "--into", folder, "--delay", "0")
    return server, folder


def one_line(text: str) -> str:
    """The text, which must be one line."""
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    return lines[0]


def test_help_names_every_command_and_the_exit_codes() -> None:
    text = sterna("--help").stdout
    assert all(word in text for word in ("crawl", "status", "query", "demo", "Exit codes"))


def test_list_of_commands_has_the_first_sentence_of_each_and_loads_none_of_them() -> None:
    for commands in (COMMANDS, HOST_COMMANDS):
        for name, entry in commands.items():
            command = _load(name, entry.place)
            first = " ".join((command.help or "").split("\n\n")[0].split())
            assert (entry.help, bool(entry.help)) == (first if entry.help else "", not command.hidden)
    timed = [sys.executable, "-X", "importtime", "-m", "sterna", "--help"]
    told = subprocess.run(timed, capture_output=True, text=True, check=True)
    assert all(f" {name} " in told.stdout for name, entry in COMMANDS.items() if entry.help)
    heavy = ("sterna.home.folder", "sterna.runtime", "sterna.export", "pyarrow", "duckdb", "clips")
    assert not any(f" {name}" in told.stderr for name in heavy)


def test_crawl_help_names_every_flag_of_the_interface() -> None:
    text = sterna("crawl", "--help").stdout
    flags = (
        "--into --max-pages --max-depth --max-seconds --stay --include --exclude --delay --gentle"
        " --concurrency --keep --warc --block --user-agent --contact --ignore-robots --json --quiet"
    )
    assert [flag for flag in flags.split() if flag not in text] == []
    assert "sites of your own" in " ".join(text.split())


def test_json_ends_with_a_summary_that_a_script_can_use(server: PageServer, tmp_path: Path) -> None:
    result = sterna_process("crawl", server.url(A), "--into", tmp_path / "c", "--delay", "0", "--json")
    summary = summary_of(result)
    assert result.returncode == 0
    assert summary["pages"] == PAGES
    assert summary["requests"] == PAGES + 3  # robots.txt, the page that is gone, the question for a host
    assert summary["errors"] == {"http_404": 1}
    assert summary["visits"] == {"here": 1, "host": 0}
    assert summary["bytes_received"] > 1000
    assert summary["pages_per_second"] == pytest.approx(PAGES / summary["seconds"], rel=0.01)
    assert 20e6 < summary["peak_memory_bytes"] < 1e9


def test_report_says_what_was_done_and_how_to_look_at_it(server: PageServer, tmp_path: Path) -> None:
    result = sterna("crawl", server.url(A), "--into", tmp_path / "c", "--delay", "0")
    assert result.returncode == 0
    assert f"{PAGES} pages in" in result.stdout
    assert "errors: http_404 1" in result.stdout
    assert f"sterna query {tmp_path / 'c'}" in result.stdout


def test_quiet_says_nothing(server: PageServer, tmp_path: Path) -> None:
    result = sterna("crawl", server.url(A), "--into", tmp_path / "c", "--delay", "0", "--quiet")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_second_run_says_that_nothing_is_left(server: PageServer, tmp_path: Path) -> None:
    command = ("crawl", server.url(A), "--into", tmp_path / "c", "--delay", "0")
    sterna(*command)
    asked = len(server.log)
    again = sterna(*command)
    assert again.returncode == 0
    assert "nothing was left to do" in again.stdout
    assert len(server.log) == asked


def test_ctrl_c_stops_at_a_parcels_edge_and_the_hint_goes_on(server: PageServer, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    process = start("crawl", server.url(A), "--into", folder, "--delay", "0.1")
    _wait_for_hits(server, 6)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 3
    assert time.monotonic() - began < 4
    assert "stopped cleanly" in out
    assert f"sterna crawl --into {folder}" in out
    before = len(stored_urls(folder))
    assert before >= 3
    result = sterna("crawl", "--into", folder, "--delay", "0", "--json")
    assert (result.returncode, summary_of(result)["total_pages"]) == (0, PAGES)
    urls = stored_urls(folder)
    assert len(urls) == len(set(urls)) == PAGES
    asked = [hit.path for hit in server.log if hit.path != "/robots.txt"]
    assert len(asked) == len(set(asked)), "a clean stop fetches nothing again"


def test_second_ctrl_c_ends_at_once_and_loses_nothing_acknowledged(
    server: PageServer, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    process = start("crawl", server.url(A), "--into", folder, "--delay", "0.1")
    _wait_for_hits(server, 6)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 3
    result = sterna("crawl", "--into", folder, "--delay", "0", "--json")
    assert (result.returncode, summary_of(result)["total_pages"]) == (0, PAGES)


def test_max_seconds_ends_the_run_in_time(server: PageServer, tmp_path: Path) -> None:
    result = sterna(
        "crawl", server.url(A), "--into", tmp_path / "c", "--delay", "0.3", "--max-seconds", "1.5", "--json"
    )
    assert result.returncode == 3
    assert 1.4 < summary_of(result)["seconds"] < 4


def test_options_of_the_first_run_hold_for_the_next(server: PageServer, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    sterna(
        "crawl", server.url(A), "--into", folder, "--delay", "0", "--max-pages", "5", "--exclude", r":\d+/1"
    )
    result = sterna("crawl", "--into", folder, "--max-pages", "100", "--json")
    assert summary_of(result)["total_pages"] == PAGES - 11
    assert not [url for url in stored_urls(folder) if "/1" in url.removeprefix(server.url(A, ""))]


def test_status_tells_where_a_running_crawl_stands(server: PageServer, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    process = start("crawl", server.url(A), "--into", folder, "--delay", "0.2")
    _wait_for_hits(server, 3)
    running = json.loads(sterna("status", folder, "--json").stdout)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert running["leased"] == 1
    assert running["site_rows"][0]["site"] == server.url(A, "")
    text = sterna("status", folder).stdout
    assert "URLs to go" in text
    assert server.url(A, "") in text


@pytest.mark.parametrize("words", [["--version"], ["keys", "--help"]])
def test_full_disk_under_the_output_is_one_line(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "sterna", *words]
        result = subprocess.run(command, check=False, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 6
    assert result.stderr == "sterna: cannot write the output: No space left on device\n"


def test_query_prints_table_csv_and_json(crawled: tuple[PageServer, Path]) -> None:
    server, folder = crawled
    sql = "SELECT url, title FROM page WHERE text LIKE '%tern number 7' AND status = 200"
    expected = {"url": server.url(A, "/7"), "title": "Page 7"}
    assert json.loads(sterna("query", folder, sql, "--format", "json").stdout) == [expected]
    assert list(csv.DictReader(io.StringIO(sterna("query", folder, sql, "--format", "csv").stdout))) == [
        expected
    ]
    assert "Page 7" in sterna("query", folder, sql).stdout
    join = "SELECT count(*) AS n FROM link JOIN page ON to_url = page.url WHERE page.status = 404"
    assert json.loads(sterna("query", folder, join, "-f", "json").stdout) == [{"n": 1}]
    sites = "SELECT site.pages, visit.ended FROM site JOIN visit USING (site)"
    assert json.loads(sterna("query", folder, sites, "-f", "json").stdout) == [
        {"pages": PAGES, "ended": "finished"}
    ]


def test_all_columns_of_page_and_link_are_there(crawled: tuple[PageServer, Path]) -> None:
    server, folder = crawled
    (row,) = json.loads(
        sterna("query", folder, "SELECT * FROM page WHERE url LIKE '%/7'", "-f", "json").stdout
    )
    names = (
        "url site status content_type title text language digest size depth fetched modified etag referrer"
    )
    assert set(names.split()) <= set(row)
    assert (row["site"], row["depth"], row["referrer"]) == (server.url(A, ""), 1, server.url(A))
    (link,) = json.loads(
        sterna("query", folder, "SELECT * FROM link WHERE to_url LIKE '%/7'", "-f", "json").stdout
    )
    assert link == {"from_url": server.url(A), "to_url": server.url(A, "/7"), "text": "/7", "rel": None}


def test_warning_is_given_when_robots_txt_is_ignored(server: PageServer, tmp_path: Path) -> None:
    server.sites[A]["/robots.txt"] = Reply(body=b"User-agent: *\nDisallow: /\n")  # type: ignore[index]
    closed = sterna("crawl", server.url(A), "--into", tmp_path / "a", "--delay", "0")
    assert (closed.returncode, stored_urls(tmp_path / "a")) == (1, [])
    own = sterna("crawl", server.url(A), "--into", tmp_path / "b", "--delay", "0", "--ignore-robots")
    assert own.returncode == 0
    assert "only on sites of your own" in own.stderr
    assert len(stored_urls(tmp_path / "b")) == PAGES


def test_ctrl_c_ends_a_query_at_once(crawled: tuple[PageServer, Path]) -> None:
    process = start("query", crawled[1], "SELECT count(*) FROM range(1e12::BIGINT) a, range(1e6::BIGINT) b")
    deadline = time.monotonic() + 30
    while not _is_busy(process.pid):
        assert time.monotonic() < deadline, "the query never began"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=5)
    assert process.returncode == -signal.SIGINT


def test_config_file_changes_only_what_it_names(server: PageServer, tmp_path: Path) -> None:
    folder, config = tmp_path / "c", tmp_path / "crawl.toml"
    config.write_text("max_pages = 3\n")
    sterna(
        "crawl", server.url(A), "--into", folder, "--delay", "0", "--max-pages", "1", "--user-agent", "Foo/1"
    )
    sterna("crawl", "--into", folder, "--config", config)
    assert {hit.headers["user-agent"] for hit in server.log} == {"Foo/1"}
    assert len(stored_urls(folder)) == 3


def test_login_in_a_url_is_refused_and_not_kept(server: PageServer, tmp_path: Path) -> None:
    result = sterna("crawl", server.url(A).replace("://", "://me:sesame@"), "--into", tmp_path / "c")
    assert result.returncode == 2
    assert f"{server.url(A)}: no start URL has a login: give it by --auth" in one_line(result.stderr)
    assert "sesame" not in result.stderr
    assert not (tmp_path / "c").exists()


def test_code_in_the_working_folder_is_not_run(server: PageServer, tmp_path: Path) -> None:
    (tmp_path / "brotli.py").write_text("import pathlib; pathlib.Path('owned').touch()")
    command = [
        sys.executable,
        "-P",
        "-m",
        "sterna",
        "crawl",
        server.url(A),
        "--into",
        "c",
        "--delay",
        "0",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("state", ["empty", "lock", "half a marker", "marker only", "ledger without tables"])
def test_crash_while_the_collection_is_made_does_no_harm(
    server: PageServer, tmp_path: Path, state: str
) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    if state == "lock":
        (folder / "lock").touch()
    if state == "half a marker":
        (folder / "collection.json.tmp").write_text("{")
    if state in ("marker only", "ledger without tables"):
        (folder / "collection.json").write_text('{"sterna_collection": 1, "id": "x", "made": 1.0}')
    if state == "ledger without tables":
        with sqlite3.connect(folder / "ledger.sqlite") as db:
            db.execute("PRAGMA journal_mode = WAL")
    result = sterna("crawl", server.url(A), "--into", folder, "--delay", "0", "--quiet")
    assert (result.returncode, result.stderr) == (0, "")
    assert len(stored_urls(folder)) == PAGES


# -- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["http://", "not a url", "ftp://example.org/", "javascript:alert(1)"])
def test_wrong_url_is_one_line_and_code_2(url: str, tmp_path: Path) -> None:
    result = sterna("crawl", url, "--into", tmp_path / "c")
    assert result.returncode == 2
    assert "is not a web address" in one_line(result.stderr)
    assert not (tmp_path / "c").exists()


def test_no_url_at_all_is_one_line_and_code_2() -> None:
    result = sterna("crawl")
    assert result.returncode == 2
    assert "no URL to start from" in one_line(result.stderr)


@pytest.mark.parametrize("url", ["http://nosuch.invalid/", "http://127.0.5.99:9/"])
def test_unreachable_host_says_so_and_is_code_1(url: str, tmp_path: Path) -> None:
    (tmp_path / "quick.toml").write_text("robots_pause = 0\nwait = 0\ndelay = 0\n")
    quick = ("--config", tmp_path / "quick.toml")
    result = sterna("crawl", url, "--into", tmp_path / "c", *quick)
    assert result.returncode == 1
    assert "robots.txt could not be fetched" in result.stdout
    quiet = sterna("crawl", url, "--into", tmp_path / "q", *quick, "--quiet")
    assert "robots.txt could not be fetched" in quiet.stderr


def test_verbose_crawl_names_each_address_that_gave_no_robots_txt(tmp_path: Path) -> None:
    (tmp_path / "quick.toml").write_text("robots_pause = 0\nwait = 0\ndelay = 0\n")
    command = ("crawl", "http://127.0.5.99:9/", "--into", tmp_path / "c", "--config", tmp_path / "quick.toml")
    said = sterna(*command, "--here", "--verbose").stderr
    assert said.count("http://127.0.5.99:9/robots.txt: connect: ") == 2
    assert said.count(" at 127.0.5.99") == 2
    assert "robots.txt: connect" not in sterna(*command, "--here", "--retry").stderr


def test_folder_that_is_no_collection_is_left_alone(server: PageServer, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    result = sterna("crawl", server.url(A), "--into", tmp_path)
    assert result.returncode == 5
    assert "holds other files" in one_line(result.stderr)
    for command in ("status", "query"):
        answer = sterna(command, tmp_path, *(["SELECT 1"] if command == "query" else []))
        assert answer.returncode == 5
        assert "is not a collection" in one_line(answer.stderr)


def test_collection_in_use_is_refused(server: PageServer, tmp_path: Path) -> None:
    process = start("crawl", server.url(A), "--into", tmp_path / "c", "--delay", "0.2")
    _wait_for_hits(server, 2)
    second = sterna("crawl", server.url(A), "--into", tmp_path / "c")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert second.returncode == 5
    assert "in use by another crawl" in one_line(second.stderr)


@pytest.mark.parametrize(
    ("text", "message"), [("dealy = 3", "dealy"), ("delay = [", "crawl.toml"), ("delay = -4", "--delay -4")]
)
def test_bad_configuration_is_one_line_and_code_2(text: str, message: str, tmp_path: Path) -> None:
    config = tmp_path / "crawl.toml"
    config.write_text(text)
    result = sterna("crawl", "https://example.org/", "--into", tmp_path / "c", "--config", config)
    assert result.returncode == 2
    assert message in one_line(result.stderr)


def test_wrong_pattern_and_age_are_one_line_each(server: PageServer, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    pattern = sterna("crawl", server.url(A), "--into", folder, "--include", "(")
    assert (pattern.returncode, "not a valid RE2 expression" in one_line(pattern.stderr)) == (2, True)
    assert not folder.exists()
    age = sterna("crawl", server.url(A), "--into", folder, "--refresh", "soon")
    assert (age.returncode, "is not an age" in one_line(age.stderr)) == (2, True)


def test_wrong_sql_is_named(crawled: tuple[PageServer, Path]) -> None:
    sql = sterna("query", crawled[1], "SELEC 1")
    assert sql.returncode == 2
    assert sql.stderr.startswith("sterna: ")
    assert sterna("query", crawled[1], "SELECT * FROM read_csv('/etc/passwd')").returncode == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_full_disk_is_one_line_and_nothing_is_lost(server: PageServer, tmp_path: Path) -> None:
    """In a mount namespace of its own: crawl onto a disk that is too small, enlarge it, go on."""
    folder = tmp_path / "disk"
    folder.mkdir()
    body = b"<p>" + os.urandom(150_000).hex().encode()
    for number in range(1, PAGES):
        server.sites[A][f"/{number}"] = Reply(body=body)  # type: ignore[index]
    crawl = " ".join(
        [
            *COMMAND,
            "crawl",
            server.url(A),
            "--into",
            f"{folder}/c",
            "--delay",
            "0",
            "--warc",
            "--no-index",
            "--json",
        ]
    )
    query = " ".join(
        [*COMMAND, "query", f"{folder}/c", "'SELECT count(DISTINCT url), count(*) FROM page_history'"]
    )
    script = f"""
        mount -t tmpfs -o size=4m none {folder}
        {crawl} >{tmp_path}/first 2>{tmp_path}/error; echo "first $?"
        mount -o remount,size=200m {folder}
        {crawl} >{tmp_path}/second; echo "second $?"
        {query} --format csv | tail -n 1
    """
    result = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert result.stdout.split() == ["first", "6", "second", "0", f"{PAGES + 1},{PAGES + 1}"], result.stderr
    assert "is full: free some space" in one_line((tmp_path / "error").read_text())


def test_demo_crawls_without_a_network_and_finds_its_pages_again(tmp_path: Path) -> None:
    first = summary_of(sterna("demo", "--into", tmp_path / "c", "--json"))
    second = summary_of(sterna("demo", "--into", tmp_path / "c", "--json"))
    assert (first["total_pages"], first["errors"]) == (12, {"http_404": 1, "robots": 1})
    assert (second["unchanged"], second["total_pages"]) == (12, 12)
    closed = rows(tmp_path / "c", "SELECT status, error, text FROM t WHERE url LIKE '%private%'")
    assert set(closed) == {(None, "robots", None)}


def _is_busy(pid: int) -> bool:
    """True once the process has used half a second of CPU: it works on the query by then."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") > 0.5


def _wait_for_hits(server: PageServer, count: int) -> None:
    deadline = time.monotonic() + 30
    while len(server.log) < count:
        assert time.monotonic() < deadline, "the crawl never began"
        time.sleep(0.01)
