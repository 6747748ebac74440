"""`sterna host` as its owner meets it: what it says, what it refuses, how it ends; and the base install."""

import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.crawl.hosting import free_port
from tests.crawl.running import COMMAND, sterna
from tests.forking import Forked
from tests.host.knocking import write_site

from sterna.cli.commands import HOST_COMMANDS
from sterna.host.config import read_host_file
from sterna.host.keyring import Keyring
from sterna.wire.discovery import WELL_KNOWN, decode_offer

SITE = "http://site.test"
EXTRA = ("duckdb", "fastwarc", "pyarrow", "pytz", "sqlglot", "tantivy")


@contextmanager
def running(
    folder: Path, *words: str, start: type["subprocess.Popen[str]"] = Forked
) -> Iterator[tuple["subprocess.Popen[str]", list[str]]]:
    """A host and what it said until it listens."""
    write_site(folder / "site")
    given = ["--site", SITE, "--root", "site", "--check", "never", "--keys", "keys", "--state", "state"]
    process = start([*COMMAND, "host", "run", *given, *words], cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    lines: list[str] = []
    while not lines or not lines[-1].startswith("listens"):
        line = process.stdout.readline()
        assert line, lines
        lines.append(line.rstrip("\n"))
    try:
        yield process, lines
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_host_says_what_it_is_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, "--listen", "127.0.0.1:0", start=subprocess.Popen) as (process, lines):
        said = dict(line.split(maxsplit=1) for line in lines)
        key = Keyring(tmp_path / "keys").read("host").public
        assert (said["site"], said["endpoint"], said["key"]) == (SITE, f"{SITE}/sterna", key.text)
        assert said["allowed"].startswith("nobody yet: sterna keys allow KEY --name NAME")
        shown = "of kinds that sites publish; --kind EXT adds others"
        assert said["pages"] == f"files in {tmp_path / 'site'}, {shown}"
        assert said["jail"].startswith(("seccomp", "none"))
        with urllib.request.urlopen(f"http://{said['listens']}{WELL_KNOWN}", timeout=20) as answer:
            assert decode_offer(answer.read(), SITE).public_key == key
        process.send_signal(number)
        out, _ = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, "stopped\n")


def test_allow_self_lets_the_home_of_the_same_folder_in(tmp_path: Path) -> None:
    with running(tmp_path, "--listen", "127.0.0.1:0", "--allow-self") as (_, lines):
        home = Keyring(tmp_path / "keys").read("home").public
        assert f"allowed   this-machine  {home.text}" in lines


def test_host_listens_on_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with running(tmp_path, "--listen", f"unix:{path}") as (_, lines):
        assert lines[-1] == f"listens   unix:{path}"
        assert path.is_socket()
    with running(tmp_path, "--listen", f"unix:{path}"):  # what the killed one left does not matter
        pass


def test_socket_on_which_another_process_listens_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    words = ("--site", SITE, "--keys", tmp_path / "keys", "--state", tmp_path / "state")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        result = sterna("host", "run", *words, "--listen", f"unix:{path}")
        assert result.returncode == 2
        assert "is in use by another process" in result.stderr
        assert path.is_socket()


def test_host_warns_where_no_web_server_answers(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    words = ("--check", "every", "--upstream", f"http://127.0.0.1:{port}", "--listen", "127.0.0.1:0")
    with running(tmp_path, *words) as (_, lines):
        assert f"warning   no web server at 127.0.0.1:{port}: name it with --upstream URL" in lines


def test_second_host_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with running(tmp_path, "--listen", "127.0.0.1:0"):
        words = ("--site", SITE, "--keys", tmp_path / "keys", "--state", tmp_path / "state")
        result = sterna("host", "run", *words, "--listen", "127.0.0.1:0")
        assert result.returncode == 2
        assert "another host runs in" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--site", "ftp://site.test"), "site"),
        (("--site", "http://site.test/path"), "write it as https://www.example.org"),
        (("--site", SITE, "--root", "nowhere"), "is not a folder"),
        (("--site", SITE, "--alias", "files"), "/files=DIR"),
        (("--site", SITE, "--root", ".", "--alias", "files=."), "/files=DIR"),
        (("--site", SITE, "--policy", "nowhere.toml"), "cannot read"),
        (("--site", SITE, "--endpoint", "sterna"), "endpoint"),
        (("--site", SITE, "--upstream", "nowhere", "--listen", "127.0.0.1:0"), "upstream"),
        (("--site", SITE, "--root", ".", "--check", "sometimes"), "check"),
        (("--site", SITE, "--check", "every"), "need a document root"),
        (("--site", SITE, "--root", ".", "--kind", "json"), "kinds need --check never"),
        (("--site", SITE, "--root", ".", "--check", "never", "--kind", "php"), "kind 'php' cannot be shown"),
        (("--site", SITE, "--listen", "here"), "--listen here is invalid"),
        (("--site", SITE, "--listen", "127.0.0.1:99999"), "is not available"),
        (("--site", SITE, "--listen", "192.0.2.1:80"), "is not available"),
    ],
)
def test_wrong_flags_are_answered_in_one_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    result = sterna("host", "run", *words, "--keys", tmp_path / "k", "--state", tmp_path / "s")
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr


