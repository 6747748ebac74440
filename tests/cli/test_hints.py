"""Hints run as they are printed."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.crawl.running import PLAIN

from sterna.cli.hints import program, runnable
from sterna.errors import command

SCRIPT = Path(sys.executable).with_name("sterna")
HINT = "look at it: sterna query crawls/a"


@pytest.mark.parametrize(
    "folder", ["c", "my folder", "it's", 'a "b"', "$HOME", "`ls`", "a\\b", "ü & co;", "!x"]
)
def test_shell_reads_a_shown_command_as_it_is_meant(folder: str) -> None:
    assert shlex.split(command("status", folder)) == ["sterna", "status", folder]
    echoed = subprocess.run(["sh", "-c", f"printf %s {command(folder)[7:]}"], capture_output=True, check=True)
    assert echoed.stdout.decode() == folder


def test_name_alone_is_shown_where_the_shell_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{SCRIPT.parent}:/usr/bin")
    monkeypatch.setattr(sys, "argv", [str(SCRIPT)])
    assert runnable(HINT) == HINT


def test_path_is_shown_where_the_shell_does_not_find_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    for argv, where, shown in (
        (str(SCRIPT), SCRIPT.parents[2], ".venv/bin/sterna"),
        (str(SCRIPT), SCRIPT.parent, "./sterna"),
        (str(SCRIPT), tmp_path, str(SCRIPT)),
        ("/any/sterna/__main__.py", SCRIPT.parents[1], "bin/sterna"),
        ("sterna", tmp_path, "sterna"),
    ):
        monkeypatch.chdir(where)
        monkeypatch.setattr(sys, "argv", [argv])
        expected = os.path.relpath(SCRIPT) if shown == ".venv/bin/sterna" else shown
        assert program() == expected
        assert runnable(HINT) == HINT.replace("sterna", expected)


def test_other_words_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setattr(sys, "argv", [str(SCRIPT)])
    for text in ("pip install sterna", "the sterna genus", "/opt/sterna query", "https://a.example/sterna x"):
        assert runnable(text) == text


def test_hint_of_a_command_runs_from_where_the_user_is(tmp_path: Path) -> None:
    environment = {**os.environ, **PLAIN, "PATH": "/usr/bin:/bin"}
    demo = [str(SCRIPT), "demo", "--into", "my crawls/first one"]
    result = subprocess.run(demo, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    hint = result.stdout.splitlines()[-1].removeprefix("look at it: ")
    sh = ["sh", "-c", hint]
    shown = subprocess.run(sh, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "(10 rows)" in shown.stdout
