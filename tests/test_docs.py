"""The examples in the docs run, and print what they say."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

import pytest

from sterna.cli.demo import PORT
from sterna.cli.exits import Exit

pytestmark = pytest.mark.alone  # the ports in the documents are the same for all

ROOT = Path(__file__).parent.parent
STERNA = [sys.executable, "-m", "sterna"]

# What differs from run to run: times, rates and sizes.
_VARYING = [
    (re.compile(r"\bin [\d.,]+ s \([\d.,]+ a second\)"), r"in [\\d.,]+ s \\([\\d.,]+ a second\\)"),
    (re.compile(r"\b[\d.,]+ [kMG]?B\b"), r"[\\d.,]+ [kMG]?B"),
]


def examples(document: str) -> list[tuple[str, list[str]]]:
    """The commands of a document's console blocks, each with the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", (ROOT / document).read_text(), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            else:
                found[-1][1].append(line)
    return found


def run(command: str, folder: Path) -> list[str]:
    words = [
        "".join(run(word[2:-1], folder)) if word.startswith("$(") else word for word in shlex.split(command)
    ]
    if words[0] == "scripts/crawl":
        words = [*STERNA, *(["crawl", *words[1:]] if words[1:] else ["demo"])]
    elif words[0] == "sterna":
        words = [*STERNA, *words[1:]]
    result = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env=os.environ)
    return (result.stdout + result.stderr).splitlines()


def pattern(line: str) -> str:
    """The line as an expression: what varies may vary, and ... stands for anything."""
    parts = []
    for part in line.split("..."):
        escaped = re.escape(part)
        for varying, replacement in _VARYING:
            for found in varying.finditer(part):
                escaped = escaped.replace(re.escape(found.group()), varying.sub(replacement, found.group()))
        parts.append(escaped)
    return ".*".join(parts)


def check(document: str, folder: Path) -> None:
    for command, expected in examples(document):
        printed = run(command, folder)
        text = "\n".join(printed)
        wanted = "\n".join(pattern(line) for line in expected)
        assert re.fullmatch(wanted, text, re.DOTALL), f"$ {command}\nprinted:\n{text}\nexpected:\n{wanted}"


@contextmanager
def demo_site() -> Iterator[None]:
    process = subprocess.Popen([*STERNA, "demo", "--serve"], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while not _answers():
            assert time.monotonic() < deadline, "the demo site never came up"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def _answers() -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/", timeout=1):
            return True
    except URLError:
        return False


@pytest.mark.servers
def test_readme_prints_what_it_says(tmp_path: Path) -> None:
    assert len(examples("README.md")) >= 5
    check("README.md", tmp_path)


@pytest.mark.servers
def test_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    assert len(examples("docs/tutorial.md")) >= 8
    rules = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/tutorial.md").read_text(), re.DOTALL)
    (tmp_path / "mine.toml").write_text(rules[0])
    with demo_site():
        check("docs/tutorial.md", tmp_path)


@pytest.mark.servers
def test_page_on_programs_prints_what_it_says(tmp_path: Path) -> None:
    assert len(examples("docs/programs.md")) >= 12
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    with demo_site():
        check("docs/programs.md", tmp_path)


@contextmanager
def started(document: str, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """The servers that a document has one start, each as soon as the one before it listens."""
    text = (ROOT / document).read_text()
    for name, language in (("site.conf", "nginx"), ("trial.toml", "toml")):
        (folder / name).write_text(re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)[0])
    (commands,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    processes = []
    try:
        for command, port in zip(commands.splitlines(), (8480, 8481), strict=True):
            words = shlex.split(command)
            words = [*STERNA, *words[1:]] if words[0] == "sterna" else words
            processes.append(subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.DEVNULL))
            wait_for(port)
        yield
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, f"nobody listens on {port}"
            time.sleep(0.05)
        else:
            return


@pytest.mark.servers
def test_page_on_hosts_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STERNA_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(examples("docs/hosts.md")) >= 6
    with started("docs/hosts.md", tmp_path, dict(os.environ)):
        check("docs/hosts.md", tmp_path)


@pytest.mark.servers
def test_page_for_owners_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STERNA_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(examples("docs/host.md")) >= 12
    policies = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/host.md").read_text(), re.DOTALL)
    for name, text in zip(("policy.toml", "broken.toml"), policies, strict=True):
        (tmp_path / name).write_text(text)
    with started("docs/hosts.md", tmp_path, dict(os.environ)):
        check("docs/host.md", tmp_path)


def test_reference_lists_every_exit_code() -> None:
    rows = re.findall(r"^\| (\d) \|", (ROOT / "docs/reference.md").read_text(), re.MULTILINE)
    assert [int(row) for row in rows] == [code.value for code in Exit]


def test_reference_names_every_option() -> None:
    from sterna.home.options import Options  # noqa: PLC0415 - beside its only use

    text = (ROOT / "docs/reference.md").read_text()
    inner = {"readers"}  # how many processes read pages is for measuring
    assert [
        name
        for name in Options.__struct_fields__
        if f"`{name}" not in text and name not in inner | {"limits"}
    ] == []
