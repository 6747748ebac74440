"""Commands that only read a collection are confined to it, to their output and to what Python needs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.crawl.running import crawl_here, sterna_process
from tests.servers.hostile import HostileServer

from sterna.runtime.cell import kernel, seccomp
from sterna.runtime.cell.seccomp import MACHINES, REFUSE, REFUSED, refusal_of

pytestmark = [
    pytest.mark.skipif(kernel.landlock_abi() < 6, reason="this kernel's Landlock does not know signals"),
    pytest.mark.skipif(bool(seccomp.why_not()), reason="no seccomp"),
]

# What code that got loose in a confined command could do, each in a word; printed is what became of it.
LOOSE = """
import json, os, signal, socket, subprocess, sys
from pathlib import Path
from sterna.cli import confinement
folder, out, outside, parent = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
if sys.argv[5] == "confined":
    confinement.is_own_process = True
confinement.keep_to(folder, out=out / "rows.csv")

def told(deed):
    try:
        deed()
    except PermissionError:
        return "refused"
    return "done"

child = f"open({str(outside / 'secret')!r}).read()"
print(json.dumps({
    "reads the collection": told(lambda: (folder / "a").read_text()),
    "writes into it": told(lambda: (folder / "b").write_text("x")),
    "writes its output": told(lambda: (out / ".rows.csv").write_text("x")),
    "renames its output": told(lambda: (out / ".rows.csv").rename(out / "rows.csv")),
    "reads a secret": told(lambda: (outside / "secret").read_text()),
    "lists a folder": told(lambda: os.listdir(outside)),
    "overwrites a file": told(lambda: (outside / "secret").write_text("changed")),
    "removes a file": told(lambda: (outside / "other").unlink()),
    "follows a link": told(lambda: (folder / "link").read_text()),
    "reads passwords": told(lambda: Path("/etc/passwd").read_text()),
    "opens a socket": told(lambda: socket.socket()),
    "opens a unix socket": told(lambda: socket.socket(socket.AF_UNIX)),
    "signals its parent": told(lambda: os.kill(parent, 0)),
    "reads its parent's memory": told(lambda: open(f"/proc/{parent}/mem", "rb")),
    "starts a program": told(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)),
    "capabilities": int(Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0], 16),
    "its program reads": subprocess.run(
        [sys.executable, "-c", child], stderr=subprocess.DEVNULL).returncode,
}))
"""
MAY = {
    "reads the collection",
    "writes into it",
    "writes its output",
    "renames its output",
    "starts a program",
}


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    for name in ("collection", "out", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "collection" / "a").write_text("x")
    for name in ("secret", "other"):
        (tmp_path / "outside" / name).write_text("x")
    (tmp_path / "collection" / "link").symlink_to(tmp_path / "outside" / "secret")
    return tmp_path


def deeds(scene: Path, how: str) -> dict[str, Any]:
    folders = [str(scene / name) for name in ("collection", "out", "outside")]
    words = [sys.executable, "-c", LOOSE, *folders, str(os.getpid()), how]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_confined_command_reaches_its_collection_and_its_output_and_nothing_else(scene: Path) -> None:
    said = deeds(scene, "confined")

    assert said.pop("its program reads") != 0
    assert said.pop("capabilities") <= 0xFF  # over files and its own cells
    assert {deed for deed, outcome in said.items() if outcome == "done"} == MAY
    assert (scene / "outside" / "secret").read_text() == "x"
    assert (scene / "outside" / "other").exists()


def test_the_same_deeds_succeed_in_a_process_that_is_not_confined(scene: Path) -> None:
    said = deeds(scene, "free")

    assert said.pop("its program reads") == 0
    del said["capabilities"]
    assert {deed for deed, outcome in said.items() if outcome == "refused"} == set()


# Runs a command whose confinement tells how many threads there are by then, and which parsers are loaded.
WATCHED = """
import os, sys
from sterna import cli
from sterna.cli import confinement

def confine(**_):
    loaded = [name for name in ("duckdb", "pyarrow", "tantivy", "fastwarc") if name in sys.modules]
    print("confined with", len(os.listdir("/proc/self/task")), "thread", *loaded, file=sys.stderr)

confinement.confine = confine
sys.argv[0] = "sterna"
cli.run()
"""


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("confined") / "c"
    with HostileServer().run_in_thread() as server:
        server.links = ["/leaf/1"]
        crawl_here(folder, server.url, max_pages=3, warc=True)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("query", "DIR", "SELECT url FROM page"),
        ("search", "DIR", "leaf"),
        ("index", "DIR"),
        ("status", "DIR"),
        ("export", "DIR", "--to", "warc", "--out", "OUT"),
        ("export", "DIR", "--to", "markdown", "--out", "OUT"),
        ("repair", "DIR", "--dry-run"),
    ],
    ids=lambda words: " ".join((words[0], *words[3:4])),
)
def test_commands_that_read_are_confined_before_they_read(
    collection: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    given = [{"DIR": str(collection), "OUT": str(tmp_path / "out")}.get(word, word) for word in words]
    watched = subprocess.run(
        [sys.executable, "-c", WATCHED, *given], capture_output=True, text=True, timeout=60, check=False
    )
    assert [line for line in watched.stderr.splitlines() if "thread" in line] == ["confined with 1 thread"]

    if "--out" in words:
        given[-1] += "-confined"
    done = sterna_process(*given)

    assert done.returncode == watched.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if "search index" not in line]


# -- the filter --------------------------------------------------------------------------------------------


def test_refusing_filter_has_the_numbers_of_each_machine() -> None:
    for at, machine in enumerate(MACHINES.values()):
        code = refusal_of(machine)
        for numbers in REFUSED.values():
            assert numbers[at].to_bytes(4, sys.byteorder) in code
        assert code.endswith(REFUSE.to_bytes(4, sys.byteorder))
