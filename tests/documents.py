"""The examples in the docs: read, run, and compared with what the documents say they print."""

import random
import re
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from tests.crawl.running import COMMAND, call
from tests.forking import Forked

from sterna.cli.demo import PORT, served

ROOT = Path(__file__).parent.parent

# What differs from run to run: times, rates and sizes.
_VARYING = [
    (re.compile(r"\bin [\d.,]+ s \([\d.,]+ a second\)"), r"in [\\d.,]+ s \\([\\d.,]+ a second\\)"),
    (re.compile(r"\b[\d.,]+ [kMG]?B\b"), r"[\\d.,]+ [kMG]?B"),
]
# What is printed only on a busy machine: a wait for the index, and the progress of a crawl after ten seconds.
_SLOW = re.compile(r"indexing: (\d+ pages? left|nearly done)|^pages [\d,]+  a second ")


class Document:
    """A document, with other ports than it names: tests that run side by side must not share them."""

    def __init__(self, name: str, ports: Mapping[int, int] | None = None) -> None:
        self.text = with_ports((ROOT / name).read_text(), ports or {})

    def blocks(self, language: str) -> list[str]:
        """The blocks in a language."""
        return re.findall(rf"```{language}\n(.*?)```", self.text, re.DOTALL)

    def examples(self) -> list[tuple[str, list[str]]]:
        """The commands of the console blocks, each with the lines that it prints."""
        found: list[tuple[str, list[str]]] = []
        for block in self.blocks("console"):
            for line in block.splitlines():
                if line.startswith("$ "):
                    found.append((line.removeprefix("$ "), []))
                else:
                    found[-1][1].append(line)
        return found

    def check(self, folder: Path) -> None:
        """Runs the examples in a folder; each must print what the document says."""
        for command, expected in self.examples():
            text = "\n".join(run(command, folder))
            wanted = "\n".join(pattern(line) for line in expected)
            assert re.fullmatch(wanted, text, re.DOTALL), (
                f"$ {command}\nprinted:\n{text}\nexpected:\n{wanted}"
            )


def run(command: str, folder: Path) -> list[str]:
    """The lines that a command prints, Sterna's own in this process."""
    words = [
        "".join(run(word[2:-1], folder)) if word.startswith("$(") else word for word in shlex.split(command)
    ]
    with chdir(folder):
        if words[0] == "scripts/crawl":
            result = call(["crawl", *words[1:]] if words[1:] else ["demo"])
        elif words[0] == "sterna":
            result = call(words[1:])
        else:
            result = subprocess.run(words, capture_output=True, text=True, check=False)
    return [line for line in (result.stdout + result.stderr).splitlines() if not _SLOW.search(line)]


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


@contextmanager
def demo_site(folder: Path) -> Iterator[dict[int, int]]:
    """`sterna demo --serve`, on a port that is free; yields which one stands for the usual one."""
    ports = {PORT: free_port()}
    with served(copy_demo_site(folder, ports), ports[PORT]) as url:
        assert url == f"http://127.0.0.1:{ports[PORT]}/", "the port was taken meanwhile"
        yield ports


def copy_demo_site(folder: Path, ports: Mapping[int, int]) -> Path:
    """The demo's site, whose robots.txt and sitemap name its port."""
    with as_file(files("sterna.cli") / "demo_site") as root:
        shutil.copytree(root, folder / "demo_site")
    for name in ("robots.txt", "sitemap.xml"):
        path = folder / "demo_site" / name
        path.write_text(with_ports(path.read_text(), ports))
    return folder / "demo_site"


def free_port() -> int:
    """A free port of four digits, as those of the documents are: so columns are as wide as there."""
    while True:
        port = random.randrange(5_000, 10_000)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def copy_examples(folder: Path, ports: Mapping[int, int]) -> None:
    """The folder `examples`, as the documents have one use it."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    for path in (folder / "examples").rglob("*.toml"):
        path.write_text(with_ports(path.read_text(), ports))


def with_ports(text: str, ports: Mapping[int, int]) -> str:
    """The text, with other ports than it names."""
    for old, new in ports.items():
        text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
    return text


@contextmanager
def started(document: Document, folder: Path, *ports: int) -> Iterator[None]:
    """The servers that a document has one start, each as soon as the one before it listens."""
    for name, language in (("site.conf", "nginx"), ("trial.toml", "toml")):
        (folder / name).write_text(document.blocks(language)[0])
    (commands,) = document.blocks("sh")
    processes: list[subprocess.Popen[Any]] = []
    try:
        for command, port in zip(commands.splitlines(), ports, strict=True):
            words = shlex.split(command)
            if words[0] == "sterna":
                processes.append(Forked([*COMMAND, *words[1:]], cwd=folder, stdout=subprocess.DEVNULL))
            else:
                processes.append(subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL))
            _wait_for(port)
        yield
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline, f"nobody listens on {port}"
            time.sleep(0.05)
        else:
            return
