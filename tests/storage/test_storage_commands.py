"""`sterna storage`: adding, listing, checking, running and replaying rules, also while something follows."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.crawl.running import start, sterna
from tests.storage.places import SqlitePlace
from tests.storage.single import wait_until
from tests.storage.stock import SITE, Stock, page, pages
from typer.testing import CliRunner

from sterna.cli.app import make_app
from sterna.cli.exits import Exit
from sterna.errors import SternaError

RULES = """
[connections.main]
url = "sqlite:///../pages.db"
[commands.Add]
connection = "main"
sql = "INSERT INTO t (url, size) VALUES (:url, :size)"
[rules.pages]
[[rules.pages.store]]
query = "SELECT url, size FROM page"
commands = ["Add"]
"""


@pytest.fixture
def place(tmp_path: Path) -> SqlitePlace:
    place = SqlitePlace(tmp_path / "pages.db")
    place.run("CREATE TABLE t (url TEXT, size INTEGER)")
    return place


def run(*words: str | Path) -> tuple[int, str]:
    """The exit code and all that is said, in this process."""
    result = CliRunner().invoke(make_app(), ["storage", *map(str, words)], catch_exceptions=True)
    if isinstance(result.exception, SternaError):
        return -1, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def add(stock: Stock, text: str, *, name: str = "new.toml") -> tuple[int, str]:
    path = stock.folder.parent / name
    path.write_text(text)
    return run("add", stock.folder, path)


def test_rules_are_added_listed_checked_and_run(stock: Stock, place: SqlitePlace) -> None:
    stock.put(pages(0, 4))
    assert add(stock, RULES) == (
        0,
        "added      connection main\nadded      command Add\nadded      rule pages\n",
    )
    url = f"sqlite:///{stock.folder}/../pages.db"
    assert run("list", stock.folder) == (
        0,
        f"connection main  {url}\n"
        "command Add at main  1 statement with :url, :size\n"
        "rule pages for crawlers *\n"
        "  Add  <-  SELECT url, size FROM page\n",
    )
    assert run("check", stock.folder) == (
        0,
        f"good   connection main {url}\ngood   command Add\ngood   rule pages\n",
    )
    assert run("status", stock.folder) == (0, "pages -> main: 0 rows stored, 1 batch to go\n")
    assert run("run", stock.folder) == (0, "pages -> main: 4 rows stored, all is stored\n")
    stock.put(pages(4, 1))
    stock.put(pages(5, 1))
    assert run("status", stock.folder) == (0, "pages -> main: 4 rows stored, 2 batches to go\n")
    assert run("replay", stock.folder, "pages") == (0, "pages -> main: 6 rows stored, all is stored\n")
    assert place.run("SELECT count(*) FROM t") == [(6,)]


def test_replay_again_stores_all_once_more_after_asking(stock: Stock, place: SqlitePlace) -> None:
    stock.put(pages(0, 2))
    stock.rules(RULES)
    run("run", stock.folder)
    code, said = run("replay", stock.folder, "--again")
    assert (code, "will be there twice" in said) == (1, True)
    assert place.run("SELECT count(*) FROM t") == [(2,)]
    assert run("replay", stock.folder, "--again", "--yes")[0] == 0
    assert place.run("SELECT count(*) FROM t") == [(4,)]
    assert run("replay", stock.folder, "none") == (
        -1,
        f"{stock.folder}/storage.toml has no rule 'none' (defined: pages)",
    )


def test_status_tells_what_waits_and_why(stock: Stock, place: SqlitePlace) -> None:
    place.run("CREATE UNIQUE INDEX one ON t (size)")
    stock.put([page(1), page(1)])
    stock.rules(RULES)
    assert run("run", stock.folder)[0] == 0
    code, said = run("status", stock.folder)
    assert (code, said.splitlines()[:2]) == (
        0,
        ["pages -> main: 1 row stored, all is stored", "  1 row refused, waiting for a retry"],
    )
    assert "UNIQUE constraint failed: t.size (next try in " in said
    (rule,) = json.loads(run("status", stock.folder, "--json")[1])["rules"]
    assert (rule["stored"], rule["waiting"], rule["batch"], rule["of"]) == (1, 1, 1, 1)


def test_status_tells_that_a_database_is_down(stock: Stock, tmp_path: Path) -> None:
    stock.put(pages(0, 1))
    stock.rules(RULES.replace("../pages.db", "nowhere/x.db"))
    code, said = run("run", stock.folder)
    assert code == Exit.STOPPED
    assert "database is not usable: unable to open database file" in said
    first, second = run("status", stock.folder)[1].splitlines()
    assert first == "pages -> main: position unknown"
    assert "database is not usable: unable to open database file" in second


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (":size)", ":bytes)", "'Add' needs :bytes, but the query gives only url, size"),
        ('commands = ["Add"]', 'commands = ["A"]', "rules.pages.store.0.commands: there is no command 'A'"),
        ("FROM page", "FROM page WHERE", "rule pages: "),
        ("FROM page", "FROM read_text('/etc/passwd')", "no files"),
        ("SELECT url, size", "SELECT url, size, url", "the query gives 'url' twice"),
        ('sql = "', 'sql = 7 #"', "line 6, commands.Add.sql: Expected"),
        ("[rules.pages]", "[rules.pages", "is not valid TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_not_added(stock: Stock, old: str, new: str, said: str) -> None:
    stock.put(pages(0, 1))
    code, line = add(stock, RULES.replace(old, new))
    assert (code, "\n" in line) == (-1, False)
    assert line.startswith(str(stock.folder.parent / "new.toml"))
    assert said in line
    assert not (stock.folder / "storage.toml").exists()


def test_template_that_no_crawler_has_sent_yet_is_only_told(stock: Stock, place: SqlitePlace) -> None:
    code, said = add(stock, RULES.replace("SELECT url, size FROM page", "SELECT url, size FROM clinic"))
    assert code == 0
    assert "added      rule pages" in said
    assert 'there is no table "clinic"' in said


def test_check_tells_what_does_not_fit_the_tables(stock: Stock, place: SqlitePlace) -> None:
    stock.put(pages(0, 1))
    stock.rules(RULES.replace("(url, size)", "(url, bytes)"))
    code, said = run("check", stock.folder)
    assert code == Exit.USAGE
    assert said.splitlines()[1].startswith("wrong  command Add: table t has no column named bytes")
    stock.rules(RULES.replace('sql = "INSERT INTO t (url, size) VALUES (:url, :size)"', 'call = "nowhere:f"'))
    assert "wrong  command Add: there is no module 'nowhere'" in run("check", stock.folder)[1]
    assert place.run("SELECT count(*) FROM t") == [(0,)]


def test_secrets_are_never_shown(stock: Stock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    for url in (
        "postgresql+psycopg://me:${SECRET}@127.0.0.1:1/x?sslkey=${SECRET}",
        "postgresql+psycopg://me:s3cret@127.0.0.1:1/x",
        "postgresql+psycopg://me:s3cret@${MISSING}/x",
    ):
        stock.rules(RULES.replace("sqlite:///../pages.db", url))
        said = "".join(run(word, stock.folder)[1] for word in ("list", "check", "run", "status"))
        assert "s3cret" not in said
        assert "main" in said
        assert "s3cret" not in (stock.folder / "storage.status.json").read_text()


def test_functions_are_found_beside_the_file_that_was_added(stock: Stock, place: SqlitePlace) -> None:
    stock.put(pages(0, 1))
    beside = stock.folder.parent / "beside"
    beside.mkdir()
    (beside / "mine.py").write_text(
        "from sqlalchemy import text\n"
        "def add(connection, rows):\n"
        "    connection.execute(text('INSERT INTO t VALUES (:url, 7)'), rows)\n"
    )
    sql = 'sql = "INSERT INTO t (url, size) VALUES (:url, :size)"'
    code, _ = add(stock, RULES.replace(sql, 'call = "mine:add"'), name="beside/rules.toml")
    assert (code, run("run", stock.folder)[0]) == (0, 0)
    assert place.run("SELECT url, size FROM t") == [(f"{SITE}/0", 7)]


def test_without_rules_one_line_says_how_to_add_some(stock: Stock) -> None:
    for word in ("list", "check", "status", "run", "replay"):
        assert run(word, stock.folder) == (
            -1,
            f"{stock.folder} has no storage rules: 'sterna storage add {stock.folder} FILE' adds some",
        )


@pytest.mark.servers
def test_rules_added_while_it_follows_are_taken_up(stock: Stock, place: SqlitePlace) -> None:
    stock.rules(RULES)
    following = start("storage", "run", stock.folder, "--follow")
    try:
        stock.put(pages(0, 3))
        wait_until(lambda: place.run("SELECT count(*) FROM t") == [(3,)])
        place.run("CREATE TABLE urls (url TEXT)")
        more = """
