"""SQLite files read where nothing can be created: beside a writer, after it, and while one comes or ends."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sterna.runtime.cell import kernel, seccomp
from sterna.runtime.cell.confined import Confined
from sterna.web.sqlite import connect, keep_log, make_log_readable

pytestmark = pytest.mark.skipif(
    kernel.landlock_abi() < 6 or bool(seccomp.why_not()), reason="this kernel confines nothing"
)

WORKS = """
import os
from pathlib import Path
from sterna.web.sqlite import connect

opened = []

def open_it(request):
    opened.append(connect(Path(os.fsdecode(request)), is_reader=True))
    yield b"opened"

def count(request):
    yield b"%d" % opened[-1].execute("SELECT count(*) FROM t").fetchone()

def close_it(request):
    try:
        opened.pop().close()
    except Exception as error:
        yield str(error).encode()
    else:
        yield b"closed"
"""
KILLED = """
import os, sqlite3, sys
writer = sqlite3.connect(sys.argv[1], isolation_level=None)
writer.execute("INSERT INTO t VALUES (1)")
os._exit(0)
"""


class Reader:
    """A confined process that can only read the folder of the file."""

    def __init__(self, confined: Confined, path: Path) -> None:
        self._confined, self._path = confined, path

    def _said(self, work: str) -> str:
        return self._confined.call(f"sqlite_works:{work}", bytes(self._path)).decode()

    def open(self) -> None:
        assert self._said("open_it") == "opened"

    def count(self) -> int:
        return int(self._said("count"))

    def close(self) -> str:
        return self._said("close_it")

    def once(self) -> int:
        self.open()
        found = self.count()
        assert self.close() == "closed"
        return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file at rest, with one row."""
    (tmp_path / "c").mkdir()
    path = tmp_path / "c" / "file.sqlite"
    with closing(writer_of(path)) as writer:
        writer.execute("CREATE TABLE t (a)")
        add_row(writer)
    return path


@pytest.fixture
def reader(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    (tmp_path / "sqlite_works.py").write_text(WORKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    # Python's files are readable there, and these works lie beside the folder.
    with closing(Confined(path.parent)) as confined:
        yield Reader(confined, path)


def writer_of(path: Path) -> sqlite3.Connection:
    writer = connect(path, is_reader=False)
    keep_log(writer)
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    return writer


def add_row(writer: sqlite3.Connection) -> None:
    writer.execute("INSERT INTO t VALUES (1)")


def files(path: Path) -> set[str]:
    return {each.name.removeprefix(path.name) for each in path.parent.iterdir()}


def test_file_at_rest_is_read_and_nothing_is_made(reader: Reader, path: Path) -> None:
    assert files(path) == {""}
    assert reader.once() == 1
    assert files(path) == {""}


def test_reader_beside_a_writer_sees_each_commit_also_after_the_log_was_emptied(
    reader: Reader, path: Path
) -> None:
    with closing(writer_of(path)) as writer:
        add_row(writer)
        reader.open()
        assert reader.count() == 2
        add_row(writer)
        assert reader.count() == 3
        assert writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        assert reader.count() == 3
        add_row(writer)
        assert reader.count() == 4


def test_writer_that_ends_leaves_the_log_to_its_reader(reader: Reader, path: Path) -> None:
    with closing(writer_of(path)) as writer:
        add_row(writer)
        reader.open()
    assert reader.count() == 2
    assert reader.close() == "closed"
    assert reader.once() == 2
    writer_of(path).close()
    assert files(path) == {""}
    assert reader.once() == 2


def test_writer_that_comes_after_a_reader_at_rest_is_noticed_once_it_changes_the_file(
    reader: Reader, path: Path
) -> None:
    reader.open()
    assert reader.count() == 1
    with closing(writer_of(path)) as writer:
        add_row(writer)
        assert reader.count() == 1  # the file as it was, without the log
        assert reader.close() == "closed"
        reader.open()
        assert reader.count() == 2
        assert reader.close() == "closed"
    reader.open()
    with closing(writer_of(path)) as writer:
        add_row(writer)
    assert "another process wrote it meanwhile" in reader.close()


def test_reader_waits_for_a_writer_that_is_removing_the_log(reader: Reader, path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    log.write_bytes(b"what was copied into the file")  # its index is gone already
    remover = threading.Timer(0.3, log.unlink)
    remover.start()
    assert reader.once() == 1
    remover.join()


@pytest.mark.parametrize("has_index", [True, False])
def test_log_of_a_killed_writer_is_read(reader: Reader, path: Path, has_index: bool) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=True)
    if not has_index:
        path.with_name(f"{path.name}-shm").unlink()
        make_log_readable(path)
    assert files(path) == {"", "-wal", "-shm"}
    assert reader.once() == 2
    with closing(writer_of(path)) as writer:
        assert writer.execute("SELECT count(*) FROM t").fetchone() == (2,)


def test_index_is_made_for_a_log_alone_and_never_through_a_link(path: Path, tmp_path: Path) -> None:
    make_log_readable(path)
    assert files(path) == {""}
    path.with_name(f"{path.name}-wal").write_bytes(b"x")
    path.with_name(f"{path.name}-shm").symlink_to(tmp_path / "elsewhere")
    make_log_readable(path)
    assert not (tmp_path / "elsewhere").exists()
