"""A day's ration: counted across processes and restarts, and safe where the disk or the clock is not."""

import math
from pathlib import Path

import pytest

from sterna.errors import StorageError
from sterna.host.policy.policy import DayCaps
from sterna.host.state import NAME, Left, Rations, open_state
from sterna.model import Usage

DAY = "2026-11-16"
CAPS = DayCaps(visits=3, pages=100, cpu_seconds=5.0, read_bytes=1000)


def rations(folder: Path) -> Rations:
    return Rations(open_state(folder))


def test_what_is_used_is_missing_from_what_is_left(tmp_path: Path) -> None:
    ration = rations(tmp_path)
    assert ration.left("ada", CAPS, DAY) == Left(visits=3, pages=100, cpu_seconds=5.0, read_bytes=1000)
    ration.spend("ada", DAY, Usage(), visits=1)
    ration.spend("ada", DAY, Usage(pages=30, cpu_seconds=1.5, bytes_received=400, sent_bytes=9))
    left = ration.left("ada", CAPS, DAY)
    assert left == Left(visits=2, pages=70, cpu_seconds=3.5, read_bytes=600)
    assert (left.sent_bytes, left.missing) == (math.inf, "")
    assert ration.left("bob", CAPS, DAY).pages == 100


def test_more_than_all_is_nothing_left(tmp_path: Path) -> None:
    ration = rations(tmp_path)
    ration.spend("ada", DAY, Usage(pages=500))
    left = ration.left("ada", CAPS, DAY)
    assert (left.pages, left.missing) == (0, "pages")


def test_ration_survives_a_restart_and_begins_anew_the_next_day(tmp_path: Path) -> None:
    rations(tmp_path).spend("ada", DAY, Usage(pages=60))
    assert rations(tmp_path).left("ada", CAPS, DAY).pages == 40
    assert rations(tmp_path).left("ada", CAPS, "2026-11-17").pages == 100
    state = open_state(tmp_path)
    Rations(state).spend("bob", "2026-11-17", Usage(pages=1))
    with state.snapshot() as db:
        assert db.execute("SELECT home FROM ration").fetchall() == [("bob",)]


def test_clock_that_is_set_back_does_not_give_a_day_twice(tmp_path: Path) -> None:
    ration = rations(tmp_path)
    ration.spend("ada", "2026-11-17", Usage(pages=90))
    assert ration.left("ada", CAPS, DAY).pages == 10
    ration.spend("ada", DAY, Usage(pages=5))
    assert ration.left("ada", CAPS, "2026-11-17").pages == 5


def test_clock_that_was_years_ahead_does_not_starve_a_home(tmp_path: Path) -> None:
    ration = rations(tmp_path)
    ration.spend("ada", "2031-01-01", Usage(pages=100))
    assert ration.left("ada", CAPS, DAY).pages == 100


def test_what_cannot_be_read_is_not_taken_for_a_whole_day(tmp_path: Path) -> None:
    ration = rations(tmp_path)
    ration.spend("ada", DAY, Usage(pages=60))
    ration._database.close()
    data = bytearray((tmp_path / NAME).read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(StorageError, match=f"{NAME} failed"):
        rations(tmp_path).left("ada", CAPS, DAY)
