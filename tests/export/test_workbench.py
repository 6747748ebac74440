"""Whole or not at all: nothing is overwritten unasked, and a killed export leaves nothing that looks done."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sterna.errors import StorageError, UsageError
from sterna.export.workbench import bench, check_file, check_folder, is_stream, pinned, publish

KILLED = """
import os, signal, sys
from pathlib import Path
from sterna.export.workbench import bench, publish
place, moment = Path(sys.argv[1]), sys.argv[2]
with bench(place) as folder:
    made = folder / "made"
    made.write_bytes(b"x" * 100_000)
    if moment == "published":
        publish(made, place)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def kill(place: Path, moment: str) -> None:
    died = subprocess.run([sys.executable, "-c", KILLED, str(place), moment], check=False)
    assert died.returncode == -signal.SIGKILL


def test_killed_before_the_end_there_is_no_file_and_the_next_one_clears_up(tmp_path: Path) -> None:
    place = tmp_path / "out.jsonl"
    kill(place, "made")
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".out.jsonl.")
    with bench(place) as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert list(tmp_path.iterdir()) == []


def test_killed_after_the_rename_the_file_is_whole(tmp_path: Path) -> None:
    kill(tmp_path / "out.jsonl", "published")
    assert (tmp_path / "out.jsonl").read_bytes() == b"x" * 100_000


def test_bench_of_an_export_under_way_is_left_alone(tmp_path: Path) -> None:
    with bench(tmp_path / "out") as first, bench(tmp_path / "out") as second:
        assert first != second
        assert first.is_dir()
    with bench(tmp_path / "out"), bench(tmp_path / "out.other"):
        assert len(list(tmp_path.iterdir())) == 2


def test_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyError), bench(tmp_path / "out") as folder:
        (folder / "made").write_text("half")
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_file_is_overwritten_by_force_only(tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.write_text("mine")
    with pytest.raises(UsageError, match=r"out exists: .* --force"):
        check_file(place, force=False)
    check_file(place, force=True)
    with bench(place) as folder:
        (folder / "made").write_text("new")
        with pytest.raises(UsageError):
            publish(folder / "made", place)
        publish(folder / "made", place, force=True)
    assert place.read_text() == "new"


def test_folder_that_holds_something_is_never_replaced(tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.mkdir()
    check_folder(place)
    with bench(place) as folder:
        (folder / "made").mkdir()
        (folder / "made" / "a").write_text("new")
        publish(folder / "made", place)
        assert [path.name for path in place.iterdir()] == ["a"]
        (folder / "made").mkdir()
        with pytest.raises(UsageError, match="is not empty"):
            publish(folder / "made", place)
    with pytest.raises(UsageError, match="is a folder: name a file"):
        check_file(place, force=True)
    with pytest.raises(UsageError, match="is a file: name a folder"):
        check_folder(place / "a")
    with pytest.raises(UsageError, match="does not exist"):
        check_file(tmp_path / "not" / "there", force=False)


def test_refusing_disk_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageError, match=f"cannot store in '{tmp_path / 'gone'}'"),
        bench(tmp_path / "gone" / "x"),
    ):
        pass


def test_pipes_and_devices_are_streams(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("")
    streams = [Path("-"), tmp_path / "pipe", Path("/dev/null"), tmp_path / "file", tmp_path, tmp_path / "new"]
    assert [is_stream(path) for path in streams] == [True, True, True, False, False, False]


def test_pinned_files_outlive_their_removal(tmp_path: Path) -> None:
    (tmp_path / "segments").mkdir()
    path = tmp_path / "segments" / "a.page.parquet"
    path.write_text("rows")
    with pinned({"page": [path]}, beside=tmp_path / "segments") as tables:
        path.unlink()
        assert tables["page"][0].read_text() == "rows"
    assert [entry.name for entry in tmp_path.iterdir()] == ["segments"]


def test_files_that_cannot_be_pinned_are_taken_as_they_are(tmp_path: Path) -> None:
    tables = {"page": [tmp_path / "not there"]}
    with pinned(tables, beside=tmp_path / "segments") as same:
        assert same == tables
    assert list(tmp_path.iterdir()) == []


def test_socket_is_not_replaced_by_a_file_even_by_force(tmp_path: Path) -> None:
    made, place = tmp_path / "made", tmp_path / "socket"
    made.write_text("rows")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(place))
        with pytest.raises(UsageError, match="is a device or a socket"):
            publish(made, place, force=True)
        assert place.is_socket()


def test_open_file_that_a_path_stands_for_is_a_stream(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        (tmp_path / "descriptor").symlink_to(f"/proc/self/fd/{file.fileno()}")
        (tmp_path / "link").symlink_to("descriptor")
        (tmp_path / "other").symlink_to("file")
        names = ("descriptor", "link", "other", "file")
        assert [is_stream(tmp_path / name) for name in names] == [True, True, False, False]


def test_link_with_the_name_of_a_bench_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").touch()
    (tmp_path / ".out.0.part").symlink_to(mine)
    with bench(tmp_path / "out"):
        pass
    assert (mine / "file").exists()
