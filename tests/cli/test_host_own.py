"""`sterna host index`, `sitemap`, `changes`, `search` as an owner meets them; a host that keeps its index."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.crawl.running import COMMAND, kill, start, sterna
from tests.forking import Forked
from tests.host.knocking import SITE, until, write_site
from tests.host.test_light import IDLE_BYTES, loaded_by, pss_of
from tests.killing import children_of
from tests.servers.nginx import serve
from typer.testing import CliRunner, Result

from sterna.cli.app import make_app
from sterna.errors import UsageError

PAGES = 13
POLICY = "[load]\nmachine = 0\n[limits]\nidle_seconds = 0.2\nreaders = 1\n"  # a test rests for nobody


class Owner:
    """A site without a web server, and the commands of its owner."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / "site"
        self.state = folder / "state"
        self.policy = folder / "policy.toml"
        write_site(self.site)
        self.policy.write_text(POLICY)

    @property
    def given(self) -> list[str]:
        flags = {"--site": SITE, "--root": self.site, "--check": "never", "--policy": self.policy}
        return [str(word) for flag in (flags | {"--state": self.state}).items() for word in flag]

    def run(self, *words: str | Path) -> "subprocess.CompletedProcess[str]":
        result = sterna("host", *words)
        assert result.returncode == 0, result.stderr
        return result

    def index(self, *words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.run("index", *self.given, "--json", *words).stdout)
        return answer

    def ask(self, *words: str | Path) -> str:
        """What a command says that only reads the index."""
        result = asked(*words, "--state", self.state)
        assert result.exit_code == 0, result.output
        return result.stdout


def asked(*words: str | Path) -> Result:
    """A command in this process: it starts within a moment."""
    return CliRunner().invoke(make_app(), ["host", *map(str, words)])


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


def test_owner_gets_sitemap_changes_and_search_on_the_first_day(owner: Owner) -> None:
    told = owner.run("index", *owner.given).stdout.splitlines()
    assert told[0] == f"{PAGES} pages of {SITE} in the index"
    assert told[1].endswith(f"-> {owner.state / 'own.sqlite'}")
    sitemap = owner.ask("sitemap")
    assert sitemap.count("<loc>") == PAGES
    out = owner.folder / "map" / "sitemap.xml"
    out.parent.mkdir()
    assert owner.ask("sitemap", "--out", out) == f"{out}\n"
    assert out.read_text() == sitemap
    null = owner.folder / "null"
    null.symlink_to("/dev/null")
    assert owner.ask("sitemap", "--out", null) == ""
    assert null.is_char_device()  # it is written to, not replaced
    found = owner.ask("search", "tern", "--limit", "3").splitlines()
    assert found[0].startswith("Page ")
    assert found[1].startswith(f"  {SITE}/")
    assert "[tern]" in found[2]
    assert len(found) == 3 * 4


def test_second_day_tells_what_became_of_the_site(owner: Owner) -> None:
    owner.index()
    (owner.site / "3.html").unlink()
    (owner.site / "new.html").write_text("<title>New \x1b[31m</title>nothing but news")
    (owner.site / "0.html").write_text('<title>Page 0</title>other words by far <a href="/new.html">new</a>')
    (owner.site / "1.html").touch()
    second = owner.index()
    assert [second[name] for name in ("created", "updated", "deleted", "shown")] == [1, 1, 0, PAGES]
    third = owner.index()
    assert [third[name] for name in ("created", "updated", "deleted", "number")] == [0, 0, 1, 3]
    lines = owner.ask("changes").splitlines()
    assert sorted(line.split()[1:3] for line in lines) == [
        ["created", f"{SITE}/new.html"],
        ["deleted", f"{SITE}/3.html"],
        ["updated", f"{SITE}/0.html"],
    ]
    assert not any("\x1b" in line for line in lines)
    told = [
        json.loads(line) for line in owner.ask("changes", "--format", "json", "--since", "1h").splitlines()
    ]
    assert {each["kind"] for each in told} == {"created", "updated", "deleted"}
    atom = owner.ask("changes", "--format", "atom")
    assert (atom.count("<entry>"), atom.count("<at:deleted-entry ")) == (2, 1)
    assert owner.ask("changes", "--since", "2999-01-01") == ""
    found = json.loads(owner.ask("search", "nothing but news", "--json"))
    first, last = found["marked"][0]
    assert (found["url"], found["excerpt"][first:last][:7]) == (f"{SITE}/new.html", "nothing")
    owner.policy.write_text(POLICY.replace("[load]", 'closed = ["/new"]\n[load]', 1))
    for words in (("sitemap",), ("changes",), ("changes", "--format", "atom")):
        assert "new.html" not in owner.ask(*words, "--policy", owner.policy)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("search", "tern", "--state", "nowhere"), "make it with 'sterna host index --site URL'"),
        (("sitemap", "--state", "nowhere"), "there is no index of the site in nowhere"),
        (("changes", "--since", "soon", "--state", "nowhere"), "write it as 2026-11-30"),
        (("index", "--site", "ftp://site.test"), "write it as https://www.example.org"),
        (("index", "--site", SITE, "--policy", "nowhere.toml"), "cannot read"),
    ],
)
def test_wrong_words_are_answered_in_one_line(words: tuple[str, ...], said: str) -> None:
    error = asked(*words).exception
    assert isinstance(error, UsageError)
    assert said in str(error)
    assert "\n" not in str(error)


