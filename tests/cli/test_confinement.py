"""Commands that only read a collection are confined to it, to their output and to what Python needs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.crawl.running import crawl_here, sterna_process
from tests.servers.hostile import HostileServer

from sterna.runtime.cell import kernel, seccomp

pytestmark = [
    pytest.mark.skipif(kernel.landlock_abi() < 6, reason="this kernel's Landlock does not know signals"),
    pytest.mark.skipif(bool(seccomp.why_not()), reason="no seccomp"),
]

# What code that got loose in a confined command could do, each in a word; printed is what became of it.
LOOSE = """
import errno, fcntl, json, os, pty, signal, socket, subprocess, sys, termios
from pathlib import Path
from sterna.cli import confinement
from sterna.errors import StorageError
from sterna.export.workbench import bench, publish
folder, out, outside, parent = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
_, terminal = pty.openpty()
os.setsid()
fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
if sys.argv[5] == "confined":
    confinement.is_own_process = True
confinement.keep_to(folder, out=out / "rows.csv")

def told(deed):
    try:
        deed()
    except (PermissionError, StorageError):
        return "refused"
    except OSError as error:
        if error.errno not in (errno.ENOTTY, errno.EIO):  # a terminal of another kind, a kernel that does not
            raise
    return "done"

def publish_as(name, *, at=out):
    (work / "made").write_text("rows")
    publish(work / "made", at / name, force=True)

opened = bench(out / "rows.csv")
work = opened.__enter__()
(work / "other").write_text("x")
child = f"open({str(outside / 'secret')!r}).read()"
print(json.dumps({
    "reads the collection": told(lambda: (folder / "a").read_text()),
    "writes its search index": told(lambda: (folder / "index" / "b").write_text("x")),
    "writes storage rules": told(lambda: (folder / "storage.toml").write_text("x")),
    "writes a function beside them": told(lambda: (folder / "evil.py").write_text("x")),
    "changes the ledger": told(lambda: (folder / "ledger.sqlite").write_text("x")),
    "adds to its log": told(lambda: (folder / "ledger.sqlite-wal").open("a")),
    "changes the index of its log": told(lambda: (folder / "ledger.sqlite-shm").open("r+")),
    "changes a segment": told(lambda: (folder / "segments" / "s").write_text("x")),
    "replaces the segments by a link": told(lambda: (folder / "segments").rename(folder / "index" / "s")),
    "replaces the index by a link": told(lambda: (folder / "index").rename(folder / "old")),
    "publishes its output": told(lambda: publish_as("rows.csv")),
    "publishes a part of it": told(lambda: publish_as("rows-12.csv")),
    "publishes another name": told(lambda: publish_as("authorized_keys")),
    "reads beside its output": told(lambda: (out / ".ssh" / "id").read_text()),
    "lists the folder of its output": told(lambda: os.listdir(out)),
    "writes beside its output": told(lambda: (out / "new").write_text("x")),
    "moves into another folder": told(lambda: (work / "other").rename(out / ".ssh" / "id")),
    "removes beside its output": told(lambda: (out / ".ssh" / "id").unlink()),
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
    "types into its terminal": told(lambda: fcntl.ioctl(terminal, termios.TIOCSTI, b"x")),
    "pastes into its terminal": told(lambda: fcntl.ioctl(terminal, 0x541C, b"\\3")),
    "asks for the size of its terminal": told(lambda: os.get_terminal_size(terminal)),
    "starts a program": told(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)),
    "capabilities": int(Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0], 16),
    "its program reads": subprocess.run(
        [sys.executable, "-c", child], stderr=subprocess.DEVNULL).returncode,
}))
"""
MAY = {
    "reads the collection",
    "writes its search index",
    "publishes its output",
    "publishes a part of it",
    "starts a program",
    "asks for the size of its terminal",
}


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    for name in ("collection", "out", "outside"):
        (tmp_path / name).mkdir()
    for name in ("a", "collection.json", "ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"):
        (tmp_path / "collection" / name).write_text("x")
    for name in ("segments", "index"):
        (tmp_path / "collection" / name).mkdir()
    (tmp_path / "collection" / "segments" / "s").write_text("x")
    (tmp_path / "out" / ".ssh").mkdir()
    (tmp_path / "out" / ".ssh" / "id").write_text("x")
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
    names = {path.name for path in (scene / "out").iterdir() if not path.name.endswith(".part")}
    assert names == {".ssh", "rows.csv", "rows-12.csv"}
    assert (scene / "out" / ".ssh" / "id").read_text() == "x"


def test_the_same_deeds_succeed_in_a_process_that_is_not_confined(scene: Path) -> None:
    said = deeds(scene, "free")

    assert said.pop("its program reads") == 0
    del said["capabilities"]
    assert {deed for deed, outcome in said.items() if outcome == "refused"} == set()


def test_index_that_is_a_link_gives_no_rights(scene: Path) -> None:
    (scene / "collection" / "index").rmdir()
    (scene / "collection" / "index").symlink_to(scene / "outside")
    assert deeds(scene, "confined")["writes its search index"] == "refused"
    assert not (scene / "outside" / "b").exists()


MENDING = """
import sys
from pathlib import Path
from sterna.cli import confinement
confinement.is_own_process = True
folder, outside = map(Path, sys.argv[1:])
confinement.keep_to(folder, mends=True)
(folder / "ledger.sqlite").write_text("mended")
try:
    (outside / "secret").write_text("x")
