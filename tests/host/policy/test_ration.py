"""A day's ration: counted over processes and restarts, and safe where the disk or the clock is not."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from sterna.errors import StorageError
from sterna.host.config import DayCaps
from sterna.host.policy.ration import FOLDER, Left, Ration
from sterna.model import Usage

DAY = "2026-11-16"
CAPS = DayCaps(visits=3, pages=100, cpu_seconds=5.0, read_bytes=1000)


def test_what_is_used_is_missing_from_what_is_left(tmp_path: Path) -> None:
    ration = Ration(tmp_path)
    assert ration.left("ada", CAPS, DAY) == Left(visits=3, pages=100, cpu_seconds=5.0, read_bytes=1000)
    ration.spend("ada", DAY, Usage(), visits=1)
    ration.spend("ada", DAY, Usage(pages=30, cpu_seconds=1.5, bytes_received=400, sent_bytes=9))
    left = ration.left("ada", CAPS, DAY)
    assert left == Left(visits=2, pages=70, cpu_seconds=3.5, read_bytes=600)
    assert (left.sent_bytes, left.missing) == (math.inf, "")
    assert ration.left("bob", CAPS, DAY).pages == 100


def test_more_than_all_is_nothing_left(tmp_path: Path) -> None:
    ration = Ration(tmp_path)
    ration.spend("ada", DAY, Usage(pages=500))
    left = ration.left("ada", CAPS, DAY)
    assert (left.pages, left.missing) == (0, "pages")


def test_ration_survives_a_restart_and_begins_anew_the_next_day(tmp_path: Path) -> None:
    Ration(tmp_path).spend("ada", DAY, Usage(pages=60))
    assert Ration(tmp_path).left("ada", CAPS, DAY).pages == 40
    assert Ration(tmp_path).left("ada", CAPS, "2026-11-17").pages == 100
    Ration(tmp_path).spend("bob", "2026-11-17", Usage(pages=1))
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == [".lock", "bob"]


def test_clock_that_is_set_back_does_not_give_a_day_twice(tmp_path: Path) -> None:
    ration = Ration(tmp_path)
    ration.spend("ada", "2026-11-17", Usage(pages=90))
    assert ration.left("ada", CAPS, DAY).pages == 10
    ration.spend("ada", DAY, Usage(pages=5))
    assert ration.left("ada", CAPS, "2026-11-17").pages == 5


def test_clock_that_was_years_ahead_does_not_starve_a_home(tmp_path: Path) -> None:
    ration = Ration(tmp_path)
    ration.spend("ada", "2031-01-01", Usage(pages=100))
    assert ration.left("ada", CAPS, DAY).pages == 100


def test_processes_count_together(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path\n"
        "from sterna.host.policy.ration import Ration\n"
        "from sterna.model import Usage\n"
        f"ration = Ration(Path({str(tmp_path)!r}))\n"
        f"for _ in range(100): ration.spend('ada', {DAY!r}, Usage(pages=1))\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert Ration(tmp_path).left("ada", DayCaps(pages=1000), DAY).pages == 700


def test_what_cannot_be_read_is_not_taken_for_a_whole_day(tmp_path: Path) -> None:
    Ration(tmp_path).spend("ada", DAY, Usage(pages=60))
    (tmp_path / FOLDER / "ada").write_bytes(b"\xff{")
    with pytest.raises(StorageError, match="nobody knows what is left"):
        Ration(tmp_path).left("ada", CAPS, DAY)


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file where a folder should be")
    with pytest.raises(StorageError, match="cannot be written"):
        Ration(tmp_path).spend("ada", DAY, Usage(pages=60))