def test_start_of_another_site_is_refused(tmp_path: Path) -> None:
    result = sterna("host", "index", "--site", SITE, "--start", "http://other.test/", "--state", tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "is not a page of http://site.test" in result.stderr


def test_search_that_finds_nothing_says_so(owner: Owner) -> None:
    owner.index()
    for query in ("heron", "***", '"', "a" * 5000):
        result = asked("search", query, "--state", owner.state)
        assert (result.exit_code, result.stdout, result.stderr) == (
            1,
            "",
            "sterna: no page contains these words\n",
        )


def test_only_index_there_is_need_not_be_named(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(owner.folder / "states"))
    owner.run("index", "--site", SITE, "--root", owner.site, "--check", "never", "--policy", owner.policy)
    assert asked("sitemap").stdout.count("<loc>") == PAGES
    assert asked("search", "tern", "--site", SITE).stdout.count(SITE) == 10


def test_site_that_does_not_answer_is_said_to(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    result = sterna(
        *("host", "index", "--site", SITE, "--upstream", "http://127.0.0.1:9"),
        *("--policy", tmp_path / "policy.toml", "--state", tmp_path / "state"),
    )
    assert result.returncode == 3
    assert "cannot read robots.txt: " in result.stderr


def test_commands_load_nothing_heavy() -> None:
    loaded = loaded_by("import sterna.cli.host_own")
    assert [
        name
        for name in ("pycurl", "selectolax", "sterna.runtime.runtime", "duckdb", "uvicorn")
        if name in loaded
    ] == []


@pytest.mark.servers
def test_survey_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    write_site(tmp_path / "site", pages=400)
    policy = tmp_path / "policy.toml"
    policy.write_text("connections = 1\ndelay_seconds = 0.005\n" + POLICY)
    with serve(tmp_path / "site", folder=tmp_path / "nginx") as server:
        words = [
            "host",
            "index",
            "--site",
            server.url,
            "--policy",
            str(policy),
            "--state",
            str(tmp_path / "state"),
        ]
        process = start(*words)
        path = tmp_path / "state" / "own.sqlite"
        deadline = time.monotonic() + 60
        while pages_in(path) < 60 and time.monotonic() < deadline:
            time.sleep(0.02)
        kill(process)
        kept = pages_in(path)
        assert 60 <= kept < 401, "it was killed too late"
        result = sterna(*words, "--json")
        assert result.returncode == 0, result.stderr
        told = json.loads(result.stdout)
        assert [told[name] for name in ("number", "pages", "shown", "created", "left")] == [1, 401, 401, 0, 0]
        asked = [line.split('"')[1].split()[1] for line in server.log_path.read_text().splitlines()]
        asked = [each for each in asked if each != "/robots.txt"]
        assert len(set(asked)) == 401
        assert len(asked) - 401 <= 401 - kept  # only what was not kept is asked for again
        assert len(asked) < 2 * 401 - kept + 1


def pages_in(path: Path) -> int:
    if not path.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            return int(db.execute("SELECT count(*) FROM page").fetchone()[0])
    except sqlite3.OperationalError:  # its tables are just being made
        return 0


# -- a host that runs --------------------------------------------------------------------------------------


@contextmanager
def running(
    owner: Owner, *words: str, start: type["subprocess.Popen[str]"] = Forked
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A host, and where it listens."""
    process = start(
        [*COMMAND, "host", "run", *owner.given, "--keys", "keys", "--listen", "127.0.0.1:0", *words],
        cwd=owner.folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    line = ""
    while not line.startswith("listens"):
        line = process.stdout.readline()
        assert line, "it ended"
    try:
        yield process, f"http://{line.split()[1]}/sterna"
    finally:
        process.kill()
        process.communicate()


def fetched(url: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    asked = urllib.request.Request(
        url, headers={name.replace("_", "-"): each for name, each in headers.items()}
    )
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read(), dict(error.headers)


async def test_host_keeps_its_index_and_shows_what_is_in_it(owner: Owner) -> None:
    with running(owner, "--index", "24", start=subprocess.Popen) as (process, url):
        assert process.stdout
        line = await asyncio.to_thread(process.stdout.readline)
        assert line.startswith(f"the survey of the site is over: {PAGES} pages read, 0 created")
        status, body, headers = await asyncio.to_thread(fetched, f"{url}/sitemap.xml")
        assert (status, body.count(b"<loc>"), headers["content-type"]) == (200, PAGES, "application/xml")
        assert (await asyncio.to_thread(fetched, f"{url}/sitemap.xml", If_None_Match=headers["etag"]))[
            0
        ] == 304
        status, body, headers = await asyncio.to_thread(fetched, f"{url}/changes.atom")
        assert (status, headers["content-type"]) == (200, "application/atom+xml; charset=utf-8")
        assert b"<feed " in body
        assert (await asyncio.to_thread(fetched, f"{url}/changes.jsonl"))[0] == 200
        for path in ("sitemap-1.xml", "sitemap-0.xml", "own.sqlite", "../policy.toml", "sitemap.xml/"):
            assert (await asyncio.to_thread(fetched, f"{url}/{path}"))[0] == 404
        await until(lambda: not children_of(process.pid))
        assert pss_of(process.pid) < IDLE_BYTES
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_host_that_keeps_no_index_shows_one_that_was_made(owner: Owner) -> None:
    with running(owner) as (_, url):
        assert fetched(f"{url}/sitemap.xml")[0] == 404
        owner.index()  # while the host runs
        assert fetched(f"{url}/sitemap.xml")[1].count(b"<loc>") == PAGES


async def test_host_that_is_stopped_ends_its_survey_softly(owner: Owner) -> None:
    write_site(owner.site, pages=600)
    owner.policy.write_text("connections = 1\ndelay_seconds = 0.05\n" + POLICY)
    with running(owner, "--index", "1") as (process, _):
        await until(lambda: pages_in(owner.state / "own.sqlite") > 0)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "the survey of the site is not over (stopped)" in out
    assert 0 < pages_in(owner.state / "own.sqlite") < 601


def test_cgi_program_shows_what_is_in_the_index(owner: Owner) -> None:
    owner.index()
    program = owner.folder / "sterna.cgi"
    owner.run("cgi", program, *owner.given, "--keys", owner.folder / "keys")
    given = {"REQUEST_METHOD": "GET", "PATH_INFO": "/sitemap.xml", "GATEWAY_INTERFACE": "CGI/1.1"}
    first = subprocess.run(
        [sys.executable, "-P", program], env=os.environ | given, capture_output=True, check=True
    )
    head, _, body = first.stdout.partition(b"\r\n\r\n")
    assert head.startswith(b"Status: 200 OK")
    assert body.count(b"<loc>") == PAGES
    tag = next(line for line in head.decode().split("\r\n") if line.startswith("ETag: ")).removeprefix(
        "ETag: "
    )
    known = {"HTTP_IF_NONE_MATCH": tag}
    again = subprocess.run(
        [sys.executable, "-P", program], env=os.environ | given | known, capture_output=True, check=True
    )
    assert again.stdout.startswith(b"Status: 304 Not Modified")
    assert again.stdout.endswith(b"\r\n\r\n")