except PermissionError:
    print("kept to it")
"""


def test_command_that_mends_writes_all_of_the_collection(scene: Path) -> None:
    (scene / "link to it").symlink_to("collection")
    words = [sys.executable, "-c", MENDING, str(scene / "link to it"), str(scene / "outside")]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "kept to it\n"
    assert (scene / "collection" / "ledger.sqlite").read_text() == "mended"


PINNING = """
import sys
from pathlib import Path
from sterna.cli import confinement
from sterna.errors import StorageError
from sterna.export.workbench import pinned
confinement.is_own_process = True
folder = Path(sys.argv[1])
confinement.keep_to(folder, out=Path("-"), exports=True)
segments = folder / "segments"
with pinned({"page": [segments / "s"]}, beside=segments) as tables:
    print(tables["page"][0].parent != segments, flush=True)
    sys.stdin.readline()
    print(tables["page"][0].read_text())
with pinned({"page": [segments / "link"]}, beside=segments) as tables:
    print(tables["page"][0].parent != segments)
confinement.finish()
"""


def test_confined_export_keeps_the_segments_that_a_crawl_removes_meanwhile(scene: Path) -> None:
    folder = scene / "collection"
    (folder / "segments" / "link").symlink_to(scene / "outside" / "secret")
    words = [sys.executable, "-c", PINNING, str(folder)]
    before = sorted(path.name for path in folder.iterdir())
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as export:
        assert export.stdin
        assert export.stdout
        assert export.stdout.readline() == "True\n"
        (folder / "segments" / "s").unlink()
        out, _ = export.communicate("\n", timeout=30)
    assert out == "x\nFalse\n"
    assert sorted(path.name for path in folder.iterdir()) == before


WITHOUT_LANDLOCK = """
import sys
from pathlib import Path
from sterna.cli import confinement
from sterna.runtime.cell import kernel
kernel.landlock_abi = lambda: 0
confinement.is_own_process = True
confinement.keep_to(Path(sys.argv[1]))
"""


def test_command_says_in_one_line_that_the_kernel_cannot_confine_it(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WITHOUT_LANDLOCK, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)

    (line,) = done.stderr.splitlines()
    assert line == (
        f"not confined to {tmp_path}: the kernel has no Landlock, so it can open all files of its user;"
        " see `sterna doctor`"
    )


FOLLOWING_WITHOUT_LANDLOCK = """
import sys
from sterna import cli
from sterna.runtime.cell import kernel
kernel.landlock_abi = lambda: 0
sys.argv = ["sterna", "follow", "index", sys.argv[1]]
cli.run()
"""


def test_follower_reports_to_its_crawl_that_the_kernel_cannot_confine_it(
    collection: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(collection, tmp_path / "c"))
    words = [sys.executable, "-c", FOLLOWING_WITHOUT_LANDLOCK, str(folder)]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True
    )
    first, *_ = map(json.loads, done.stdout.splitlines())
    assert first["note"].startswith(f"not confined to {folder}: the kernel has no Landlock")


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
        ("query", "DIR", "OTHER", "SELECT collection, url FROM page"),
        ("search", "DIR", "OTHER", "leaf"),
    ],
    ids=lambda words: " ".join((words[0], *words[2:4])),
)
def test_commands_that_read_are_confined_before_they_read(
    collection: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    places = {"DIR": collection, "OTHER": tmp_path / "other", "OUT": tmp_path / "out"}
    given = [str(places.get(word, word)) for word in words]
    if "OTHER" in words:
        shutil.copytree(collection, places["OTHER"])
    watched = subprocess.run(
        [sys.executable, "-c", WATCHED, *given], capture_output=True, text=True, timeout=60, check=False
    )
    assert [line for line in watched.stderr.splitlines() if "thread" in line] == ["confined with 1 thread"]

    if "--out" in words:
        given[-1] += "-confined"
    done = sterna_process(*given)

    assert done.returncode == watched.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if "search index" not in line]


@pytest.mark.parametrize("place", ["link.csv", "taken.csv", "new.csv"])
def test_confined_command_publishes_where_it_is_told(collection: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "taken.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("elsewhere/rows.csv")
    words = ("query", str(collection), "SELECT 1 AS one", "--format", "csv", "--out", str(tmp_path / place))

    done = sterna_process(*words)

    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / place).read_text().split() == ["one", "1"]
    assert {path.name for path in tmp_path.iterdir()} == {"taken.csv", "link.csv", place}


def test_failed_confined_command_leaves_nothing_beside_its_output(collection: Path, tmp_path: Path) -> None:
    done = sterna_process("query", str(collection), "SELECT nothing", "--out", str(tmp_path / "rows.csv"))

    assert done.returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_confined_export_goes_into_an_empty_folder_and_replaces_only_one_of_markdown(
    collection: Path, tmp_path: Path
) -> None:
    words = ("export", str(collection), "--to", "markdown", "--out", str(tmp_path / "out"))
    (tmp_path / "out").mkdir()

    done, again = sterna_process(*words), sterna_process(*words)

    assert (done.returncode, done.stderr) == (0, "")
    assert again.returncode == 2
    assert "is not empty" in again.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["out"]

    anew = sterna_process(*words, "--force")
    assert (anew.returncode, anew.stderr, anew.stdout) == (0, "", done.stdout)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    other = sterna_process(*words, "--force")
    assert (other.returncode, "notes.txt is no Markdown of an earlier export" in other.stderr) == (2, True)


# -- the ledger, which a confined process can only read -----------------------------------------------------


KILLED = """
import os, sqlite3, sys
ledger = sqlite3.connect(sys.argv[1], isolation_level=None)
ledger.execute("PRAGMA wal_autocheckpoint = 0")
ledger.execute("UPDATE tally SET amount = amount + 1")
os._exit(0)
"""


@pytest.mark.parametrize("removed", ["", "-shm"], ids=["with its index", "without"])
@pytest.mark.parametrize("command", ["status", "query"])
def test_ledger_of_a_killed_crawl_is_read_with_its_log(
    collection: Path, tmp_path: Path, removed: str, command: str
) -> None:
    folder = Path(shutil.copytree(collection, tmp_path / "c"))
    subprocess.run([sys.executable, "-c", KILLED, str(folder / "ledger.sqlite")], check=True)
    if removed:
        (folder / f"ledger.sqlite{removed}").unlink()
    before = (folder / "ledger.sqlite").read_bytes(), (folder / "ledger.sqlite-wal").read_bytes()

    done = sterna_process(command, str(folder), *(["SELECT 1"] if command == "query" else []))

    assert (done.returncode, done.stderr) == (0, "")
    assert before == ((folder / "ledger.sqlite").read_bytes(), (folder / "ledger.sqlite-wal").read_bytes())


@pytest.mark.parametrize("words", [("status",), ("query", "SELECT 1"), ("search", "leaf"), ("index",)])
def test_reading_changes_nothing_but_the_index(
    collection: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    folder = Path(shutil.copytree(collection, tmp_path / "c"))

    def files() -> dict[Path, tuple[int, int]]:
        return {
            path: (path.stat().st_mtime_ns, path.stat().st_size)
            for path in folder.rglob("*")
            if path.is_file() and "index" not in path.relative_to(folder).parts
        }

    before = files()
    assert sterna_process(words[0], str(folder), *words[1:]).returncode == 0
    assert files() == before


def test_temporary_files_of_commands_do_not_pile_up(
    collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for _ in range(3):
        assert sterna_process("query", str(collection), "SELECT 1").returncode == 0
    (ours,) = tmp_path.iterdir()
    (last,) = ours.iterdir()  # which it cannot remove itself
    assert ours.stat().st_mode & 0o077 == 0
    assert list(last.iterdir()) == []
