"""`sterna export` as a person and a script meet it: words, exit codes, streams, a bar on a terminal."""

import json
import os
import pty
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import chdir
from functools import partial
from pathlib import Path

import pytest
from tests.crawl.running import crawl_here, sterna
from tests.export.exported import EXPORT
from tests.forking import Forked
from tests.servers.pages import PageServer, linking

from sterna.cli.app import main

pytestmark = pytest.mark.servers

A = "127.0.5.9"


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small collection without WARC files."""
    pages = {f"/{n}": f"<title>Page {n}</title><p>tern number {n}" for n in range(1, 20)}
    folder = tmp_path_factory.mktemp("command") / "birds"
    with PageServer({A: {"/": linking(*pages, title="Start"), **pages}}).run_in_thread() as server:
        crawl_here(folder, server.url(A), index=False)
    return folder


def export(*words: str | Path, cwd: Path = Path()) -> subprocess.CompletedProcess[str]:
    """Runs the command in this process."""
    with chdir(cwd):
        return sterna("export", *words)


def one_line(result: subprocess.CompletedProcess[str], code: int) -> str:
    """What it says where it fails, which must be one line."""
    assert (result.returncode, result.stdout) == (code, ""), result.stderr
    (line,) = result.stderr.splitlines()
    return line


Here = Callable[..., str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Runs the command in this process, and gives the one line that it says where it fails."""

    def run(*words: str | Path, code: int) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["sterna", "export", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert (ended.value.code, said.out) == (code, "")
        (line,) = said.err.splitlines()
        return line

    return run


def test_file_lies_here_under_the_collections_name(collection: Path, tmp_path: Path) -> None:
    result = export(collection, "--to", "jsonl", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("20 rows -> birds.jsonl (")
    assert [path.name for path in tmp_path.iterdir()] == ["birds.jsonl"]
    again = export(collection, "--to", "jsonl", cwd=tmp_path)
    assert one_line(again, 2).startswith("sterna: birds.jsonl exists")
    forced = export(collection, "--to", "jsonl", "--force", "--quiet", cwd=tmp_path)
    assert (forced.returncode, forced.stdout, forced.stderr) == (0, "", "")


def test_rows_go_to_standard_output_if_asked(collection: Path, tmp_path: Path) -> None:
    where = "title = 'Page 7'"
    result = export(collection, "--to", "jsonl", "--out", "-", "--where", where, cwd=tmp_path)
    (row,) = [json.loads(line) for line in result.stdout.splitlines()]
    assert (result.returncode, row["title"], result.stderr) == (0, "Page 7", "1 row\n")
    assert list(tmp_path.iterdir()) == []


def test_reader_who_goes_away_is_one_line(collection: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    process = subprocess.Popen(
        [*EXPORT, str(collection), "--to", "csv", "--out", "-"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (3, "sterna: the reader of the output is gone: stopped\n")


def test_full_disk_is_one_line_and_leaves_nothing(real_collection: Path, tmp_path: Path) -> None:
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (100_000, 100_000))
    command = [*EXPORT, str(real_collection), "--to", "csv", "--out", str(tmp_path / "out.csv")]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, preexec_fn=limit
    )
    assert "the file exceeds the size limit" in one_line(result, 6)
    assert list(tmp_path.iterdir()) == []
    full = export(real_collection, "--to", "csv", "--out", "/dev/full")
    assert "the disk is full: free some space" in one_line(full, 6)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--to", "csv", "--table", "birds"], 2, "--table birds: "),
        (["--to", "csv", "--where", "titel = 'x'"], 2, "--where: "),
        (["--to", "warc"], 2, "has no WARC files"),
        (["--to", "wacz", "--out", "x.zip"], 2, "must end with .wacz"),
        (["--to", "markdown", "--out", "-"], 2, "not a pipe"),
        (["--to", "sitemap", "--table", "link"], 2, "--table goes with --to jsonl, csv, parquet"),
        (["--to", "jsonl", "--safe-cells"], 2, "--safe-cells goes with --to csv, not with --to jsonl"),
    ],
)
def test_invalid_options_are_one_line(
    collection: Path, tmp_path: Path, here: Here, words: Sequence[str], code: int, said: str
) -> None:
    assert said in here(collection, *words, code=code)
    assert list(tmp_path.iterdir()) == []


def test_folder_that_is_no_collection_or_is_empty_is_one_line(tmp_path: Path, here: Here) -> None:
    assert "is not a collection" in here(tmp_path, "--to", "csv", code=5)
    crawl_here(tmp_path / "c", "http://127.0.0.1:9/", index=False)
    assert "holds no pages yet" in here(tmp_path / "c", "--to", "csv", code=5)


def test_terminal_shows_a_bar_and_the_report(collection: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [*EXPORT, str(collection), "--to", "markdown", "--out", str(tmp_path / "md")]
    process = Forked(
        command, stdout=subprocess.PIPE, stderr=theirs, text=True, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    shown = b""
    while piece := _read(ours):
        shown += piece
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"pages" in shown
    assert b"100%" in shown
    assert out.startswith("20 pages -> ")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # how a terminal ends
        return b""


def test_ctrl_c_leaves_nothing(real_collection: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    command = [*EXPORT, str(real_collection), "--to", "jsonl", "--out", str(tmp_path / "pipe")]
    process = Forked(command, stderr=subprocess.PIPE, text=True)
    # This returns when the export has opened the pipe, which holds less than there is to write.
    reader = os.open(tmp_path / "pipe", os.O_RDONLY)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    os.close(reader)
    assert (process.returncode, errors) == (3, "sterna: stopped, nothing was written\n")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
