"""The process that publishes moves what is on its bench, to the names of the output, and nothing else."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sterna.errors import StorageError, UsageError
from sterna.export.publisher import Publisher, output_paths
from sterna.export.workbench import _move, bench


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    (tmp_path / "id").write_text("secret")
    with closing(Publisher(tmp_path / "rows.csv", bench, _move, paths_of=output_paths)) as opened:
        (opened.bench / "made").write_text("rows")
        (opened.bench / "link").symlink_to(tmp_path / "id")
        yield opened


@pytest.mark.parametrize(
    ("made", "name"),
    [
        ("made", "id"),
        ("made", "rows-x.csv"),
        ("made", ".rows.csv"),
        ("link", "rows.csv"),
        ("missing", "rows.csv"),
        ("..", "rows.csv"),
    ],
)
def test_other_moves_are_refused(publisher: Publisher, tmp_path: Path, made: str, name: str) -> None:
    with pytest.raises(StorageError, match="the command asked for another file"):
        publisher.move(publisher.bench / made, tmp_path / name, True)

    assert {path.name for path in tmp_path.iterdir()} == {"id", publisher.bench.name}
    assert (tmp_path / "id").read_text() == "secret"


def test_refusal_of_the_other_process_is_raised_here(publisher: Publisher, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("mine")

    with pytest.raises(UsageError, match=r"rows\.csv exists"):
        publisher.move(publisher.bench / "made", tmp_path / "rows.csv", False)

    publisher.move(publisher.bench / "made", tmp_path / "rows.csv", True)
    assert (tmp_path / "rows.csv").read_text() == "rows"


def test_bench_is_gone_when_it_is_closed(tmp_path: Path) -> None:
    with closing(Publisher(tmp_path / "rows.csv", bench, _move, paths_of=output_paths)) as opened:
        (opened.bench / "made").write_text("rows")

    assert list(tmp_path.iterdir()) == []


def test_place_without_room_for_a_bench_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot store in"):
        Publisher(tmp_path / "missing" / "rows.csv", bench, _move, paths_of=output_paths)


def test_killed_process_is_named(publisher: Publisher, tmp_path: Path) -> None:
    os.kill(publisher._process, signal.SIGKILL)

    with pytest.raises(StorageError, match="was killed; run the same command again"):
        publisher.move(publisher.bench / "made", tmp_path / "rows.csv", True)