def test_cgi_program_is_written_with_its_settings_beside_it(tmp_path: Path) -> None:
    write_site(tmp_path / "site")
    program = tmp_path / 'st"er na'
    folders = ("--keys", tmp_path / "k", "--state", tmp_path / "s", "--root", tmp_path / "site")
    alias = f"/files={tmp_path / 'site'}"
    more = ("--alias", alias, "--check", "never", "--kind", "json", "--kind", "tar.gz")
    result = sterna("host", "cgi", program, "--site", SITE, *folders, *more)
    assert result.returncode == 0, result.stderr
    assert program.stat().st_mode & 0o111 == 0o111
    compile(program.read_text(), "program", "exec")
    assert program.read_text().startswith(f"#!{sys.executable}")
    settings = program.with_name(f"{program.name}.toml").read_text()
    assert f'site = "{SITE}"' in settings
    assert '"/files" = ' in settings
    assert read_host_file(program.with_name(f"{program.name}.toml")).kinds == ("json", "tar.gz")
    assert "nobody yet" in result.stdout


def test_help_lists_every_command_and_each_loads_alone(tmp_path: Path) -> None:
    helped = sterna("host", "--help")
    assert helped.returncode == 0, helped.stderr
    assert all(f" {name} " in helped.stdout for name in HOST_COMMANDS)
    program = "import sys; from sterna.cli.app import main\nsys.argv = ['sterna', 'host', 'open', '--help']\n"
    program += "try: main()\nexcept SystemExit: print('sterna.cli.host_run' in sys.modules)\n"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "False"
    unknown = sterna("host", "stopp")
    assert unknown.returncode == 2
    assert "stopp" in unknown.stderr


# -- the base install --------------------------------------------------------------------------------------


def without_extra(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """The command where what the extra 'home' installs is missing."""
    block = f"import sys\nsys.modules.update(dict.fromkeys({EXTRA!r}))\n"
    (folder / "blocked.py").write_text(f"{block}from sterna.cli import run\nrun()\n")
    return subprocess.run(
        [sys.executable, "blocked.py", *words], cwd=folder, capture_output=True, text=True, check=False
    )


def test_keys_and_host_work_on_the_base_install(tmp_path: Path) -> None:
    made = without_extra(tmp_path, "keys", "new", "home", "--keys", "k")
    assert made.returncode == 0, made.stderr
    helped = without_extra(tmp_path, "host", "run", "--help")
    assert helped.returncode == 0, helped.stderr
    assert "--allow-self" in helped.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("ask", "SELECT url FROM page", "http://127.0.0.1:9/"),
        ("crawl", "http://127.0.0.1:9/", "--into", "c"),
    ],
)
def test_other_commands_say_what_is_missing_in_one_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = without_extra(tmp_path, *words)
    assert result.returncode == 2
    assert result.stderr == "sterna: this command needs the extra 'home': scripts/install home\n"


def test_help_lists_every_command_on_the_base_install(tmp_path: Path) -> None:
    result = without_extra(tmp_path, "--help")
    assert result.returncode == 0, result.stderr
    assert all(f" {name} " in result.stdout for name in ("crawl", "query", "host", "keys", "doctor"))