[commands.Url]
connection = "main"
sql = "INSERT INTO urls VALUES (:url)"
[rules.urls]
[[rules.urls.store]]
query = "SELECT url FROM page"
commands = ["Url"]
"""
        assert add(stock, more)[0] == 0
        stock.put(pages(3, 2))
        wait_until(lambda: place.run("SELECT count(*) FROM urls") == [(5,)])
    finally:
        os.killpg(following.pid, signal.SIGINT)
        out, errors = following.communicate(timeout=20)
    assert (following.returncode, errors) == (0, "")
    assert out.splitlines() == [
        "pages -> main: 5 rows stored, all is stored",
        "urls -> main: 5 rows stored, all is stored",
    ]


@pytest.mark.servers
def test_wrong_file_is_one_line_and_an_exit_code(stock: Stock) -> None:
    stock.rules("[rules.x]\n")
    result = sterna("storage", "run", stock.folder)
    assert (result.returncode, result.stdout) == (Exit.USAGE, "")
    assert result.stderr == (
        f"sterna: {stock.folder}/storage.toml, line 1, rules.x: Object missing required field `store`\n"
    )


@pytest.mark.servers
def test_without_the_extra_one_line_names_it(stock: Stock) -> None:
    # As if SQLAlchemy were not installed.
    program = "import sys; sys.modules['sqlalchemy'] = None; from sterna.cli import run; run()"
    result = subprocess.run(
        [sys.executable, "-c", program, "storage", "list", stock.folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (
        Exit.USAGE,
        "sterna: this command needs the extra 'storage': scripts/install home storage\n",
    )
